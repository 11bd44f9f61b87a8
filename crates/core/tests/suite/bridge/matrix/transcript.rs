//! Messages of each leg, as stated for a cell and as sent. A line is `> METHOD` or `> STATUS METHOD` for a message of the party, `<` for one of
//! the bridge; `[0 8 sendrecv]` is a description by its codecs and direction.

use strowger_core::b2bua::bridge::Side;

use super::super::rig::*;
use super::table::{Action, Cell, FIRST, LATER, Outcome};

/// Messages of the legs, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript {
    /// Leg of the party that acts.
    pub(super) own: Vec<String>,
    /// Leg of the other party.
    pub(super) other: Vec<String>,
    /// Leg of a new party.
    pub(super) new: Vec<String>,
}

/// Returns a description as lines have it.
fn shown(codecs: &str, direction: &str) -> String {
    format!(" [{codecs} {direction}]")
}

/// Returns the direction of an answer by a party that wants everything (RFC 3264 section 6.1).
pub(super) fn mirrored(direction: &str) -> &'static str {
    match direction {
        "sendonly" => "recvonly",
        "recvonly" => "sendonly",
        "inactive" => "inactive",
        _ => "sendrecv",
    }
}

/// Returns the answer of a phone: the first codec.
fn answered(codecs: &str, direction: &str) -> String {
    shown(codecs.split(' ').next().unwrap_or_default(), mirrored(direction))
}

/// Returns an exchange of an INVITE: `from` is the mark of its sender, `to` that of the receiver.
fn invite((from, to): (char, char), request: &str, response: &str, ack: &str) -> Vec<String> {
    vec![format!("{from} INVITE{request}"), format!("{to} 200 INVITE{response}"), format!("{from} ACK{ack}")]
}

/// Returns an exchange of another request.
fn request((from, to): (char, char), method: &str, status: u16, offer: &str, answer: &str) -> Vec<String> {
    vec![format!("{from} {method}{offer}"), format!("{to} {status} {method}{answer}")]
}

const PARTY: (char, char) = ('>', '<');
const BRIDGE_TO_PARTY: (char, char) = ('<', '>');

/// Returns the stated messages of both legs until the call is up, those of the near leg first.
pub(super) fn set_up(cell: &Cell) -> (Vec<String>, Vec<String>) {
    let (first, accepted) = (shown(FIRST, "sendrecv"), shown("0", "sendrecv"));
    let (offer, description, late_answer) =
        if cell.is_late { (String::new(), first, accepted) } else { (first, accepted, String::new()) };
    let leg = |marks: (char, char), is_reliable: bool| {
        let (from, to) = marks;
        let (status, early) = if cell.has_early_description() { (183, &description[..]) } else { (180, "") };
        // Without 100rel the 200 has the answer once more (RFC 3261 section 13.2.1), with it none (RFC 3262 section 5).
        let (last, ack) = if is_reliable { ("", "") } else { (&description[..], &late_answer[..]) };
        let mut lines = vec![format!("{from} INVITE{offer}"), format!("{to} {status} INVITE{early}")];
        if is_reliable {
            lines.extend(request(marks, "PRACK", 200, &late_answer, ""));
        }
        lines.extend([format!("{to} 200 INVITE{last}"), format!("{from} ACK{ack}")]);
        lines
    };
    (leg(PARTY, cell.is_near_reliable()), leg(BRIDGE_TO_PARTY, cell.is_far_reliable()))
}

