//! INVITE with Replaces: a new party takes the place of one side of a pair (RFC 3891).

use serde::{Deserialize, Serialize};
use strowger_message::header::Replaces;
use strowger_message::{Index, Limits, Message, Name};

use super::carried_request::respond;
use super::event::BridgeEnd;
use super::pair::{Forks, Leg, LegMedia, Pair, Side, Stage};
use super::passed_headers::Facts;
use super::referral::name_of;
use super::setup::LATER;
use super::{Bridge, BridgeEvent, Context, PairKey};
use crate::b2bua::negotiation::LegState;
use crate::user_agent::{CallKey, DialogName, Event, LegKey, UserAgent};
use crate::{Now, Round};

/// Leg that an INVITE with Replaces is to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedLeg {
    /// Pair of the leg.
    pub pair: PairKey,
    /// Side of the leg.
    pub side: Side,
    /// Set if a REFER that this bridge has carried over names the dialog of this leg, and its outcome is open: the transferor has asked
    /// for the INVITE (section 3). Otherwise the owner must check that the caller may replace the party.
    pub is_expected: bool,
}

/// Leg whose place a new party takes, until that party has an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Replaced {
    pub(super) side: Side,
    pub(super) old: Leg,
    pub(super) stage: Stage,
    /// State of the other leg before the replacement: its streams are paired with those of the old leg.
    paired: LegState,
    /// Dialogs of the far INVITE, if the old leg is the far one.
    forks: Option<Forks>,
}

impl Bridge {
    /// Finds the leg that an incoming INVITE is to replace. Its Replaces names the dialog of that leg, or the dialog of the other leg as the
    /// other party knows it. `Ok(None)` for an INVITE without Replaces. Call it before [`Bridge::start`] or [`Bridge::replace`].
    ///
    /// # Errors
    /// Status that refuses the INVITE. 400: Replaces cannot be read, or there are several. 481: it does not match the Call-ID and both tags of
    /// a confirmed dialog of a pair. 486: it is for early dialogs only. 500: the pair is changing its session. 603: the pair is ending.
    pub fn replaced(&self, now: Now, agent: &UserAgent, invite: &[u8]) -> Result<Option<ReplacedLeg>, u16> {
        let mut index = Index::new();
        if index.parse(invite, &Limits::UNLIMITED).is_err() {
            return Ok(None);
        }
        let message = Message::new(invite, &index);
        let mut values = message.headers(Name::Replaces);
        let Some(value) = values.next() else { return Ok(None) };
        let replaces = Replaces::parse(value).map_err(|_| 400u16)?;
        if values.next().is_some() {
            return Err(400);
        }
        let find = |name: &DialogName| self.index.calls.get(&agent.call_of(name)?).copied();
        let name = name_of(&replaces);
        let beyond = || find(&name.clone().reversed()).map(|(id, side)| (id, side.other()));
        let (id, side) = find(&name).or_else(beyond).ok_or(481u16)?;
        let pair = self.pairs.get(id).ok_or(481u16)?;
        if replaces.early_only {
            return Err(486);
        }
        pair.can_replace(side)?;
        let is_expected = pair.expected.is_some_and(|(of, until)| of == side && until > now.mono);
        Ok(Some(ReplacedLeg { pair: PairKey(id), side, is_expected }))
    }

    /// Lets an incoming call take the place of a leg, after [`Bridge::replaced`]. Its offer goes to the remaining side in a re-INVITE, and the
    /// answer back; then the old call is ended, and [`BridgeEvent::Replaced`] follows. A refusal goes back too, and leaves the pair as
    /// it was. The new leg keeps the policy and the ports of the old one.
    pub fn replace(
        &mut self,
        agent: &mut UserAgent,
        round: &mut Round<'_>,
        leg: ReplacedLeg,
        call: CallKey,
        invite: &[u8],
    ) {
        let facts = Facts::of(invite, &self.settings.passed);
        let offer = invite.get(facts.body.clone()).unwrap_or_default();
        let ReplacedLeg { pair: PairKey(id), side, .. } = leg;
        if self.pairs.get(id).is_none_or(|pair| pair.can_replace(side).is_err()) {
            return agent.reject_with(round, call, 500, LATER);
        }
        self.index.calls.insert(call, (id, side));
        self.with(agent, round, id, |pair, cx| pair.replace(cx, side, call, &facts, offer));
    }

    /// Tells whether a call belongs to a pair. One that was refused, or has given up, no longer does.
    pub fn has_call(&self, call: CallKey) -> bool {
        self.index.calls.contains_key(&call)
    }

    /// Tells whether a new party is to take the place of a side whose party has hung up, or has an INVITE open for it.
    pub fn awaits_party(&self, now: Now, pair: PairKey) -> bool {
        self.pairs.get(pair.0).is_some_and(|pair| match pair.stage {
            Stage::Alone { by, .. } => pair.expected.is_some_and(|(side, until)| side == by && until > now.mono),
            Stage::Ending(_) => false,
            _ => pair.replaced.is_some(),
        })
    }

