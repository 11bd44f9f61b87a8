//! Commands that reach the server under test by its control socket.

use std::process::{Command, Output};

use serde_json::Value;

use crate::binary::strowger;
use crate::server::Server;

/// `strowger` with these words, for this server.
///
/// # Panics
/// The program does not run.
pub fn run(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(strowger());
    command.args(words).arg("--config").arg(server.config()).output().expect("the program runs")
}

/// What a command prints that is done.
///
/// # Panics
/// It is not.
#[track_caller]
pub fn done(server: &Server, words: &[&str]) -> String {
    let output = run(server, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

/// The same as JSON.
///
/// # Panics
/// As [`done`].
#[track_caller]
pub fn json(server: &Server, words: &[&str]) -> Value {
    serde_json::from_str(&done(server, &[words, &["--json"]].concat())).expect("it is JSON")
}

/// A metric of `strowger status`.
///
/// # Panics
/// There is none of this name.
#[track_caller]
pub fn metric(server: &Server, name: &str) -> f64 {
    json(server, &["status"])["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}"))
}
