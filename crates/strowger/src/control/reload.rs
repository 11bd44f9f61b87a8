//! Output of `strowger reload`.

use std::fmt::Write;

use strowger_node::control::{Change, Reload, Wrong};

use crate::output;

/// Prints the changes in force, and those that need a restart.
pub(super) fn print(reload: &Reload) -> anyhow::Result<()> {
    let (restart, in_force): (Vec<&Change>, Vec<&Change>) =
        reload.changes.iter().partition(|change| change.needs_restart);
    let mut text = format!("reloaded {}", reload.file);
    text.push_str(if in_force.is_empty() { ": no key has another value\n" } else { "\n" });
    let width = reload.changes.iter().map(|change| change.key.len()).max().unwrap_or(0);
    for Change { key, from, to, .. } in &in_force {
        let _ = writeln!(text, "  {key:<width$}  {from} -> {to}");
    }
    if !restart.is_empty() {
        text.push_str("needs a restart:\n");
        for Change { key, from, to, .. } in &restart {
            let _ = writeln!(text, "  {key:<width$}  {to} in the file, {from} in force");
        }
    }
    for warning in &reload.warnings {
        let place = warning.line.map_or_else(String::new, |line| format!(":{line}"));
        output::say(&format!("{}{place}: warning: {}; {}", warning.file, warning.message, warning.cure));
    }
    output::print(&text)
}

/// Prints the faults of the configuration, as `strowger check` does.
pub(super) fn refused(wrong: &Wrong) -> anyhow::Result<()> {
    output::report_text(&wrong.text);
    output::complain("the server refuses this configuration and keeps its own");
    Ok(())
}
