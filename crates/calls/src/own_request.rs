//! Requests of the server within dialogs. Calls that have lasted too long, whose session timer has run out or that an
//! operator ends get a BYE on both sides (RFC 3261 section 15).
//!
//! Such a request is handled like a request of that party's peer: it passes the stages, and is routed by the route set
//! of the dialog. [`Ending`](crate::dialog_end::Ending) waits for the responses.

use crate::call::{Call, HASHED};
use crate::dialog::Dialog;
use crate::effect::{CallEffect, OwnRequest};
use crate::keys::CallSeed;
use crate::legs::Legs;
use strowger_core::notice::Party;
use strowger_message::Message;

/// Creates a BYE to this party, with the CSeq that its peer would use; returns `None` if too little is known of the
/// dialog.
pub(crate) fn own_bye(
    seed: CallSeed,
    call: &Call,
    dialog: &Dialog,
    (party, context): (Party, u64),
    number: u32,
) -> Option<CallEffect> {
    own_request(seed, call, dialog, (party, context, OwnRequest::Bye), (b"BYE", number, ""))
}

/// Creates an OPTIONS to this party; returns `None` if too little is known of the dialog. `at`: moment when the OPTIONS
/// is sent, on the clock of [`Now::mono`](strowger_core::Now::mono). The branch contains this moment.
pub(crate) fn own_question(
    seed: CallSeed,
    call: &Call,
    dialog: &Dialog,
    (party, context): (Party, u64),
    at: u64,
) -> Option<CallEffect> {
    let from = party.other();
    let branch = format!("{MOMENT}{at}");
    let question = (party, context, OwnRequest::Question);
    own_request(seed, call, dialog, question, (b"OPTIONS", dialog.last_cseq(from), &branch))
}

/// Creates a request to this party. For an anchored call the role that anchors the call writes the request itself.
fn own_request(
    seed: CallSeed,
    call: &Call,
    dialog: &Dialog,
    (party, context, kind): (Party, u64, OwnRequest),
    line: (&[u8], u32, &str),
) -> Option<CallEffect> {
    if call.legs == Legs::Anchored {
        return Some(CallEffect::SendOnLeg { call: call.key, context, party, kind });
    }
    let mut bytes = Vec::new();
    let is_written = write_own(seed, call, dialog, party.other(), line, &mut bytes);
    is_written.then_some(CallEffect::Send { context, kind, bytes })
}

/// Writes a request in the name of `from`. Returns false if too little is known of its peer. `branch`: last part of the
/// branch, which distinguishes requests of one CSeq.
fn write_own(
    seed: CallSeed,
    call: &Call,
    dialog: &Dialog,
    from: Party,
    (method, number, branch): (&[u8], u32, &str),
    out: &mut Vec<u8>,
) -> bool {
    let caller = (call.caller(), call.caller_tag());
    let callee = (call.callee(), dialog.tag());
    let (from_party, to_party, contact, routes) = match from {
        Party::Caller => (caller, callee, dialog.contact(), dialog.routes()),
        Party::Callee => (callee, caller, call.caller_contact(), call.caller_routes()),
    };
    let is_whole = |tag: &[u8]| !tag.is_empty() && tag[0] != HASHED;
    let is_known = !contact.is_empty() && !routes.is_empty() && !call.call_id().is_empty();
    if !is_known || !is_whole(from_party.1) || !is_whole(to_party.1) {
        return false;
    }
    let key = seed.key_of_call(call.call_id(), dialog.tag());
    let branch = format!("own{key:016x}{}{number}{branch}", from as u8);
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(b"\r\n");
    };
    line(&[method, b" ", contact, b" SIP/2.0"]);
    line(&[b"Via: SIP/2.0/TCP ", OWN, b";branch=z9hG4bK", branch.as_bytes()]);
    line(&[b"Route: ", routes]);
    line(&[b"Max-Forwards: 70"]);
    line(&[b"From: <", from_party.0, b">;tag=", from_party.1]);
    line(&[b"To: <", to_party.0, b">;tag=", to_party.1]);
    line(&[b"Call-ID: ", call.call_id()]);
    line(&[b"CSeq: ", number.to_string().as_bytes(), b" ", method]);
    line(&[b"Content-Length: 0"]);
    line(&[]);
    true
}

/// Host name in the bottom Via of own requests. No other element uses the name (RFC 2606).
const OWN: &[u8] = b"server.invalid";

/// Letter before the moment at the end of the branch of a question. The letter is no hexadecimal digit.
const MOMENT: char = 'q';

/// Returns the moment when the question was sent that this response answers.
pub(crate) fn moment_of_question(response: &Message<'_>) -> Option<u64> {
    let branch = std::str::from_utf8(response.via().ok()?.branch?).ok()?;
    branch.rsplit_once(MOMENT)?.1.parse().ok()
}
