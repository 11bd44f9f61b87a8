//! Counts of a program: the last lines of its statistics and of the counts of its steps, without time-dependent
//! columns.

use std::path::Path;

/// Columns with times, or values that depend on them: SIPp begins a pause a little later than we do, and a message may
/// come before it.
const TIMES: [&str; 9] =
    ["Time", "Elapsed", "CallRate", "CallLength", "ResponseTime", "StDev", "Watchdog", "_<", "Pause_Sessions"];

/// Returns `name=value` of every total, in the order of the files. A missing file adds nothing.
pub fn of(folder: &Path) -> Vec<String> {
    let mut files: Vec<_> = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with("counts.csv") || path.ends_with(STATISTICS));
    files.sort_by_key(|path| !path.ends_with(STATISTICS));
    files.iter().flat_map(|path| totals(&std::fs::read_to_string(path).unwrap_or_default())).collect()
}

/// Name of the file of statistics (`-stf`).
pub const STATISTICS: &str = "statistics.csv";

fn totals(text: &str) -> Vec<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (Some(header), Some(last)) = (lines.next(), lines.next_back()) else { return Vec::new() };
    let columns = header.split(';').zip(last.split(';'));
    columns
        .filter(|(name, _)| !name.is_empty() && !name.ends_with("(P)") && !TIMES.iter().any(|time| name.contains(time)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn totals_are_those_of_the_last_line() {
        let text = "StartTime;Calls(P);Calls(C);Repartition_<5;Open;\nx;1;1;0;2;\ny;2;3;0;1;\n";
        assert_eq!(super::totals(text), ["Calls(C)=3", "Open=1"]);
        assert!(super::totals("A;\n").is_empty());
    }
}
