//! Media session of a call of an endpoint: one stream of audio. All other streams of the caller are refused.

use crate::engine::Effect;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use strowger_core::b2bua::negotiation::{
    AgreedFormat, AgreedStream, EndpointAnswer, LegState, LocalStream, Refusal, endpoint_answer, endpoint_answered,
    endpoint_offer,
};
use strowger_core::routing::contact_repair::is_private;
use strowger_media::session::{PayloadFormat, PortPair, SessionKey, SessionOrder, StreamKind, StreamOrder, StreamPeer};
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
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndpointSession {
    /// Number of its [`SessionKey`].
    pub(super) key: u64,
    #[serde(with = "port_pair")]
    pub(super) ports: PortPair,
    /// Offers and answers in the dialog.
    leg: LegState,
    /// Set while an own offer waits for its answer.
    has_offered: bool,
    /// Set once the media thread knows the session.
    is_open: bool,
    /// Set once the session is closed; the dialog may go on until the response to its BYE.
    is_closed: bool,
    /// Call-ID, for the log.
    call_id: Vec<u8>,
}

/// Session that is being closed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClosingSession {
    pub(super) key: u64,
    #[serde(with = "port_pair")]
    pub(super) ports: PortPair,
    pub(super) call_id: Vec<u8>,
}

impl ClosingSession {
    /// Returns the order that ends the session; [`SessionEvent::Closed`](strowger_media::session::SessionEvent) answers it.
    pub(super) fn order(&self) -> Effect {
        let order = SessionOrder::Close { key: SessionKey(self.key) };
        Effect::Media { thread: Some(self.ports.thread), order }
    }
}

/// Result of closing a session.
pub(super) enum SessionClose {
    /// The media thread has to close the session.
    Open(ClosingSession),
    /// No media thread knows the session. Its ports are free.
    Unopened(PortPair),
    /// It was closed before.
    Before,
}

impl EndpointSession {
    /// Creates a session before any description.
    pub(super) const fn new(key: u64, ports: PortPair, leg: LegState, call_id: Vec<u8>) -> Self {
        Self { key, ports, leg, has_offered: false, is_open: false, is_closed: false, call_id }
    }

    /// Writes the answer to an offer of the caller, or an own offer.
    ///
    /// # Errors
    /// The offer has no stream for an endpoint; nothing has changed.
    pub(super) fn describe(&mut self, offer: Option<&[u8]>) -> Result<Description, Refusal> {
        let places = [LocalStream { address: self.leg.address(), port: self.ports.rtp }];
        let Some(offer) = offer else {
            let text = endpoint_offer(&mut self.leg, &CODECS, &places)?;
            self.has_offered = true;
            return Ok(Description { text, streams: None });
        };
        let offer = Sdp::parse(offer).map_err(|_| Refusal::NothingInCommon)?;
        let EndpointAnswer { description, streams } = endpoint_answer(&mut self.leg, &offer, &CODECS, &places)?;
        Ok(Description { text: description, streams: Some(streams) })
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
    pub(super) fn set(&mut self, streams: Vec<Option<AgreedStream>>, nat: Option<IpAddr>) -> Effect {
        self.is_open = true;
        let ports = self.ports;
        let order = |AgreedStream { rtp, rtcp, formats, sends, receives, .. }: AgreedStream| {
            let is_hidden =
                |source: &IpAddr| rtp.is_some_and(|rtp| rtp.ip() != *source && is_private(rtp.ip(), *source));
            let behind_nat = nat.filter(is_hidden);
            let formats = formats.into_iter().map(format).collect();
            // An echo sends nothing first.
            let near = StreamPeer { ports, rtp, rtcp, behind_nat, formats, sends, receives, may_send_first: false };
            StreamOrder { kind: StreamKind::Echo, near, far: None }
        };
        let streams = streams.into_iter().map(|stream| stream.map(order)).collect();
        let order = SessionOrder::Set { key: SessionKey(self.key), streams };
        Effect::Media { thread: Some(ports.thread), order }
    }

    /// Closes the session. No description may follow.
    pub(super) fn close(&mut self) -> SessionClose {
        let (key, ports) = (self.key, self.ports);
        if std::mem::replace(&mut self.is_closed, true) {
            return SessionClose::Before;
        }
        if !self.is_open {
            return SessionClose::Unopened(ports);
        }
        SessionClose::Open(ClosingSession { key, ports, call_id: std::mem::take(&mut self.call_id) })
    }
}

fn format(format: AgreedFormat) -> PayloadFormat {
    let AgreedFormat { payload_type, other, clock_rate, is_event, .. } = format;
    PayloadFormat { payload_type, other, clock_rate, is_event }
}

/// Form of a pair of ports in a record.
mod port_pair {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use strowger_media::session::PortPair;

    pub(super) fn serialize<S: Serializer>(ports: &PortPair, serializer: S) -> Result<S::Ok, S::Error> {
        (ports.thread, ports.address, ports.rtp).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PortPair, D::Error> {
        let (thread, address, rtp) = Deserialize::deserialize(deserializer)?;
        Ok(PortPair { thread, address, rtp })
    }
}
