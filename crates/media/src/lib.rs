//! Media of a call: RTP and RTCP (RFC 3550, RFC 3551), telephone events (RFC 4733), quality of streams, G.711, tones, WAV files.
//!
//! The one rule of use: the caller passes the time. The crate has no clock, no socket, no file, no random number and no SIP. A time
//! is in microseconds of a monotonic clock, which must be the same clock for all times of one stream. Only a sender report needs
//! the wall clock too ([`Moment`]).
//!
//! | module | content |
//! |---|---|
//! | [`rtp`] | packets; numbering of a stream |
//! | [`received_stream`], [`sequence`], [`jitter`] | receive statistics: loss, duplicates, reordering, jitter, gaps |
//! | [`quality`] | E-model: rating and mean opinion score |
//! | [`sent_stream`] | send statistics: sender reports, round-trip time |
//! | [`rtcp`] | compound packets |
//! | [`session`] | streams of a call: who may send, relay, echo, sounds, quality |
//! | [`relabel`] | headers of a relayed stream |
//! | [`telephone_event`] | digits, sent and received |
//! | [`payload_type`] | static payload types, packet times |
//! | [`g711`], [`tone`], [`wave`], [`sound`] | sound |
//!
//! Five packets, of which the third is lost:
//!
//! ```
//! use strowger_media::received_stream::ReceivedStream;
//! use strowger_media::rtp::{Numbering, Packet};
//!
//! // PCMU: 160 ticks of a clock of 8,000 Hz each 20 ms.
//! let mut numbering = Numbering::new(0xfeed, 65_534, 1_000);
//! let mut stream = ReceivedStream::new(8_000);
//! for place in 0..5 {
//!     let mut datagram = Vec::new();
//!     numbering.next(0, 160).write(&mut datagram);
//!     datagram.extend([0xff; 160]);
//!     if place != 2 {
//!         let packet = Packet::read(&datagram).expect("it is RTP");
//!         stream.packet(1_000_000 + 20_000 * place, &packet.header);
//!     }
//! }
//! let block = stream.report_block(1_100_000).expect("packets came");
//! println!("{block:?}");
//! assert_eq!((block.source, block.lost, block.fraction_lost), (0xfeed, 1, 51));
//! // One cycle of the sequence number, then 2.
//! assert_eq!((block.highest, block.jitter), (0x1_0002, 0));
//! assert_eq!(stream.figures().largest_gap, 40_000);
//! ```
//!
//! # Design
//!
//! * *Packets*: a view borrows the datagram; a writer appends to a buffer of the caller. Nothing is allocated for a packet.
//! * *Peers are not trusted*: any bytes are read without a panic. A compound packet is read as far as its lengths hold, and unknown
//!   packet types are skipped.
//! * *Statistics* are those of RFC 3550 in a report block, and those of Wireshark (lost, largest gap, mean jitter) in the figures of a
//!   stream. A report block counts a duplicate as received, the figures do not.
//! * *Legs* share nothing: each has its own SSRC, sequence numbers, timestamps and payload types, also in a plain relay. So a change of
//!   the other leg's peer or codec is a change of the source, and nothing else.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | sequence number extension, jump, restart (RFC 3550 appendix A.1) | `sequence.rs`, `Sequence` |
//! | loss of a report (A.3) | `received_stream.rs`, `report_block` |
//! | jitter (A.8) | `jitter.rs`, `Jitter` |
//! | round-trip time (6.4.1) | `sent_stream.rs`, `receive_block` |
//! | NTP timestamp (4) | `clock.rs`, `ntp_timestamp` |
//! | RTP and RTCP on one port (RFC 5761) | `rtcp/mod.rs`, `is_rtcp` |
//! | R, MOS (ITU-T G.107); codec of a stream | `quality.rs`, `SpeechQuality`, `EncodingCounts` |
//! | who may send, symmetric RTP, NAT (RFC 4961, RFC 7362) | `session/latch.rs`, `Latch` |
//! | relay, echo, hold, silence | `session/mod.rs`, `packet`, `silence_ends` |
//! | sound of this server: pace, hold, end | `session/playback.rs`, `Playback` |
//! | recording: place of a packet, limit | `session/recording.rs`, `Recording` |
//! | picture loss, full intra request, NACK (RFC 4585, RFC 5104) | `session/feedback.rs`, `carry_over` |
//! | fax and other datagrams | `session/leg.rs`, `receive_unread`, `forward` |
//! | rate of an echo, and of packets to a host that has sent none | `session/packet_rate.rs`, `PacketRate` |
//! | packets to a host before one has come from there | `session/leg.rs`, `admit` |
//! | statistics, RTCP and BYE of a leg | `session/leg.rs`, `Leg` |
//! | packet types, CNAME, BYE | `rtcp/read.rs`, `RtcpPacket`; `rtcp/write.rs`, `CompoundWriter` |
//! | long events in segments, repeated ends (RFC 4733 section 2.5.1) | `telephone_event/sent.rs`, `SentEvent` |
//! | lost ends, late packets | `telephone_event/received.rs`, `ReceivedEvents` |
//! | invariants for arbitrary bytes | `fuzz.rs`, `fuzz_media` |

#![forbid(unsafe_code)]

mod clock;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod g711;
pub mod jitter;
pub mod payload_type;
pub mod quality;
pub mod received_stream;
pub mod relabel;
pub mod rtcp;
pub mod rtp;
pub mod sent_stream;
pub mod sequence;
pub mod session;
pub mod sound;
pub mod telephone_event;
pub mod tone;
pub mod wave;

pub use clock::{Moment, ntp_timestamp};
