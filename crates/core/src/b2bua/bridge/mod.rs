//! Bridge: joins calls of a [`UserAgent`] in pairs. Events of one leg come in, orders to the other leg go out.
//!
//! The **near** leg is the call of the party that calls, the **far** leg the call that the bridge makes for it. Both are calls
//! of one [`UserAgent`]. Its owner gives each event to [`Bridge::handle`] before it takes the next one, calls [`Bridge::poll`]
//! at [`Bridge::deadline`], and takes [`BridgeEvent`]s from [`Bridge::event`]. Ports come from the owner as values; sessions
//! go to the owner as values ([`BridgeEvent::SessionChanged`]).
//!
//! Each leg has its own dialog, its own descriptions ([`negotiation`](super::negotiation)) and its own session timer. From the
//! messages of one side to those of the other pass a status, a description of our own, and the header fields of
//! [`BridgeSettings::passed`], nothing else.
//!
//! # Outcomes: the call is set up
//!
//! | far side | near side | outcome |
//! |---|---|---|
//! | 100, 199 | any | nothing; the agent has sent its own 100 |
//! | 101 to 198 | any | the same status; whether it is reliable depends on the near side and the settings of the agent alone |
//! | 101 to 198 without an offer | waits for the offer | the same status, not reliable; nothing if the near side requires 100rel |
//! | 18x with the first answer | offered | 18x with the answer |
//! | 18x with the same answer again | offered | 18x without description |
//! | 18x with another answer, of this or another dialog of a fork | has 100rel and UPDATE | UPDATE with the new description, if it differs |
//! | the same | else | 18x without description; the 200 keeps the first answer, and a re-INVITE after the ACK offers the new one |
//! | 2xx | offered | 200, with the answer unless a reliable 18x had it |
//! | 2xx without an answer to the offer | offered | 502; BYE to the far side |
//! | 2xx with a description that cannot be read, or is too large | any | 502; BYE to the far side |
//! | reliable 18x with an offer | no offer; 100rel and UPDATE | 18x with the offer; the answer of its PRACK goes into the PRACK of the far side |
//! | the same of a further dialog of a fork | the same | UPDATE with the offer, after the exchange before and if it changes something; a refusal ends that dialog |
//! | any | no offer; no 100rel or no UPDATE | the far INVITE does not state 100rel, so that its offer comes in the 2xx |
//! | 2xx with an offer | no offer | 200 with the offer; the answer of its ACK goes into the ACK of the far side |
//! | 3xx | any | [`BridgeEvent::Redirected`]; 480 if the owner does nothing in time |
//! | 401, 407 | any | answered by the account of the far call; without one, or if it is refused, 403 |
//! | 503 | any | 500: another server is overloaded, not this one (RFC 3261 section 16.7); with [`BridgeSettings::has_own_proxy`] 503 |
//! | 420 to 423: about extensions and intervals of the far leg alone | any | 500 |
//! | other 4xx to 6xx | any | the same status |
//! | no final response in [`BridgeSettings::ringing`] after a provisional one, or in [`BridgeSettings::setup`] in all | any | CANCEL and 408 |
//! | any | CANCEL | CANCEL; a 2xx that crosses it gets ACK and BYE |
//!
//! # Outcomes: within the call
//!
//! | one side | the other side | outcome |
//! |---|---|---|
//! | offer that changes nothing for the other side | any | answered at once, from the agreed description of the other side |
//! | UPDATE without offer, session refresh | any | 200 by the agent; nothing on the other leg |
//! | re-INVITE with an offer | up | re-INVITE; its answer, or its refusal with the same status, goes back |
//! | UPDATE with an offer | allows UPDATE | UPDATE, likewise |
//! | the same | up, does not allow UPDATE | re-INVITE, likewise |
//! | the same | not up, does not allow UPDATE; or the far side has several dialogs | 500 with Retry-After |
//! | hold by sendonly, inactive or 0.0.0.0 | any | as any offer: sendonly, inactive, sendonly |
//! | re-INVITE without offer | up | re-INVITE without offer; the offer goes into the 200, the answer into the ACK |
//! | change while a change of either side is open | any | 491 |
//! | change | 491 | 491 |
//! | change | 405 or 501 to our UPDATE | re-INVITE with the same offer, and no UPDATE from now on; 500 with Retry-After if not up |
//! | any | [`Bridge::relocate`] | re-INVITE with the other places, to the near side, after its answer to the far side |
//! | any | refuses that re-INVITE | [`BridgeEvent::Stranded`] |
//! | offer of the bridge's own | 491 | the same offer once more after the wait of RFC 3261 section 14.1 |
//! | CANCEL of a re-INVITE | any | 487; CANCEL; if its 2xx crosses the CANCEL, an offer repeats the agreed description |
//! | offer that moves a stream to the other IP family | any | 488 with Warning 301, unless the stream has a place of this family here |
//! | offer of `image udptl`, `video` or another type than audio | policies list the type | passed on, T.38 as datagrams |
//! | the same | they do not | port 0, or 488 if no other stream passes |
//! | INFO, MESSAGE, OPTIONS, unknown method | any | the same method; its final response goes back, 401 and 407 as 403 |
//! | such a request with SDP, SIP or several parts as its body | any | 415 |
//! | SUBSCRIBE, PUBLISH, REGISTER | any | 405 |
//! | BYE, no ACK, no PRACK, session expired, 408 or 481 in the dialog | any | BYE, CANCEL or a refusal, with a Reason |
//! | no answer to a change in [`BridgeSettings::answer`], for a re-INVITE in [`BridgeSettings::ringing`] | any | both sides get BYE |
//!
//! # Outcomes: transfers
//!
//! The capabilities of the agent must list REFER, NOTIFY and `replaces` ([`capabilities()`]).
//!
//! | event | outcome |
//! |---|---|
//! | REFER | REFER to the other side, whose final response goes back; that side makes its new call by itself |
//! | the same, Replaces names a dialog of another pair | REFER; its Replaces names the dialog of that pair's other leg. 481 if that is not up |
//! | the same, Replaces names a dialog of another bridge of the owner, [`Bridge::handle_among`] | likewise; [`BridgeEvent::Awaited`] |
//! | the same, Replaces names a dialog of the agent that is over | 481 |
//! | the same, Replaces names any other dialog | REFER with the same Replaces: no bridge has the dialog |
//! | REFER for this call itself, or for a method other than INVITE | 403 |
//! | REFER without Refer-To, with several, or with one that cannot be read | 400 |
//! | NOTIFY of the side that was referred | NOTIFY with the id of the transferor's REFER; of its message fragment only the status line passes |
//! | any other NOTIFY | 481 |
//! | BYE of the transferor after the 2xx to its REFER | BYE after the outcome, or after [`BridgeSettings::ringing`]; NOTIFYs get 200 |
//! | BYE of a party whose dialog the Replaces of an open REFER names | BYE if no new party comes in [`BridgeSettings::ringing`] |
//! | INVITE with Replaces, [`Bridge::replaced`] | re-INVITE to the other side of the pair; its answer in a 200; BYE to the old party |
//! | the same, refused by the remaining side | the same status, 500 for 491; the pair is as before |
//! | the same, cancelled by the new party | CANCEL of the re-INVITE; the pair is as before |
//! | INVITE with Replaces that matches no confirmed dialog; one of a pair that is ending | 481; 603 |
//! | INVITE with Replaces for early dialogs only; with several Replaces; while the session changes | 486; 400; 500 |
//!
//! # Where is ...?
//!
//! | noun | file |
//! |---|---|
//! | pair, leg, stage; open exchanges | `pair.rs`; `exchange.rs`, `Exchange` |
//! | first INVITE: responses, forks | `setup.rs` |
//! | change of the session; offer, answer | `exchange.rs`; `description.rs` |
//! | sides that are out of step: glare, CANCEL, no UPDATE | `renewal.rs` |
//! | other requests | `carried_request.rs` |
//! | REFER and NOTIFY; Refer-To; INVITE with Replaces | `transfer.rs`; `referral.rs`; `replacement.rs` |
//! | end of a pair | `release.rs` |
//! | other places of the streams | `relocation.rs` |
//! | header fields that pass | `passed_headers.rs` |
//! | moves to another shard or process | `moves.rs`, [`BridgeRecord`] |

