//! Caller: INVITE and its responses (RFC 3261 section 13.2, RFC 3262 section 4).

use smallvec::{SmallVec, smallvec};
use strowger_message::header::Number;
use strowger_message::{Message, Method, Name, NameAddr, Write};

use super::account::AccountKey;
use super::call::{Call, Leg, LegKey, Stage};
use super::capabilities::Capabilities;
use super::client_request::{ClientRequestKind, Head, Request, Response, finish};
use super::content::{Content, has_description};
use super::session::Outgoing;
use super::{BadAddress, CallKey, Ending, Event, NotNow, RequestKey, UserAgent};
use crate::dialog::{Description, Dialog, RequestRoute, State};
use crate::slots::Id;
use crate::{Outbox, Round, Target, call};

/// Maximum number of dialogs that the provisional responses to an INVITE may begin, ended ones included.
const MOST_LEGS: u16 = 64;

/// Maximum number of lost dialogs of an INVITE that are being ended at a time. Each 2xx causes an ACK and a BYE with its copies to an address of its
/// sender's choice; a 2xx beyond this number gets neither, so that its sender ends the dialog (RFC 3261 section 13.3.1.4).
const MOST_LOST: usize = 16;

/// Number of CSeqs that the BYE to a lost dialog skips: PRACKs and other requests may have used some while the dialog was early, and their numbers
/// are gone with it. The callee refuses a CSeq that is used, and accepts a gap (RFC 3261 section 12.2.2).
const SKIPPED_CSEQS: u32 = 1_000;

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
    /// Target of the INVITE. With [`Target::LOOPBACK`] another role of this server carries it: later requests of the call go to the next hop
    /// of their dialog, or to the source of its response.
    pub target: Target,
    /// Account that answers challenges. None: a 401 or 407 ends the call.
    pub account: Option<AccountKey>,
    /// Session description. Empty: the callee is asked for one.
    pub offer: &'a [u8],
    /// Value of Content-Type. Empty: `application/sdp`.
    pub content_type: &'a [u8],
    /// Further header lines, each with its CRLF.
    pub headers: &'a [u8],
    /// Capabilities in this call. None: those of the settings.
    pub capabilities: Option<&'a Capabilities>,
    /// Call-ID. Empty: a new one. A back-to-back user agent takes one in the bucket of the other leg ([`UserAgent::call_id_in`]).
    pub call_id: &'a [u8],
}

impl<'a> Invite<'a> {
    /// Returns a call with an offer and nothing else that may be left out.
    pub const fn new(from: &'a [u8], to: &'a [u8], target: Target, offer: &'a [u8]) -> Self {
        let (uri, account, capabilities) = (None, None, None);
        let (routes, content_type, headers, call_id): (&[u8], &[u8], &[u8], &[u8]) = (b"", b"", b"", b"");
        Self { from, to, uri, routes, target, account, offer, content_type, headers, capabilities, call_id }
    }
}

impl UserAgent {
    /// Makes a call.
    ///
    /// # Errors
    /// `from` or `to` is malformed.
    pub fn invite(&mut self, round: &mut Round<'_>, invite: &Invite<'_>) -> Result<CallKey, BadAddress> {
        let (from, to) = (NameAddr::parse(invite.from)?, NameAddr::parse(invite.to)?);
        let (made, tag, branch) = (self.own_call_id(), self.tag(), self.branch());
        let call_id = if invite.call_id.is_empty() { &made[..] } else { invite.call_id };
        let uri = invite.uri.unwrap_or(to.uri_text);
        let target = self.settings.outbound.unwrap_or(invite.target);
        let (place, call_hash) = (self.place(call_id), call::hash(self.call_secret, call_id));
        let secure = is_sips(uri);
        let mut call = Call::new(Stage::Inviting, place, call_hash, target);
        call.account = invite.account;
        call.capabilities = invite.capabilities.cloned().map(Box::new);
        call.kept = uri.to_vec();
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
        self.capabilities(Some(id)).write(&mut round.out.bytes);
        let is_timed = self.ask_timer(id, &mut round.out.bytes);
        round.out.bytes.extend_from_slice(invite.headers);
        let content = Content { content_type: invite.content_type, ..Content::of_body(invite.offer) };
        content.write_type(&mut round.out.bytes);
        finish(invite.offer, &mut round.out.bytes);
        let mut request = Request::new(ClientRequestKind::Invite, Some(id), invite.account, target, call_hash);
        request.offered = content.is_description();
        request.secure = secure;
        request.is_timed = is_timed;
        let request = self.submit(round, start, &branch, Method::Invite.text(), request);
        if let Some(call) = self.calls.get_mut(id) {
            call.inviting = Some(request);
        }
        self.note_description(id, content);
        Ok(CallKey(id))
    }

