//! `strowger lab list`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use strowger_lab::experiment::{SHIPPED, plan};
use strowger_lab::row::Profile;

use super::{print, shipped};
use crate::output::Refusal;

/// List the shipped experiments, and how long each takes.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab list
  strowger lab list --json

Exit codes: 0 done, 2 the command line cannot be used.")]
pub(crate) struct ListArguments {
    /// One JSON array instead of a table.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(arguments: &ListArguments) -> Result<ExitCode, Refusal> {
    let mut listed = Vec::new();
    for (name, _) in SHIPPED {
        let (experiment, _) = shipped(name)?;
        let times = Profile::ALL.iter().map(|profile| plan(&experiment, *profile, &[]).time).collect::<Vec<_>>();
        let measured = experiment.systems.iter().filter(|system| !system.is_optional);
        let systems: Vec<String> = measured.map(|system| system.name.clone()).collect();
        listed.push((*name, experiment.title, systems, times));
    }
    if arguments.json {
        let entry = |(name, title, systems, times): &(&str, String, Vec<String>, Vec<Duration>)| {
            let seconds = Profile::ALL.iter().zip(times).map(|(profile, time)| (profile.word(), time.as_secs_f64()));
            let seconds: serde_json::Map<_, _> = seconds.map(|(word, time)| (word.to_owned(), time.into())).collect();
            serde_json::json!({ "name": name, "title": title, "systems": systems, "seconds": seconds })
        };
        let entries: Vec<_> = listed.iter().map(entry).collect();
        print(&format!("{}\n", serde_json::Value::from(entries)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = SHIPPED.iter().map(|(name, _)| name.len()).fold("experiment".len(), usize::max);
    let mut out = format!("{:<width$}", "experiment");
    Profile::ALL.iter().for_each(|profile| out.push_str(&format!(" {:>9}", profile.word())));
    out.push_str("  title\n");
    for (name, title, systems, times) in &listed {
        out.push_str(&format!("{name:<width$}"));
        times.iter().for_each(|time| out.push_str(&format!(" {:>9}", length(*time))));
        out.push_str(&format!("  {title}\n{:1$}  {2}\n", "", width + 10 * times.len(), systems.join(", ")));
    }
    out.push_str("\nThe times are of all systems that a line names; `--system` runs one of them.\n");
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats a duration in seconds, minutes or hours, in the unit that is read easily.
pub(super) fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..99.5 => format!("{seconds:.0} s"),
        ..5_970.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let of = |seconds| length(Duration::from_secs(seconds));
        assert_eq!([5, 99, 100, 3_600, 5_999, 25_200].map(of), ["5 s", "99 s", "2 min", "60 min", "1.7 h", "7.0 h"]);
    }
}
