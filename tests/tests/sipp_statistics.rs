//! `-trace_stat` of a run shared by SIPp and `strowger sipp`: the same header, and the same counts at the end.

use std::collections::BTreeMap;
use std::path::Path;

use strowger_tests::binary;
use strowger_tests::duel::case::Case;
use strowger_tests::duel::{Ports, play};
use strowger_tests::program::{self, SIPP};

/// A statistics file: its header as it is, and the values of its rows by column.
struct Statistics {
    header: String,
    rows: Vec<BTreeMap<String, String>>,
}

/// Plays a case of `scenarios/statistics` with a program; returns its statistics file.
fn statistics(case: &Case, program: &[&Path], ports: Ports) -> Statistics {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut case = case.clone();
    case.arguments.extend(["-trace_stat", "-stf", "statistics.csv"].map(String::from));
    play(&case, program, ports, folder.path());
    let text = std::fs::read_to_string(folder.path().join("statistics.csv")).unwrap_or_default();
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default().to_owned();
    // A name may occur twice, so the key includes the position.
    let names: Vec<String> = header.split(';').enumerate().map(|(at, name)| format!("{at:03} {name}")).collect();
    let row = |line: &str| names.iter().cloned().zip(line.split(';').map(String::from)).collect();
    Statistics { header, rows: lines.map(row).collect() }
}

/// Returns the columns with times: their form is compared, not their digits.
fn is_time(name: &str) -> bool {
    let name = &name[4..];
    ["StartTime", "LastResetTime", "CurrentTime", "ElapsedTime", "CallRate", "CallLength(", "CallLengthStDev"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.starts_with("ResponseTime") && !name.starts_with("ResponseTimeRepartition")
}

/// The row in which a short time is counted depends on the machine: with the bounds of the built-in scenarios only the
/// sum of a table is compared.
fn sums(row: &mut BTreeMap<String, String>) {
    let mut sums = BTreeMap::new();
    row.retain(|name, value| {
        let Some((table, _)) = name[4..].split_once("_<").or_else(|| name[4..].split_once("_>=")) else { return true };
        *sums.entry(format!("sum {table}")).or_insert(0) += value.parse::<u64>().unwrap_or(0);
        false
    });
    row.extend(sums.into_iter().map(|(name, sum)| (name, sum.to_string())));
}

fn shape(value: &str) -> String {
    value.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Lists the differences between the two files.
fn differences(theirs: &Statistics, ours: &Statistics) -> Vec<String> {
    let mut all = Vec::new();
    if theirs.header != ours.header {
        all.push(format!("header\n{}\n{}", theirs.header, ours.header));
    }
    let (Some(last), Some(our_last)) = (theirs.rows.last(), ours.rows.last()) else {
        all.push(format!("rows: {} and {}", theirs.rows.len(), ours.rows.len()));
        return all;
    };
    for (name, value) in last {
        let own = our_last.get(name).cloned().unwrap_or_else(|| "nothing".into());
        let equal = match is_time(name) {
            // With a single call SIPp writes no number.
            true if name.contains("StDev") => shape("00:00:00:000000") == shape(&own),
            // The number of digits of a rate is free.
            true if name.contains("CallRate") => value.parse::<f64>().is_ok() == own.parse::<f64>().is_ok(),
            true => shape(value) == shape(&own),
            // Values of the last period depend on its start.
            false if name.ends_with("(P)") => own.parse::<u64>().is_ok() == value.parse::<u64>().is_ok(),
            false => *value == own,
        };
        if !equal {
            all.push(format!("{name}: SIPp {value:?}, strowger {own:?}"));
        }
    }
    // Both programs write the first row at the start of the run.
    if let (Some(a), Some(b)) = (theirs.rows.first(), ours.rows.first()) {
        let counts = |row: &BTreeMap<String, String>| -> Vec<String> {
            row.iter().filter(|(name, _)| !is_time(name)).map(|(name, value)| format!("{name}={value}")).collect()
        };
        if counts(a) != counts(b) {
            let differ: Vec<_> = counts(a).into_iter().zip(counts(b)).filter(|(a, b)| a != b).collect();
            all.push(format!("first row: {differ:?}"));
        }
    }
    all
}

#[test]
fn statistics_are_those_of_sipp() {
    let _turn = strowger_tests::alone();
    if !program::have(&[SIPP]) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/statistics");
    let mut paths: Vec<_> =
        folder.read_dir().expect("the cases are there").map(|e| e.expect("a file").path()).collect();
    paths.sort();
    let sipp = SIPP.path().expect("it is there");
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = paths
            .iter()
            .map(|path| {
                let sipp = &sipp;
                scope.spawn(move || {
                    let case = Case::read(path);
                    let ports = Ports::free();
                    let mut theirs = statistics(&case, &[sipp], ports);
                    let mut ours = statistics(&case, &[binary::strowger(), Path::new("sipp")], ports);
                    if case.document.is_none() {
                        theirs.rows.iter_mut().chain(&mut ours.rows).for_each(sums);
                    }
                    let found = differences(&theirs, &ours);
                    (!found.is_empty()).then(|| format!("\n=== {}\n{}", case.name, found.join("\n")))
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a case ends")).collect()
    });
    assert!(wrong.is_empty(), "{} of {} cases differ\n{}", wrong.len(), paths.len(), wrong.concat());
}