mod carried_request;
mod description;
mod event;
mod exchange;
mod moves;
mod pair;
mod passed_headers;
mod referral;
mod release;
mod relocation;
mod renewal;
mod replacement;
mod settings;
mod setup;
mod transfer;

pub use event::{BridgeEnd, BridgeEvent, PairKey};
pub use moves::BridgeRecord;
pub use pair::{BridgedCall, LegMedia, Side};
pub use referral::Elsewhere;
pub use replacement::ReplacedLeg;
pub use settings::{BridgeSettings, capabilities};
pub use setup::near_status;

use std::collections::{BTreeMap, VecDeque};

use strowger_message::Method;

use crate::Round;
use crate::slots::{Id, Slots};
use crate::timer::{Stamp, Timers};
use crate::user_agent::{CallKey, Event, Invite, RequestKey, UserAgent};
use pair::{Pair, Stage};
use passed_headers::Facts;

/// Pairs of calls of one user agent.
#[derive(Debug)]
pub struct Bridge {
    settings: BridgeSettings,
    pairs: Slots<Pair>,
    index: Lookup,
    events: VecDeque<BridgeEvent>,
    timers: Timers,
}

/// Pairs by the keys of the agent.
#[derive(Debug, Default)]
struct Lookup {
    calls: BTreeMap<CallKey, (Id, Side)>,
    /// Own requests that carry a request of the other side.
    requests: BTreeMap<RequestKey, Id>,
}

