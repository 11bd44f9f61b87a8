//! Bridged calls: this server has one call with the caller (near) and one with the callee (far), and carries the media between them (B2BUA).
//!
//! [`strowger_core::b2bua::bridge`] joins the two calls of the user agent; this module owns what is around them:
//!
//! 1. The rules bridge an INVITE. The engine takes media ports for both legs and gives the INVITE to the user agent, which makes the far call. The
//!    far INVITE takes the way of every request from routing on, with the decision of the near one ([`crate::far_leg`]); there it enters the table of
//!    calls (`beginning.rs`). The far side learns no name and no address of the near one, and gets media addresses of its own IP version
//!    (`far_request.rs`).
//! 2. Events of both calls go to the bridge. Its sessions become orders to the media thread, ends of legs become notices for the table
//!    (`agent_events.rs`, `session.rs`). A party may refer the other one if the rule says so, and a new party may take the place of one (`transfer.rs`).
//!    Requests that would get around the bridge are refused (`bypasses.rs`).
//! 3. The table ends a call by orders about its parties, the media thread by an event (`orders.rs`).
//!
//! Over a restart a call keeps its ports, or gets others (`kept.rs`, `relocation.rs`).
//! Near and far Call-ID are in one bucket, so that both calls, their pair and its session move together (`moves.rs`).

mod agent_events;
mod beginning;
mod bypasses;
mod far_request;
mod kept;
mod moves;
mod orders;
mod relocation;
mod session;
mod transfer;

pub use self::moves::BridgedRecord;

use self::far_request::FarRequest;
use self::transfer::{Newcomer, Replacing};
use crate::far_leg::FarLeg;
use crate::media_sessions::MediaSession;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use strowger_core::b2bua::bridge::{Bridge, BridgeSettings, LegMedia, PairKey, Side};
use strowger_core::b2bua::negotiation::BridgedStream;
use strowger_core::notice::Party;
use strowger_core::user_agent::{CallKey, RequestKey};
use strowger_media::session::{LatchedSource, SessionKey, Side as SessionSide};
use strowger_message::{Message, Name, Uri};

/// Source of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DescriptionSource {
    address: IpAddr,
    /// Set if the sender is behind NAT.
    is_translated: bool,
}

/// Source of the media of a stream, for the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeardStream {
    /// Place of the stream in the descriptions of the near leg.
    stream: u8,
    described: SocketAddr,
    from: SocketAddr,
    is_symmetric: bool,
}

impl HeardStream {
    /// Creates the source of a stream.
    pub(crate) const fn new(stream: u8, source: LatchedSource) -> Self {
        let LatchedSource { described, from, is_symmetric } = source;
        Self { stream, described, from, is_symmetric }
    }

    /// Returns the source for the media thread.
    const fn source(&self) -> LatchedSource {
        let Self { described, from, is_symmetric, .. } = *self;
        LatchedSource { described, from, is_symmetric }
    }
}

/// Leg of a bridged call.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BridgedLeg {
    /// Source of the last description of its party.
    source: Option<DescriptionSource>,
    /// Context of the BYE to its party that the table of calls has ordered.
    bye: Option<u64>,
    /// OPTIONS to its party that the table has ordered, and its context.
    question: Option<(RequestKey, u64)>,
    /// True if its party may refer the other one; `None`: it has not answered yet.
    may_refer: Option<bool>,
    /// Sources of the media of its party, at most one for each stream.
    heard: Vec<HeardStream>,
}

/// Bridged call.
#[derive(Debug, Serialize, Deserialize)]
struct BridgedCall {
    /// Call-ID of the far call.
    far_call_id: Vec<u8>,
    /// Key in the table of calls; `None` before the far INVITE has entered it.
    key: Option<u64>,
    near: BridgedLeg,
    far: BridgedLeg,
    /// Set once the callee has answered.
    is_answered: bool,
    /// Set once the state of the call is kept for the next process.
    is_kept: bool,
    /// Party whose leg ended first, or that fell silent, the Q.850 cause, and the moment ([`Now::mono`]).
    ///
    /// [`Now::mono`]: strowger_core::Now::mono
    ended: Option<(Party, Option<u16>, u64)>,
    session: MediaSession,
    /// Position among the near ports of each stream, by its place in the descriptions of the near leg.
    near_places: Vec<u8>,
    /// Streams as agreed last.
    streams: Vec<Option<BridgedStream>>,
    /// Call-IDs of the dialogs of both legs that are in [`BridgedDialogs`](crate::bridged_dialogs::BridgedDialogs); empty: not entered yet.
    entered: [Vec<u8>; 2],
}

impl BridgedCall {
    fn leg_mut(&mut self, side: Side) -> &mut BridgedLeg {
        match side {
            Side::Near => &mut self.near,
            Side::Far => &mut self.far,
        }
    }

    /// Returns the party of a leg in the table of calls. A new party is the caller, whichever leg it has.
    fn party_of(&self, side: Side) -> Party {
        match (side, self.session.is_turned) {
            (Side::Near, false) | (Side::Far, true) => Party::Caller,
            (Side::Near, true) | (Side::Far, false) => Party::Callee,
        }
    }

    /// Returns the leg of a party.
    fn side_of(&self, party: Party) -> Side {
        if self.party_of(Side::Near) == party { Side::Near } else { Side::Far }
    }
}

/// Returns the leg of a side of a session.
const fn side_of_session(side: SessionSide) -> Side {
    match side {
        SessionSide::Near => Side::Near,
        SessionSide::Far => Side::Far,
    }
}

