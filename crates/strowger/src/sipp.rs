//! `strowger sipp`, and the binary under the name `sipp`: the command line of SIPp.

use std::process::ExitCode;

/// Returns the arguments of SIPp, if the process was started by its name or with the subcommand.
pub(crate) fn words() -> Option<Vec<String>> {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    if std::path::Path::new(&program).file_name().is_some_and(|name| name == "sipp") {
        return Some(rest);
    }
    // Must precede clap's rules, because options of SIPp have one dash and many letters.
    (rest.first().is_some_and(|word| word == "sipp")).then(|| rest[1..].to_vec())
}

/// Runs SIPp's command line.
pub(crate) fn run(words: &[String]) -> ExitCode {
    ExitCode::from(strowger_load::sipp::run(words))
}