/// Tools of the work on one pair: user agent, transactions, indexes, events.
struct Context<'a, 'r> {
    agent: &'a mut UserAgent,
    round: &'a mut Round<'r>,
    settings: &'a BridgeSettings,
    index: &'a mut Lookup,
    events: &'a mut VecDeque<BridgeEvent>,
    /// Set when a transfer of this pair names a dialog of another pair: that pair, and its side that a new party is to replace, with the end of
    /// the wait. `None` as the side: no new party comes any more.
    awaited: &'a mut Option<(Id, Option<(Side, u64)>)>,
    id: Id,
}

impl Bridge {
    /// Creates a bridge without calls.
    pub fn new(settings: BridgeSettings) -> Self {
        let (pairs, timers) = (Slots::new(), Timers::new());
        Self { settings, pairs, index: Lookup::default(), events: VecDeque::new(), timers }
    }

    /// Returns the number of pairs with at least one call.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of requests that were carried over and have no final response yet.
    pub fn carried_requests(&self) -> usize {
        self.index.requests.len()
    }

    /// Takes the next event.
    pub fn event(&mut self) -> Option<BridgeEvent> {
        self.events.pop_front()
    }

    /// Returns the keys of the near and the far call of a pair; `None` for a call that is over.
    pub fn calls(&self, pair: PairKey) -> Option<(Option<CallKey>, Option<CallKey>)> {
        self.pairs.get(pair.0).map(|pair| (pair.near.call, pair.far.call))
    }

    /// Tells whether one side of a pair has hung up, and the other one stays up until the outcome of a transfer.
    pub fn is_alone(&self, pair: PairKey) -> bool {
        self.pairs.get(pair.0).is_some_and(|pair| matches!(pair.stage, Stage::Alone { .. }))
    }

    /// Returns the cause of the end of a pair whose calls are being ended; `None` before.
    pub fn ending(&self, pair: PairKey) -> Option<BridgeEnd> {
        self.pairs.get(pair.0).and_then(|pair| match pair.stage {
            Stage::Ending(by) => Some(by),
            _ => None,
        })
    }

    /// Joins an incoming call, after its [`Event::Invited`], with a new far call. If its offer cannot be passed on, or an address
    /// of the far call is malformed, the call is refused, and [`BridgeEvent::Ended`] follows. An INVITE with Replaces gets 481 here: see
    /// [`Bridge::replaced`].
    pub fn start(&mut self, agent: &mut UserAgent, round: &mut Round<'_>, call: BridgedCall<'_>) -> PairKey {
        let BridgedCall { near, invite, far, near_media, far_media } = call;
        let facts = Facts::of(invite, &self.settings.passed);
        let offer = invite.get(facts.body.clone()).unwrap_or_default();
        let id = self.pairs.insert(Pair::new(near, near_media, far_media, &facts, agent));
        self.index.calls.insert(near, (id, Side::Near));
        self.with(agent, round, id, |pair, cx| pair.start(cx, &facts, offer, &far));
        PairKey(id)
    }

    /// Makes another far call for a pair, after [`BridgeEvent::Redirected`]. Has no effect on other pairs.
    pub fn retry(&mut self, agent: &mut UserAgent, round: &mut Round<'_>, pair: PairKey, far: &Invite<'_>) {
        self.with(agent, round, pair.0, |pair, cx| pair.retry(cx, far));
    }

