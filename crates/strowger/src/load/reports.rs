//! Results of a run: the table, the files, the exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use console::Term;
use strowger_load::campaign::{CUT, HALTED, INTERRUPTED, QUIT};
use strowger_load::printable;
use strowger_load::report::Report;
use strowger_measure::{Counter, Generator, GeneratorRole, Level, Requirement, Run};

use super::arguments::Reports;
use crate::output::{self, code};

/// Reads the requirements of an option.
///
/// # Errors
/// The first fault, with its cure.
pub(super) fn requirements(option: &str, texts: &[String], timers: &[String]) -> Result<Vec<Requirement>, String> {
    let read = |text: &String| Requirement::parse(text, timers).map_err(|error| format!("{option}: {error}"));
    texts.iter().map(read).collect()
}

/// Checks requirements and report files before the run, not after it. `abort_on`: requirements that end the run;
/// `read`: files that must stay unchanged.
///
/// # Errors
/// A sentence.
pub(super) fn check_early(
    words: &Reports,
    abort_on: &[String],
    log: Option<&PathBuf>,
    read: &[PathBuf],
) -> Result<(), String> {
    for (option, texts) in [("--require", &words.require[..]), ("--abort-on", abort_on)] {
        // Timers are known only when the document is read.
        let of_timers = |text: &String| text.trim_start().to_ascii_lowercase().starts_with("timer.");
        let texts: Vec<String> = texts.iter().filter(|text| !of_timers(text)).cloned().collect();
        requirements(option, &texts, &[])?;
    }
    let all: Vec<&PathBuf> = [&words.json, &words.csv, &words.html].into_iter().flatten().chain(log).collect();
    for (place, path) in all.iter().enumerate() {
        let cannot = |why: &str| format!("{} cannot be written: {why}", path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(cannot("there is no such folder"));
        }
        if path.is_dir() {
            return Err(cannot("it is a folder; name a file in it"));
        }
        // A target that can take two reports (a device, a terminal) is not a file in which one would be lost.
        let lasts = path.is_file() || !path.exists();
        if lasts && **path != Path::new("-") {
            if all[..place].contains(path) {
                return Err(cannot("two reports are to go into it"));
            }
            if read.iter().any(|file| is_same(file, path)) {
                return Err(cannot("it is one of the logs that are read"));
            }
            writable(path).map_err(|error| cannot(&error.to_string()))?;
        }
    }
    if log.is_some_and(|log| log == Path::new("-")) {
        return Err("--log takes a file: what is written to it is read again".into());
    }
    if words.to_standard_output().count() > 1 {
        return Err("standard output takes one report: give - to one of --json, --csv and --html".into());
    }
    Ok(())
}

/// Returns whether both paths name the same existing file.
fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Tests whether this file can be written, without a change of its contents or of its existence.
fn writable(path: &Path) -> std::io::Result<()> {
    let is_new = path.symlink_metadata().is_err();
    std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// Prints the table, writes the files, and returns the exit code.
pub(super) fn write(run: &Run, requirements: &[Requirement], words: &Reports, advice: &[String]) -> ExitCode {
    let report = Report::new(run, requirements, &words.bounds.thresholds());
    let taken = words.to_standard_output().next().is_some();
    let mut failed = false;
    if words.quiet {
        for judgement in report.judgements().iter().filter(|judgement| !judgement.met) {
            output::say(&format!("✗ {}   {}", judgement.requirement, judgement.shown));
        }
        report.reasons().iter().for_each(|reason| output::say(&format!("INVALID: {}", printable(reason))));
        let notes = run.everyone().flat_map(|generator| &generator.notes);
        notes.filter(|note| note.level == Level::Error).for_each(|note| output::complain(&printable(&note.text)));
    } else if taken {
        let table = report.table_within(console::colors_enabled_stderr(), columns(&Term::stderr()));
        output::say(table.trim_end());
    } else {
        failed |= put(&report.table_within(console::colors_enabled(), columns(&Term::stdout())));
    }
    if !advice.is_empty() {
        if !words.quiet {
            output::say("");
        }
        for sentence in advice {
            let sentence = printable(sentence);
            output::say(&format!("{} {sentence}", console::style("hint:").for_stderr().yellow().bold()));
        }
    }
    for (path, text) in [
        (&words.json, &(|| report.json()) as &dyn Fn() -> String),
        (&words.csv, &|| report.csv()),
        (&words.html, &|| report.html()),
    ] {
        let Some(path) = path else { continue };
        if path == Path::new("-") {
            failed |= put(&text());
        } else if let Err(error) = std::fs::write(path, text()) {
            failed = true;
            // Half a report is useless, but looks like a whole one.
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                let _ = std::fs::remove_file(path);
            }
            output::complain(&format!("{} cannot be written: {error}; the run itself is not affected", path.display()));
        }
    }
    ExitCode::from(exit_code(&report, failed))
}

/// Returns the number of columns of a terminal; unbounded for a file or pipe.
fn columns(terminal: &Term) -> usize {
    terminal.size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns))
}

fn put(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => false,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => false,
        Err(error) => {
            output::complain(&format!("standard output cannot be written: {error}"));
            true
        }
    }
}

/// Returns the exit code. INVALID takes precedence over a missed requirement, because its figures do not judge the
/// server; a missed requirement takes precedence over failed calls.
fn exit_code(report: &Report<'_>, unwritten: bool) -> u8 {
    let run = report.run();
    let begun: u64 = [Counter::CallsOutgoing, Counter::CallsIncoming].iter().map(|of| run.totals.counter(*of)).sum();
    let ended = |generator: &Generator| generator.ending.as_ref().map_or("", |ending| &ending.reason).to_owned();
    let cut = run.everyone().map(ended).any(|reason| reason == CUT || reason == HALTED);
    // A generator that only answers has no schedule that Ctrl-C could cut short.
    let callers = run.generators.iter().filter(|generator| generator.heading.role == GeneratorRole::Caller);
    if !report.valid() {
        code::INVALID
    } else if !report.met() {
        code::MISSED
    } else if unwritten || cut || report.failed() || begun == 0 {
        code::FAILED
    } else if callers.map(ended).any(|reason| reason == INTERRUPTED || reason == QUIT) {
        code::INTERRUPTED
    } else {
        code::WELL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use strowger_measure::Thresholds;

    #[test]
    fn looking_whether_a_file_can_be_written_changes_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "figures").expect("it is written");
        assert!(writable(&old).is_ok() && writable(&new).is_ok());
        assert_eq!((std::fs::read_to_string(&old).expect("it is there"), new.exists()), ("figures".into(), false));
        assert!(writable(&folder.path().join("none/new")).is_err());
    }

    #[test]
    fn each_threshold_has_an_option_of_the_command_line() {
        let thresholds = serde_json::to_value(Thresholds::default()).expect("numbers are JSON");
        let command = Cli::command();
        let load = command.find_subcommand("load").expect("there is one");
        for name in thresholds.as_object().expect("it has members").keys() {
            let option = strowger_load::report::option(name).unwrap_or_else(|| panic!("{name} has no option"));
            let known = load.get_arguments().filter_map(clap::Arg::get_long).any(|long| option == format!("--{long}"));
            assert!(known, "{name}: there is no {option}");
        }
    }
}
