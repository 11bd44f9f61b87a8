//! First INVITE: the far call, its responses, its dialogs.

use super::event::BridgeEnd;
use super::exchange::{Exchange, Reply, WaitingOffer};
use super::pair::{NO_DIALOG, Pair, Side, Stage};
use super::passed_headers::Facts;
use super::{BridgeEvent, Context, PairKey};
use crate::user_agent::{Content, Invite};
use strowger_message::sdp::Sdp;

/// Header line of a request that may be sent again soon.
pub(super) const LATER: &[u8] = b"Retry-After: 5\r\n";

/// Maximum number of early dialogs of a far INVITE whose descriptions are kept, each with the state of its leg. The description of a further dialog
/// counts in the 2xx only.
const MOST_DESCRIBED: usize = 16;

/// Returns the status that refuses the near INVITE after this status has refused the far one. Without a proxy of the owner
/// ([`BridgeSettings::has_own_proxy`](super::BridgeSettings::has_own_proxy)) a 503 becomes 500 in addition.
pub const fn near_status(status: u16) -> u16 {
    match status {
        300..=399 => 480,
        _ => passing_status(status),
    }
}

/// Returns the status that refuses a request after this status has refused our request to the other side. Passwords, extensions and intervals
/// (RFC 3261 sections 21.4.15 and 21.4.16, RFC 4028 section 6) are matters of that side alone.
pub(super) const fn passing_status(status: u16) -> u16 {
    match status {
        401 | 407 => 403,
        420..=423 => 500,
        _ => status,
    }
}

/// Returns the status that refuses the near INVITE after this status has refused a description of the far side. One that cannot be read, or is too
/// large, is a fault of the far side alone (RFC 3261 section 21.5.3).
fn far_description_status(status: u16, description: &[u8]) -> u16 {
    if status == 413 || Sdp::parse(description).is_err() { 502 } else { status }
}

impl Pair {
    /// Makes the far call.
    pub(super) fn start(&mut self, cx: &mut Context<'_, '_>, invite: &Facts, offer: &[u8], far: &Invite<'_>) {
        self.invite.has_offer = !offer.is_empty();
        self.invite.until = cx.round.now.mono + cx.settings.setup;
        if invite.has_replaces {
            // RFC 3891 section 3: the owner has found no dialog.
            return self.release(cx, BridgeEnd::Refused(481, Side::Near), 481, b"");
        }
        let description = if self.invite.has_offer { self.offer(Side::Near, offer) } else { Ok(Vec::new()) };
        match description {
            Ok(description) => {
                self.forks.base = self.far.media.state.clone();
                self.call_far(cx, far, &description);
            }
            Err(status) => self.release(cx, BridgeEnd::Refused(status, Side::Near), status, b""),
        }
    }

    /// Makes another far call after a redirection, with the same offer.
    pub(super) fn retry(&mut self, cx: &mut Context<'_, '_>, far: &Invite<'_>) {
        if !matches!(self.stage, Stage::Redirected { .. }) {
            return;
        }
        let description = if self.invite.has_offer { self.forks.base.sent().to_vec() } else { Vec::new() };
        self.far.media.state = self.forks.base.clone();
        self.forget_dialogs();
        self.call_far(cx, far, &description);
    }

    fn call_far(&mut self, cx: &mut Context<'_, '_>, far: &Invite<'_>, offer: &[u8]) {
        let headers = [far.headers, &self.invite.passed[..]].concat();
        let mut capabilities = far.capabilities.unwrap_or_else(|| &cx.agent.settings().capabilities).clone();
        let may_answer = self.invite.has_offer || self.invite.is_reliable && self.near.can_update();
        if !may_answer {
            // A reliable response would have an offer, whose answer the near side could not give before the 200.
            let options = capabilities.supported.split(|&b| b == b',').map(<[u8]>::trim_ascii);
            let options: Vec<&[u8]> = options.filter(|option| !option.eq_ignore_ascii_case(b"100rel")).collect();
            capabilities.supported = options.join(&b", "[..]);
        }
        let invite = Invite { offer, content_type: b"", headers: &headers, capabilities: Some(&capabilities), ..*far };
        match cx.agent.invite(cx.round, &invite) {
            Ok(call) => {
                self.far.call = Some(call);
                cx.index.calls.insert(call, (cx.id, Side::Far));
                self.ring_on(cx);
            }
            Err(_) => self.release(cx, BridgeEnd::Refused(500, Side::Near), 500, b""),
        }
    }

