//! A call that is up: changed, used, ended (RFC 3261 sections 14 and 15, RFC 3311).

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

/// Why a request cannot be sent in a call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// There is no such call, or no dialog in it yet or any more.
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
    /// Ends a call in any state: CANCEL, 480 or BYE. [`Event::Ended`] follows (or [`Event::Failed`], if a refusal was
    /// under way).
    pub fn hang_up(&mut self, round: &mut Round<'_>, call: CallKey) {
        self.hang_up_with(round, call, b"");
    }

    /// The same with further header lines, each with its CRLF: a Reason.
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
            // The ACK without an answer ends the exchange; the BYE the call.
            Stage::AnswerDue => {
                call.stage = Stage::Established;
                self.acknowledge_now(round, id);
                self.send_bye(round, id, by);
            }
            // A callee may not hang up before the ACK (section 15), nor either side while a re-INVITE is open.
            Stage::Established if call.accepted.is_some() || call.inviting.is_some() => call.hang_up = Some(by),
            Stage::Established => self.send_bye(round, id, by),
            Stage::Cancelling | Stage::Terminating => (),
        }
    }

    /// The BYE that waited.
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
        // A re-INVITE or UPDATE that the owner will not answer any more.
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
    /// The call is not up, or something else is under way in it.
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

    /// Offers another session without ringing (RFC 3311), also before the call is answered. An empty offer only refreshes
    /// the target.
    ///
    /// # Errors
    /// There is no dialog, or something else is under way in it.
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

    /// Sends a request of no consequence for the session (INFO, MESSAGE, OPTIONS) in a call; [`Event::Reply`] tells what
    /// came of it. `headers`: further lines, each with its CRLF; Content-Type among them if there is a body.
    ///
    /// # Errors
    /// There is no dialog.
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
            // Behind the method and its space.
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

    /// After a final response in a dialog: 481 and 408 mean that there is none any more (section 12.2.1.2).
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
            // A PRACK without an answer; the INVITE's own end decides.
            Stage::Inviting | Stage::Cancelling | Stage::Incoming | Stage::Terminating => (),
        }
    }

    /// The timer that names itself by `stamp`: something is sent again, or given up.
    pub(super) fn call_timer(&mut self, round: &mut Round<'_>, id: Id, stamp: Stamp) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let again = call.again == stamp;
        if again {
            call.again = Stamp::NONE;
        } else {
            call.end = Stamp::NONE;
        }
        match (again, call.accepted, &call.unacknowledged) {
            // RFC 3262 section 3: until the PRACK comes, with no bound but the last one.
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

    /// Starts the timers of a message that was just sent for the first time.
    pub(super) fn start_timers(&mut self, now: Now, id: Id) {
        self.stop_timers(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        call.sent = 0;
        call.again = self.timers.start(now.mono, self.lengths.doubled[0], id.slot);
        call.end = self.timers.start(now.mono, self.lengths.t1_64, id.slot);
    }

    /// Twice the last pause, T2 at most if `capped`.
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
