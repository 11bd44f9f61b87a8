//! Ladders of failed calls: an arrow with time, address and start line for each message. The page also has the whole
//! messages.

use super::rfc3339;
use std::fmt::Write;
use strowger_measure::{FailedCall, KeptMessage, Run, Unit};
use strowger_report::escape;

/// Returns the failed calls of a run in the order of their ends.
pub(super) fn failed_calls(run: &Run) -> Vec<&FailedCall> {
    let mut calls: Vec<&FailedCall> = run.everyone().flat_map(|generator| &generator.failed_calls).collect();
    calls.sort_by_key(|call| call.ended);
    calls
}

/// Returns a one-line summary of a call.
fn summary(call: &FailedCall) -> String {
    let length = Unit::Microseconds.show(call.ended.saturating_sub(call.began) as f64);
    format!("{} after {length}, {} by {}, from {}", call.cause, call.own, call.transport, rfc3339(call.began))
}

fn arrow(message: &KeptMessage) -> &'static str {
    if message.sent { "──▶" } else { "◀──" }
}

/// Returns the time of a message since the start of the call.
fn time(call: &FailedCall, message: &KeptMessage) -> String {
    Unit::Microseconds.show(message.at.saturating_sub(call.began) as f64)
}

/// Returns a remark on omitted messages of a long call.
fn gap(call: &FailedCall, place: usize) -> Option<String> {
    (call.omitted > 0 && place == call.omitted_after).then(|| format!("{} messages were not kept", call.omitted))
}

/// Returns summary and ladder of each call for a terminal of `width` columns.
pub(super) fn lines(run: &Run, width: usize) -> Vec<(String, Vec<String>)> {
    let ladder = |call: &FailedCall| {
        let peers = call.messages.iter().map(|message| message.peer.chars().count()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for (place, message) in call.messages.iter().enumerate() {
            lines.extend(gap(call, place).map(|text| format!("    ({text})")));
            let note = message.note.as_ref().map_or_else(String::new, |note| format!("   ({note})"));
            let head = format!("{:>12}  {} {:peers$}  ", time(call, message), arrow(message), message.peer);
            let room = width.saturating_sub(head.chars().count() + note.chars().count()).max(20);
            let line = message.start_line();
            let cut: String = match line.chars().count() > room {
                true => line.chars().take(room - 1).chain(['…']).collect(),
                false => line.into(),
            };
            lines.push(format!("{head}{cut}{note}"));
        }
        (format!("{}: {}", call.call_id, summary(call)), lines)
    };
    failed_calls(run).into_iter().map(ladder).collect()
}

/// Returns the ladders of the page, whose arrows open to the whole messages.
pub(super) fn html(run: &Run) -> String {
    let calls = failed_calls(run);
    let mut out = String::new();
    if calls.is_empty() {
        return out;
    }
    out.push_str("<h2>Failed calls</h2>\n");
    for call in calls {
        let _ = write!(
            out,
            "<section class=\"ladder\"><h3>{}</h3><p class=\"about\">{}</p>",
            escape(&call.call_id),
            escape(&summary(call))
        );
        for (place, message) in call.messages.iter().enumerate() {
            if let Some(text) = gap(call, place) {
                let _ = write!(out, "<p class=\"about\">{}</p>", escape(&text));
            }
            let note = message.note.as_ref().map_or_else(String::new, |note| format!(" <em>{}</em>", escape(note)));
            let _ = write!(
                out,
                "<details class=\"{}\"><summary><span>{}</span> {} <span>{}</span> {}{note}</summary><pre>{}</pre></details>",
                if message.sent { "sent" } else { "came" },
                time(call, message),
                arrow(message),
                escape(&message.peer),
                escape(message.start_line()),
                escape(message.text.trim_end())
            );
        }
        out.push_str("</section>\n");
    }
    out
}
