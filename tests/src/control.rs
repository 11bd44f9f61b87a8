//! Commands to the server under test through its control socket.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::binary::strowger;
use crate::server::Server;
use crate::wait;

/// Runs `strowger` with these words, for this server.
///
/// # Panics
/// The program does not run.
pub fn run(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(strowger());
    command.args(words).arg("--config").arg(server.config()).output().expect("the program runs")
}

/// Returns the output of a successful command.
///
/// # Panics
/// The command fails.
#[track_caller]
pub fn done(server: &Server, words: &[&str]) -> String {
    let output = run(server, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

/// Returns the output of a successful command as JSON.
///
/// # Panics
/// See [`done`].
#[track_caller]
pub fn json(server: &Server, words: &[&str]) -> Value {
    serde_json::from_str(&done(server, &[words, &["--json"]].concat())).expect("it is JSON")
}

/// Waits until the server has no call.
///
/// # Panics
/// The server still has a call after this time. See also [`done`].
#[track_caller]
pub fn wait_for_no_calls(server: &Server, limit: Duration) {
    let is_empty = wait::until(limit, || json(server, &["calls", "list"]) == serde_json::json!([]));
    assert!(is_empty, "{}", server.log());
}

/// Returns a metric of `strowger status`.
///
/// # Panics
/// There is no metric with this name.
#[track_caller]
pub fn metric(server: &Server, name: &str) -> f64 {
    json(server, &["status"])["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}"))
}
