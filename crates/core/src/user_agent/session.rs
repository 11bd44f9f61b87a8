//! Established call: change and use (RFC 3261 section 14, RFC 3311).

use strowger_message::header::RetryAfter;
use strowger_message::{Method, Name};

use super::call::{Call, Leg, LegKey, Stage, Unacknowledged};
use super::client_request::{ClientRequestKind, Request, Response, finish};
use super::content::{Content, has_description};
use super::uac::credential_lines;
use super::{CallKey, Ending, Event, RequestKey, UserAgent};
use crate::dialog::{Description, OfferAnswer, Role, refreshes};
use crate::slots::Id;
use crate::timer::Stamp;
use crate::{Now, Round};

/// Reason why a request cannot be sent in a call now.
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

/// Request of ours in a dialog. The content of a request outside of the session names its type itself.
pub(super) struct Outgoing<'a> {
    pub(super) kind: ClientRequestKind,
    pub(super) method: &'a [u8],
    pub(super) content: Content<'a>,
}

impl UserAgent {
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
        if c.is_changing() {
            return Err(NotNow::Pending);
        }
        let mut headers = Vec::new();
        self.capabilities(Some(id)).write(&mut headers);
        self.ask_timer(id, &mut headers);
        headers.extend_from_slice(content.headers);
        let content = Content { headers: &headers, ..content };
        let request = self
            .send_in_dialog(
                round,
                id,
                None,
                Outgoing { kind: ClientRequestKind::Reinvite, method: Method::Invite.text(), content },
            )
            .ok_or(NotNow::NoDialog)?;
        if let Some(c) = self.calls.get_mut(id) {
            c.inviting = Some(request);
        }
        self.note_offer(id, content);
        Ok(())
    }

    /// Offers another session without ringing (RFC 3311), also before the call is answered. An empty offer only refreshes the target.
    ///
    /// # Errors
    /// The call has no dialog, or another change is open.
    pub fn update<'c>(
        &mut self,
        round: &mut Round<'_>,
        leg: impl Into<LegKey>,
        content: impl Into<Content<'c>>,
    ) -> Result<(), NotNow> {
        let (LegKey { call, leg: number }, content) = (leg.into(), content.into());
        let c = self.usable(call.0).ok_or(NotNow::NoDialog)?;
        let at = c.position(number).ok_or(NotNow::NoDialog)?;
        let leg = &c.legs[at];
        let is_open = matches!(leg.dialog.exchange, OfferAnswer::LocalOffer | OfferAnswer::RemoteOffer);
        if leg.updating.is_some() || leg.updated.is_some() || (is_open && content.is_description()) {
            return Err(NotNow::Pending);
        }
        let mut headers = Vec::new();
        if c.stage == Stage::Established && self.ask_timer(call.0, &mut headers) {
            self.capabilities(Some(call.0)).write(&mut headers);
        }
        headers.extend_from_slice(content.headers);
        let content = Content { headers: &headers, ..content };
        let request = self
            .send_in_dialog(
                round,
                call.0,
                number,
                Outgoing { kind: ClientRequestKind::Update, method: Method::Update.text(), content },
            )
            .ok_or(NotNow::NoDialog)?;
        if let Some(leg) = self.calls.get_mut(call.0).and_then(|c| c.legs.get_mut(at)) {
            leg.updating = Some(request);
        }
        self.note_offer(call.0, content);
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
        leg: impl Into<LegKey>,
        method: Method,
        headers: &[u8],
        body: &[u8],
    ) -> Result<RequestKey, NotNow> {
        self.request_within_named(round, leg, method.text(), headers, body)
    }

    /// Sends a request as [`UserAgent::request_within`] does, of any method that is a token.
    ///
    /// # Errors
    /// The call has no dialog.
    pub fn request_within_named(
        &mut self,
        round: &mut Round<'_>,
        leg: impl Into<LegKey>,
        method: &[u8],
        headers: &[u8],
        body: &[u8],
    ) -> Result<RequestKey, NotNow> {
        let LegKey { call, leg } = leg.into();
        self.usable(call.0).ok_or(NotNow::NoDialog)?;
        let content = Content { headers, ..Content::of_body(body) };
        let request =
            self.send_in_dialog(round, call.0, leg, Outgoing { kind: ClientRequestKind::InDialog, method, content });
        request.map(RequestKey).ok_or(NotNow::NoDialog)
    }

    /// Returns a call that is not ending.
    fn usable(&self, id: Id) -> Option<&Call> {
        self.calls.get(id).filter(|c| !matches!(c.stage, Stage::Cancelling | Stage::Terminating))
    }

    /// Sends a request in the dialog of a call with this number, or without a number in the first dialog.
    pub(super) fn send_in_dialog(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        number: Option<u16>,
        outgoing: Outgoing<'_>,
    ) -> Option<Id> {
        let Outgoing { kind, method, content } = outgoing;
        let Content { headers, body, .. } = content;
        let branch = self.branch();
        let first = 1 + self.entropy.u64() as u32 % super::moves::HIGHEST_FIRST_CSEQ;
        let call = self.calls.get_mut(id)?;
        let at = call.position(number)?;
        let Leg { dialog, number, .. } = &mut call.legs[at];
        let cseq = dialog.next_cseq(first);
        let mut request = Request::new(kind, Some(id), None, call.target, call.call_hash);
        request.leg = Some(*number);
        request.before = dialog.exchange;
        request.offered = content.is_description();
        let own = call.capabilities.as_deref().unwrap_or(&self.settings.capabilities);
        request.is_timed =
            matches!(kind, ClientRequestKind::Reinvite | ClientRequestKind::Update) && own.session_timer.is_some();
        if matches!(kind, ClientRequestKind::Reinvite | ClientRequestKind::Update | ClientRequestKind::Prack)
            && request.offered
        {
            dialog.exchange.send();
        }
        let call = self.calls.get(id)?;
        let (leg, dialog) = (&call.legs[at], &call.legs[at].dialog);
        request.target = self.hop(leg, &call.target);
        (request.account, request.secure) = (call.account_at(&request.target), dialog.is_secure());
        let (target, start) = (request.target, round.out.start());
        dialog.write_request_named(method, cseq, |text| self.write_via(&target, &branch, text), &mut round.out.bytes);
        if refreshes(Method::of(method)) {
            self.write_contact(dialog.local(), &target, dialog.is_secure(), &mut round.out.bytes);
        }
        self.write_name(b"User-Agent", &mut round.out.bytes);
        if request.account.is_some() {
            // After the method and its space.
            let from = start + method.len() + 1;
            let len = round.out.bytes[from..].iter().position(|&b| b == b' ').unwrap_or(0);
            self.write_credentials(request.account, method, from..from + len, body, &mut round.out.bytes);
        }
        round.out.bytes.extend_from_slice(headers);
        if kind != ClientRequestKind::InDialog {
            content.write_type(&mut round.out.bytes);
        }
        finish(body, &mut round.out.bytes);
        Some(self.submit(round, start, &branch, method, request))
    }

    /// Handles a response to a re-INVITE (section 14.1).
    pub(super) fn reinvite_replied(&mut self, round: &mut Round<'_>, response: Response<'_>) {
        let Response { request, call: id, status, message, .. } = response;
        let offered = self.requests.get(request).is_some_and(|r| r.offered);
        let credentials = self.requests.get(request).map_or(Vec::new(), |r| credential_lines(&r.bytes));
        let Some(call) = self.calls.get_mut(id) else { return };
        if let Some(leg) = call.legs.first() {
            self.events.is_of_leg(leg.number);
        }
        let key = CallKey(id);
        match (status, message) {
            (100..200, _) => (),
            (200..300, Some(message)) => {
                let cseq = message.cseq().map_or(0, |c| c.number);
                if call.inviting != Some(request) {
                    if call.invite_cseq == cseq && call.ack_branch != 0 {
                        self.acknowledge_now(round, id);
                    }
                    return;
                }
                call.inviting = None;
                call.invite_cseq = cseq;
                call.ack_branch = 0;
                call.kept.clear();
                call.credentials = credentials;
                if offered {
                    call.session.close_offer(true);
                }
                let (hang_up, is_over) = (call.hang_up, call.stage == Stage::Terminating);
                let Some(dialog) = call.dialog() else { return };
                dialog.refresh(message);
                if is_over {
                    // The BYE did not wait for it.
                    return self.acknowledge_now(round, id);
                }
                let description =
                    if has_description(message) { dialog.exchange.receive_response(offered) } else { None };
                self.report_name(id, 0);
                self.take_grant(round.now, id, message);
                let is_offer = description == Some(Description::Offer);
                if is_offer {
                    self.set_stage(id, Stage::AnswerDue);
                    if let Some(by) = hang_up {
                        return self.end(round, id, by);
                    }
                }
                let body = self.events.keep(message.body());
                if is_offer {
                    self.events.push(Event::Answered { call: key, body, offer: true });
                } else {
                    self.acknowledge_now(round, id);
                    self.events.push(Event::Changed { call: key, body });
                    self.hang_up_if_due(round, id);
                }
            }
            _ => {
                call.inviting = None;
                if call.stage != Stage::Terminating {
                    self.unchanged(round, response, 0);
                }
            }
        }
    }

    /// Handles a response to an UPDATE (RFC 3311 section 5.3).
    pub(super) fn update_replied(&mut self, round: &mut Round<'_>, response: Response<'_>) {
        let Response { request, call: id, status, message, .. } = response;
        if status < 200 {
            return;
        }
        let Some(Request { offered, leg: number, is_refresh, .. }) = self.requests.get(request) else { return };
        let (offered, number, is_refresh) = (*offered, *number, *is_refresh);
        let Some(call) = self.calls.get_mut(id) else { return };
        // The dialog of a place whose branch lost has been removed.
        let Some(at) = call.position(number) else { return };
        let leg = &mut call.legs[at];
        leg.updating = None;
        self.events.is_of_leg(leg.number);
        let (200..300, Some(message)) = (status, message) else {
            return self.unchanged(round, response, at);
        };
        leg.dialog.refresh(message);
        // A description that answers no offer is ignored.
        if offered && has_description(message) {
            leg.dialog.exchange.receive_response(true);
        }
        if offered {
            call.session.close_offer(true);
        }
        if call.stage == Stage::Established {
            self.take_grant(round.now, id, message);
        }
        self.report_name(id, at);
        if is_refresh {
            return self.events.push(Event::Refreshed { call: CallKey(id) });
        }
        let body = self.events.keep(message.body());
        self.events.push(Event::Changed { call: CallKey(id), body });
    }

    /// Handles the refusal of a change or refresh: restores the state of offer and answer, and ends the call if the
    /// status means that the dialog does not exist.
    fn unchanged(&mut self, round: &mut Round<'_>, response: Response<'_>, at: usize) {
        let Response { request, call: id, status, message, .. } = response;
        let Some(Request { before, offered, is_refresh, kind, .. }) = self.requests.get(request) else { return };
        let (before, offered, is_refresh, kind) = (*before, *offered, *is_refresh, *kind);
        let Some(call) = self.calls.get_mut(id) else { return };
        if offered {
            call.session.close_offer(false);
            if let Some(leg) = call.legs.get_mut(at) {
                leg.dialog.exchange.withdraw(before);
            }
        }
        let is_early = matches!(call.stage, Stage::Inviting | Stage::Incoming);
        if matches!(status, 408 | 481) && !is_early {
            return self.fault(round, id, status);
        }
        if is_refresh {
            let wait = message.and_then(|m| RetryAfter::parse(m.header(Name::RetryAfter)?).ok());
            self.refresh_refused(round, id, kind, status, wait.map(|wait| wait.seconds));
        } else {
            let wait = if status == 491 { self.glare_wait(id) } else { 0 };
            self.events.push(Event::Unchanged { call: CallKey(id), status, wait });
        }
        self.hang_up_if_due(round, id);
    }

    /// Returns the wait after a 491 in milliseconds, in steps of ten: 2.1 to 4 s for the owner of the Call-ID, 0 to 2 s for the other side
    /// (section 14.1).
    pub(super) fn glare_wait(&mut self, id: Id) -> u64 {
        let owner = self.calls.get_mut(id).and_then(|c| c.dialog()).is_some_and(|d| d.role() == Role::Caller);
        if owner { 2_100 + self.entropy.u64() % 191 * 10 } else { self.entropy.u64() % 201 * 10 }
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
                let by = call.hang_up.take().unwrap_or(Ending::Fault(status));
                self.send_bye(round, id, by);
            }
            // A PRACK has no answer; the outcome of the INVITE decides.
            Stage::Inviting | Stage::Cancelling | Stage::Incoming | Stage::Terminating => (),
        }
    }

    /// Handles the timer with this stamp: retransmits a message, or ends the attempt.
    pub(super) fn call_timer(&mut self, round: &mut Round<'_>, id: Id, stamp: Stamp) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.session.runs(stamp) {
            return self.session_timer(round, id, stamp);
        }
        let again = call.again == stamp;
        if again {
            call.again = Stamp::NONE;
        } else {
            call.end = Stamp::NONE;
        }
        match (again, call.accepted, &call.unacknowledged) {
            // Retransmissions continue until the PRACK, and are bounded only by the end timer (RFC 3262 section 3).
            (true, _, Some(open)) => {
                let Some(asked) = call.asked else { return };
                let start = round.out.start();
                round.out.bytes.extend_from_slice(&open.bytes);
                let Unacknowledged { status, .. } = **open;
                round.tx.respond_again(round.now, asked.server, status, start..round.out.bytes.len(), round.out);
                self.start_again(round.now, id, false);
            }
            // RFC 3261 section 13.3.1.4. A source that may be forged gets fewer copies.
            (true, Some(accepted), None) => {
                let start = round.out.start();
                round.out.bytes.extend_from_slice(&call.kept);
                round.tx.respond_again(round.now, accepted.server, 200, start..round.out.bytes.len(), round.out);
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

    /// Starts the retransmission timer with twice the last interval, at most T2 if `capped`.
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
