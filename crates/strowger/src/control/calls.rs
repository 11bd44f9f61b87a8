//! `strowger calls`: the calls that the running server tracks.

use std::fmt::Write;

use serde_json::json;
use strowger_node::control::{Call, CallList, CallMedia, ControlOrder, Done, MediaPath, Reply};

use super::arguments::{CallArguments, CallsArguments, CallsCommand, ListCallsArguments};
use super::{List, PAGE, as_json, ask, duration, printable, reach, unexpected};
use crate::output::{self, CommandOutcome};

pub(crate) fn calls(arguments: &CallsArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        CallsCommand::List(arguments) => list(arguments),
        CallsCommand::Show(arguments) => show(arguments),
        CallsCommand::End(arguments) => end(arguments),
    }
}

fn list(arguments: &ListCallsArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| {
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let heading = format!("{:<16}  {:<36} {:<36} {:<9} {:>10}", "id", "caller", "callee", "state", "for");
        let mut list = List::new(arguments.server.json, "tracked calls", heading);
        let mut from = None;
        loop {
            let order = ControlOrder::Calls { party: arguments.party.clone(), from, most: PAGE.min(limit - list.rows) };
            let CallList { calls, next, tracked } = match ask(client, &order)? {
                Reply::Calls(page) => page,
                other => return unexpected(&other),
            };
            let left = limit - list.rows;
            list.print(&calls[..calls.len().min(left)], line)?;
            from = next;
            if from.is_none() || list.rows >= limit {
                if !tracked {
                    output::say("calls are not tracked: set dialogs.track = true, then strowger reload");
                }
                return list.end();
            }
        }
    })
}

fn line(call: &Call) -> String {
    let [caller, callee] = [&call.caller, &call.callee].map(|text| printable(text));
    let since = duration(call.answered_seconds.unwrap_or(call.seconds) as u64);
    format!("{:<16}  {caller:<36} {callee:<36} {:<9} {since:>10}", call.id, call.state)
}

fn show(arguments: &CallArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| match ask(client, &ControlOrder::Call { id: arguments.id.clone() })? {
        Reply::Call(call) if arguments.server.json => output::print(&as_json(&call)?),
        Reply::Call(call) => output::print(&table(&call)),
        other => unexpected(&other),
    })
}

fn table(call: &Call) -> String {
    let mut text = format!("call {}: {}\n", call.id, call.state);
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    row("caller", &printable(&call.caller));
    row("callee", &printable(&call.callee));
    row("Call-ID", &printable(&call.call_id));
    if !call.far_call_id.is_empty() {
        row("far leg", &printable(&call.far_call_id));
    }
    if let Some(file) = &call.recording {
        row("recorded", file);
    }
    row("begun", &format!("{} ago", duration(call.seconds as u64)));
    for dialog in &call.dialogs {
        let state = match dialog.answered_seconds {
            Some(seconds) => format!("answered {} ago", duration(seconds as u64)),
            None => "rings".to_owned(),
        };
        row("dialog", &format!("tag {}: {state} {}", printable(&dialog.tag), printable(&dialog.contact)));
    }
    for media in &call.media {
        row("media", &quality(media));
        if let Some(path) = &media.path {
            row("", &way(path));
        }
    }
    text
}

/// Describes the media that came from a party.
fn quality(media: &CallMedia) -> String {
    let CallMedia { party, packets, lost, reordered, doubled, .. } = media;
    if *packets == 0 {
        return format!("of the {party}: none came");
    }
    let mut text =
        format!("of the {party}: {packets} packets, {lost} lost, {reordered} reordered, {doubled} doubled, ");
    // Writing to a String cannot fail.
    let _ = write!(text, "jitter {:.1} ms (at most {:.1} ms)", media.jitter_ms, media.max_jitter_ms);
    let _ = write!(text, ", {:.1} ms between packets at most", media.max_delay_ms);
    if let (Some(rating), Some(mos)) = (media.rating, media.mos) {
        let _ = write!(text, ", R {rating:.1}, MOS {mos:.2}");
    }
    text
}

/// Describes the way of the packets of a party: why it is not heard, or does not hear.
fn way(path: &MediaPath) -> String {
    let MediaPath { expected, refused, refused_from, dropped, sent, silent_seconds } = path;
    let expected = expected.as_deref().unwrap_or("no address: it is on hold");
    let mut text = format!("expected from {expected}");
    // Writing to a String cannot fail.
    if let Some(seconds) = silent_seconds {
        let _ = write!(text, ", the last one {seconds:.1} s ago");
    }
    let _ = write!(text, "; {sent} packets sent to it");
    if let Some(from) = refused_from {
        let _ = write!(text, "; {refused} refused from other addresses, the last one from {from}");
    }
    let others = dropped.saturating_sub(*refused);
    if others > 0 {
        let _ = write!(text, "; {others} dropped for their format or rate");
    }
    text
}

fn end(arguments: &CallArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| match ask(client, &ControlOrder::EndCall { id: arguments.id.clone() })? {
        Reply::Done(Done::Ended { id }) if arguments.server.json => output::print(&as_json(&json!({"ended": id}))?),
        Reply::Done(Done::Ended { id }) => output::print(&format!("call {id} ends\n")),
        other => unexpected(&other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_that_is_not_heard_has_its_reason() {
        let silent = MediaPath {
            expected: Some("192.168.1.5:4000".to_owned()),
            refused: 42,
            refused_from: Some("203.0.113.3:61000".to_owned()),
            dropped: 45,
            sent: 950,
            silent_seconds: None,
        };
        assert_eq!(
            way(&silent),
            "expected from 192.168.1.5:4000; 950 packets sent to it; 42 refused from other addresses, the last one from \
             203.0.113.3:61000; 3 dropped for their format or rate"
        );
        let heard = MediaPath { refused: 0, refused_from: None, dropped: 0, silent_seconds: Some(0.02), ..silent };
        assert_eq!(way(&heard), "expected from 192.168.1.5:4000, the last one 0.0 s ago; 950 packets sent to it");
        let held = MediaPath { expected: None, sent: 0, ..heard };
        assert_eq!(way(&held), "expected from no address: it is on hold, the last one 0.0 s ago; 0 packets sent to it");
    }
}
