//! Orders of a shard about a session, and events of the session for the shard.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use super::{LatchedSource, PlayedSound, RecordedSound};
use crate::quality::SpeechEncoding;
use crate::received_stream::Figures;

/// Key of a session, chosen by its shard: unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// Side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Peer of the dialog in which the call came in.
    Near,
    /// Peer of the dialog in which the call goes on.
    Far,
}

/// Two adjacent bound UDP ports of a media address: an even one for RTP, the next one for RTCP (RFC 3550 section 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortPair {
    /// Media thread that owns both sockets.
    pub thread: u16,
    /// Place of the address in the list of media addresses.
    pub address: u16,
    /// Port of RTP, even.
    pub rtp: u16,
}

/// Payload format of a stream, as agreed with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadFormat {
    /// Payload type towards and from the peer, 0 to 127.
    pub payload_type: u8,
    /// Payload type with which the packets go on, 0 to 127: on the other side of the session, or back to the peer of an echo. `None` if the other
    /// side did not agree on the format; an echo then keeps the payload type.
    pub other: Option<u8>,
    /// Ticks of its timestamps in a second.
    pub clock_rate: u32,
    /// Set for telephone events (RFC 4733).
    pub is_event: bool,
    /// Encoding by its name in the descriptions, for the quality of speech: a dynamic payload type says nothing of it.
    pub encoding: SpeechEncoding,
}

/// Peer of a stream, as agreed in its dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPeer {
    /// Ports of this server towards the peer.
    pub ports: PortPair,
    /// Address of RTP in the description; `None` if the peer has not described the stream yet, or holds it by 0.0.0.0.
    pub rtp: Option<SocketAddr>,
    /// Address of RTCP in the description; equal to `rtp` if both share a port (RFC 5761).
    pub rtcp: Option<SocketAddr>,
    /// Source address of the peer's signalling, if the peer is behind NAT: its first packet from there replaces the
    /// described address.
    pub behind_nat: Option<IpAddr>,
    /// Formats, in the order of preference of the answer. Packets of other payload types are counted and not relayed.
    pub formats: Vec<PayloadFormat>,
    /// Set if the peer may send.
    pub sends: bool,
    /// Set if the peer receives.
    pub receives: bool,
    /// Set if media may go to the described address before a packet has come from there: it is the source of the peer's signalling, or an address
    /// that the peer may name. An echo sends nothing first, whatever this says.
    pub may_send_first: bool,
    /// Source of the peer in an earlier process, with which a new leg begins; `None`: no packet has come yet.
    pub heard: Option<LatchedSource>,
}

/// Use of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Packets of each side go to the other side.
    Relay,
    /// Packets of the near side go back to it.
    Echo,
    /// The near side hears a sound, from the order on. Its packets are judged, and go nowhere.
    Playback(PlayedSound),
    /// The near side hears a tone; then its sound is decoded for a file ([`SessionOutput::samples`](super::SessionOutput::samples)).
    Recording(RecordedSound),
    /// Datagrams of each side go to the other side as they are: fax by UDPTL (ITU-T T.38), encrypted RTP, anything else. No header is read, and
    /// this server makes no report. Encrypted RTCP goes by the ports of RTCP, if the peers have described some.
    Unread,
}

impl StreamKind {
    /// Tells whether this server reads RTP, and takes part in RTCP.
    pub(super) const fn is_rtp(&self) -> bool {
        !matches!(self, Self::Unread)
    }

    /// Returns the sound of this server that the near side hears.
    pub(super) const fn sound(&self) -> Option<&PlayedSound> {
        match self {
            Self::Playback(played) => Some(played),
            Self::Recording(recorded) => Some(&recorded.tone),
            Self::Relay | Self::Echo | Self::Unread => None,
        }
    }

    /// Returns the file of a recording.
    pub const fn file(&self) -> Option<&Arc<Path>> {
        match self {
            Self::Recording(recorded) => Some(&recorded.file),
            _ => None,
        }
    }

    /// Tells whether both play the same sound, whatever the format.
    pub(super) fn plays_sound_of(&self, other: &Self) -> bool {
        self.sound().zip(other.sound()).is_some_and(|(one, other)| one.sound == other.sound)
    }
}

/// Stream of a session, as it is from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOrder {
    /// Use of the stream.
    pub kind: StreamKind,
    /// Peer of the near side.
    pub near: StreamPeer,
    /// Peer of the far side; `None` for an endpoint of this server.
    pub far: Option<StreamPeer>,
}

