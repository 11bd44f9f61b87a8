//! Established call: change, use and end (RFC 3261 sections 14 and 15, RFC 3311).

use std::sync::Arc;

use strowger_message::Method;

use super::call::{Stage, Unacknowledged};
use super::client_request::{Kind, Request, finish, finish_sdp};
use super::content::Content;
use super::uac::CAPABILITIES;
use super::{CallKey, Ending, Event, RequestKey, UserAgent};
use crate::slots::Id;
use crate::timer::Stamp;
use crate::{Now, Round};

/// Reason against a request in a call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// No such call, or it has no dialog yet or any more.
    NoDialog,
    /// An INVITE or UPDATE of either side waits for its response, or an offer for its answer.
    Pending,
}

impl std::fmt::Display for NotNow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoDialog => "the call has no dialog",
            Self::Pending => "another change of the session is under way",
        })
    }
}

impl std::error::Error for NotNow {}

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
            // The ACK without an answer ends the exchange, and the BYE ends the call.
            Stage::AnswerDue => {
                call.stage = Stage::Established;
                self.acknowledge_now(round, id);
                self.send_bye(round, id, by);
            }
            // A callee may not hang up before the ACK (section 15), and neither side may while a re-INVITE is open.
            Stage::Established if call.accepted.is_some() || call.inviting.is_some() => call.hang_up = Some(by),
            Stage::Established => self.send_bye(round, id, by),
            Stage::Cancelling | Stage::Terminating => (),
        }
    }

    /// Sends a BYE that has waited.
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
        self.reject_update(round, CallKey(id), 487);
        self.stop_timers(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        call.stage = Stage::Terminating;
        call.ended_by = by;
        call.accepted = None;
        call.kept = Vec::new();
        if self.send_in_dialog(round, id, Kind::Bye, Method::Bye, &lines, b"").is_none() {
            self.remove_call(round, id);
            self.events.push(Event::Ended { call: CallKey(id), by });
        }
    }

    /// Offers another session (a re-INVITE, section 14.1); an empty offer asks the peer for one.
    ///
    /// # Errors
    /// The call is not established, or another change is open.
    pub fn reinvite<'c>(
        &mut self,
        round: &mut Round<'_>,
        call: CallKey,
        content: impl Into<Content<'c>>,
    ) -> Result<(), NotNow> {
        let (id, content) = (call.0, content.into());
        let c = self.calls.get_mut(id).filter(|c| c.stage == Stage::Established).ok_or(NotNow::NoDialog)?;
        if c.inviting.is_some()
            || c.updating.is_some()
            || c.asked.is_some()
            || c.accepted.is_some()
            || c.updated.is_some()
        {
            return Err(NotNow::Pending);
        }
        let headers = [CAPABILITIES, content.headers].concat();
        let request = self
            .send_in_dialog(round, id, Kind::Reinvite, Method::Invite, &headers, content.body)
            .ok_or(NotNow::NoDialog)?;
        if let Some(c) = self.calls.get_mut(id) {
            c.inviting = Some(request);
        }
        Ok(())
    }

    /// Offers another session without ringing (RFC 3311), also before the call is answered. An empty offer only refreshes the target.
    ///
    /// # Errors
    /// The call has no dialog, or another change is open.
    pub fn update<'c>(
        &mut self,
        round: &mut Round<'_>,
        call: CallKey,
        content: impl Into<Content<'c>>,
    ) -> Result<(), NotNow> {
        let (id, Content { headers, body: offer }) = (call.0, content.into());
        let c = self
            .calls
            .get_mut(id)
            .filter(|c| !matches!(c.stage, Stage::Cancelling | Stage::Terminating))
            .ok_or(NotNow::NoDialog)?;
        use crate::dialog::OfferAnswer::{LocalOffer, RemoteOffer};
        let open = matches!(c.dialog().ok_or(NotNow::NoDialog)?.exchange, LocalOffer | RemoteOffer);
        if c.updating.is_some() || c.updated.is_some() || (open && !offer.is_empty()) {
            return Err(NotNow::Pending);
        }
        let request =
            self.send_in_dialog(round, id, Kind::Update, Method::Update, headers, offer).ok_or(NotNow::NoDialog)?;
        if let Some(c) = self.calls.get_mut(id) {
            c.updating = Some(request);
        }
        Ok(())
    }

    /// Sends a request without effect on the session (INFO, MESSAGE, OPTIONS) in a call; [`Event::Reply`] reports the outcome. `headers`:
    /// further lines, each with its CRLF; Content-Type among them if there is a body.
    ///
    /// # Errors
    /// The call has no dialog.
    pub fn request_within(
        &mut self,
        round: &mut Round<'_>,
        call: CallKey,
        method: Method,
        headers: &[u8],
        body: &[u8],
    ) -> Result<RequestKey, NotNow> {
        let dead = self.calls.get(call.0).is_none_or(|c| matches!(c.stage, Stage::Cancelling | Stage::Terminating));
        if dead {
            return Err(NotNow::NoDialog);
        }
        self.send_in_dialog(round, call.0, Kind::InDialog, method, headers, body)
            .map(RequestKey)
            .ok_or(NotNow::NoDialog)
    }

    /// Sends a request in the dialog of a call.
    fn send_in_dialog(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        kind: Kind,
        method: Method,
        headers: &[u8],
        body: &[u8],
    ) -> Option<Id> {
        let branch = self.branch();
        let first = 1 + (self.entropy.u64() as u32 & 0xffff);
        let call = self.calls.get_mut(id)?;
        let dialog = &mut call.legs.first_mut()?.dialog;
        let number = dialog.next_cseq(first);
        let mut request = Request::new(kind, Some(id), call.account, call.target, call.call_hash);
        request.before = dialog.exchange;
        request.offered = !body.is_empty();
        if matches!(kind, Kind::Reinvite | Kind::Update) && !body.is_empty() {
            dialog.exchange.send();
        }
        let dialog = &self.calls.get(id)?.legs.first()?.dialog;
        request.target = self.hop(dialog.request_route().hop, &request.target);
        request.secure = dialog.is_secure();
        let (target, start) = (request.target, round.out.start());
        dialog.write_request(method, number, |text| self.write_via(&target, &branch, text), &mut round.out.bytes);
        if crate::dialog::refreshes(method) {
            self.write_contact(dialog.local(), &target, dialog.is_secure(), &mut round.out.bytes);
        }
        self.write_name(b"User-Agent", &mut round.out.bytes);
        if request.account.is_some() {
            // After the method and its space.
            let from = start + method.text().len() + 1;
            let len = round.out.bytes[from..].iter().position(|&b| b == b' ').unwrap_or(0);
            self.write_credentials(request.account, method, from..from + len, body, &mut round.out.bytes);
        }
        round.out.bytes.extend_from_slice(headers);
        if matches!(kind, Kind::InDialog) {
            finish(body, &mut round.out.bytes)
        } else {
            finish_sdp(body, &mut round.out.bytes)
        }
        Some(self.submit(round, start, &branch, method, request))
    }

    /// Ends the dialog after a final response of 481 or 408 in it (section 12.2.1.2).
    pub(super) fn fault(&mut self, round: &mut Round<'_>, id: Id, status: u16) {
        if !matches!(status, 408 | 481) {
            return;
        }
        let Some(call) = self.calls.get_mut(id) else { return };
        match call.stage {
            Stage::Established | Stage::AnswerDue => {
                call.inviting = None;
                self.send_bye(round, id, Ending::Fault(status));
            }
            // A PRACK without an answer; the outcome of the INVITE decides.
            Stage::Inviting | Stage::Cancelling | Stage::Incoming | Stage::Terminating => (),
        }
    }

    /// Handles the timer with this stamp: repeats a message, or gives up.
    pub(super) fn call_timer(&mut self, round: &mut Round<'_>, id: Id, stamp: Stamp) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let again = call.again == stamp;
        if again {
            call.again = Stamp::NONE;
        } else {
            call.end = Stamp::NONE;
        }
        match (again, call.accepted, &call.unacknowledged) {
            // RFC 3262 section 3: until the PRACK, bounded by the end timer only.
            (true, _, Some(open)) => {
                let Some(asked) = call.asked else { return };
                let start = round.out.start();
                round.out.bytes.extend_from_slice(&open.bytes);
                let Unacknowledged { status, .. } = **open;
                round.tx.respond(round.now, asked.server, status, start..round.out.bytes.len(), round.out);
                self.start_again(round.now, id, false);
            }
            // RFC 3261 section 13.3.1.4.
            (true, Some(accepted), None) => {
                let start = round.out.start();
                round.out.bytes.extend_from_slice(&call.kept);
                round.tx.respond(round.now, accepted.server, 200, start..round.out.bytes.len(), round.out);
                self.start_again(round.now, id, true);
            }
            (false, _, Some(_)) => {
                self.refuse_call(round, id, 504, Ending::NoPrack);
            }
            (false, Some(_), None) => {
                let by = call.hang_up.take().unwrap_or(Ending::NoAck);
                self.send_bye(round, id, by);
            }
            (_, None, None) => (),
        }
    }

    /// Starts the timers of a message after its first transmission.
    pub(super) fn start_timers(&mut self, now: Now, id: Id) {
        self.stop_timers(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        call.sent = 0;
        call.again = self.timers.start(now.mono, self.lengths.doubled[0], id.slot);
        call.end = self.timers.start(now.mono, self.lengths.t1_64, id.slot);
    }

    /// Starts the retransmission timer with twice the last pause, at most T2 if `capped`.
    fn start_again(&mut self, now: Now, id: Id, capped: bool) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.sent = call.sent.saturating_add(1);
        let timers = &self.settings.timers;
        let at = usize::from(call.sent).min(self.lengths.doubled.len() - 1);
        let length = if capped && timers.t1.saturating_mul(1 << at) >= timers.t2 {
            self.lengths.t2
        } else {
            self.lengths.doubled[at]
        };
        call.again = self.timers.start(now.mono, length, id.slot);
    }
}
