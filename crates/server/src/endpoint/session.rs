//! Media session of a call of an endpoint: one stream of audio. All other streams of the caller are refused.

use super::EndpointSound;
use crate::effect::Effect;
use crate::media_sessions::{MediaSession, stream_peer};
use crate::policy::Policy;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use strowger_core::b2bua::negotiation::{
    AgreedStream, EndpointAnswer, LegState, LocalStream, Refusal, endpoint_answer, endpoint_answered, endpoint_offer,
};
use strowger_media::session::{PortPair, StreamKind, StreamOrder, StreamPeer};
use strowger_message::sdp::Sdp;

/// Own description.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) text: Vec<u8>,
    /// Agreed streams, in the order of the descriptions; `None` for an offer, which the caller has not answered.
    pub(super) streams: Option<Vec<Option<AgreedStream>>>,
}

/// Source of a description of the caller.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CallerSource {
    pub(super) address: IpAddr,
    /// Set if the caller is behind NAT.
    pub(super) is_translated: bool,
}

/// Session of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EndpointSession {
    pub(super) media: MediaSession,
    sound: EndpointSound,
    /// Offers and answers in the dialog.
    leg: LegState,
    /// Set while an own offer waits for its answer.
    has_offered: bool,
    /// Streams as agreed last, and the source of the caller's description.
    agreed: (Vec<Option<AgreedStream>>, Option<CallerSource>),
    /// Set until the ACK of a caller that has proved nothing: its source may be forged, and no sound goes first. A kept call has its ACK.
    #[serde(skip)]
    is_unproven: bool,
}

impl EndpointSession {
    /// Creates a session before any description.
    pub(super) const fn new(media: MediaSession, leg: LegState, sound: EndpointSound) -> Self {
        Self { media, sound, leg, has_offered: false, agreed: (Vec::new(), None), is_unproven: false }
    }

    /// Tells whether the call has a use only if the caller is heard.
    pub(super) const fn needs_caller(&self) -> bool {
        !matches!(self.sound, EndpointSound::Tone | EndpointSound::Announcement { .. })
    }

    /// Notes that the caller has proved nothing. An echo needs no proof: it answers the caller's packets.
    pub(super) const fn doubt(&mut self) {
        self.is_unproven = !matches!(self.sound, EndpointSound::Echo);
    }

    /// Notes that the caller has proved its source. Returns whether that changes the order of the session.
    pub(super) const fn prove(&mut self) -> bool {
        std::mem::replace(&mut self.is_unproven, false)
    }

    /// Returns the path of the file in which the caller is recorded.
    pub(super) fn recording(&self) -> Option<PathBuf> {
        self.sound.recording()
    }

    /// Writes the answer to an offer of the caller, or an own offer.
    ///
    /// # Errors
    /// The offer has no stream for an endpoint; nothing has changed.
    pub(super) fn describe(&mut self, offer: Option<&[u8]>) -> Result<Description, Refusal> {
        let place = |ports: &PortPair| LocalStream { address: self.leg.address(), port: ports.rtp };
        let places: Vec<_> = self.media.ports.near.iter().map(place).collect();
        let Some(offer) = offer else {
            let text = endpoint_offer(&mut self.leg, self.sound.codecs(), &places)?;
            self.has_offered = true;
            return Ok(Description { text, streams: None });
        };
        let offer = Sdp::parse(offer).map_err(|_| Refusal::NothingInCommon)?;
        let codecs = self.sound.codecs();
        let EndpointAnswer { description, streams } = endpoint_answer(&mut self.leg, &offer, codecs, &places)?;
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

    /// Returns the order that opens or changes the session. `source`: that of the caller's description.
    pub(super) fn set(
        &mut self,
        policy: &Policy,
        streams: Vec<Option<AgreedStream>>,
        source: Option<CallerSource>,
    ) -> Option<Effect> {
        self.agreed = (streams, source);
        self.order(policy)
    }

    /// Returns the order that opens the session as it was agreed last.
    pub(super) fn order(&mut self, policy: &Policy) -> Option<Effect> {
        let ports = *self.media.ports.near.first()?;
        let order = |stream: &Option<AgreedStream>| self.stream_order(policy, ports, stream.as_ref()?);
        let streams = self.agreed.0.iter().map(order).collect();
        self.media.set(streams)
    }

    /// Returns the order about a stream; `None` if the caller has agreed on no format of the sound.
    fn stream_order(&self, policy: &Policy, ports: PortPair, stream: &AgreedStream) -> Option<StreamOrder> {
        let kind = self.sound.stream_kind(&policy.config.decisions, stream)?;
        let source = self.agreed.1;
        let nat = source.filter(|source| source.is_translated).map(|source| source.address);
        let peer = stream_peer(ports, stream.clone(), nat);
        // The packets of an echo answer those of the caller.
        let may_send_first = kind != StreamKind::Echo
            && !self.is_unproven
            && source.zip(peer.rtp).is_some_and(|(source, rtp)| {
                let scope = policy.router.identity().machine().scope_of_sender(source.address);
                policy.may_send_media(scope, source.address, rtp)
            });
        Some(StreamOrder { kind, near: StreamPeer { may_send_first, ..peer }, far: None })
    }
}