    /// Gives the far side time again, as a proxy does on each provisional response (RFC 3261 section 16.7 step 2).
    fn ring_on(&mut self, cx: &Context<'_, '_>) {
        let until = cx.round.now.mono + cx.settings.ringing;
        self.stage = Stage::Inviting { until: until.min(self.invite.until) };
    }

    /// Handles a provisional response of the far side.
    pub(super) fn progressed(
        &mut self,
        cx: &mut Context<'_, '_>,
        number: u16,
        status: u16,
        body: &[u8],
        is_offer: bool,
        facts: &Facts,
    ) {
        if !self.is_early() {
            return;
        }
        self.ring_on(cx);
        if matches!(status, 100 | 199) {
            return;
        }
        if !self.forks.numbers.contains(&number) {
            self.forks.numbers.push(number);
        }
        if is_offer {
            return self.offered_early(cx, number, status, body);
        }
        // Without an offer of the near side, a description in an unreliable response is a forecast (RFC 3262 section 5).
        let has_answer = self.invite.has_offer && !body.is_empty() && facts.has_description();
        let has_room =
            self.forks.answers.len() < MOST_DESCRIBED || self.forks.answers.iter().any(|(of, _)| *of == number);
        if !has_answer || !has_room || !self.is_news(number, body) {
            return self.ring(cx, status, b"");
        }
        self.select(number);
        if self.forks.described.is_none() {
            // An answer that does not fit is no answer; the final response decides.
            let answer = self.answer(Side::Near, body).unwrap_or_default();
            if !answer.is_empty() {
                self.forks.described = Some(number);
            }
            self.ring(cx, status, &answer);
            return self.tell_streams(cx);
        }
        self.note_answer(Side::Far, body);
        self.ring(cx, status, b"");
        if self.exchange.is_none() && self.waiting.is_empty() {
            self.renew_near(cx, number);
        }
    }

    /// Sends a provisional response to the near side. If that side waits for an offer, one without offer must not be reliable (RFC 3262
    /// section 5).
    fn ring(&self, cx: &mut Context<'_, '_>, status: u16, body: &[u8]) {
        let Some(call) = self.near.call else { return };
        let lacks_offer = !self.invite.has_offer && self.forks.described.is_none() && body.is_empty();
        if !lacks_offer || !self.invite.is_reliable {
            cx.agent.ring(cx.round, call, status, body);
        } else if !self.invite.requires_reliable {
            cx.agent.ring_unreliably(cx.round, call, status, b"");
        }
    }

    /// Notes an answer in a response to the INVITE. Returns false if the dialog has given the same one before.
    fn is_news(&mut self, number: u16, body: &[u8]) -> bool {
        let answers = &mut self.forks.answers;
        match answers.iter_mut().find(|(of, _)| *of == number) {
            Some((_, known)) if **known == *body => false,
            Some((_, known)) => {
                *known = body.into();
                true
            }
            None => {
                answers.push((number, body.into()));
                true
            }
        }
    }

    /// Handles the offer in a reliable provisional response of the far side (RFC 3262 section 5).
    fn offered_early(&mut self, cx: &mut Context<'_, '_>, number: u16, status: u16, body: &[u8]) {
        let until = cx.round.now.mono + cx.settings.answer;
        let reply = Reply::Prack(number);
        let is_first = self.forks.described.is_none() && self.exchange.is_none() && self.waiting.is_empty();
        if !is_first || !self.invite.is_reliable {
            self.ring(cx, status, b"");
            self.waiting.push_back(WaitingOffer { reply, text: body.to_vec(), until });
            return self.next_offer(cx);
        }
        self.select(number);
        match self.offer(Side::Far, body) {
            Ok(offer) => {
                self.forks.described = Some(number);
                self.exchange = Some(Exchange::Offered { from: Side::Far, reply, until });
                self.ring(cx, status, &offer);
            }
            Err(status) => self.refuse(cx, Side::Far, reply, far_description_status(status, body), b""),
        }
    }

