//! Changes of the session within the call: offers of one side, answers of the other (RFC 3261 section 14, RFC 3311).

use serde::{Deserialize, Serialize};

use super::Context;
use super::event::BridgeEnd;
use super::pair::{Pair, Side, Stage};
use super::passed_headers::Facts;
use super::setup::{LATER, passing_status};
use crate::user_agent::{Content, LegKey, NotNow};

/// Header line of a refusal, RFC 3261 section 20.43.
const OTHER_FAMILY: &[u8] = b"Warning: 301 b2bua \"Incompatible network address formats\"\r\n";

/// Exchange between the sides that is open.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Exchange {
    /// The re-INVITE without offer of the side `by` was passed on, and waits for the offer of the other side until `until`.
    Asked { by: Side, until: u64 },
    /// The offer of the side `from` was passed on, and waits for the answer of the other side until `until`.
    Offered { from: Side, reply: Reply, until: u64 },
    /// The side `by` has cancelled its re-INVITE. The bridge has cancelled its own re-INVITE to the other side, which has no final response yet.
    Withdrawn { by: Side, until: u64 },
}

impl Exchange {
    pub(super) fn until(&self) -> u64 {
        match *self {
            Self::Asked { until, .. } | Self::Offered { until, .. } | Self::Withdrawn { until, .. } => until,
        }
    }

    pub(super) fn until_mut(&mut self) -> &mut u64 {
        match self {
            Self::Asked { until, .. } | Self::Offered { until, .. } | Self::Withdrawn { until, .. } => until,
        }
    }
}

/// Message that takes an answer back to the offerer. A number names a dialog of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// 2xx of its re-INVITE.
    Answer,
    /// 2xx of its UPDATE, or of its PRACK with a further offer.
    Update(u16),
    /// PRACK of its reliable response.
    Prack(u16),
    /// ACK of its 2xx.
    Acknowledge,
    /// No reply: the offer repeats to the near side the agreed description of this dialog of the far side.
    Nothing(u16),
    /// No reply: the offer repeats the agreed description of the other side.
    Renewal,
}

/// Offer of the far side that waits for the end of the exchange.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WaitingOffer {
    pub(super) reply: Reply,
    pub(super) text: Vec<u8>,
    /// Moment at which the far side has waited for too long.
    pub(super) until: u64,
}

impl Pair {
    /// Handles an offer of a side, or the wish for one.
    pub(super) fn offered(&mut self, cx: &mut Context<'_, '_>, side: Side, number: u16, text: &[u8], is_update: bool) {
        let reply = if is_update { Reply::Update(number) } else { Reply::Answer };
        if self.exchange.is_some() || !self.waiting.is_empty() {
            return self.refuse(cx, side, reply, 491, b"");
        }
        match self.stage {
            Stage::Up => (),
            Stage::Inviting { .. } if self.can_change_early(side) => {
                if side == Side::Far {
                    self.select(number);
                }
            }
            Stage::Inviting { .. } | Stage::Redirected { .. } | Stage::Alone { .. } | Stage::Torn => {
                return self.refuse(cx, side, reply, 500, LATER);
            }
            Stage::Ending(_) => return self.refuse(cx, side, reply, 487, b""),
        }
        let until = cx.round.now.mono + if is_update { cx.settings.answer } else { cx.settings.ringing };
        if text.is_empty() {
            return match self.send_offer(cx, side.other(), b"", false) {
                Ok(()) => self.exchange = Some(Exchange::Asked { by: side, until }),
                Err(_) => self.refuse(cx, side, reply, 491, b""),
            };
        }
        if self.has_other_family(side, text) {
            return self.refuse(cx, side, reply, 488, OTHER_FAMILY);
        }
        if let Some(answer) = self.unchanged_answer(side, text) {
            self.send_answer(cx, side, reply, &answer);
            return self.tell_streams(cx);
        }
        match self.offer(side, text) {
            Ok(offer) => match self.send_offer(cx, side.other(), &offer, is_update) {
                Ok(()) => self.exchange = Some(Exchange::Offered { from: side, reply, until }),
                Err(_) => self.refuse(cx, side, reply, 491, b""),
            },
            Err(status) => self.refuse(cx, side, reply, status, b""),
        }
    }

    /// Tells whether a side may change the session before the call is up: the other side allows UPDATE, and the offer can go to
    /// one dialog alone.
    fn can_change_early(&self, side: Side) -> bool {
        match side {
            Side::Near => self.far.can_update() && self.forks.numbers.len() == 1,
            Side::Far => self.can_update_near(),
        }
    }

    /// Tells whether an UPDATE with an offer may go to the near side before the call is up (RFC 3311 section 5.1).
    pub(super) fn can_update_near(&self) -> bool {
        self.near.can_update() && self.invite.is_reliable && self.forks.described.is_some()
    }