/// INVITE that the user agent is about to take, and the far call to make for it.
#[derive(Debug)]
struct Beginning {
    far_leg: FarLeg,
    far_request: FarRequest,
    /// Bucket of the call, 0 to 255.
    bucket: u8,
    media: LegsMedia,
    /// [`BridgedLeg::may_refer`] of caller and callee.
    may_refer: [Option<bool>; 2],
}

/// Media of both legs.
#[derive(Debug)]
struct LegsMedia {
    near: LegMedia,
    far: LegMedia,
    session: MediaSession,
    /// [`BridgedCall::near_places`].
    near_places: Vec<u8>,
}

/// Bridged calls of one shard.
#[derive(Debug)]
pub(crate) struct Bridges {
    bridge: Bridge,
    calls: BTreeMap<PairKey, BridgedCall>,
    /// Pairs by the calls of the user agent that have not ended.
    legs: BTreeMap<CallKey, (PairKey, Side)>,
    /// Pairs by their keys in the table of calls.
    keys: BTreeMap<u64, PairKey>,
    /// Pairs by their sessions.
    sessions: BTreeMap<u64, PairKey>,
    /// Pairs whose media have no ports: an earlier process had them, and another program has taken one.
    portless: BTreeSet<PairKey>,
    /// Legs by the OPTIONS to their parties ([`BridgedLeg::question`]).
    questions: BTreeMap<RequestKey, (PairKey, Side)>,
    beginning: Option<Box<Beginning>>,
    /// INVITE with Replaces that the user agent is about to take.
    replacing: Option<Box<Replacing>>,
    /// Callers of INVITEs with Replaces that have no final response yet.
    newcomers: BTreeMap<PairKey, Newcomer>,
}

impl Default for Bridges {
    fn default() -> Self {
        let mut settings = BridgeSettings::default();
        // RFC 3323: a wish of the caller, without an address.
        settings.passed.push(Name::Privacy);
        settings.has_own_proxy = true;
        Self {
            bridge: Bridge::new(settings),
            calls: BTreeMap::new(),
            legs: BTreeMap::new(),
            keys: BTreeMap::new(),
            sessions: BTreeMap::new(),
            portless: BTreeSet::new(),
            questions: BTreeMap::new(),
            beginning: None,
            replacing: None,
            newcomers: BTreeMap::new(),
        }
    }
}

impl Bridges {
    /// Returns the number of bridged calls.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of entries of all tables; 0 once no call is bridged.
    pub(crate) fn entries(&self) -> usize {
        let of_bridge = self.bridge.pairs() + self.bridge.carried_requests();
        let of_calls = self.calls.len() + self.legs.len() + self.keys.len() + self.sessions.len();
        of_bridge + of_calls + self.portless.len() + self.newcomers.len()
    }

    /// Returns the moment of the next timer.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.bridge.deadline()
    }

    /// Returns the pair of a session.
    pub(crate) fn pair_of_session(&self, session: SessionKey) -> Option<PairKey> {
        self.sessions.get(&session.0).copied()
    }

    /// Returns the session of the call with this key in the table of calls.
    pub(crate) fn session_of_call(&self, key: u64) -> Option<&MediaSession> {
        self.calls.get(self.keys.get(&key)?).map(|call| &call.session)
    }

    /// Returns a session, to change it.
    pub(crate) fn session_mut(&mut self, session: SessionKey) -> Option<&mut MediaSession> {
        self.calls.get_mut(self.sessions.get(&session.0)?).map(|call| &mut call.session)
    }

    /// Tells whether media of both parties of a call have come.
    pub(crate) fn has_heard_both(&self, session: SessionKey) -> bool {
        let call = self.sessions.get(&session.0).and_then(|pair| self.calls.get(pair));
        call.is_some_and(|call| !call.near.heard.is_empty() && !call.far.heard.is_empty())
    }

    fn insert(&mut self, pair: PairKey, call: BridgedCall) {
        self.sessions.insert(call.session.key, pair);
        self.portless.extend(call.session.lacks_ports().then_some(pair));
        self.keys.extend(call.key.map(|key| (key, pair)));
        let (near, far) = self.bridge.calls(pair).unwrap_or_default();
        for (leg, side) in [(near, Side::Near), (far, Side::Far)] {
            self.legs.extend(leg.map(|leg| (leg, (pair, side))));
        }
        for (leg, side) in [(&call.near, Side::Near), (&call.far, Side::Far)] {
            self.questions.extend(leg.question.map(|(request, _)| (request, (pair, side))));
        }
        self.calls.insert(pair, call);
    }

    fn remove(&mut self, pair: PairKey) -> Option<BridgedCall> {
        let call = self.calls.remove(&pair)?;
        self.sessions.remove(&call.session.key);
        self.portless.remove(&pair);
        for (request, _) in [call.near.question, call.far.question].into_iter().flatten() {
            self.questions.remove(&request);
        }
        if let Some(key) = call.key.filter(|key| self.keys.get(key) == Some(&pair)) {
            self.keys.remove(&key);
        }
        Some(call)
    }
}

/// Tells whether the sender of a response is behind NAT: it sent the response without a proxy between, and its Contact has another address.
pub(crate) fn is_translated(message: &Message<'_>, source: IpAddr) -> bool {
    let contact = message.contacts().next().and_then(Result::ok);
    let address = contact.and_then(|contact| match contact.value.addr.uri {
        Uri::Sip(uri) => uri.host.ip(),
        _ => None,
    });
    !message.has(Name::RecordRoute) && address.is_some_and(|address| address.to_canonical() != source)
}