    /// Sends the ACK with our answer, after [`Event::Answered`] with an offer.
    pub fn acknowledge<'c>(&mut self, round: &mut Round<'_>, call: CallKey, content: impl Into<Content<'c>>) {
        let content = content.into();
        let Some(c) = self.calls.get_mut(call.0).filter(|c| c.stage == Stage::AnswerDue) else { return };
        c.stage = Stage::Established;
        c.kept = content.body.to_vec();
        c.credentials.extend_from_slice(content.headers);
        content.write_type(&mut c.credentials);
        if let Some(dialog) = c.dialog() {
            dialog.exchange.send();
        }
        self.note_description(call.0, content);
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
        self.write_ack(leg, call, number, round.out);
    }

    fn write_ack(&self, leg: &Leg, call: &Call, branch: u64, out: &mut Outbox) {
        let target = self.hop(leg, &call.target);
        let start = out.start();
        let branch = super::Branch::new(branch);
        leg.dialog.write_request(
            Method::Ack,
            call.invite_cseq,
            |out| self.write_via(&target, &branch, out),
            &mut out.bytes,
        );
        // Credentials of the INVITE (section 22.1), unless they are for another host, and the owner's lines.
        let has_credentials = call.account_at(&target) == call.account;
        let lines = call.credentials.split_inclusive(|&b| b == b'\n');
        lines
            .filter(|line| has_credentials || !is_credentials(line))
            .for_each(|line| out.bytes.extend_from_slice(line));
        finish(&call.kept, &mut out.bytes);
        out.send(target, start..out.bytes.len(), 0);
    }

    /// Handles a response to an INVITE that makes a call (section 13.2.2).
    pub(super) fn invite_replied(&mut self, round: &mut Round<'_>, response: Response<'_>) {
        let has_other_call_id = response.message.is_some_and(|message| !self.has_call_id(response.request, message));
        let response = match has_other_call_id {
            true if response.status < 200 || response.after_final => return,
            true => Response { status: 502, message: None, ..response },
            false => response,
        };
        let Response { call: id, status, message, .. } = response;
        match (status, message) {
            (100..200, Some(message)) => self.progressed(round, response, message),
            (200..300, Some(message)) => self.accepted(round, response, message),
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

    /// Tells whether a response has the Call-ID of its request (section 8.2.6.2). With another one each 2xx of a callee would be the first of an
    /// INVITE, and so evade [`MOST_LOST`].
    fn has_call_id(&self, request: Id, response: &Message<'_>) -> bool {
        let call_id = response.call_id().map_or(&b""[..], |call_id| call_id.text);
        let hash = call::hash(self.call_secret, call_id);
        self.requests.get(request).is_some_and(|request| request.call_hash == hash)
    }

    /// Handles a 1xx (section 13.2.2.1).
    fn progressed(&mut self, round: &mut Round<'_>, response: Response<'_>, message: &Message<'_>) {
        let Response { request, call: id, status, .. } = response;
        let offered = self.requests.get(request).is_some_and(|r| r.offered);
        let tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default();
        let is_of_dialog = status > 100 && !tag.is_empty();
        let Some(call) = self.calls.get(id) else { return };
        let known = call.leg_of(tag).filter(|_| is_of_dialog);
        let lacks_contact = known.is_some_and(|at| self.lacks_contact(request, call, at));
        let is_new = is_of_dialog && known.is_none() && call.made < MOST_LEGS;
        let made = if is_new { self.new_dialog(request, Some(call), message).ok() } else { None };
        let Some(call) = self.calls.get_mut(id) else { return };
        let cancelling = call.stage != Stage::Inviting;
        let (mut prack, mut is_offer) = (None, false);
        if is_of_dialog {
            let at = match (known, made) {
                (Some(at), _) => at,
                (None, Some(mut dialog)) => {
                    if offered {
                        dialog.exchange.send();
                    }
                    call.add_leg(dialog)
                }
                (None, None) => return,
            };
            let leg = &mut call.legs[at];
            if leg.dialog.state() == State::Ended {
                return;
            }
            if lacks_contact {
                leg.dialog.refresh(message);
            }
            self.events.is_of_leg(leg.number);
            let reliable = message.require().flatten().any(|t| t.is(b"100rel"));
            if let (true, Ok(rseq), Ok(cseq)) = (reliable, message.mandatory::<Number<'_>>(Name::RSeq), message.cseq())
            {
                if leg.rseq != 0 && rseq.value != leg.rseq.wrapping_add(1) {
                    // A copy, or one that came too early: its sender repeats it (RFC 3262 section 4).
                    return;
                }
                leg.rseq = rseq.value;
                if has_description(message) {
                    is_offer = leg.dialog.exchange.receive_response(offered) == Some(Description::Offer);
                }
                let due = (rseq.value, cseq.number);
                if is_offer && !cancelling {
                    // The PRACK has the answer (RFC 3262 section 5).
                    leg.prack_due = Some(due);
                } else {
                    prack = Some((leg.number, due));
                }
            }
            self.report_name(id, at);
        }
        if let Some((leg, due)) = prack {
            self.send_prack(round, id, Some(leg), due, Content::default());
        }
        if !cancelling {
            let body = self.events.keep(message.body());
            self.events.push(Event::Progress { call: CallKey(id), status, body, offer: is_offer });
        }
    }

    /// Ends one early dialog of our INVITE by a BYE (section 15), with further header lines, each with its CRLF. The INVITE goes on without it,
    /// but a 2xx that crosses the BYE ends the call. [`Event::Reply`] reports the outcome.
    ///
    /// # Errors
    /// The call has no such early dialog.
    pub fn hang_up_leg(&mut self, round: &mut Round<'_>, leg: LegKey, headers: &[u8]) -> Result<RequestKey, NotNow> {
        let id = leg.call.0;
        let call = self.calls.get(id).filter(|c| c.stage == Stage::Inviting).ok_or(NotNow::NoDialog)?;
        let at = call.position(leg.leg).ok_or(NotNow::NoDialog)?;
        let Leg { dialog, number, .. } = &call.legs[at];
        if dialog.state() == State::Ended {
            return Err(NotNow::NoDialog);
        }
        let number = Some(*number);
        self.reject_update(round, LegKey { leg: number, ..leg }, 487);
        let content = Content { headers, ..Content::default() };
        let outgoing = Outgoing { kind: ClientRequestKind::InDialog, method: Method::Bye.text(), content };
        let request = self.send_in_dialog(round, id, number, outgoing).ok_or(NotNow::NoDialog)?;
        if let Some(call) = self.calls.get_mut(id) {
            // A key without a number names one that goes on, if there is any.
            let mut leg = call.legs.remove(at);
            leg.dialog.end();
            call.legs.push(leg);
        }
        Ok(RequestKey(request))
    }

    /// Cancels our open re-INVITE (section 9.1). Its final response is reported as without the CANCEL: [`Event::Unchanged`] with 487, or
    /// the event of a 2xx that crosses the CANCEL. Returns false if there is nothing to cancel.
    pub fn withdraw(&mut self, round: &mut Round<'_>, call: CallKey) -> bool {
        let established = self.calls.get(call.0).filter(|call| call.stage == Stage::Established);
        let client = established.and_then(|call| self.requests.get(call.inviting?)?.client);
        client.is_some_and(|client| round.tx.cancel(round.now, client, None, round.out))
    }

    /// Sends the PRACK with our answer, after [`Event::Progress`] with an offer (RFC 3262 section 5).
    ///
    /// # Errors
    /// No PRACK is due in this dialog.
    pub fn prack<'c>(
        &mut self,
        round: &mut Round<'_>,
        leg: impl Into<LegKey>,
        content: impl Into<Content<'c>>,
    ) -> Result<(), NotNow> {
        let LegKey { call, leg } = leg.into();
        let c = self.calls.get_mut(call.0).ok_or(NotNow::NoDialog)?;
        let at = c.position(leg).ok_or(NotNow::NoDialog)?;
        let due = c.legs[at].prack_due.take().ok_or(NotNow::Pending)?;
        self.send_prack(round, call.0, leg, due, content.into());
        Ok(())
    }

    /// Sends a PRACK. `due`: RSeq and CSeq of the response.
    fn send_prack(&mut self, round: &mut Round<'_>, id: Id, leg: Option<u16>, due: (u32, u32), content: Content<'_>) {
        let (rseq, cseq) = due;
        let mut lines = b"RAck: ".to_vec();
        rseq.write(&mut lines);
        lines.push(b' ');
        cseq.write(&mut lines);
        lines.extend_from_slice(b" INVITE\r\n");
        lines.extend_from_slice(content.headers);
        self.note_description(id, content);
        let content = Content { headers: &lines, ..content };
        self.send_in_dialog(
            round,
            id,
            leg,
            Outgoing { kind: ClientRequestKind::Prack, method: Method::Prack.text(), content },
        );
    }

    /// Handles a 2xx (section 13.2.2.4): the first makes the call, its copies are acknowledged again, those of other branches are ended.
    fn accepted(&mut self, round: &mut Round<'_>, response: Response<'_>, message: &Message<'_>) {
        let Response { request, call: id, after_final, .. } = response;
        let Ok(made) = self.new_dialog(request, self.calls.get(id), message) else {
            // It makes no dialog, so neither ACK nor BYE has an address.
            if !after_final && self.remove_call(round, id).is_some() {
                self.events.push(Event::Failed { call: CallKey(id), status: 502, local: true });
            }
            return;
        };
        let (offered, credentials) =
            self.requests.get(request).map_or((false, Vec::new()), |r| (r.offered, credential_lines(&r.bytes)));
        let account = self.requests.get(request).and_then(|r| r.account);
        let target = self.responder(request);
        let call_hash = self.requests.get(request).map_or(0, |r| r.call_hash);
        let Some(call) = self.calls.get_mut(id) else {
            return self.end_fork(round, made, target, call_hash, (account, credentials));
        };
        if !matches!(call.stage, Stage::Inviting | Stage::Cancelling) {
            let same = call.legs.first().is_some_and(|l| l.dialog.remote_tag() == made.remote_tag());
            if !same {
                self.end_fork(round, made, target, call_hash, (account, credentials));
            } else if call.ack_branch != 0 && made.local_cseq() == call.invite_cseq {
                self.acknowledge_now(round, id);
            }
            return;
        }
        let mut is_unwanted = call.stage == Stage::Cancelling;
        call.inviting = None;
        call.invite_cseq = made.local_cseq();
        (call.credentials, call.kept) = (credentials, Vec::new());
        let mut legs: SmallVec<[Leg; 1]> = std::mem::take(&mut call.legs);
        let mut leg = match legs.iter().position(|l| l.dialog.remote_tag() == made.remote_tag()) {
            Some(known) => {
                let mut leg = legs.remove(known);
                is_unwanted |= leg.dialog.state() == State::Ended;
                leg.dialog.confirm(Some(message));
                leg
            }
            None => {
                let mut leg = call.new_leg(made);
                if offered {
                    leg.dialog.exchange.send();
                }
                leg
            }
        };
        let body = message.body();
        let description = if has_description(message) { leg.dialog.exchange.receive_response(offered) } else { None };
        self.events.is_of_leg(leg.number);
        call.legs = smallvec![leg];
        self.end_legs(round, legs);
        self.report_name(id, 0);
        self.take_grant(round.now, id, message);
        let key = CallKey(id);
        if description == Some(Description::Offer) && !is_unwanted {
            self.set_stage(id, Stage::AnswerDue);
            let body = self.events.keep(body);
            self.events.push(Event::Answered { call: key, body, offer: true });
            return;
        }
        self.set_stage(id, Stage::Established);
        self.acknowledge_now(round, id);
        if is_unwanted {
            // The 2xx crossed our CANCEL (section 9.1) or the BYE to its early dialog.
            self.send_bye(round, id, Ending::Local);
        } else {
            let body = self.events.keep(body);
            self.events.push(Event::Answered { call: key, body, offer: false });
        }
    }

    /// Ends the early dialogs of an INVITE that was refused and is sent again: its responses make new ones (section 12.3).
    pub(super) fn end_early_dialogs(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.session.close_offer(false);
        let legs = std::mem::take(&mut call.legs);
        self.end_legs(round, legs);
    }

    /// Refuses the open UPDATEs of early dialogs that are over.
    fn end_legs(&mut self, round: &mut Round<'_>, legs: SmallVec<[Leg; 1]>) {
        for update in legs.into_iter().filter_map(|leg| leg.updated) {
            let lines = |_: &Self, _: &mut Vec<u8>| ();
            self.reply(round, update.server, update.source, &update.bytes, 481, b"", lines, b"");
        }
    }

    /// Sends ACK and BYE for an unwanted dialog: another branch of a fork, or an abandoned call.
    fn end_fork(
        &mut self,
        round: &mut Round<'_>,
        mut dialog: Dialog,
        target: Target,
        call_hash: u32,
        (account, credentials): (Option<AccountKey>, Vec<u8>),
    ) {
        if let Some((known, _)) = self.find(dialog.call_id(), dialog.local_tag(), dialog.remote_tag()) {
            // A copy of the 2xx; its BYE was sent.
            return self.acknowledge_now(round, known);
        }
        let place = self.place(dialog.call_id());
        let of_invite = self.places.iter_hash(place).filter(|(hash, _)| *hash == place).count();
        if of_invite > MOST_LOST || self.calls.len() >= self.settings.calls {
            return;
        }
        let mut call = Call::new(Stage::Established, place, call_hash, target);
        call.invite_cseq = dialog.local_cseq();
        dialog.skip_cseqs(0, SKIPPED_CSEQS);
        call.credentials = credentials;
        // The BYE of a lost branch has no credentials of a numbered account.
        call.account = account.filter(|account| account.is_named());
        call.silent = true;
        call.add_leg(dialog);
        let id = self.insert_call(call);
        self.acknowledge_now(round, id);
        self.send_bye(round, id, Ending::Local);
    }

    /// Returns the target of requests to the sender of a response: that of its INVITE, or the source of the response if another role of this
    /// server has carried the INVITE.
    pub(super) fn responder(&self, request: Id) -> Target {
        let sent = self.requests.get(request).map(|r| r.target).filter(|target| !target.is_loopback());
        let source = || Some(self.events.source()?.reply()).filter(|target| !target.is_loopback());
        sent.or_else(source).unwrap_or_else(|| {
            let listener = self.identity.listener(crate::ListenerId(0));
            Target::new(listener.transport, crate::ListenerId(0), listener.bound)
        })
    }
}

fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|s| s.eq_ignore_ascii_case(b"sips:"))
}

/// Returns the Authorization and Proxy-Authorization lines of a sent request.
pub(super) fn credential_lines(request: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in request.split_inclusive(|&b| b == b'\n') {
        if line == b"\r\n" {
            break;
        }
        if is_credentials(line) {
            lines.extend_from_slice(line);
        }
    }
    lines
}

fn is_credentials(line: &[u8]) -> bool {
    line.starts_with(b"Authorization:") || line.starts_with(b"Proxy-Authorization:")
}
