//! Caller: INVITE and its responses (RFC 3261 section 13.2, RFC 3262 section 4).

use smallvec::{SmallVec, smallvec};
use strowger_message::header::Number;
use strowger_message::{Message, Method, Name, NameAddr, Write};

use super::account::AccountKey;
use super::call::{Call, Leg, Stage};
use super::client_request::{Head, Kind, Request, finish_sdp};
use super::content::Content;
use super::{BadAddress, CallKey, Ending, Event, UserAgent};
use crate::dialog::{Description, Dialog, OfferAnswer, RequestRoute};
use crate::slots::Id;
use crate::{Outbox, Round, Target, call};

/// New call.
#[derive(Clone, Copy, Debug)]
pub struct Invite<'a> {
    /// Caller for From: name-addr or URI.
    pub from: &'a [u8],
    /// Callee for To: name-addr or URI.
    pub to: &'a [u8],
    /// Request-URI. None: the URI of `to`.
    pub uri: Option<&'a [u8]>,
    /// Value of Route, name-addrs joined with commas. Empty: none.
    pub routes: &'a [u8],
    /// Target of the INVITE.
    pub target: Target,
    /// Account that answers challenges. None: a 401 or 407 ends the call.
    pub account: Option<AccountKey>,
    /// Session description. Empty: the callee is asked for one.
    pub offer: &'a [u8],
    /// Further header lines, each with its CRLF.
    pub headers: &'a [u8],
    /// Call-ID. Empty: a new one. A back-to-back user agent chooses one that belongs to its shard.
    pub call_id: &'a [u8],
}

impl UserAgent {
    /// Makes a call.
    ///
    /// # Errors
    /// `from` or `to` is malformed.
    pub fn invite(&mut self, round: &mut Round<'_>, invite: &Invite<'_>) -> Result<CallKey, BadAddress> {
        let (from, to) = (NameAddr::parse(invite.from)?, NameAddr::parse(invite.to)?);
        let (made, tag, branch) = (self.own_call_id(), self.word(), self.branch());
        let call_id = if invite.call_id.is_empty() { &made[..] } else { invite.call_id };
        let uri = invite.uri.unwrap_or(to.uri_text);
        let target = self.settings.outbound.unwrap_or(invite.target);
        let (place, call_hash) = (self.place(call_id), call::hash(self.call_secret, call_id));
        let secure = is_sips(uri);
        let mut call = Call::new(Stage::Inviting, place, call_hash, target);
        call.account = invite.account;
        let id = self.insert_call(call);
        let start = round.out.start();
        let head = Head {
            method: Method::Invite,
            route: RequestRoute::new(uri, invite.routes),
            from: &from,
            from_tag: &tag,
            to: &to,
            call_id,
            cseq: 1,
            account: invite.account,
        };
        self.write_head(&head, &target, &branch, invite.offer, &mut round.out.bytes);
        self.write_contact(from.uri_text, &target, secure, &mut round.out.bytes);
        round.out.bytes.extend_from_slice(CAPABILITIES);
        round.out.bytes.extend_from_slice(invite.headers);
        finish_sdp(invite.offer, &mut round.out.bytes);
        let mut request = Request::new(Kind::Invite, Some(id), invite.account, target, call_hash);
        request.offered = !invite.offer.is_empty();
        request.secure = secure;
        let request = self.submit(round, start, &branch, Method::Invite, request);
        if let Some(call) = self.calls.get_mut(id) {
            call.inviting = Some(request);
        }
        Ok(CallKey(id))
    }

