//! Media session of a bridged call: streams between its two peers, and the sources of peers behind NAT.

use super::{BridgedCall, BridgedLeg, DescriptionSource, HeardStream, is_translated, side_of_session};
use crate::effect::Effect;
use crate::engine::{Anchored, Engine};
use crate::media_sessions::stream_peer;
use crate::policy::Policy;
use strowger_core::b2bua::bridge::{PairKey, Side};
use strowger_core::b2bua::negotiation::{AgreedStream, BridgedStream, StreamTransport};
use strowger_core::user_agent::{CallKey, Event};
use strowger_media::session::{PortPair, Side as SessionSide, StreamKind, StreamOrder, StreamPeer};
use strowger_message::{Index, Limits, Message};

impl BridgedCall {
    /// Returns the order that opens or changes the session; `None` after its end.
    pub(super) fn order(&mut self, policy: &Policy) -> Option<Effect> {
        let order =
            |(place, stream): (usize, &Option<BridgedStream>)| self.stream_order(policy, place, stream.as_ref()?);
        let streams = self.streams.iter().enumerate().map(order).collect();
        self.session.set(streams)
    }

    /// Returns the order about a stream.
    fn stream_order(&self, policy: &Policy, place: usize, stream: &BridgedStream) -> Option<StreamOrder> {
        let BridgedStream { near, far, far_place } = stream;
        let kind = match near.transport {
            StreamTransport::Rtp => StreamKind::Relay,
            StreamTransport::Datagram => StreamKind::Unread,
        };
        let ports = &self.session.ports;
        let near_port = self.near_places.get(place).map_or(place, |position| usize::from(*position));
        let (near_port, far_port) = (*ports.near.get(near_port)?, *ports.far.get(*far_place)?);
        let far = self.far.peer(policy, (place, far_port), far);
        Some(StreamOrder { kind, near: self.near.peer(policy, (place, near_port), near), far: Some(far) })
    }
}

impl BridgedLeg {
    /// Returns the peer of the stream at this place.
    fn peer(&self, policy: &Policy, (place, ports): (usize, PortPair), stream: &AgreedStream) -> StreamPeer {
        let nat = self.source.filter(|source| source.is_translated).map(|source| source.address);
        let peer = stream_peer(ports, stream.clone(), nat);
        let may_send_first = self.source.zip(peer.rtp).is_some_and(|(source, rtp)| {
            let scope = policy.router.identity().machine().scope_of_sender(source.address);
            policy.may_send_media(scope, source.address, rtp)
        });
        let heard = self.heard.iter().find(|heard| usize::from(heard.stream) == place).map(HeardStream::source);
        StreamPeer { may_send_first, heard, ..peer }
    }
}

impl Engine {
    /// Takes the streams of a pair over, as both sides have agreed on them.
    pub(super) fn session_changed(&mut self, pair: PairKey, streams: Vec<Option<BridgedStream>>) {
        let Self { anchored: Anchored { bridges, .. }, policy, effects, .. } = self;
        let Some(call) = bridges.calls.get_mut(&pair) else { return };
        call.streams = streams;
        effects.extend(call.order(policy));
    }

    /// Notes from where the media of a stream come, for the next process.
    pub(crate) fn note_heard(&mut self, pair: PairKey, side: SessionSide, heard: HeardStream) {
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair) else { return };
        let leg = call.leg_mut(side_of_session(side));
        if leg.heard.contains(&heard) {
            return;
        }
        leg.heard.retain(|other| other.stream != heard.stream);
        leg.heard.push(heard);
        if let Some(key) = call.key {
            self.calls.has_changed(key);
        }
    }

    /// Opens the session of a call of an earlier process, whose ports are bound. Returns the key of the call in the table of calls.
    pub(crate) fn reopen_bridged(&mut self, pair: PairKey) -> Option<u64> {
        let Self { anchored: Anchored { bridges, .. }, policy, effects, .. } = self;
        let call = bridges.calls.get_mut(&pair)?;
        effects.extend(call.order(policy));
        call.key
    }

    /// Ends the media of a call at the first BYE, not at its response (RFC 3261 section 15.1.1).
    pub(super) fn close_bridged_media(&mut self, pair: PairKey) {
        if let Some(call) = self.anchored.bridges.calls.get_mut(&pair) {
            let close = call.session.close();
            self.close_session(close);
        }
    }

    /// Notes from where the party of a leg has sent a description, before the bridge handles the event.
    pub(super) fn note_source(&mut self, event: &Event, (pair, side): (PairKey, Side)) {
        let is_description = matches!(
            event,
            Event::Progress { .. }
                | Event::Answered { .. }
                | Event::Acknowledged { .. }
                | Event::Confirmed { .. }
                | Event::Offered { .. }
                | Event::Changed { .. }
        );
        let Some(source) = is_description.then(|| self.source_of_description()).flatten() else { return };
        let Self { anchored: Anchored { bridges, .. }, policy, effects, .. } = self;
        let Some(call) = bridges.calls.get_mut(&pair) else { return };
        let before = call.leg_mut(side).source.replace(source);
        if before != Some(source) && !call.streams.is_empty() {
            effects.extend(call.order(policy));
        }
    }

    /// Returns the source of the last message of the user agent; `None` if it has no description, or its sender is unknown.
    pub(super) fn source_of_description(&self) -> Option<DescriptionSource> {
        let agent = &self.stack.agent;
        let mut index = Index::new();
        index.parse(agent.message(), &Limits::UNLIMITED).ok()?;
        let message = Message::new(agent.message(), &index);
        let address = agent.arrival()?.remote.ip().to_canonical();
        if message.body().is_empty() || address.is_unspecified() {
            return None;
        }
        let is_far_response = !message.is_request() && !self.anchored.far_legs.source().is_loopback();
        let is_translated = match message.is_request() || is_far_response {
            true => self.nat_source().is_some(),
            false => is_translated(&message, address),
        };
        Some(DescriptionSource { address, is_translated })
    }

    /// Tells whether a call of the user agent belongs to a pair, and to which leg of it.
    pub(super) fn bridged_leg(&self, call: CallKey) -> Option<(PairKey, Side)> {
        self.anchored.bridges.legs.get(&call).copied()
    }
}
