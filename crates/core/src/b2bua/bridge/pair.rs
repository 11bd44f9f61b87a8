//! Pair of calls: its legs, its stage, and its open exchanges.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::carried_request::CarriedRequest;
use super::event::BridgeEnd;
use super::exchange::{Exchange, WaitingOffer};
use super::passed_headers::Facts;
use super::replacement::Replaced;
use super::transfer::Transfer;
use super::{BridgeEvent, Context, PairKey};
use crate::b2bua::negotiation::{BridgedStream, LegPolicy, LegState, LocalStream, bridged_streams};
use crate::timer::Stamp;
use crate::user_agent::{CallKey, Event, Invite, Reliability, UserAgent};

/// Side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Party that called.
    Near,
    /// Party that was called for it.
    Far,
}

impl Side {
    /// Returns the opposite side.
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// Media of one leg, as its owner gives them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LegMedia {
    /// State without descriptions, with a session id of its own.
    pub state: LegState,
    /// Formats and streams that pass.
    pub policy: Arc<LegPolicy>,
    /// Places at which this server receives the streams of the leg, by the index of their `m=` lines. A stream without a place
    /// is refused.
    pub places: Arc<[LocalStream]>,
}

/// Incoming call and the far call to make for it.
#[derive(Debug)]
pub struct BridgedCall<'a> {
    /// Incoming call, which has no response but 100.
    pub near: CallKey,
    /// Its INVITE, whole.
    pub invite: &'a [u8],
    /// Far call. The bridge sets its offer, and adds the header fields that pass.
    pub far: Invite<'a>,
    /// Media of the near leg.
    pub near_media: LegMedia,
    /// Media of the far leg.
    pub far_media: LegMedia,
}

/// One leg.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Leg {
    /// Call; `None` before it is made and after its end.
    pub(super) call: Option<CallKey>,
    pub(super) media: LegMedia,
    /// Set if Allow of the party lists UPDATE.
    pub(super) updates: bool,
    /// Set if the party has refused an UPDATE as an unknown method. Its Allow does not count then.
    pub(super) refuses_updates: bool,
    /// Set if our last offer to the party was an UPDATE.
    pub(super) was_updated: bool,
    /// Set while the party has not agreed to the present places of its streams ([`super::Bridge::relocate`]).
    pub(super) is_displaced: bool,
}

/// Stage of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// The far INVITE has no final response. Ends at the moment `until`.
    Inviting { until: u64 },
    /// The far INVITE was redirected, and the owner decides until `until`.
    Redirected { until: u64 },
    /// The far INVITE was answered.
    Up,
    /// The side `by` has hung up, and the other one is in a transfer, or waits for a new party until `until`.
    Alone { by: Side, until: u64 },
    /// Only one call has moved with the pair, so it ends at once.
    Torn,
    /// A side has ended; the other one is being ended.
    Ending(BridgeEnd),
}

impl Stage {
    fn until_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Inviting { until } | Self::Redirected { until } | Self::Alone { until, .. } => Some(until),
            Self::Up | Self::Torn | Self::Ending(_) => None,
        }
    }
}

/// Early dialog of the far side that is not the current one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Branch {
    pub(super) number: u16,
    pub(super) state: LegState,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) near: Leg,
    pub(super) far: Leg,
    pub(super) stage: Stage,
    pub(super) invite: NearInvite,
    pub(super) forks: Forks,
    /// Exchange of offer and answer between the sides that is open.
    pub(super) exchange: Option<Exchange>,
    /// Offers of the far side that wait for the end of the exchange.
    pub(super) waiting: VecDeque<WaitingOffer>,
    pub(super) carried: Vec<CarriedRequest>,
    /// Side that is to be offered the agreed description of the other side, and the time of that offer.
    pub(super) renewal: Option<(Side, u64)>,
    pub(super) transfers: Vec<Transfer>,
    /// Side whose dialog a REFER in another pair names, and the end of the wait: a new party is to take its place.
    pub(super) expected: Option<(Side, u64)>,
    pub(super) replaced: Option<Box<Replaced>>,
    /// Streams that the owner knows.
    pub(super) streams: Vec<Option<BridgedStream>>,
    /// Timer, and the moment of its end.
    #[serde(skip)]
    pub(super) timer: (Stamp, Option<u64>),
}

/// INVITE of the near side, and its responses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NearInvite {
    pub(super) has_offer: bool,
    /// Set if its provisional responses are reliable.
    pub(super) is_reliable: bool,
    /// Set if none may be unreliable.
    pub(super) requires_reliable: bool,
    /// Set once it was answered by 200.
    pub(super) is_answered: bool,
    /// Set once the ACK of the 200 was received.
    pub(super) is_confirmed: bool,
    /// Header lines for the far INVITE.
    pub(super) passed: Vec<u8>,
    /// Time at which the INVITE is given up, also while provisional responses come.
    pub(super) until: u64,
}