    /// Notes that a REFER in another bridge names the dialog of this side: a new party is to take its place until `until`
    /// ([`Now::mono`] milliseconds). See [`BridgeEvent::Awaited`].
    pub fn expect_party(&mut self, pair: PairKey, side: Side, until: u64) {
        if let Some(pair) = self.pairs.get_mut(pair.0) {
            pair.expected = Some((side, until));
        }
    }
}

impl Pair {
    /// Tells whether a new party may take the place of a side now. If not, returns the status that refuses it.
    fn can_replace(&self, side: Side) -> Result<(), u16> {
        let is_confirmed = match self.stage {
            Stage::Up => self.invite.is_confirmed,
            Stage::Alone { by, .. } if by == side => true,
            Stage::Inviting { .. } | Stage::Redirected { .. } => return Err(481),
            Stage::Alone { .. } | Stage::Torn | Stage::Ending(_) => return Err(603),
        };
        let is_changing = self.exchange.is_some() || !self.waiting.is_empty() || self.replaced.is_some();
        match is_confirmed && !is_changing && self.call(side.other()).is_some() {
            true => Ok(()),
            false => Err(500),
        }
    }

    fn replace(&mut self, cx: &mut Context<'_, '_>, side: Side, call: CallKey, facts: &Facts, offer: &[u8]) {
        self.drop_carried(cx);
        self.renewal = None;
        let other = &mut self.leg_mut(side.other()).media.state;
        let paired = other.clone();
        other.unpair();
        let leg = self.leg_mut(side);
        let media = LegMedia { state: leg.media.state.for_new_peer(), ..leg.media.clone() };
        let base = media.state.clone();
        let old = std::mem::replace(leg, Leg::new(Some(call), media, facts.allows_update == Some(true)));
        let forks = (side == Side::Far).then(|| std::mem::replace(&mut self.forks, Forks::new(base)));
        let stage = std::mem::replace(&mut self.stage, Stage::Up);
        self.replaced = Some(Box::new(Replaced { side, old, stage, paired, forks }));
        self.offered(cx, side, 0, offer, false);
    }

    /// Tells whether the party of a side is a new one without an answer yet.
    pub(super) fn is_replacing(&self, side: Side) -> bool {
        self.replaced.as_ref().is_some_and(|replaced| replaced.side == side)
    }

    /// Ends the old call, once the new party has its answer.
    pub(super) fn finish_replacement(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        let Some(replaced) = self.replaced.take_if(|replaced| replaced.side == side) else { return };
        self.transfers.clear();
        self.expected = None;
        end_old(cx, &replaced, b"");
        cx.events.push_back(BridgeEvent::Replaced { pair: PairKey(cx.id), side });
    }

    /// Gives the side back to its old party, since the new one was refused or has given up. If the old one has hung up meanwhile, the pair
    /// ends.
    pub(super) fn give_back(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        let Some(replaced) = self.replaced.take_if(|replaced| replaced.side == side) else { return };
        let Replaced { old, stage, paired, forks, .. } = *replaced;
        self.forget_call(cx, side);
        let is_gone = old.call.is_none() && stage == Stage::Up;
        *self.leg_mut(side) = old;
        self.leg_mut(side.other()).media.state.pair_as(&paired);
        if let Some(forks) = forks {
            self.forks = forks;
        }
        self.stage = stage;
        if is_gone {
            self.release(cx, BridgeEnd::Side(side), 480, b"");
        }
    }

    /// Handles the end of a new party that has no answer yet: the re-INVITE of the other side is cancelled.
    pub(super) fn newcomer_ended(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        self.withdrawn(cx, side);
        self.give_back(cx, side);
    }

    /// Ends the old call of a pair that ends before the new party had its answer.
    pub(super) fn release_replaced(&mut self, cx: &mut Context<'_, '_>, headers: &[u8]) {
        if let Some(replaced) = self.replaced.take() {
            end_old(cx, &replaced, headers);
        }
    }

    /// Handles an event of the old call while the new party has no answer. Returns false if the event belongs to another call.
    pub(super) fn handle_replaced(
        &mut self,
        cx: &mut Context<'_, '_>,
        call: Option<CallKey>,
        leg: u16,
        event: &Event,
    ) -> bool {
        let Some(replaced) = &mut self.replaced else { return false };
        let Some(old) = replaced.old.call.filter(|old| Some(*old) == call) else { return false };
        match *event {
            Event::Ended { .. } => {
                replaced.old.call = None;
                cx.index.calls.remove(&old);
            }
            Event::Offered { update: true, .. } => {
                cx.agent.reject_update(cx.round, LegKey { call: old, leg: Some(leg) }, 491);
            }
            Event::Offered { .. } => cx.agent.reject(cx.round, old, 491),
            Event::Request { request, .. } => respond(cx, request, 500, LATER),
            _ => (),
        }
        true
    }
}

/// Ends the call of a replaced leg. Its later events belong to no pair.
fn end_old(cx: &mut Context<'_, '_>, replaced: &Replaced, headers: &[u8]) {
    if let Some(call) = replaced.old.call {
        cx.index.calls.remove(&call);
        cx.agent.hang_up_with(cx.round, call, headers);
    }
}
