//! Streams as agreed with a peer, for the media session.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strowger_message::sdp::Sdp;

use super::format::{DescribedFormat, FormatKey, offered_format};
use super::leg::LegState;
use super::stream::{DescribedStream, Protocol, described_streams};

/// Way in which the packets of a stream pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamTransport {
    /// RTP: headers are read, and each leg gets its own.
    Rtp,
    /// Datagrams that pass unread, such as those of T.38 or of encrypted RTP.
    Datagram,
}

/// Format of an agreed stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedFormat {
    /// Payload type of the peer's packets, 0 to 127.
    pub payload_type: u8,
    /// Payload type with which these packets go on: to the other side of the session, or back to the peer of an endpoint.
    /// `None` if the other side did not agree on the format.
    pub other: Option<u8>,
    /// Ticks of its timestamps in a second, at least 1.
    pub clock_rate: u32,
    /// Set for telephone events (RFC 4733).
    pub is_event: bool,
    /// Encoding name, as the peer wrote it; compares in any case.
    pub encoding: Box<str>,
}

/// Stream as agreed with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedStream {
    /// Way of the packets.
    pub transport: StreamTransport,
    /// Address of RTP or datagrams in the peer's description. `None` if the peer holds the stream by an unspecified
    /// address, or wrote a name or a multicast group.
    pub rtp: Option<SocketAddr>,
    /// Address of RTCP: `rtp` if they share a port (RFC 5761), else that of `a=rtcp` (RFC 3605), else the next port.
    pub rtcp: Option<SocketAddr>,
    /// Formats of RTP, in the order of the answer; empty for datagrams. An answer that changed a payload type of the offer
    /// gives the format two entries: first the payload type that we announced, then the peer's own.
    pub formats: Vec<AgreedFormat>,
    /// Set if the peer may send.
    pub sends: bool,
    /// Set if the peer receives.
    pub receives: bool,
    /// Milliseconds of media per packet that the peer wants (RFC 8866 section 6.4).
    pub ptime: Option<u32>,
}

/// Stream of two legs, as agreed with both peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgedStream {
    /// Stream of the near leg.
    pub near: AgreedStream,
    /// Stream of the far leg.
    pub far: AgreedStream,
    /// Place of the stream among the `m=` lines of the far leg.
    pub far_place: usize,
}

/// Stream of a leg before it is joined with another leg.
#[derive(Debug)]
pub(super) struct LegStream {
    /// Stream without formats.
    pub(super) stream: AgreedStream,
    pub(super) has_rtcp_mux: bool,
    pub(super) formats: Vec<LegFormat>,
}

/// Format of a leg in both directions.
#[derive(Debug)]
pub(super) struct LegFormat {
    pub(super) key: FormatKey,
    /// Payload type that we announced, with which the peer sends.
    received: u8,
    /// Payload type that the peer announced, with which we send.
    sent: u8,
    clock_rate: u32,
    is_event: bool,
    encoding: Box<str>,
    /// Parameters that the peer wrote.
    pub(super) parameters: Option<Box<str>>,
}

impl LegStream {
    fn new(local: &DescribedStream<'_, '_>, remote: &DescribedStream<'_, '_>, has_offered: bool) -> Option<Self> {
        let transport = match remote.protocol {
            Protocol::Rtp => StreamTransport::Rtp,
            Protocol::SecureRtp | Protocol::Datagram => StreamTransport::Datagram,
            Protocol::Other => return None,
        };
        let is_in_use = local.is_active() && remote.is_active() && local.protocol == remote.protocol;
        let formats = common(&local.formats, &remote.formats, has_offered);
        if !is_in_use || transport == StreamTransport::Rtp && formats.is_empty() {
            return None;
        }
        let has_rtcp_mux = local.has_rtcp_mux && remote.has_rtcp_mux;
        let rtcp = match remote.protocol {
            Protocol::Datagram => None,
            _ if has_rtcp_mux => remote.rtp(),
            _ => remote.rtcp(),
        };
        let stream = AgreedStream {
            transport,
            rtp: remote.rtp(),
            rtcp,
            formats: Vec::new(),
            sends: remote.direction.sends() && local.direction.receives(),
            receives: remote.direction.receives() && local.direction.sends(),
            ptime: remote.section.ptime().and_then(|ptime| u32::try_from(ptime).ok()),
        };
        Some(Self { stream, has_rtcp_mux, formats })
    }

