//! Streams of a received description.

use std::net::{IpAddr, SocketAddr};

use strowger_message::sdp::{Direction, Media, Sdp, Section};

use super::format::{DescribedFormat, described_formats};

/// Protocol of a stream, by what can be done with its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// RTP with or without early feedback (RFC 3551, RFC 4585): headers are read and written.
    Rtp,
    /// Encrypted RTP (RFC 3711): its headers are authenticated, so its packets can only pass unread.
    SecureRtp,
    /// UDP datagrams, such as T.38.
    Datagram,
    /// Anything else: connections, DTLS.
    Other,
}

impl Protocol {
    pub(super) fn of(name: &[u8]) -> Self {
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        if is(&["RTP/AVP", "RTP/AVPF"]) {
            Self::Rtp
        } else if is(&["RTP/SAVP", "RTP/SAVPF"]) {
            Self::SecureRtp
        } else if is(&["udptl", "UDP", "UDP/BFCP"]) {
            Self::Datagram
        } else {
            Self::Other
        }
    }
}

/// Stream of a description whose `m=` line can be read.
#[derive(Clone, Debug)]
pub(super) struct DescribedStream<'s, 'a> {
    pub(super) section: Section<'s, 'a>,
    pub(super) media: Media<'a>,
    pub(super) protocol: Protocol,
    /// Formats of plain RTP; empty for other protocols.
    pub(super) formats: Vec<DescribedFormat<'a>>,
    /// Direction as the author sees it. A hold by an unspecified address counts as not receiving (RFC 3264 section 8.4).
    pub(super) direction: Direction,
    /// Address to send to; `None` on a hold by address, and for a name or a multicast group.
    address: Option<IpAddr>,
    /// Set if the author shares the port of RTP with RTCP (RFC 5761).
    pub(super) has_rtcp_mux: bool,
}

impl DescribedStream<'_, '_> {
    /// Tells whether the stream is neither refused nor ended.
    pub(super) fn is_active(&self) -> bool {
        self.media.port != 0
    }

    pub(super) fn is_audio(&self) -> bool {
        self.media.kind.eq_ignore_ascii_case(b"audio")
    }

    /// Address of RTP, or of datagrams.
    pub(super) fn rtp(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address?, self.media.port)).filter(|_| self.is_active())
    }

    /// Address of RTCP on a port of its own: that of `a=rtcp` (RFC 3605), else the next port (RFC 3550 section 11).
    pub(super) fn rtcp(&self) -> Option<SocketAddr> {
        let rtp = self.rtp()?;
        match self.section.rtcp() {
            Some(rtcp) => {
                let address = match rtcp.connection {
                    Some(connection) => connection.ip().filter(is_unicast)?,
                    None => rtp.ip(),
                };
                (rtcp.port != 0).then_some(SocketAddr::new(address, rtcp.port))
            }
            None => Some(SocketAddr::new(rtp.ip(), rtp.port().checked_add(1)?)),
        }
    }
}

fn is_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Returns the address of each stream of a description, by its place. `None` for a stream that is refused, held by an unspecified address,
/// or cannot be read, and for a name or a multicast group.
pub fn stream_addresses(sdp: &Sdp<'_>) -> Vec<Option<IpAddr>> {
    described_streams(sdp).into_iter().map(|stream| Some(stream?.rtp()?.ip())).collect()
}

/// Reads the streams of a description, one for each `m=` line; `None` for a line that cannot be read.
pub(super) fn described_streams<'s, 'a>(sdp: &'s Sdp<'a>) -> Vec<Option<DescribedStream<'s, 'a>>> {
    let streams = sdp.all_media().enumerate();
    streams
        .map(|(place, section)| {
            let media = section.media()?;
            let protocol = Protocol::of(media.protocol);
            let formats = if protocol == Protocol::Rtp { described_formats(section, &media) } else { Vec::new() };
            let connection = sdp.connection_of(place);
            let is_hold = connection.is_some_and(|connection| connection.is_hold());
            let written = sdp.direction_of(place);
            Some(DescribedStream {
                section,
                media,
                protocol,
                formats,
                direction: Direction::from_parts(written.sends(), written.receives() && !is_hold),
                address: connection.and_then(|connection| connection.ip()).filter(is_unicast),
                has_rtcp_mux: section.attribute("rtcp-mux").is_some(),
            })
        })
        .collect()
}
