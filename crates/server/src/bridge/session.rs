//! Media session of a bridged call: streams between its two peers, and the sources of peers behind NAT.

use super::BridgedCall;
use crate::engine::{Effect, Engine};
use crate::media_sessions::stream_peer;
use std::net::IpAddr;
use strowger_core::b2bua::bridge::{PairKey, Side};
use strowger_core::b2bua::negotiation::{BridgedStream, StreamTransport};
use strowger_core::user_agent::{CallKey, Event};
use strowger_media::session::{StreamKind, StreamOrder};
use strowger_message::{Index, Limits, Message, Name, Uri};

impl BridgedCall {
    /// Returns the order that opens or changes the session; `None` after its end.
    fn order(&mut self) -> Option<Effect> {
        let streams = self.streams.iter().enumerate().map(|(place, stream)| self.stream_order(place, stream.as_ref()?));
        let streams = streams.collect();
        self.session.set(streams)
    }

    /// Returns the order about a stream; `None` for one whose packets are not carried.
    fn stream_order(&self, place: usize, stream: &BridgedStream) -> Option<StreamOrder> {
        let BridgedStream { near, far, far_place } = stream;
        if near.transport != StreamTransport::Rtp {
            return None;
        }
        let ports = &self.session.ports;
        let near_port = self.near_places.get(place).map_or(place, |position| usize::from(*position));
        let (near_port, far_port) = (*ports.near.get(near_port)?, *ports.far.get(*far_place)?);
        Some(StreamOrder {
            kind: StreamKind::Relay,
            near: stream_peer(near_port, near.clone(), self.near.nat),
            far: Some(stream_peer(far_port, far.clone(), self.far.nat)),
        })
    }
}

impl Engine {
    /// Takes the streams of a pair over, as both sides have agreed on them.
    pub(super) fn session_changed(&mut self, pair: PairKey, streams: Vec<Option<BridgedStream>>) {
        let Some(call) = self.bridges.calls.get_mut(&pair) else { return };
        call.streams = streams;
        self.effects.extend(call.order());
    }

    /// Ends the media of a call at the first BYE, not at its response (RFC 3261 section 15.1.1).
    pub(super) fn close_bridged_media(&mut self, pair: PairKey) {
        if let Some(call) = self.bridges.calls.get_mut(&pair) {
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
        let Some(nat) = is_description.then(|| self.described_nat()).flatten() else { return };
        let Some(call) = self.bridges.calls.get_mut(&pair) else { return };
        let before = std::mem::replace(&mut call.leg_mut(side).nat, nat);
        if before != nat && !call.streams.is_empty() {
            self.effects.extend(call.order());
        }
    }

    /// Returns the source of the last message of the user agent if its sender is behind NAT, and else `None` in place of the source; `None` if the
    /// message has no description.
    fn described_nat(&self) -> Option<Option<IpAddr>> {
        let bytes = self.stack.agent.message();
        let mut index = Index::new();
        index.parse(bytes, &Limits::UNLIMITED).ok()?;
        let message = Message::new(bytes, &index);
        if message.body().is_empty() {
            return None;
        }
        let is_far_response = !message.is_request() && !self.far_legs.source().is_loopback();
        if message.is_request() || is_far_response {
            return Some(self.nat_source());
        }
        let source = self.calls.responded().map(|source| source.ip().to_canonical());
        Some(source.filter(|source| !source.is_unspecified() && is_translated(&message, *source)))
    }

    /// Tells whether a call of the user agent belongs to a pair, and to which leg of it.
    pub(super) fn bridged_leg(&self, call: CallKey) -> Option<(PairKey, Side)> {
        self.bridges.legs.get(&call).copied()
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
