//! Sides that are out of step, after glare, a cancelled re-INVITE or a refused UPDATE: the bridge repeats an offer, or offers a side the agreed
//! description of the other side, or other places of its streams.

use super::exchange::{Exchange, Reply};
use super::pair::{NO_DIALOG, Pair, Side, Stage};
use super::{BridgeEvent, Context, PairKey};
use crate::user_agent::NotNow;

/// Milliseconds until the next attempt of a renewal that crosses another change of the same leg.
const BUSY_WAIT: u64 = 2_000;

impl Pair {
    /// Handles the CANCEL of a re-INVITE: cancels the re-INVITE to the other side too (RFC 3261 section 9.1).
    pub(super) fn withdrawn(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        let is_open = match self.exchange {
            Some(Exchange::Asked { by, .. }) => by == side,
            Some(Exchange::Offered { from, reply: Reply::Answer, .. }) => from == side,
            _ => false,
        };
        if !is_open {
            return;
        }
        self.leg_mut(side).media.state.refuse_offer();
        self.exchange = Some(Exchange::Withdrawn { by: side, until: cx.round.now.mono + cx.settings.answer });
        if let Some(call) = self.call(side.other()) {
            cx.agent.withdraw(cx.round, call);
        }
    }

    /// Makes an offer again by a re-INVITE, since the side has refused the UPDATE as an unknown method. Returns false if no re-INVITE can
    /// be sent now.
    pub(super) fn offer_again(&mut self, cx: &mut Context<'_, '_>, side: Side) -> bool {
        let leg = self.leg_mut(side);
        leg.refuses_updates = true;
        let offer = leg.media.state.sent().to_vec();
        if self.is_early() {
            if let Some(Exchange::Offered { reply: Reply::Nothing(_), .. }) = self.exchange {
                // The near side has the description of another dialog until a re-INVITE follows the ACK.
                self.forks.described = Some(NO_DIALOG);
            }
            return false;
        }
        let is_sent = self.send_offer(cx, side, &offer, false).is_ok();
        if let Some(exchange) = self.exchange.as_mut().filter(|_| is_sent) {
            *exchange.until_mut() = cx.round.now.mono + cx.settings.ringing;
        }
        is_sent
    }

    /// Offers a side the agreed description of the other side, unless the side has it already.
    pub(super) fn renew(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        if self.exchange.is_some() || !self.waiting.is_empty() {
            self.renewal = Some((side, cx.round.now.mono + BUSY_WAIT));
            return;
        }
        match self.forks.current {
            Some(number) if side == Side::Near => self.renew_near(cx, number),
            _ if self.stage == Stage::Up => {
                if let Some(offer) = self.renewed_offer(side) {
                    self.send_renewal(cx, side, &offer, Reply::Renewal);
                }
            }
            _ => (),
        }
    }

    /// Offers the near side the description of a dialog of the far side, unless the near side has it already.
    pub(super) fn renew_near(&mut self, cx: &mut Context<'_, '_>, number: u16) {
        if self.is_early() && !self.can_update_near() {
            return;
        }
        self.forks.described = Some(number);
        match self.renewed_offer(Side::Near) {
            Some(offer) => self.send_renewal(cx, Side::Near, &offer, Reply::Nothing(number)),
            None => self.tell_streams(cx),
        }
    }

    fn send_renewal(&mut self, cx: &mut Context<'_, '_>, to: Side, offer: &[u8], reply: Reply) {
        let now = cx.round.now.mono;
        match self.send_offer(cx, to, offer, self.is_early()) {
            Ok(()) => {
                let until = now + cx.settings.ringing;
                self.exchange = Some(Exchange::Offered { from: to.other(), reply, until });
            }
            Err(NotNow::Pending) => self.renewal = Some((to, now + BUSY_WAIT)),
            Err(NotNow::NoDialog) => (),
        }
    }

    /// Offers a side the present places of its streams if it has not agreed to them, and no exchange is open.
    pub(super) fn renew_displaced(&mut self, cx: &mut Context<'_, '_>) {
        for side in [Side::Near, Side::Far] {
            let is_free = self.exchange.is_none() && self.waiting.is_empty() && self.renewal.is_none();
            if !is_free || self.stage != Stage::Up || !self.leg(side).is_displaced {
                continue;
            }
            self.renew(cx, side);
            // Without an offer that is open or due, the side has got the places in an exchange of its own.
            self.leg_mut(side).is_displaced = self.exchange.is_some() || self.renewal.is_some();
        }
    }

    /// Cancels the offers of the present places that are due.
    pub(super) fn note_placed(&mut self) {
        (self.near.is_displaced, self.far.is_displaced) = (false, false);
    }

    /// Notes the result of an offer of the bridge's own to a side. Tells the owner if a side refuses other places.
    pub(super) fn renewed(&mut self, cx: &mut Context<'_, '_>, side: Side, is_agreed: bool) {
        if std::mem::take(&mut self.leg_mut(side).is_displaced) && !is_agreed {
            // The owner ends the pair: the other side gets no offer.
            self.note_placed();
            cx.events.push_back(BridgeEvent::Stranded { pair: PairKey(cx.id) });
        }
    }
}
