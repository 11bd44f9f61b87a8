//! Output of a command: text on the two outputs, and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use strowger_config::Report;
use strowger_report::printable;

use crate::logging;

/// Result of a command, and exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// 0: done.
    Done,
    /// 1: refused or failed; the reason was printed.
    Failed,
    /// 2: the command line cannot be used; the reason was printed.
    Usage,
    /// 3: no server was reached; the socket was printed.
    Unreached,
}

/// Exit codes of `strowger load` and `strowger lab`.
pub(crate) mod code {
    pub(crate) const WELL: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const MISSED: u8 = 3;
    pub(crate) const INVALID: u8 = 4;
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Reason why a command of these codes did nothing: the exit code and a sentence.
#[derive(Debug)]
pub(crate) struct Refusal(pub u8, pub String);

/// Makes the refusal of a command line, or of a file that it names.
pub(crate) fn usage(text: impl Into<String>) -> Refusal {
    Refusal(code::USAGE, text.into())
}

/// Returns the exit code of a command, and prints the sentence of a refusal on standard error.
pub(crate) fn exit_code(result: Result<ExitCode, Refusal>) -> ExitCode {
    result.unwrap_or_else(|Refusal(code, text)| {
        complain(&printable(&text));
        ExitCode::from(code)
    })
}

/// Converts the result of a command into the exit code of the process, and prints an error on standard error.
pub(crate) fn exit(result: anyhow::Result<CommandOutcome>) -> ExitCode {
    let code = code(result);
    logging::flush();
    code
}

fn code(result: anyhow::Result<CommandOutcome>) -> ExitCode {
    match result {
        Ok(CommandOutcome::Done) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Failed) => ExitCode::from(1),
        Ok(CommandOutcome::Usage) => ExitCode::from(2),
        Ok(CommandOutcome::Unreached) => ExitCode::from(3),
        // The reader that closed the output (`| head`) has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<logging::WrongFilter>() => {
            complain(&error.to_string());
            ExitCode::from(2)
        }
        Err(error) => {
            let error = format!("{error:#}");
            if !logging::failed(&error) {
                complain(&error);
            }
            ExitCode::from(1)
        }
    }
}

/// Returns whether the reader of the output has closed it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints to standard output, all of it or an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints an error for people on standard error, in colour on a terminal.
pub(crate) fn complain(message: &str) {
    let word = console::style("error:").for_stderr().red().bold();
    say(&format!("{word} {message}"));
}

/// Prints a line on standard error. If the reader has closed it (`2>&1 | head`), the command continues.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a report on standard error, in colour on a terminal.
pub(crate) fn report(report: &Report) {
    report_text(&report.to_string());
}

/// Prints a report whose text came from elsewhere.
pub(crate) fn report_text(text: &str) {
    let error = console::style("error:").for_stderr().red().bold().to_string();
    let warning = console::style("warning:").for_stderr().yellow().bold().to_string();
    for line in text.lines() {
        // Only the first line of a fault starts with the file; the lines below it are indented.
        let line = if line.starts_with(' ') {
            line.to_owned()
        } else {
            line.replacen(": error:", &format!(": {error}"), 1).replacen(": warning:", &format!(": {warning}"), 1)
        };
        say(&line);
    }
}
