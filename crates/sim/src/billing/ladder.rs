//! The messages of a call, one per line, for a failure.

use super::text::Received;

/// Returns the messages of the calls that this problem names, from the trace of its world.
pub(super) fn ladder(trace: &[String], problem: &str) -> String {
    let named = problem.split("call_id: \"").skip(1).filter_map(|rest| rest.split('"').next());
    let calls: Vec<&str> = named.collect();
    let line = |entry: &String| {
        let Some((head, message)) = entry.split_once('\n') else { return Some(entry.clone()) };
        let said = Received::read(message.as_bytes());
        let [from, to] = ["From", "To"].map(|name| said.tag(name).chars().take(16).collect::<String>());
        let own = if said.is_of_server() { ", of the server" } else { "" };
        let first = message.split(" SIP/2.0").next().unwrap_or_default().lines().next().unwrap_or_default();
        let is_meant = calls.contains(&said.call_id());
        is_meant.then(|| format!("{head}: {first}; CSeq {}; from {from} to {to}{own}", said.line("CSeq")))
    };
    trace.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}