    /// Returns the stream of an endpoint, whose packets go back to the peer.
    pub(super) fn returned(self) -> AgreedStream {
        self.joined(|format| Some(format.sent))
    }

    /// Returns the payload type with which the peer gets a format.
    fn sent(&self, key: &FormatKey) -> Option<u8> {
        self.formats.iter().find(|format| format.key == *key).map(|format| format.sent)
    }

    fn joined(&self, other: impl Fn(&LegFormat) -> Option<u8>) -> AgreedStream {
        let mut formats: Vec<AgreedFormat> = Vec::with_capacity(self.formats.len());
        let received = self.formats.iter().map(|format| (format.received, format));
        let sent = self.formats.iter().map(|format| (format.sent, format));
        for (payload_type, format) in received.chain(sent) {
            if formats.iter().all(|known| known.payload_type != payload_type) {
                formats.push(AgreedFormat {
                    payload_type,
                    other: other(format),
                    clock_rate: format.clock_rate,
                    is_event: format.is_event,
                    encoding: format.encoding.clone(),
                });
            }
        }
        AgreedStream { formats, ..self.stream.clone() }
    }
}

/// Returns the formats that offer and answer have in common, in the order of the answer. The offer gives their identity.
fn common(local: &[DescribedFormat<'_>], remote: &[DescribedFormat<'_>], has_offered: bool) -> Vec<LegFormat> {
    let (offer, answer) = if has_offered { (local, remote) } else { (remote, local) };
    let mut formats: Vec<LegFormat> = Vec::with_capacity(answer.len());
    for answered in answer {
        let Some(offered) = offered_format(offer, answered) else { continue };
        if formats.iter().any(|format| format.key == offered.key) {
            continue;
        }
        let (ours, theirs) = if has_offered { (offered, answered) } else { (answered, offered) };
        formats.push(LegFormat {
            key: offered.key.clone(),
            received: ours.codec.payload,
            sent: theirs.codec.payload,
            clock_rate: offered.codec.clock_rate,
            is_event: offered.is_event(),
            encoding: theirs.codec.encoding.into(),
            parameters: theirs.codec.parameters.map(Into::into),
        });
    }
    formats
}

/// Returns the agreed streams of a leg, by their place; `None` for one that is refused.
pub(super) fn leg_streams(leg: &LegState) -> Vec<Option<LegStream>> {
    let (Ok(local), Ok(remote)) = (Sdp::parse(leg.local()), Sdp::parse(leg.remote())) else { return Vec::new() };
    let streams = described_streams(&local).into_iter().zip(described_streams(&remote));
    streams.map(|(local, remote)| LegStream::new(&local?, &remote?, leg.has_offered())).collect()
}

/// Returns the streams that both legs agreed, by their place in the near leg; `None` for one that either leg refuses. Depends on
/// the agreed descriptions alone, so it serves after each exchange, and when a kept call goes on.
pub fn bridged_streams(near: &LegState, far: &LegState) -> Vec<Option<BridgedStream>> {
    let far_streams = leg_streams(far);
    let near_streams = leg_streams(near).into_iter().zip(&near.slots);
    near_streams
        .map(|(stream, slot)| {
            let (near, far_place) = (stream?, usize::from(slot.other?));
            let far = far_streams.get(far_place)?.as_ref()?;
            (near.stream.transport == far.stream.transport).then(|| BridgedStream {
                near: near.joined(|format| far.sent(&format.key)),
                far: far.joined(|format| near.sent(&format.key)),
                far_place,
            })
        })
        .collect()
}
