//! Calls that have lasted too long, and those that an operator ends: both parties of each dialog get a BYE (RFC 3261 section 15).
//!
//! A BYE of ours goes the way of one that the peer of that party had sent: through the stages, by the route set of the dialog. No other
//! request of ours is sent within a dialog.

use super::dialog::{Dialog, Party};
use super::{Call, HASHED, moment};
use crate::accounting::Ender;
use crate::call_log::log_ended;
use crate::engine::{Effect, Engine};
use crate::handling::{Handling, Progress};
use strowger_core::routing::Request;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, call};
use strowger_message::{Index, Message, Uri};

/// Calls that end in one turn, at most: the others in the next.
const AT_ONCE: usize = 64;

impl Engine {
    /// Looks at calls whose time has come.
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
            self.end_dialogs(now, key, Ender::Lifetime, out, |dialog| {
                dialog.answer.is_some_and(|answer| !lasts(answer.at, times.lifetime))
            });
        }
        self.end_sessions(now, key);
        self.calls.change(key, |call| call.challenged &= lasts(call.began, super::CHALLENGE));
        // What is due stays due otherwise.
        self.calls.set_deadline(key);
    }

    /// Sessions that no party has refreshed in time have ended: the parties know that themselves, and a proxy sends no BYE for it (RFC 4028
    /// section 8.3).
    fn end_sessions(&mut self, now: Now, key: u64) {
        let is_over = |dialog: &Dialog| dialog.session_end().is_some_and(|at| at <= moment(now));
        let Some(call) = self.calls.get(key) else { return };
        for dialog in call.dialogs.iter().filter(|dialog| is_over(dialog) && dialog.logged) {
            log_ended(now, call, Ender::SessionTimer.text(), dialog.answer, call.call_id());
        }
        let ended = call.dialogs.iter().filter(|dialog| is_over(dialog));
        let Some(at) = ended.filter_map(Dialog::session_end).max() else { return };
        if let Some(account) = self.calls.account(key) {
            // It may have been before this process began.
            let row = account.dialog_ended(at, Ender::SessionTimer);
            self.effects.extend(row.map(Effect::Account));
        }
        self.calls.change(key, |call| call.dialogs.retain(|dialog| !is_over(dialog)));
        self.calls.has_changed(key);
    }

    /// Ends the dialogs of a call that are meant.
    pub(super) fn end_dialogs(
        &mut self,
        now: Now,
        key: u64,
        by: Ender,
        out: &mut Outbox,
        is_meant: impl Fn(&Dialog) -> bool,
    ) {
        let Some(call) = self.calls.get(key) else { return };
        let (mut requests, mut text) = (Vec::new(), Vec::new());
        for dialog in call.dialogs.iter().filter(|dialog| is_meant(dialog)) {
            if dialog.logged {
                log_ended(now, call, by.text(), dialog.answer, call.call_id());
            }
            for from in [Party::Caller, Party::Callee].into_iter().filter(|party| dialog.ending != Some(*party)) {
                text.clear();
                if self.write_bye(call, dialog, from, &mut text) {
                    requests.push(text.clone());
                }
            }
        }
        if call.dialogs.iter().any(&is_meant)
            && let Some(account) = self.calls.account(key)
        {
            let row = account.dialog_ended(moment(now), by);
            self.effects.extend(row.map(Effect::Account));
        }
        // Before they pass: nothing hangs on what becomes of them.
        self.calls.change(key, |call| call.dialogs.retain(|dialog| !is_meant(dialog)));
        self.calls.has_changed(key);
        for request in requests {
            self.counters().byes.one();
            self.send_own(now, &request, out);
        }
    }

    /// Writes a BYE as this party would send it here. False: too little is known of its peer.
    fn write_bye(&self, call: &Call, dialog: &Dialog, from: Party, out: &mut Vec<u8>) -> bool {
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
        let number = dialog.next_cseq(from);
        let branch = self.branch_of_bye(call, dialog, from, number);
        let mut line = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| out.extend_from_slice(part));
            out.extend_from_slice(b"\r\n");
        };
        line(&[b"BYE ", contact, b" SIP/2.0"]);
        line(&[b"Via: SIP/2.0/TCP ", OWN, b";branch=z9hG4bK", branch.as_bytes()]);
        line(&[b"Route: ", routes]);
        line(&[b"Max-Forwards: 70"]);
        line(&[b"From: <", from_party.0, b">;tag=", from_party.1]);
        line(&[b"To: <", to_party.0, b">;tag=", to_party.1]);
        line(&[b"Call-ID: ", call.call_id()]);
        line(&[b"CSeq: ", number.to_string().as_bytes(), b" BYE"]);
        line(&[b"Content-Length: 0"]);
        line(&[]);
        true
    }

    fn branch_of_bye(&self, call: &Call, dialog: &Dialog, from: Party, number: u32) -> String {
        let key = self.key_of_call(call.call_id(), dialog.tag());
        format!("own{key:016x}{}{number}", from as u8)
    }

    /// Sends a request of ours as if a peer had sent it: it goes to the next hop by the stages. What answers it goes nowhere.
    fn send_own(&mut self, now: Now, bytes: &[u8], out: &mut Outbox) {
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
        let Some(server) = self.transactions.begin_own(now, &message, call_hash) else { return };
        let mut progress = Progress::new(now);
        self.advance(&mut Handling { now, request: &request, server: Some(server), progress: &mut progress, out });
    }
}

/// Our name in the Via of our own requests, below that of the proxy: a name that no other element has (RFC 2606).
const OWN: &[u8] = b"server.invalid";
