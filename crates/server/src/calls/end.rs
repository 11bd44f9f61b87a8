//! Requests of the server within dialogs. Calls that have lasted too long, whose session timer has run out or that an
//! operator ends get a BYE on both sides (RFC 3261 section 15).
//!
//! Such a request takes the way of a request of that party's peer: through the stages, along the route set of the
//! dialog. [`Ending`] waits for the responses.

use super::dialog::{Dialog, Party};
use super::ending::Ending;
use super::{Call, HASHED, moment};
use crate::accounting::Ender;
use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::{Handling, Progress};
use smallvec::SmallVec;
use strowger_core::routing::Request;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, call};
use strowger_message::{Index, Message, Uri};

/// Maximum number of calls that end in one turn; the others end in the next.
const AT_ONCE: usize = 64;

impl Engine {
    /// Handles the calls whose deadline has passed.
    pub(crate) fn end_calls(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..AT_ONCE {
            let Some(key) = self.calls.due(now.mono) else { return };
            self.look_at_call(now, key, out);
        }
    }

    fn look_at_call(&mut self, now: Now, key: u64, out: &mut Outbox) {
        let times = self.calls.times;
        let lasts = |at: i64, time: u64| moment(now) < at.saturating_add_unsigned(time);
        let Some(call) = self.calls.get(key) else { return };
        if call.is_in_log() && !lasts(call.began, times.logged) {
            self.counters().calls_forgotten.one();
            self.calls.change(key, Call::forget_log);
        }
        if self.calls.get(key).is_some_and(|call| call.tracked) {
            self.end_dialogs(now, key, (Ender::Lifetime, moment(now), [false; 2]), out, |dialog| {
                dialog.answer.is_some_and(|answer| !lasts(answer.at, times.lifetime))
            });
        }
        self.end_sessions(now, key, out);
        self.doubt_unacknowledged(now, key);
        self.ask_parties(now, key, out);
        self.send_due_byes(now, key, out);
        self.calls.change(key, |call| call.challenged &= lasts(call.began, super::CHALLENGE));
        // Otherwise a due call would stay due.
        self.calls.set_deadline(key);
    }

    /// Ends sessions that no party has refreshed in time. The parties should send a BYE themselves (RFC 4028 section
    /// 10), but the call is no longer counted or recorded afterwards. So the server sends one to each of them.
    fn end_sessions(&mut self, now: Now, key: u64, out: &mut Outbox) {
        let is_over =
            |dialog: &Dialog| dialog.ending().is_none() && dialog.session_end().is_some_and(|at| at <= moment(now));
        let Some(call) = self.calls.get(key) else { return };
        let ended = call.dialogs.iter().filter(|dialog| is_over(dialog));
        // The session may have ended before this process began.
        let Some(at) = ended.filter_map(Dialog::session_end).max() else { return };
        self.end_dialogs(now, key, (Ender::SessionTimer, at, [false; 2]), out, is_over);
    }

    /// Starts the end of the answered dialogs of a call for which `is_meant` is true. `at`: moment of their end in the
    /// records. `lost`: parties that are known to have lost them.
    pub(super) fn end_dialogs(
        &mut self,
        now: Now,
        key: u64,
        (by, at, lost): (Ender, i64, [bool; 2]),
        out: &mut Outbox,
        is_meant: impl Fn(&Dialog) -> bool,
    ) {
        let Some(call) = self.calls.get(key) else { return };
        let is_meant = |dialog: &&Dialog| dialog.ending().is_none() && is_meant(dialog);
        let meant: SmallVec<[u16; 4]> = call.dialogs.iter().filter(is_meant).map(|dialog| dialog.salt).collect();
        for salt in meant {
            self.end_dialog(now, (key, salt), Ending::new(now, by, at, lost), out);
        }
    }

    /// Sends a request of the server as if a peer had sent it: the stages lead it to the next hop. Its response goes
    /// nowhere. `context`: context of the proxy's notices about it.
    pub(super) fn send_own(&mut self, now: Now, bytes: &[u8], context: u64, out: &mut Outbox) {
        let mut index = Index::new();
        if index.parse(bytes, &self.policy.limits).is_err() {
            return;
        }
        let message = Message::new(bytes, &index);
        let listener = message.routes().next().and_then(|route| match route.ok()?.uri {
            Uri::Sip(uri) => self.policy.router.listener_named(&uri),
            _ => None,
        });
        let listener = listener.unwrap_or(ListenerId(0));
        let transport = self.policy.router.identity().listener(listener).transport;
        let arrival = Arrival { transport, listener, remote: Target::NOWHERE.address, flow: None };
        let call_hash = call::hash(self.shared.call_secret, message.call_id().map_or(&b""[..], |id| id.text));
        let Ok(request) = Request::of(message, &arrival, call_hash) else { return };
        let Some(server) = self.stack.core.transactions.begin_own(now, &message, call_hash) else { return };
        let mut progress = Progress { context, ..Progress::new(now) };
        self.advance(&mut Handling { now, request: &request, server: Some(server), progress: &mut progress, out });
    }
}

impl Decider<'_> {
    /// Writes a BYE as this party would send it to this server. False: too little is known of its peer.
    pub(super) fn write_bye(&self, call: &Call, dialog: &Dialog, from: Party, number: u32, out: &mut Vec<u8>) -> bool {
        self.write_own(call, dialog, from, (b"BYE", number, ""), out)
    }

    /// Writes an OPTIONS to the party that is asked, as its peer would send it to this server. `at`: moment when it
    /// leaves, on the clock of [`Now::mono`]. The branch contains it.
    pub(super) fn write_question(
        &self,
        call: &Call,
        dialog: &Dialog,
        asked: Party,
        at: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        let from = asked.other();
        self.write_own(call, dialog, from, (b"OPTIONS", dialog.last_cseq(from), &format!("{MOMENT}{at}")), out)
    }

    /// Writes a request in the name of `from`. `branch`: end of its branch, which distinguishes requests of one CSeq.
    fn write_own(
        &self,
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
        let key = self.key_of_call(call.call_id(), dialog.tag());
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
}

/// Name of this server in the Via of its own requests, below that of the proxy. No other element has it (RFC 2606).
const OWN: &[u8] = b"server.invalid";

/// Letter before the moment at the end of the branch of a question. It is no hexadecimal digit.
const MOMENT: char = 'q';

/// Returns the moment when the question left that this response answers.
pub(super) fn moment_of_question(response: &Message<'_>) -> Option<u64> {
    let branch = std::str::from_utf8(response.via().ok()?.branch?).ok()?;
    branch.rsplit_once(MOMENT)?.1.parse().ok()
}
