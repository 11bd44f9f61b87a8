//! Media session of a call of an endpoint: one stream of audio. All other streams of the caller are refused.

use crate::effect::Effect;
use crate::media_sessions::{MediaSession, stream_peer};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use strowger_core::b2bua::negotiation::{
    AgreedStream, EndpointAnswer, LegState, LocalStream, Refusal, endpoint_answer, endpoint_answered, endpoint_offer,
};
use strowger_media::session::{PortPair, StreamKind, StreamOrder};
use strowger_message::sdp::{Codec, Sdp};

/// Formats that an endpoint takes, the preferred one first. Packets that go back are not decoded.
const CODECS: [Codec<'static>; 5] = [
    Codec::PCMA,
    Codec::PCMU,
    Codec::G722,
    Codec { channels: 2, ..Codec::new(111, "opus", 48_000) },
    Codec::TELEPHONE_EVENT,
];

/// Own description.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) text: Vec<u8>,
    /// Agreed streams, in the order of the descriptions; `None` for an offer, which the caller has not answered.
    pub(super) streams: Option<Vec<Option<AgreedStream>>>,
}

/// Session of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EndpointSession {
    pub(super) media: MediaSession,
    /// Offers and answers in the dialog.
    leg: LegState,
    /// Set while an own offer waits for its answer.
    has_offered: bool,
    /// Streams as agreed last, and the source of the signalling of a caller behind NAT.
    agreed: (Vec<Option<AgreedStream>>, Option<IpAddr>),
}

impl EndpointSession {
    /// Creates a session before any description.
    pub(super) const fn new(media: MediaSession, leg: LegState) -> Self {
        Self { media, leg, has_offered: false, agreed: (Vec::new(), None) }
    }

    /// Writes the answer to an offer of the caller, or an own offer.
    ///
    /// # Errors
    /// The offer has no stream for an endpoint; nothing has changed.
    pub(super) fn describe(&mut self, offer: Option<&[u8]>) -> Result<Description, Refusal> {
        let place = |ports: &PortPair| LocalStream { address: self.leg.address(), port: ports.rtp };
        let places: Vec<_> = self.media.ports.near.iter().map(place).collect();
        let Some(offer) = offer else {
            let text = endpoint_offer(&mut self.leg, &CODECS, &places)?;
            self.has_offered = true;
            return Ok(Description { text, streams: None });
        };
        let offer = Sdp::parse(offer).map_err(|_| Refusal::NothingInCommon)?;
        let EndpointAnswer { description, streams } = endpoint_answer(&mut self.leg, &offer, &CODECS, &places)?;
        Ok(Description { text: description, streams: Some(streams) })
    }

    /// Returns a copy for the next process, whose descriptions have higher versions; `None` while an own offer waits for its answer, or if the session
    /// is not open.
    pub(super) fn at_rest(&self) -> Option<Self> {
        self.media.open().filter(|_| !self.has_offered)?;
        let mut kept = self.clone();
        kept.leg.skip_version();
        Some(kept)
    }

    /// Tells whether an own offer waits for its answer.
    pub(super) const fn has_offered(&self) -> bool {
        self.has_offered
    }

    /// Takes the answer to the own offer; returns the agreed streams, or `None` if there is none.
    pub(super) fn answered(&mut self, answer: &[u8]) -> Option<Vec<Option<AgreedStream>>> {
        self.has_offered = false;
        let streams = endpoint_answered(&mut self.leg, &Sdp::parse(answer).ok()?).ok()?;
        streams.iter().any(Option::is_some).then_some(streams)
    }

    /// Returns the order that opens or changes the session. `nat`: source of the signalling of a caller behind NAT.
    pub(super) fn set(&mut self, streams: Vec<Option<AgreedStream>>, nat: Option<IpAddr>) -> Option<Effect> {
        self.agreed = (streams, nat);
        self.order()
    }

    /// Returns the order that opens the session as it was agreed last.
    pub(super) fn order(&mut self) -> Option<Effect> {
        let ports = *self.media.ports.near.first()?;
        let (streams, nat) = self.agreed.clone();
        let order = |stream| StreamOrder { kind: StreamKind::Echo, near: stream_peer(ports, stream, nat), far: None };
        self.media.set(streams.into_iter().map(|stream| stream.map(order)).collect())
    }
}