    /// Sends an offer to a side, by UPDATE if `is_update` and the side allows it; an empty offer asks for one.
    pub(super) fn send_offer(
        &mut self,
        cx: &mut Context<'_, '_>,
        to: Side,
        offer: &[u8],
        is_update: bool,
    ) -> Result<(), NotNow> {
        let is_update = self.is_early() || is_update && self.leg(to).can_update();
        let leg = self.forks.current.filter(|_| to == Side::Far && self.is_early());
        let call = self.call(to).ok_or(NotNow::NoDialog)?;
        match is_update {
            true => cx.agent.update(cx.round, LegKey { call, leg }, offer)?,
            false => cx.agent.reinvite(cx.round, call, offer)?,
        }
        self.leg_mut(to).was_updated = is_update;
        Ok(())
    }

    /// Handles the offer in the 2xx to our re-INVITE without offer.
    pub(super) fn offered_late(&mut self, cx: &mut Context<'_, '_>, side: Side, text: &[u8]) {
        let by = side.other();
        let is_asked = matches!(self.exchange, Some(Exchange::Asked { by: asking, .. }) if asking == by);
        let offer = if is_asked { self.offer(side, text) } else { Err(500) };
        match offer {
            Ok(offer) => {
                let until = cx.round.now.mono + cx.settings.answer;
                self.exchange = Some(Exchange::Offered { from: side, reply: Reply::Acknowledge, until });
                self.send_answer(cx, by, Reply::Answer, &offer);
            }
            Err(status) => {
                if is_asked {
                    self.exchange = None;
                    self.refuse(cx, by, Reply::Answer, status, b"");
                } else if matches!(self.exchange, Some(Exchange::Withdrawn { .. })) {
                    self.exchange = None;
                }
                self.acknowledge_unchanged(cx, side);
            }
        }
    }

    /// Sends the ACK of a 2xx with an offer that was not passed on: the session stays as it was agreed.
    fn acknowledge_unchanged(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        let agreed = self.leg_mut(side).media.state.refresh();
        self.send_answer(cx, side, Reply::Acknowledge, &agreed);
    }

    /// Handles the ACK of our 2xx.
    pub(super) fn confirmed(&mut self, cx: &mut Context<'_, '_>, side: Side, body: &[u8]) {
        if side == Side::Near {
            self.invite.is_confirmed = true;
        }
        let is_answer = matches!(
            self.exchange,
            Some(Exchange::Offered { from, reply: Reply::Acknowledge, .. }) if from.other() == side
        );
        if is_answer {
            return self.answer_received(cx, side, body);
        }
        self.go_on(cx);
    }

    /// Handles the answer of a side to the offer that was passed on.
    pub(super) fn answer_received(&mut self, cx: &mut Context<'_, '_>, side: Side, body: &[u8]) {
        match self.exchange {
            Some(Exchange::Offered { from, reply, .. }) if from.other() == side => {
                self.exchange = None;
                self.pass_answer(cx, from, reply, body);
            }
            // A 2xx without the offer that we asked for.
            Some(Exchange::Asked { by, .. }) if by.other() == side => {
                self.exchange = None;
                self.refuse(cx, by, Reply::Answer, 500, b"");
            }
            // The 2xx has crossed the CANCEL.
            Some(Exchange::Withdrawn { by, .. }) if by.other() == side => {
                self.exchange = None;
                self.note_answer(side, body);
                self.renew(cx, side);
            }
            // The 2xx of a refresh by the agent, or of an offer whose other side has given up.
            None if !body.is_empty() && self.leg(side).media.state.sent() == self.leg(side).media.state.local() => {
                self.note_answer(side, body);
            }
            _ => return,
        }
        self.tell_streams(cx);
        self.go_on(cx);
    }

    fn pass_answer(&mut self, cx: &mut Context<'_, '_>, from: Side, reply: Reply, body: &[u8]) {
        if let Reply::Nothing(_) | Reply::Renewal = reply {
            let is_noted = self.note_answer(from.other(), body);
            if let Reply::Nothing(number) = reply
                && is_noted
            {
                self.forks.described = Some(number);
            }
            return self.renewed(cx, from.other(), is_noted);
        }
        match self.answer(from, body) {
            Ok(answer) => {
                if from == Side::Far && self.forks.current.is_some() {
                    self.forks.described = self.forks.current;
                }
                self.note_placed();
                self.send_answer(cx, from, reply, &answer);
            }
            // The ACK had no answer, so both sides keep what they agreed before. A new party has agreed nothing yet.
            Err(_) if reply == Reply::Acknowledge && self.has_agreed(from) && self.has_agreed(from.other()) => {
                self.acknowledge_unchanged(cx, from);
            }
            Err(_) => self.refuse(cx, from, reply, 500, b""),
        }
    }

