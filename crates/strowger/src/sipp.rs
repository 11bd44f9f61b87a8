//! `strowger sipp`, and the binary under the name `sipp`: SIPp's command line.

use std::process::ExitCode;

/// The words behind the program's name if this process is to be SIPp: called by its name, or by the subcommand.
pub(crate) fn words() -> Option<Vec<String>> {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    if std::path::Path::new(&program).file_name().is_some_and(|name| name == "sipp") {
        return Some(rest);
    }
    // Before the other commands' rules of options: SIPp's have one dash and many letters.
    (rest.first().is_some_and(|word| word == "sipp")).then(|| rest[1..].to_vec())
}

/// Runs it.
pub(crate) fn run(words: &[String]) -> ExitCode {
    ExitCode::from(strowger_load::sipp::run(words))
}