/// Dialogs that the far INVITE has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Forks {
    /// State of the far leg when its INVITE was sent.
    pub(super) base: LegState,
    /// Dialog to which the state of the far leg belongs.
    pub(super) current: Option<u16>,
    pub(super) others: Vec<Branch>,
    /// Last answer of each dialog in a response to the INVITE.
    pub(super) answers: Vec<(u16, Box<[u8]>)>,
    /// Numbers of all dialogs.
    pub(super) numbers: Vec<u16>,
    /// Dialog whose description the near side has.
    pub(super) described: Option<u16>,
}

impl Forks {
    pub(super) fn new(base: LegState) -> Self {
        let (others, answers, numbers) = (Vec::new(), Vec::new(), Vec::new());
        Self { base, current: None, others, answers, numbers, described: None }
    }
}

/// Number of no dialog: the near side has a description of a far call that is over.
pub(super) const NO_DIALOG: u16 = u16::MAX;

impl Leg {
    pub(super) fn new(call: Option<CallKey>, media: LegMedia, updates: bool) -> Self {
        Self { call, media, updates, refuses_updates: false, was_updated: false, is_displaced: false }
    }

    /// Tells whether an UPDATE may be sent to this leg (RFC 3311 section 5.1).
    pub(super) fn can_update(&self) -> bool {
        self.updates && !self.refuses_updates
    }
}

impl Pair {
    pub(super) fn new(
        near: CallKey,
        near_media: LegMedia,
        far_media: LegMedia,
        invite: &Facts,
        agent: &UserAgent,
    ) -> Self {
        let is_supported = agent.settings().reliability == Reliability::Supported && invite.supports_reliable;
        let base = far_media.state.clone();
        Self {
            near: Leg::new(Some(near), near_media, invite.allows_update == Some(true)),
            far: Leg::new(None, far_media, false),
            stage: Stage::Inviting { until: u64::MAX },
            invite: NearInvite {
                has_offer: false,
                is_reliable: is_supported || invite.requires_reliable,
                requires_reliable: invite.requires_reliable,
                is_answered: false,
                is_confirmed: false,
                passed: invite.passed.clone(),
                until: u64::MAX,
            },
            forks: Forks::new(base),
            exchange: None,
            waiting: VecDeque::new(),
            carried: Vec::new(),
            renewal: None,
            transfers: Vec::new(),
            expected: None,
            replaced: None,
            streams: Vec::new(),
            timer: (Stamp::NONE, None),
        }
    }

    pub(super) fn leg(&self, side: Side) -> &Leg {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    pub(super) fn leg_mut(&mut self, side: Side) -> &mut Leg {
        match side {
            Side::Near => &mut self.near,
            Side::Far => &mut self.far,
        }
    }

    /// Returns the call of a side.
    pub(super) fn call(&self, side: Side) -> Option<CallKey> {
        self.leg(side).call
    }

    /// Returns both legs, that of `side` first.
    pub(super) fn legs(&mut self, side: Side) -> (&mut Leg, &mut Leg) {
        match side {
            Side::Near => (&mut self.near, &mut self.far),
            Side::Far => (&mut self.far, &mut self.near),
        }
    }

    /// Returns the moment at which the first wait of this pair has lasted for too long.
    pub(super) fn until(&self) -> Option<u64> {
        let stage = match self.stage {
            Stage::Inviting { until } | Stage::Redirected { until } | Stage::Alone { until, .. } => Some(until),
            // The agent ends each of its calls in bounded time.
            Stage::Ending(_) => return None,
            Stage::Up => None,
            Stage::Torn => Some(0),
        };
        let exchange = self.exchange.as_ref().map(Exchange::until);
        let waiting = self.waiting.iter().map(|offer| offer.until);
        let renewal = self.renewal.map(|(_, at)| at);
        stage.into_iter().chain(exchange).chain(waiting).chain(renewal).min()
    }

    /// Returns the ends of all waits of this pair.
    pub(super) fn untils_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let replaced = self.replaced.iter_mut().map(|replaced| &mut replaced.stage);
        let stages = std::iter::once(&mut self.stage).chain(replaced).filter_map(Stage::until_mut);
        let exchange = self.exchange.as_mut().map(Exchange::until_mut);
        let waiting = self.waiting.iter_mut().map(|offer| &mut offer.until);
        let renewal = self.renewal.as_mut().map(|(_, at)| at);
        let transfers = self.transfers.iter_mut().map(|transfer| &mut transfer.until);
        let expected = self.expected.as_mut().map(|(_, until)| until);
        let invite = std::iter::once(&mut self.invite.until);
        stages.chain(exchange).chain(waiting).chain(renewal).chain(transfers).chain(expected).chain(invite)
    }

    /// Returns the cause of the end.
    pub(super) fn end(&self) -> BridgeEnd {
        match self.stage {
            Stage::Ending(by) => by,
            _ => BridgeEnd::Owner,
        }
    }

    pub(super) fn is_early(&self) -> bool {
        matches!(self.stage, Stage::Inviting { .. })
    }