    /// Ends both calls of a pair in any state. `status` refuses the near INVITE if it has no final response yet, 300 to 699.
    /// `headers`: further lines, each with its CRLF: a Reason.
    pub fn end(&mut self, agent: &mut UserAgent, round: &mut Round<'_>, pair: PairKey, status: u16, headers: &[u8]) {
        self.with(agent, round, pair.0, |pair, cx| pair.release(cx, BridgeEnd::Owner, status, headers));
    }

    /// Handles an event of the agent, before the next one is taken. Returns false if the owner must handle it: it is of no
    /// pair, or is [`Event::Unresolved`].
    pub fn handle(&mut self, agent: &mut UserAgent, round: &mut Round<'_>, event: &Event) -> bool {
        self.handle_among(agent, round, event, &|_| None)
    }

    /// Handles an event as [`Bridge::handle`] does, of an owner with several bridges, each with an agent of its own.
    pub fn handle_among(
        &mut self,
        agent: &mut UserAgent,
        round: &mut Round<'_>,
        event: &Event,
        elsewhere: Elsewhere<'_>,
    ) -> bool {
        let found = match *event {
            Event::Reply { request, .. } => self.index.requests.get(&request).map(|&id| (id, Side::Near)),
            Event::Unresolved { .. } => None,
            _ => event.call().and_then(|call| self.index.calls.get(&call).copied()),
        };
        let Some((id, side)) = found else { return false };
        let mut facts = Facts::of(agent.message(), &self.settings.passed);
        if let Event::Request { method: Method::Refer, .. } = event {
            facts.referral = Some(self.referral(agent, id, elsewhere));
        }
        let (call, leg) = (event.call(), agent.leg());
        self.with(agent, round, id, |pair, cx| pair.handle(cx, side, call, leg, event, &facts));
        true
    }

    /// Returns the latest moment for the next [`Bridge::poll`] ([`Now::mono`](crate::Now::mono) milliseconds).
    pub fn deadline(&mut self) -> Option<u64> {
        let pairs = &self.pairs;
        self.timers.deadline(|slot, stamp| runs(pairs, slot, stamp))
    }

    /// Ends the pairs in which a wait has lasted for too long.
    pub fn poll(&mut self, agent: &mut UserAgent, round: &mut Round<'_>) {
        loop {
            let pairs = &self.pairs;
            let due = self.timers.due(round.now.mono, |slot, stamp| runs(pairs, slot, stamp));
            let Some((slot, _)) = due else { break };
            let Some(id) = self.pairs.at(slot).map(|(id, _)| id) else { continue };
            if let Some(pair) = self.pairs.get_mut(id) {
                pair.timer = (Stamp::NONE, None);
            }
            self.with(agent, round, id, |pair, cx| pair.expire(cx));
        }
        self.pairs.tidy();
    }

    /// Works on a pair. Then starts the timer of the pair again, or removes the pair if both its calls are over.
    fn with(
        &mut self,
        agent: &mut UserAgent,
        round: &mut Round<'_>,
        id: Id,
        work: impl FnOnce(&mut Pair, &mut Context<'_, '_>),
    ) {
        let Self { settings, pairs, index, events, timers } = self;
        let Some(pair) = pairs.get_mut(id) else { return };
        let mut awaited = None;
        work(pair, &mut Context { agent, round, settings, index, events, awaited: &mut awaited, id });
        start_timer(timers, id, pair);
        if pair.near.call.is_none() && pair.far.call.is_none() {
            timers.stop(&mut pair.timer.0);
            let by = pair.end();
            pairs.remove(id);
            events.push_back(BridgeEvent::Ended { pair: PairKey(id), by });
        }
        if let Some((other, expected)) = awaited
            && let Some(pair) = pairs.get_mut(other)
        {
            pair.expected = expected;
        }
    }
}

/// Starts the timer of a pair again, if the pair waits for another moment than before.
fn start_timer(timers: &mut Timers, id: Id, pair: &mut Pair) {
    let until = pair.until();
    if pair.timer.1 != until {
        timers.stop(&mut pair.timer.0);
        let stamp = until.map_or(Stamp::NONE, |until| timers.start_at(until, id.slot));
        pair.timer = (stamp, until);
    }
}

fn runs(pairs: &Slots<Pair>, slot: u32, stamp: Stamp) -> bool {
    pairs.at(slot).is_some_and(|(_, pair)| pair.timer.0 == stamp)
}