/// Order of a shard to a media thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionOrder {
    /// Opens a session, or changes it. A stream keeps its statistics while its ports are the same.
    Set {
        /// Session.
        key: SessionKey,
        /// Number of this order about the session, from 1. The thread ignores an order with a lower number than that of the last one: after a move
        /// of the call to another shard, an order of the shard before may come late.
        version: u32,
        /// Streams, in the order of the descriptions. A refused stream (port 0) is `None`.
        streams: Vec<Option<StreamOrder>>,
    },
    /// Asks for the reports about the streams of a session so far.
    Report {
        /// Session.
        key: SessionKey,
    },
    /// Ends a session. Its ports are given back with [`SessionEvent::Closed`].
    Close {
        /// Session.
        key: SessionKey,
    },
    /// Asks for more free ports.
    Lend {
        /// Shard that asks.
        shard: u16,
        /// Pairs that are wanted.
        pairs: u16,
    },
    /// Binds ports of a session of an earlier process, all of them or none. [`SessionEvent::Claimed`] answers.
    Claim {
        /// Session that is to have the ports.
        key: SessionKey,
        /// Ports, all of the thread that gets the order.
        ports: Vec<PortPair>,
    },
    /// Gives unused ports back.
    Return(Vec<PortPair>),
}

/// Report about one received stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// Statistics of the received packets.
    pub figures: Figures,
    /// Packets that were dropped: from addresses that may not send, of unknown payload types, or beyond the rate of an echo.
    pub dropped: u64,
    /// Packets that were dropped because of the address that they came from.
    pub refused: u64,
    /// Datagrams that were taken unread; they are not in the statistics.
    pub unread: u64,
    /// Packets sent to this peer.
    pub sent: u64,
    /// Address in the description.
    pub expected: Option<SocketAddr>,
    /// Address of the last packet, also of a dropped one.
    pub seen: Option<SocketAddr>,
    /// Address of the last packet that was dropped because of it.
    pub refused_from: Option<SocketAddr>,
    /// Time of the last accepted packet, in microseconds of the clock of the session; RTCP is left out.
    pub heard_at: Option<u64>,
    /// Round-trip time by RTCP in microseconds.
    pub round_trip: Option<u64>,
    /// Set if the peer should send: it has an address, and the stream is on hold in neither direction.
    pub is_expected: bool,
    /// Time since when the peer should send, or should have sent before the present hold, in microseconds of the clock of the session. `None`: it
    /// never had to, or an earlier process has heard it.
    pub expected_since: Option<u64>,
}

impl StreamReport {
    /// Tells whether no packet ever came from a peer that has described the stream, and had to send: one-way audio.
    pub const fn is_silent(&self) -> bool {
        self.expected.is_some() && self.expected_since.is_some() && self.figures.packets == 0 && self.unread == 0
    }
}

/// Cause of the end of a session that its shard did not order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// No packet from a peer that may send, within the time limit; or no open stream for as long, which counts as silence of the near side.
    Silence(Side),
}

/// Event of a session for its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// First packet of a peer, and the first one from each further source: twice in a second at most for each stream and side.
    Heard {
        /// Session.
        key: SessionKey,
        /// Place of the stream.
        stream: u8,
        /// Side of the peer.
        side: Side,
        /// Source, for the next process.
        source: LatchedSource,
    },
    /// End of the time limit without media. The shard ends the call and closes the session.
    Silent {
        /// Session.
        key: SessionKey,
        /// Cause.
        end: SessionEnd,
    },
    /// End of a sound that does not repeat, 200 ms after its last packet, or of a recording at its limit. Once for each stream; the shard ends the
    /// call.
    Played {
        /// Session.
        key: SessionKey,
        /// Place of the stream.
        stream: u8,
    },
    /// Failure to write the file of a recording. The shard ends the call.
    RecordingFailed {
        /// Session.
        key: SessionKey,
    },
    /// Reports of an open session, by [`SessionOrder::Report`]; none if there is no such session.
    Reported {
        /// Session.
        key: SessionKey,
        /// Reports of each stream, as in [`SessionEvent::Closed`].
        streams: Vec<(StreamReport, Option<StreamReport>)>,
    },
    /// Session that ended by [`SessionOrder::Close`].
    Closed {
        /// Session.
        key: SessionKey,
        /// Reports of each stream: of the near side, and of the far side if there is one.
        streams: Vec<(StreamReport, Option<StreamReport>)>,
    },
    /// Answer to [`SessionOrder::Claim`].
    Claimed {
        /// Session that is to have the ports.
        key: SessionKey,
        /// Ports of the order.
        ports: Vec<PortPair>,
        /// Set if all are bound; else none is.
        is_bound: bool,
    },
    /// Free ports for a shard, at most as many as it asked for; empty if none is left.
    Lent {
        /// Shard that asked.
        shard: u16,
        /// Ports.
        ports: Vec<PortPair>,
    },
}