/// Returns the stated messages of a cell after the call is up, and after the hold for [`Action::Resume`].
pub(super) fn stated(cell: &Cell) -> Transcript {
    let (codecs, direction) = cell.offer();
    let passed = cell.passed_direction();
    let (written, offered, answer) = (shown(codecs, direction), shown(codecs, passed), answered(codecs, passed));
    let (later, late_answer) = (shown(LATER, "sendrecv"), answered(LATER, "sendrecv"));
    let mut stated = Transcript::default();
    match cell.outcome() {
        Outcome::Offered(method) => {
            stated.own = match cell.action {
                Action::Update => request(PARTY, "UPDATE", 200, &written, &answer),
                _ => invite(PARTY, &written, &answer, ""),
            };
            stated.other = match method {
                "UPDATE" => request(BRIDGE_TO_PARTY, "UPDATE", 200, &offered, &answer),
                _ => invite(BRIDGE_TO_PARTY, &offered, &answer, ""),
            };
        }
        Outcome::Asked => {
            stated.own = invite(PARTY, "", &later, &late_answer);
            stated.other = invite(BRIDGE_TO_PARTY, "", &later, &late_answer);
        }
        Outcome::AnsweredHere => stated.own = invite(PARTY, &written, &shown("0", direction), ""),
        Outcome::Refreshed { is_ours, method } => {
            let marks = if is_ours { BRIDGE_TO_PARTY } else { PARTY };
            // The description of the bridge in force: its offer or its answer (RFC 4028 section 7.4).
            let is_offer = (cell.who == Side::Far) != cell.is_late;
            let description = shown(if is_offer { FIRST } else { "0" }, "sendrecv");
            stated.own = match method {
                "UPDATE" => request(marks, "UPDATE", 200, "", ""),
                _ => invite(marks, &description, &shown("0", "sendrecv"), ""),
            };
        }
        Outcome::NotRefreshed | Outcome::Silent => (),
        Outcome::Carried(method, status) => {
            stated.own = request(PARTY, method, status, "", "");
            stated.other = request(BRIDGE_TO_PARTY, method, status, "", "");
            if method == "REFER" {
                stated.own.extend(request(BRIDGE_TO_PARTY, "NOTIFY", 200, "", ""));
                stated.other.extend(request(PARTY, "NOTIFY", 200, "", ""));
            }
        }
        Outcome::Replaced => {
            let (offer, response, ack) =
                if cell.is_late { ("", &later, &late_answer[..]) } else { (&later[..], &late_answer, "") };
            stated.own = request(BRIDGE_TO_PARTY, "BYE", 200, "", "");
            stated.other = invite(BRIDGE_TO_PARTY, offer, response, ack);
            stated.new = invite(PARTY, offer, response, ack);
        }
        Outcome::Released => {
            stated.own = request(PARTY, "BYE", 200, "", "");
            stated.other = request(BRIDGE_TO_PARTY, "BYE", 200, "", "");
        }
    }
    stated
}

/// Returns the codecs and the direction of the stream of audio in a message, and its port; `None` for a message without description.
pub(super) fn described(message: &str) -> Option<(&str, &str, u16)> {
    let line = message.lines().find_map(|line| line.strip_prefix("m=audio "))?;
    let mut parts = line.splitn(3, ' ');
    let (port, codecs) = (parts.next()?.parse().ok()?, parts.nth(1)?);
    let directions = ["sendrecv", "sendonly", "recvonly", "inactive"];
    let direction = message.lines().find_map(|line| {
        let name = line.strip_prefix("a=")?;
        directions.contains(&name).then_some(name)
    });
    Some((codecs, direction.unwrap_or("sendrecv"), port))
}

/// Returns the sent messages of the leg of a party, from a place of the log on.
pub(super) fn sent(b2b: &Bridged, party: usize, from: usize) -> Vec<String> {
    let (of_party, of_bridge) = (format!("{party}>{BRIDGE} "), format!("{BRIDGE}>{party} "));
    let messages = b2b.net.log.iter().zip(&b2b.net.sent).skip(from);
    messages
        .filter_map(|(line, message)| {
            let (mark, rest) = match line.strip_prefix(&of_party) {
                Some(rest) => ('>', rest),
                None => ('<', line.strip_prefix(&of_bridge)?),
            };
            let description = described(message).map(|(codecs, direction, _)| shown(codecs, direction));
            Some(format!("{mark} {rest}{}", description.unwrap_or_default()))
        })
        .collect()
}