    /// Loads the state of a dialog of the far side into the far leg.
    pub(super) fn select(&mut self, number: u16) {
        let forks = &mut self.forks;
        if forks.current == Some(number) {
            return;
        }
        let next = match forks.others.iter().position(|branch| branch.number == number) {
            Some(at) => forks.others.swap_remove(at).state,
            None => forks.base.clone(),
        };
        let state = std::mem::replace(&mut self.far.media.state, next);
        if let Some(number) = forks.current.replace(number) {
            forks.others.push(Branch { number, state });
        }
    }

    /// Forgets the dialogs of the far INVITE, before another one is sent.
    pub(super) fn forget_dialogs(&mut self) {
        let described = self.forks.described.map(|_| NO_DIALOG);
        self.forks = Forks { described, ..Forks::new(self.far.media.state.clone()) };
        self.waiting.clear();
        (self.far.updates, self.far.refuses_updates) = (false, false);
    }

    /// Handles an event of one of the two calls.
    pub(super) fn handle(
        &mut self,
        cx: &mut Context<'_, '_>,
        side: Side,
        call: Option<CallKey>,
        leg: u16,
        event: &Event,
        facts: &Facts,
    ) {
        if self.handle_replaced(cx, call, leg, event) {
            return;
        }
        if let Some(allows) = facts.allows_update
            && !matches!(event, Event::Reply { .. })
        {
            self.leg_mut(side).updates = allows;
        }
        let text = |span| cx.agent.text(span).to_vec();
        match *event {
            Event::Progress { status, body, offer, .. } => {
                let body = text(body);
                self.progressed(cx, leg, status, &body, offer, facts);
            }
            Event::Answered { body, offer, .. } => {
                let body = text(body);
                match self.stage {
                    Stage::Inviting { .. } => self.answered(cx, leg, &body, offer, facts),
                    _ => self.offered_late(cx, side, &body),
                }
            }
            Event::Failed { status, .. } => self.failed(cx, status, facts),
            Event::Redirected { status, target, .. } => {
                let target = text(target);
                self.redirected(cx, status, target);
            }
            Event::Acknowledged { body, .. } => {
                let body = text(body);
                // A PRACK without description acknowledges a response that had no offer.
                if !body.is_empty() {
                    self.answer_received(cx, side, &body);
                }
            }
            Event::Confirmed { body, .. } => {
                let body = text(body);
                self.confirmed(cx, side, &body);
            }
            Event::Offered { offer, update, .. } => {
                let offer = text(offer);
                self.offered(cx, side, leg, &offer, update);
            }
            Event::Changed { body, .. } => {
                let body = text(body);
                self.answer_received(cx, side, &body);
            }
            Event::Withdrawn { .. } => self.withdrawn(cx, side),
            Event::Unchanged { status, wait, .. } => self.change_refused(cx, side, status, wait, facts),
            Event::Request { request, method, body, .. } => {
                let body = text(body);
                self.carry(cx, side, request, method, &body, facts);
            }
            Event::Reply { request, status, body } => {
                let body = text(body);
                self.replied(cx, request, status, &body, facts);
            }
            Event::Ending { by, .. } => self.ending(cx, side, by, facts),
            Event::Ended { by, .. } => self.ended(cx, side, by, facts),
            Event::Invited { .. }
            | Event::Refreshed { .. }
            | Event::Unresolved { .. }
            | Event::Registered { .. }
            | Event::RegistrationFailed { .. }
            | Event::Unregistered { .. } => (),
        }
    }

    /// Ends both calls if a wait has lasted too long. Sends a renewal that is due.
    pub(super) fn expire(&mut self, cx: &mut Context<'_, '_>) {
        let now = cx.round.now.mono;
        if let Some((side, _)) = self.renewal.take_if(|(_, at)| *at <= now) {
            self.renew(cx, side);
            self.renew_displaced(cx);
        }
        if self.until().is_none_or(|until| until > now) {
            return;
        }
        let (by, status) = match self.stage {
            Stage::Redirected { .. } => (BridgeEnd::TimedOut(Side::Far), 480),
            Stage::Torn => (BridgeEnd::Torn, 500),
            Stage::Alone { by, .. } => (BridgeEnd::Side(by), 480),
            Stage::Inviting { .. } | Stage::Up | Stage::Ending(_) => (BridgeEnd::TimedOut(self.late_side(now)), 408),
        };
        self.release(cx, by, status, b"Reason: SIP;cause=408\r\n");
    }

    /// Returns the side that has not answered in time.
    const fn late_side(&self, now: u64) -> Side {
        match self.exchange {
            _ if matches!(self.stage, Stage::Inviting { until } if until <= now) => Side::Far,
            Some(Exchange::Asked { by, .. } | Exchange::Offered { from: by, .. } | Exchange::Withdrawn { by, .. }) => {
                by.other()
            }
            None => Side::Far,
        }
    }

    /// Tells the owner the streams, if they have changed.
    pub(super) fn tell_streams(&mut self, cx: &mut Context<'_, '_>) {
        let streams = bridged_streams(&self.near.media.state, &self.far.media.state);
        if streams != self.streams {
            self.streams.clone_from(&streams);
            cx.events.push_back(BridgeEvent::SessionChanged { pair: PairKey(cx.id), streams });
        }
    }
}