    /// Sends the ACK with our answer, after [`Event::Answered`] with an offer.
    pub fn acknowledge<'c>(&mut self, round: &mut Round<'_>, call: CallKey, content: impl Into<Content<'c>>) {
        let Content { headers, body } = content.into();
        let Some(c) = self.calls.get_mut(call.0).filter(|c| c.stage == Stage::AnswerDue) else { return };
        c.stage = Stage::Established;
        c.kept = body.to_vec();
        c.credentials.extend_from_slice(headers);
        if let Some(dialog) = c.dialog() {
            dialog.exchange.send();
        }
        self.acknowledge_now(round, call.0);
    }

    /// Sends the ACK of our INVITE's 2xx, the first time or again (section 13.2.2.4).
    pub(super) fn acknowledge_now(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(call) = self.calls.get(id) else { return };
        let number = if call.ack_branch == 0 { self.entropy.u64() } else { call.ack_branch };
        let Some(call) = self.calls.get_mut(id) else { return };
        call.ack_branch = number;
        let call = self.calls.get(id).expect("the call was there just now");
        let Some(leg) = call.legs.first() else { return };
        self.write_ack(&leg.dialog, call, number, round.out);
    }

    fn write_ack(&self, dialog: &Dialog, call: &Call, branch: u64, out: &mut Outbox) {
        let target = self.hop(dialog.request_route().hop, &call.target);
        let start = out.start();
        let branch = super::Branch::new(branch);
        dialog.write_request(
            Method::Ack,
            call.invite_cseq,
            |out| self.write_via(&target, &branch, out),
            &mut out.bytes,
        );
        // Credentials of the INVITE (section 22.1).
        out.bytes.extend_from_slice(&call.credentials);
        finish_sdp(&call.kept, &mut out.bytes);
        out.send(target, start..out.bytes.len(), 0);
    }

    pub(super) fn invite_replied(
        &mut self,
        round: &mut Round<'_>,
        request: Id,
        id: Id,
        status: u16,
        message: Option<&Message<'_>>,
        after_final: bool,
    ) {
        match (status, message) {
            (100..200, Some(message)) => self.progressed(round, request, id, status, message),
            (200..300, Some(message)) => self.accepted(round, request, id, message, after_final),
            _ => {
                let Some(call) = self.remove_call(round, id) else { return };
                let key = CallKey(id);
                let contact = message.and_then(|m| m.contacts().next()?.ok());
                let event = match contact {
                    _ if call.stage == Stage::Cancelling => Event::Ended { call: key, by: Ending::Local },
                    Some(contact) if (300..400).contains(&status) => {
                        Event::Redirected { call: key, status, target: self.events.keep(contact.uri_text) }
                    }
                    _ => Event::Failed { call: key, status, local: message.is_none() },
                };
                self.events.push(event);
            }
        }
    }

    /// Handles a 1xx (section 13.2.2.1).
    fn progressed(&mut self, round: &mut Round<'_>, request: Id, id: Id, status: u16, message: &Message<'_>) {
        let offered = self.requests.get(request).is_some_and(|r| r.offered);
        let secure = self.is_secure(request);
        let Some(call) = self.calls.get_mut(id) else { return };
        let tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default();
        let mut prack = None;
        if status > 100 && !tag.is_empty() {
            let leg = match call.leg_of(tag) {
                Some(leg) => leg,
                None => match Dialog::caller(message, secure) {
                    Ok(mut dialog) => {
                        if offered {
                            dialog.exchange.send();
                        }
                        call.add_leg(dialog)
                    }
                    Err(_) => return,
                },
            };
            self.events.is_of_leg(call.legs[leg].number);
            let reliable = message.require().flatten().any(|t| t.is(b"100rel"));
            if let (true, Ok(rseq)) = (reliable, message.mandatory::<Number<'_>>(Name::RSeq)) {
                let last = call.legs[leg].rseq;
                if last != 0 && rseq.value != last.wrapping_add(1) {
                    // A copy, or one that came too early: its sender repeats it (RFC 3262 section 4).
                    return;
                }
                call.legs[leg].rseq = rseq.value;
                if !message.body().is_empty() {
                    call.legs[leg].dialog.exchange.receive_response(offered);
                }
                prack = Some((leg, rseq.value));
            }
        }
        let cancelling = call.stage != Stage::Inviting;
        if let (Some((leg, rseq)), Ok(cseq)) = (prack, message.cseq()) {
            self.send_prack(round, id, leg, rseq, cseq.number);
        }
        if !cancelling {
            let body = self.events.keep(message.body());
            self.events.push(Event::Progress { call: CallKey(id), status, body });
        }
    }

    /// Handles a 2xx (section 13.2.2.4): the first makes the call, its copies are acknowledged again, those of other branches are ended.
    fn accepted(&mut self, round: &mut Round<'_>, request: Id, id: Id, message: &Message<'_>, after_final: bool) {
        let secure = self.is_secure(request);
        let Ok(made) = Dialog::caller(message, secure) else {
            // It makes no dialog, so neither ACK nor BYE has an address.
            if !after_final && self.remove_call(round, id).is_some() {
                self.events.push(Event::Failed { call: CallKey(id), status: 502, local: true });
            }
            return;
        };
        let (offered, credentials) =
            self.requests.get(request).map_or((false, Vec::new()), |r| (r.offered, credential_lines(&r.bytes)));
        let target = self.requests.get(request).map_or_else(|| self.any_target(), |r| r.target);
        let call_hash = self.requests.get(request).map_or(0, |r| r.call_hash);
        let Some(call) = self.calls.get_mut(id) else {
            return self.end_fork(round, made, target, call_hash, credentials);
        };
        if !matches!(call.stage, Stage::Inviting | Stage::Cancelling) {
            let same = call.legs.first().is_some_and(|l| l.dialog.remote_tag() == made.remote_tag());
            if !same {
                self.end_fork(round, made, target, call_hash, credentials);
            } else if call.ack_branch != 0 && made.local_cseq() == call.invite_cseq {
                self.acknowledge_now(round, id);
            }
            return;
        }
        let cancelling = call.stage == Stage::Cancelling;
        call.inviting = None;
        call.invite_cseq = made.local_cseq();
        call.credentials = credentials;
        let legs: SmallVec<[Leg; 1]> = std::mem::take(&mut call.legs);
        let known = legs.into_iter().find(|l| l.dialog.remote_tag() == made.remote_tag());
        let mut leg = match known {
            Some(mut leg) => {
                leg.dialog.confirm(Some(message));
                leg
            }
            None => {
                let mut dialog = made;
                if offered {
                    dialog.exchange.send();
                }
                let number = call.made;
                call.made = number.saturating_add(1);
                Leg { dialog, rseq: 0, number }
            }
        };
        let body = message.body();
        let description = if body.is_empty() { None } else { leg.dialog.exchange.receive_response(offered) };
        self.events.is_of_leg(leg.number);
        call.legs = smallvec![leg];
        let key = CallKey(id);
        if description == Some(Description::Offer) && !cancelling {
            call.stage = Stage::AnswerDue;
            let body = self.events.keep(body);
            self.events.push(Event::Answered { call: key, body, offer: true });
            return;
        }
        call.stage = Stage::Established;
        self.acknowledge_now(round, id);
        if cancelling {
            // The 2xx crossed our CANCEL (section 9.1).
            self.send_bye(round, id, Ending::Local);
        } else {
            let body = self.events.keep(body);
            self.events.push(Event::Answered { call: key, body, offer: false });
        }
    }

    /// Sends ACK and BYE for an unwanted dialog: another branch of a fork, or an abandoned call.
    fn end_fork(
        &mut self,
        round: &mut Round<'_>,
        dialog: Dialog,
        target: Target,
        call_hash: u32,
        credentials: Vec<u8>,
    ) {
        if let Some((known, _)) = self.find(dialog.call_id(), dialog.local_tag(), dialog.remote_tag()) {
            // A copy of the 2xx; its BYE was sent.
            return self.acknowledge_now(round, known);
        }
        let mut call = Call::new(Stage::Established, self.place(dialog.call_id()), call_hash, target);
        call.invite_cseq = dialog.local_cseq();
        call.credentials = credentials;
        call.silent = true;
        call.add_leg(dialog);
        let id = self.insert_call(call);
        self.acknowledge_now(round, id);
        self.send_bye(round, id, Ending::Local);
    }

    /// Handles a response to a re-INVITE (section 14.1).
    pub(super) fn reinvite_replied(
        &mut self,
        round: &mut Round<'_>,
        request: Id,
        id: Id,
        status: u16,
        message: Option<&Message<'_>>,
    ) {
        let (offered, before) = self.offer_of(request);
        let Some(call) = self.calls.get_mut(id) else { return };
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
                let Some(dialog) = call.dialog() else { return };
                dialog.refresh(message);
                let body = message.body();
                let description = if body.is_empty() { None } else { dialog.exchange.receive_response(offered) };
                let body = self.events.keep(body);
                if description == Some(Description::Offer) {
                    if let Some(call) = self.calls.get_mut(id) {
                        call.stage = Stage::AnswerDue;
                    }
                    self.events.push(Event::Answered { call: key, body, offer: true });
                } else {
                    self.acknowledge_now(round, id);
                    self.events.push(Event::Changed { call: key, body });
                    self.hang_up_if_due(round, id);
                }
            }
            _ => {
                call.inviting = None;
                self.unchanged(round, id, status, before);
            }
        }
    }

    /// Handles a response to an UPDATE (RFC 3311 section 5.3).
    pub(super) fn update_replied(
        &mut self,
        round: &mut Round<'_>,
        request: Id,
        id: Id,
        status: u16,
        message: Option<&Message<'_>>,
    ) {
        let (offered, before) = self.offer_of(request);
        let Some(call) = self.calls.get_mut(id) else { return };
        match (status, message) {
            (100..200, _) => (),
            (200..300, Some(message)) => {
                call.updating = None;
                if let Some(dialog) = call.dialog() {
                    dialog.refresh(message);
                    if !message.body().is_empty() {
                        dialog.exchange.receive_response(offered);
                    }
                }
                let body = self.events.keep(message.body());
                self.events.push(Event::Changed { call: CallKey(id), body });
            }
            _ => {
                call.updating = None;
                self.unchanged(round, id, status, before);
            }
        }
    }

    /// Tells whether our request had an offer, and the state of offer and answer to restore if it is refused.
    fn offer_of(&self, request: Id) -> (bool, OfferAnswer) {
        self.requests.get(request).map_or_else(|| (false, OfferAnswer::default()), |r| (r.offered, r.before))
    }

    /// Handles the refusal of a change: restores `before`, and ends the call if the status means that there is no dialog.
    fn unchanged(&mut self, round: &mut Round<'_>, id: Id, status: u16, before: OfferAnswer) {
        if let Some(dialog) = self.calls.get_mut(id).and_then(|call| call.dialog()) {
            dialog.exchange.withdraw(before);
        }
        if matches!(status, 408 | 481) {
            return self.fault(round, id, status);
        }
        let wait = if status == 491 { self.glare_wait(id) } else { 0 };
        self.events.push(Event::Unchanged { call: CallKey(id), status, wait });
        self.hang_up_if_due(round, id);
    }

    /// Returns the wait after a 491 in milliseconds, in steps of ten: 2.1 to 4 s for the owner of the Call-ID, 0 to 2 s for the other side
    /// (section 14.1).
    fn glare_wait(&mut self, id: Id) -> u64 {
        let owner =
            self.calls.get_mut(id).and_then(|c| c.dialog()).is_some_and(|d| d.role() == crate::dialog::Role::Caller);
        if owner { 2_100 + self.entropy.u64() % 191 * 10 } else { self.entropy.u64() % 201 * 10 }
    }

    fn is_secure(&self, request: Id) -> bool {
        self.requests.get(request).is_some_and(|r| r.secure)
    }

    fn any_target(&self) -> Target {
        let listener = self.identity.listener(crate::ListenerId(0));
        Target::new(listener.transport, crate::ListenerId(0), listener.bound)
    }

    fn send_prack(&mut self, round: &mut Round<'_>, id: Id, leg: usize, rseq: u32, cseq: u32) {
        let branch = self.branch();
        let Some(call) = self.calls.get_mut(id) else { return };
        let number = call.legs[leg].dialog.next_cseq(1);
        let (other, account, call_hash) = (call.target, call.account, call.call_hash);
        let start = round.out.start();
        let target = {
            let dialog = &self.calls.get(id).expect("the call was there just now").legs[leg].dialog;
            let target = self.hop(dialog.request_route().hop, &other);
            dialog.write_request(
                Method::Prack,
                number,
                |text| self.write_via(&target, &branch, text),
                &mut round.out.bytes,
            );
            target
        };
        round.out.bytes.extend_from_slice(b"RAck: ");
        rseq.write(&mut round.out.bytes);
        round.out.bytes.push(b' ');
        cseq.write(&mut round.out.bytes);
        round.out.bytes.extend_from_slice(b" INVITE\r\n");
        finish_sdp(b"", &mut round.out.bytes);
        self.submit(
            round,
            start,
            &branch,
            Method::Prack,
            Request::new(Kind::Prack, Some(id), account, target, call_hash),
        );
    }
}

/// Capabilities in requests and responses that make a dialog (section 13.2.1).
pub(super) const CAPABILITIES: &[u8] =
    b"Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, MESSAGE, PRACK, UPDATE\r\nSupported: 100rel\r\n";

fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|s| s.eq_ignore_ascii_case(b"sips:"))
}

/// Returns the Authorization and Proxy-Authorization lines of a sent request.
fn credential_lines(request: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in request.split_inclusive(|&b| b == b'\n') {
        if line == b"\r\n" {
            break;
        }
        if line.starts_with(b"Authorization:") || line.starts_with(b"Proxy-Authorization:") {
            lines.extend_from_slice(line);
        }
    }
    lines
}