    /// Handles the refusal of our re-INVITE or UPDATE.
    pub(super) fn change_refused(
        &mut self,
        cx: &mut Context<'_, '_>,
        side: Side,
        status: u16,
        wait: u64,
        facts: &Facts,
    ) {
        let status = passing_status(status);
        match self.exchange {
            Some(Exchange::Offered { from, reply, .. }) if from.other() == side => {
                let (mut status, mut headers) = (status, &facts.passed[..]);
                if matches!(status, 405 | 501) && self.leg(side).was_updated {
                    if self.offer_again(cx, side) {
                        return;
                    }
                    (status, headers) = (500, LATER);
                }
                self.exchange = None;
                let is_own = matches!(reply, Reply::Nothing(_) | Reply::Renewal);
                if is_own && status == 491 {
                    self.renewal = Some((side, cx.round.now.mono + wait));
                } else if is_own {
                    self.renewed(cx, side, false);
                }
                self.refuse(cx, from, reply, status, headers);
            }
            Some(Exchange::Withdrawn { by, .. }) if by.other() == side => self.exchange = None,
            Some(Exchange::Asked { by, .. }) if by.other() == side => {
                self.exchange = None;
                self.refuse(cx, by, Reply::Answer, status, &facts.passed);
            }
            _ => return,
        }
        self.go_on(cx);
    }

    /// Sends an answer to the side that has offered; [`Reply::Answer`] also carries an offer to a side that asked for one.
    fn send_answer(&mut self, cx: &mut Context<'_, '_>, to: Side, reply: Reply, answer: &[u8]) {
        let Some(call) = self.call(to) else { return };
        let content = Content { body: answer, ..Content::default() };
        match reply {
            Reply::Answer => {
                cx.agent.answer(cx.round, call, content);
                self.finish_replacement(cx, to);
            }
            Reply::Update(leg) => cx.agent.answer_update(cx.round, LegKey { call, leg: Some(leg) }, content),
            Reply::Prack(leg) => {
                // Without such a dialog, the response came from a branch of the fork that has lost.
                let _ = cx.agent.prack(cx.round, LegKey { call, leg: Some(leg) }, content);
            }
            Reply::Acknowledge => cx.agent.acknowledge(cx.round, call, content),
            Reply::Nothing(_) | Reply::Renewal => (),
        }
    }

    /// Refuses the offer of a side, which leaves the session as it was.
    pub(super) fn refuse(&mut self, cx: &mut Context<'_, '_>, to: Side, reply: Reply, status: u16, headers: &[u8]) {
        let leg = self.leg_mut(to);
        leg.media.state.refuse_offer();
        let Some(call) = leg.call else { return };
        match reply {
            Reply::Answer => {
                // 491 refuses a change of an established call. The INVITE of a new party gets 500 instead.
                let is_busy = status == 491 && self.is_replacing(to);
                let (status, headers) = if is_busy { (500, LATER) } else { (status, headers) };
                cx.agent.reject_with(cx.round, call, status, headers);
                self.give_back(cx, to);
            }
            Reply::Update(leg) => {
                cx.agent.reject_update_with(cx.round, LegKey { call, leg: Some(leg) }, status, headers);
            }
            // A PRACK with an answer can refuse nothing (RFC 3262 section 5), so the dialog ends.
            Reply::Prack(leg) => {
                let key = LegKey { call, leg: Some(leg) };
                if cx.agent.hang_up_leg(cx.round, key, headers).is_err() {
                    self.release(cx, BridgeEnd::Refused(status, to), status, headers);
                }
            }
            Reply::Acknowledge => self.release(cx, BridgeEnd::Refused(status, to), status, headers),
            Reply::Nothing(_) | Reply::Renewal => (),
        }
    }

    /// Continues after an exchange: with the offers that wait, and with the description of the dialog that has won.
    fn go_on(&mut self, cx: &mut Context<'_, '_>) {
        self.next_offer(cx);
        let is_free = self.exchange.is_none() && self.stage == Stage::Up && self.invite.is_confirmed;
        if is_free
            && let Some(number) = self.forks.current
            && self.forks.described != Some(number)
        {
            self.renew_near(cx, number);
        }
        self.renew_displaced(cx);
    }

    /// Passes the next offer that waits on to the near side.
    pub(super) fn next_offer(&mut self, cx: &mut Context<'_, '_>) {
        while self.exchange.is_none() && (self.is_early() || self.invite.is_confirmed) {
            let Some(WaitingOffer { reply, text, until }) = self.waiting.pop_front() else { return };
            if let Reply::Prack(number) = reply {
                self.select(number);
            }
            if self.forks.described != self.forks.current {
                // The streams of the near leg are still paired with another dialog.
                self.near.media.state.unpair();
            }
            if let Some(answer) = self.unchanged_answer(Side::Far, &text) {
                self.forks.described = self.forks.current;
                self.send_answer(cx, Side::Far, reply, &answer);
                self.tell_streams(cx);
                continue;
            }
            let is_possible = !self.is_early() || self.can_update_near();
            let offer = if is_possible { self.offer(Side::Far, &text) } else { Err(488) };
            let sent = offer.and_then(|offer| self.send_offer(cx, Side::Near, &offer, true).map_err(|_| 491));
            match sent {
                Ok(()) => self.exchange = Some(Exchange::Offered { from: Side::Far, reply, until }),
                Err(status) => self.refuse(cx, Side::Far, reply, status, b""),
            }
        }
    }
}
