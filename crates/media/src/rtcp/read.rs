//! Reading of compound packets.

use super::{CNAME, DESCRIPTION, GOODBYE, RECEIVER_REPORT, ReportBlock, SENDER_REPORT, SenderInfo};
use std::slice::Iter;

/// Fault of a packet within a compound packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtcpError {
    /// The bytes after this point are not read.
    #[error("RTCP is shorter than its length says")]
    Truncated,
    /// The bytes after this point are not read.
    #[error("RTCP has another version than 2")]
    Version,
    #[error("an RTCP packet of type {0} is too short for its count")]
    Short(u8),
    #[error("the padding of an RTCP packet is longer than the packet")]
    Padding,
}

/// Packet within a compound packet.
#[derive(Clone, Debug)]
pub enum RtcpPacket<'a> {
    /// SR of the SSRC `source`.
    SenderReport { source: u32, info: SenderInfo, blocks: Blocks<'a> },
    /// RR of the SSRC `source`.
    ReceiverReport { source: u32, blocks: Blocks<'a> },
    /// SDES.
    Description(Chunks<'a>),
    /// BYE. The reason is empty if there is none.
    Goodbye { sources: Sources<'a>, reason: &'a [u8] },
    /// Another type: APP, feedback (RFC 4585), extended reports (RFC 3611). `count`: lower five bits of the first byte.
    Other { packet_type: u8, count: u8, body: &'a [u8] },
}

/// Reads a datagram. The first packet may be of any type (RFC 5506).
pub const fn read(datagram: &[u8]) -> Packets<'_> {
    Packets { rest: datagram }
}

/// Packets of a datagram.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<RtcpPacket<'a>, RtcpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let datagram = std::mem::take(&mut self.rest);
        if datagram.is_empty() {
            return None;
        }
        let Some(([first, packet_type, high, low], rest)) = datagram.split_first_chunk() else {
            return Some(Err(RtcpError::Truncated));
        };
        if first >> 6 != 2 {
            return Some(Err(RtcpError::Version));
        }
        let length = 4 * usize::from(u16::from_be_bytes([*high, *low]));
        let Some((body, rest)) = rest.split_at_checked(length) else { return Some(Err(RtcpError::Truncated)) };
        self.rest = rest;
        let body = if first & 0x20 == 0 { Some(body) } else { without_padding(body) };
        let body = body.ok_or(RtcpError::Padding);
        Some(body.and_then(|body| packet(*packet_type, first & 0x1f, body).ok_or(RtcpError::Short(*packet_type))))
    }
}

/// Removes the padding that the last byte counts.
fn without_padding(body: &[u8]) -> Option<&[u8]> {
    let padding = usize::from(*body.last()?);
    body.get(..body.len().checked_sub(padding).filter(|_| padding > 0)?)
}

/// Reads a packet. Returns `None` if the packet is too short for its count.
fn packet(packet_type: u8, count: u8, body: &[u8]) -> Option<RtcpPacket<'_>> {
    Some(match packet_type {
        SENDER_REPORT => {
            let (source, rest) = word(body)?;
            let (ntp, rest) = rest.split_first_chunk()?;
            let (timestamp, rest) = word(rest)?;
            let (packets, rest) = word(rest)?;
            let (octets, rest) = word(rest)?;
            let info = SenderInfo { ntp: u64::from_be_bytes(*ntp), timestamp, packets, octets };
            RtcpPacket::SenderReport { source, info, blocks: Blocks::of(rest, count)? }
        }
        RECEIVER_REPORT => {
            let (source, rest) = word(body)?;
            RtcpPacket::ReceiverReport { source, blocks: Blocks::of(rest, count)? }
        }
        DESCRIPTION => RtcpPacket::Description(Chunks { rest: body, left: count }),
        GOODBYE => {
            let (sources, rest) = body.split_at_checked(4 * usize::from(count))?;
            let reason = rest.split_first().and_then(|(length, text)| text.get(..usize::from(*length)));
            RtcpPacket::Goodbye { sources: Sources(sources.as_chunks().0.iter()), reason: reason.unwrap_or_default() }
        }
        _ => RtcpPacket::Other { packet_type, count, body },
    })
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

/// Report blocks of a report.
#[derive(Clone, Debug)]
pub struct Blocks<'a>(Iter<'a, [u8; 24]>);

impl<'a> Blocks<'a> {
    /// Takes `count` blocks, after which extensions of a profile may follow.
    fn of(bytes: &'a [u8], count: u8) -> Option<Self> {
        Some(Self(bytes.as_chunks().0.get(..usize::from(count))?.iter()))
    }
}

impl Iterator for Blocks<'_> {
    type Item = ReportBlock;

    fn next(&mut self) -> Option<ReportBlock> {
        self.0.next().map(ReportBlock::of)
    }
}

/// SSRCs that leave.
#[derive(Clone, Debug)]
pub struct Sources<'a>(Iter<'a, [u8; 4]>);

impl Iterator for Sources<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0.next().map(|source| u32::from_be_bytes(*source))
    }
}

/// Chunks of a description. They end early where an item is longer than the packet.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    left: u8,
}

/// Description of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// SSRC or CSRC.
    pub source: u32,
    /// Canonical name, up to 255 bytes; other items are skipped.
    pub cname: Option<&'a [u8]>,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        self.left = self.left.checked_sub(1)?;
        let chunk = std::mem::take(&mut self.rest);
        let (source, mut items) = word(chunk)?;
        let mut cname = None;
        loop {
            match items {
                // The end, filled up with zeros to a whole word.
                [0, ..] => {
                    let length = (chunk.len() - items.len() + 1).next_multiple_of(4);
                    self.rest = chunk.get(length..).unwrap_or_default();
                    break;
                }
                [item, length, rest @ ..] => {
                    let Some((text, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
                    if *item == CNAME {
                        cname = cname.or(Some(text));
                    }
                    items = rest;
                }
                _ => break,
            }
        }
        Some(Chunk { source, cname })
    }
}