    /// Handles the 2xx of the far side.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context<'_, '_>,
        number: u16,
        body: &[u8],
        is_offer: bool,
        facts: &Facts,
    ) {
        self.select(number);
        self.forks.others.clear();
        self.stage = Stage::Up;
        self.drop_exchange_of_others(cx, number);
        let until = cx.round.now.mono + cx.settings.answer;
        let mut description = Vec::new();
        if is_offer {
            if self.forks.described.is_none() && self.exchange.is_none() {
                match self.offer(Side::Far, body) {
                    Ok(offer) => {
                        self.forks.described = Some(number);
                        let (from, reply) = (Side::Far, Reply::Acknowledge);
                        self.exchange = Some(Exchange::Offered { from, reply, until });
                        description = offer;
                    }
                    Err(status) => return self.refuse_far_description(cx, status, body),
                }
            } else {
                self.waiting.push_back(WaitingOffer { reply: Reply::Acknowledge, text: body.to_vec(), until });
            }
        } else if !self.invite.has_offer && self.forks.described.is_none() {
            return self.release(cx, BridgeEnd::Refused(502, Side::Far), 502, b"");
        } else if self.invite.has_offer {
            let has_answer = !body.is_empty() && facts.has_description();
            let is_news = has_answer && self.is_news(number, body);
            if self.forks.described.is_none() {
                let answer = if has_answer { self.answer(Side::Near, body) } else { Err(502) };
                match answer {
                    Ok(answer) => {
                        self.forks.described = Some(number);
                        description = answer;
                    }
                    Err(status) => return self.refuse_far_description(cx, status, body),
                }
            } else {
                if is_news {
                    self.note_answer(Side::Far, body);
                    self.forks.described = self.forks.described.filter(|described| *described != number);
                }
                if !self.invite.is_reliable {
                    // RFC 3261 section 13.2.1: the answer of the 18x once more.
                    description = self.near.media.state.local().to_vec();
                }
            }
        }
        self.invite.is_answered = true;
        if let Some(call) = self.near.call {
            cx.agent.answer(cx.round, call, Content { body: &description, ..Content::default() });
        }
        cx.events.push_back(BridgeEvent::Answered { pair: PairKey(cx.id) });
        self.tell_streams(cx);
    }

    /// Ends a call whose far side was answered with a description that was refused with this status.
    fn refuse_far_description(&mut self, cx: &mut Context<'_, '_>, status: u16, description: &[u8]) {
        let status = far_description_status(status, description);
        self.release(cx, BridgeEnd::Refused(status, Side::Far), status, b"");
    }

    /// Ends the exchanges with dialogs that have lost; the agent reports nothing of them any more.
    fn drop_exchange_of_others(&mut self, cx: &mut Context<'_, '_>, number: u16) {
        self.waiting.retain(|offer| offer.reply == Reply::Prack(number));
        match self.exchange {
            // It went to the only dialog then, and another one has answered.
            Some(Exchange::Offered { from: Side::Near, reply, .. })
                if self.forks.described.is_some_and(|described| described != number) =>
            {
                self.exchange = None;
                self.refuse(cx, Side::Near, reply, 491, b"");
            }
            // The near side still answers, but its answer goes to no dialog.
            Some(Exchange::Offered { from: Side::Far, reply: Reply::Update(of) | Reply::Prack(of), until })
                if of != number =>
            {
                self.exchange = Some(Exchange::Offered { from: Side::Far, reply: Reply::Nothing(of), until });
            }
            _ => (),
        }
    }

    /// Handles the final refusal of the far INVITE.
    pub(super) fn failed(&mut self, cx: &mut Context<'_, '_>, status: u16, facts: &Facts) {
        self.forget_call(cx, Side::Far);
        let mut headers = facts.passed.clone();
        let status = match near_status(status) {
            503 if !cx.settings.has_own_proxy => 500,
            503 => {
                if !headers.split(|&b| b == b'\n').any(|line| line.starts_with(b"Retry-After:")) {
                    headers.extend_from_slice(LATER);
                }
                503
            }
            status => status,
        };
        self.release(cx, BridgeEnd::Side(Side::Far), status, &headers);
    }

    /// Handles a redirection of the far INVITE: the owner decides.
    pub(super) fn redirected(&mut self, cx: &mut Context<'_, '_>, status: u16, target: Vec<u8>) {
        self.forget_call(cx, Side::Far);
        if matches!(self.stage, Stage::Ending(_)) {
            return;
        }
        self.drop_exchange_of_others(cx, NO_DIALOG);
        self.exchange = self.exchange.take().filter(|open| matches!(open, Exchange::Offered { from: Side::Far, .. }));
        self.stage = Stage::Redirected { until: cx.round.now.mono + cx.settings.ringing };
        cx.events.push_back(BridgeEvent::Redirected { pair: PairKey(cx.id), status, target });
    }
}
