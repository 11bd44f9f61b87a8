//! End of a call by this side: CANCEL, a refusal, or BYE (RFC 3261 sections 9.1 and 15).

use std::sync::Arc;

use strowger_message::Method;

use super::call::{Call, Stage};
use super::client_request::ClientRequestKind;
use super::content::Content;
use super::session::Outgoing;
use super::{CallKey, Ending, Event, UserAgent};
use crate::Round;
use crate::slots::Id;

impl UserAgent {
    /// Ends a call in any state: CANCEL, 480 or BYE. [`Event::Ended`] follows (or [`Event::Failed`], if a refusal was on the way).
    pub fn hang_up(&mut self, round: &mut Round<'_>, call: CallKey) {
        self.hang_up_with(round, call, b"");
    }

    /// Ends a call as [`UserAgent::hang_up`] does, with further header lines, each with its CRLF: a Reason.
    pub fn hang_up_with(&mut self, round: &mut Round<'_>, call: CallKey, headers: &[u8]) {
        if let Some(call) = self.calls.get_mut(call.0) {
            call.last_lines = headers.to_vec();
        }
        self.end(round, call.0, Ending::Local);
    }

    pub(super) fn end(&mut self, round: &mut Round<'_>, id: Id, by: Ending) {
        let Some(call) = self.calls.get_mut(id) else { return };
        match call.stage {
            Stage::Inviting => {
                call.stage = Stage::Cancelling;
                if let Some(client) = call.inviting.and_then(|r| self.requests.get(r)?.client) {
                    let lines = std::mem::take(&mut call.last_lines);
                    let lines = (!lines.is_empty()).then(|| Arc::from(lines));
                    round.tx.cancel(round.now, client, lines.as_ref(), round.out);
                }
            }
            Stage::Incoming => self.refuse_call(round, id, 480, Ending::Local),
            // The ACK without an answer ends the exchange of offer and answer, and the BYE ends the call.
            Stage::AnswerDue => {
                call.stage = Stage::Established;
                self.acknowledge_now(round, id);
                self.send_bye(round, id, by);
            }
            // A callee may not send a BYE before the ACK (section 15), and neither side may send one while a re-INVITE
            // is open: ours is cancelled, which ends it in 64*T1 at the latest.
            Stage::Established if call.accepted.is_some() || call.inviting.is_some() => {
                call.hang_up = call.hang_up.or(Some(by));
                if let Some(client) = call.inviting.and_then(|r| self.requests.get(r)?.client) {
                    round.tx.cancel(round.now, client, None, round.out);
                }
            }
            Stage::Established => self.send_bye(round, id, by),
            Stage::Cancelling | Stage::Terminating => (),
        }
    }

    /// Sends a BYE that had to wait.
    pub(super) fn hang_up_if_due(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.stage == Stage::Established
            && call.accepted.is_none()
            && call.inviting.is_none()
            && let Some(by) = call.hang_up.take()
        {
            self.send_bye(round, id, by);
        }
    }

    pub(super) fn send_bye(&mut self, round: &mut Round<'_>, id: Id, by: Ending) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let lines = std::mem::take(&mut call.last_lines);
        // The owner will not answer an open re-INVITE or UPDATE any more.
        self.refuse_call(round, id, 487, by);
        self.reject_updates(round, id);
        self.stop_timers(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        call.session.stop(&mut self.timers);
        call.stage = Stage::Terminating;
        call.ended_by = by;
        call.accepted = None;
        call.kept = Vec::new();
        if by != Ending::Local {
            self.events.push(Event::Ending { call: CallKey(id), by });
        }
        let content = Content { headers: &lines, ..Content::default() };
        let outgoing = Outgoing { kind: ClientRequestKind::Bye, method: Method::Bye.text(), content };
        if self.send_in_dialog(round, id, None, outgoing).is_none() {
            self.remove_call(round, id);
            self.events.push(Event::Ended { call: CallKey(id), by });
        }
    }

    /// Sends the BYEs that wait for the end of an own re-INVITE, before the process ends. Its CANCEL is on the way, and a BYE is allowed in a
    /// confirmed dialog (RFC 3261 section 15.1.1). A callee without an ACK gets none (section 15).
    pub fn hang_up_at_once(&mut self, round: &mut Round<'_>) {
        let waits = |call: &Call| {
            call.stage == Stage::Established
                && call.accepted.is_none()
                && call.inviting.is_some()
                && call.hang_up.is_some()
        };
        let waiting: Vec<Id> = self.calls.iter().filter(|(_, call)| waits(call)).map(|(id, _)| id).collect();
        for id in waiting {
            if let Some(by) = self.calls.get_mut(id).and_then(|call| call.hang_up.take()) {
                self.send_bye(round, id, by);
            }
        }
    }
}
