//! Trial whose load a command of the system makes. Its last line of JSON has the figures by name: `{"rate.achieved": 4500}`.

use crate::generator::{Made, Trial};
use crate::process::Process;
use crate::row::Figures;
use crate::system::Measuring;
use crate::system::fill;
use crate::{Error, process};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime};
use strowger_measure::Observer;

/// Name of the process, of its log and of its samples.
const NAME: &str = "measure";

/// Time for a command to start and end, besides warm-up and window.
const AROUND: Duration = Duration::from_secs(60);

/// Runs the command to its end.
pub(super) fn trial(measuring: &Measuring, trial: &Trial<'_>, observer: &Observer) -> Result<Made, Error> {
    let values = [
        ("LOAD", trial.load.value.to_string()),
        ("WARM_UP", trial.warm_up.as_secs_f64().to_string()),
        ("WINDOW", trial.window.as_secs_f64().to_string()),
    ];
    let words = measuring.words.iter().map(|word| fill(word, &values)).collect::<Result<Vec<_>, _>>()?;
    let (program, others) = words.split_first().ok_or_else(|| wrong("it has no words"))?;
    let begin = SystemTime::now();
    let mut command =
        Process::start(NAME, trial.folder, Command::new(program).args(others).current_dir(&measuring.folder))?;
    observer.watch(NAME, command.id());
    let status = command.end(trial.warm_up + trial.window + AROUND)?;
    let end = SystemTime::now();
    if !status.success() {
        return Err(match process::is_ending() {
            true => Error::Interrupted,
            false => Error::Failed { name: NAME.into(), status, output: command.tail() },
        });
    }
    let figures = printed_figures(&command.log())?;
    Ok(Made { figures, reasons: Vec::new(), logs: Vec::new(), begin: (begin + trial.warm_up).min(end), end })
}

/// Reads the figures that a command has printed.
pub(crate) fn printed_figures(text: &str) -> Result<Figures, Error> {
    let line = text.lines().rev().map(str::trim).find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| wrong("it printed no line such as {\"rate.achieved\": 4500}"))?;
    let values: BTreeMap<String, f64> =
        serde_json::from_str(line).map_err(|error| wrong(&format!("its line of figures {line:?}: {error}")))?;
    let mut figures = Figures::default();
    for (name, value) in values {
        figures.set(&name, value).map_err(|error| wrong(&error.to_string()))?;
    }
    Ok(figures)
}

fn wrong(reason: &str) -> Error {
    Error::Unexpected { what: "the measuring command".into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_json_has_the_figures() {
        let text = "noise\n{\"failed\": 7}\n{\"rate.achieved\": 4500, \"failed\": 0}\nbye\n";
        let figures = printed_figures(text).expect("it has figures");
        assert_eq!((figures.value("rate.achieved"), figures.value("failed")), (Some(4_500.0), Some(0.0)));
        for (text, reason) in [
            ("nothing", "printed no line"),
            ("{\"rate.achieved\": \"many\"}", "line of figures"),
            ("{\"speed\": 1}", "there is no figure \"speed\""),
        ] {
            let error = printed_figures(text).expect_err("it is wrong").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
