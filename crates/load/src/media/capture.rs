//! Captured packets: the UDP payloads of libpcap files (draft-ietf-opsawg-pcap) and pcapng files
//! (draft-ietf-opsawg-pcapng).

use std::path::Path;

/// Capture to be played.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

/// Datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Microseconds after the first.
    pub at: u64,
    /// Distance of the destination port from the lowest port of the file, which keeps media and their control apart.
    pub above: u16,
    start: u32,
    end: u32,
}

/// Error of a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("{0}")]
    Unreadable(#[from] std::io::Error),
    #[error("it is no capture of libpcap")]
    NoCapture,
    #[error("its packets are of link type {0}, which is not known; Ethernet, raw IP and Linux cooked captures are")]
    LinkType(u32),
    #[error("it has no UDP datagram")]
    Empty,
}

impl Capture {
    /// Reads a capture.
    ///
    /// # Errors
    /// The file cannot be read, is no capture, or has no UDP datagram.
    pub fn load(path: &Path) -> Result<Self, CaptureError> {
        Self::parse(&std::fs::read(path)?)
    }

    /// Parses the bytes of a capture. A capture that was truncated within a packet ends before that packet.
    ///
    /// # Errors
    /// As [`Capture::load`].
    pub fn parse(file: &[u8]) -> Result<Self, CaptureError> {
        let mut found = Found::default();
        match file.get(..4) {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => next_generation(file, &mut found)?,
            Some(_) => classic(file, &mut found)?,
            None => return Err(CaptureError::NoCapture),
        }
        found.capture()
    }

    /// Creates a capture of generated datagrams: microseconds after the first, in order, and their bytes. All have the
    /// same port.
    pub(super) fn of(datagrams: Vec<(u64, Vec<u8>)>) -> Self {
        let (mut bytes, mut packets) = (Vec::new(), Vec::with_capacity(datagrams.len()));
        for (at, payload) in datagrams {
            let start = bytes.len() as u32;
            bytes.extend(payload);
            packets.push(Packet { at, above: 0, start, end: bytes.len() as u32 });
        }
        Self { bytes, packets }
    }

    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Returns the payload of a datagram.
    pub fn payload(&self, packet: &Packet) -> &[u8] {
        &self.bytes[packet.start as usize..packet.end as usize]
    }
}

/// Datagrams found so far.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    /// Nanoseconds, destination port, start.
    packets: Vec<(u64, u16, u32)>,
    unknown: Option<u32>,
}

impl Found {
    fn frame(&mut self, link: u32, time: u64, frame: &[u8]) {
        let Some(packet) = network(link, frame) else {
            if !is_known(link) {
                self.unknown = Some(link);
            }
            return;
        };
        if let Some((port, payload)) = datagram(packet)
            && let Ok(start) = u32::try_from(self.bytes.len())
            && self.bytes.len() + payload.len() < u32::MAX as usize
        {
            self.packets.push((time, port, start));
            self.bytes.extend_from_slice(payload);
        }
    }

    fn capture(self) -> Result<Capture, CaptureError> {
        let Some(&(first, ..)) = self.packets.first() else {
            return Err(self.unknown.map_or(CaptureError::Empty, CaptureError::LinkType));
        };
        let lowest = self.packets.iter().map(|p| p.1).min().unwrap_or(0);
        let ends = self.packets.iter().skip(1).map(|p| p.2).chain([self.bytes.len() as u32]);
        let mut last = 0;
        let packets = self
            .packets
            .iter()
            .zip(ends)
            .map(|(&(time, port, start), end)| {
                // A clock that was set back during the capture does not delay the packets after it.
                last = (time.saturating_sub(first) / 1_000).max(last);
                Packet { at: last, above: port - lowest, start, end }
            })
            .collect();
        Ok(Capture { bytes: self.bytes, packets })
    }
}

/// Byte order of a file.
#[derive(Clone, Copy)]
struct ByteOrder {
    big: bool,
}

impl ByteOrder {
    fn word(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    }

    fn half(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(if self.big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
    }
}

/// Parses a classic file: a header of 24 bytes, then for each packet a record of 16 bytes (Kuznetzov's format: 24) and
/// its bytes.
fn classic(file: &[u8], found: &mut Found) -> Result<(), CaptureError> {
    let magic = u32::from_le_bytes(file[..4].try_into().map_err(|_| CaptureError::NoCapture)?);
    let (big, unit, record) = match magic {
        0xa1b2_c3d4 => (false, 1_000, 16),
        0xa1b2_3c4d => (false, 1, 16),
        0xa1b2_cd34 => (false, 1_000, 24),
        0xd4c3_b2a1 => (true, 1_000, 16),
        0x4d3c_b2a1 => (true, 1, 16),
        0x34cd_b2a1 => (true, 1_000, 24),
        _ => return Err(CaptureError::NoCapture),
    };
    let order = ByteOrder { big };
    // The upper bits announce a checksum after each frame.
    let link = order.word(file, 20).ok_or(CaptureError::NoCapture)? & 0x0fff_ffff;
    let mut at = 24;
    while let (Some(seconds), Some(fraction), Some(length)) =
        (order.word(file, at), order.word(file, at + 4), order.word(file, at + 8))
    {
        let start = at + record;
        let Some(frame) = file.get(start..).and_then(|rest| rest.get(..length as usize)) else { break };
        found.frame(link, u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit, frame);
        at = start + length as usize;
    }
    Ok(())
}

/// Parses pcapng blocks: sections with the byte order, interfaces with link type and clock, packets.
fn next_generation(file: &[u8], found: &mut Found) -> Result<(), CaptureError> {
    let mut order = ByteOrder { big: false };
    // Link type and ticks per second of each interface.
    let mut interfaces: Vec<(u32, u64)> = Vec::new();
    let mut at = 0;
    while let Some(kind) = order.word(file, at) {
        if kind == 0x0a0d_0d0a {
            order = match order.word(file, at + 8) {
                Some(0x1a2b_3c4d) => order,
                Some(0x4d3c_2b1a) => ByteOrder { big: !order.big },
                _ => return Err(CaptureError::NoCapture),
            };
            interfaces.clear();
        }
        let Some(length) = order.word(file, at + 4).map(|n| n as usize).filter(|n| *n >= 12) else { break };
        let Some(block) = file.get(at..).and_then(|rest| rest.get(..length)) else { break };
        at += length.next_multiple_of(4);
        match kind {
            1 => {
                let link = order.half(block, 8).unwrap_or(0);
                interfaces.push((u32::from(link), ticks(order, block)));
            }
            6 => {
                let words = (order.word(block, 8), order.word(block, 12), order.word(block, 16), order.word(block, 20));
                let (Some(interface), Some(high), Some(low), Some(captured)) = words else { continue };
                let Some(&(link, ticks)) = interfaces.get(interface as usize) else { continue };
                let Some(frame) = block.get(28..).and_then(|rest| rest.get(..captured as usize)) else { continue };
                let count = u128::from(high) << 32 | u128::from(low);
                let time = count * 1_000_000_000 / u128::from(ticks.max(1));
                found.frame(link, u64::try_from(time).unwrap_or(u64::MAX), frame);
            }
            _ => (),
        }
    }
    Ok(())
}

/// Returns the ticks per second: option 9 of an interface, a power of ten or (highest bit) of two; default a million.
fn ticks(order: ByteOrder, block: &[u8]) -> u64 {
    let mut at = 16;
    while let (Some(code), Some(length)) = (order.half(block, at), order.half(block, at + 2)) {
        if code == 0 {
            break;
        }
        if code == 9 && length == 1 {
            let value = block.get(at + 4).copied().unwrap_or(6);
            let power = u32::from(value & 0x7f);
            let ticks = if value & 0x80 == 0 { 10u64.checked_pow(power) } else { 2u64.checked_pow(power) };
            return ticks.unwrap_or(1_000_000);
        }
        at += 4 + usize::from(length).next_multiple_of(4);
    }
    1_000_000
}

fn is_known(link: u32) -> bool {
    matches!(link, 0 | 1 | 12 | 14 | 101 | 108 | 113 | 228 | 229 | 276)
}

/// Returns the IP packet of a frame.
fn network(link: u32, frame: &[u8]) -> Option<&[u8]> {
    match link {
        // BSD loopback: four bytes of address family.
        0 | 108 => frame.get(4..),
        1 => tagged(frame.get(12..)?),
        // Raw IP.
        12 | 14 | 101 | 228 | 229 => Some(frame),
        // Linux cooked.
        113 => tagged(frame.get(14..)?),
        276 => match frame.get(..2)? {
            [0x08, 0x00] | [0x86, 0xdd] => frame.get(20..),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the packet after the type of an Ethernet frame; skips VLAN tags (IEEE 802.1Q).
fn tagged(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        match rest.get(..2)? {
            [0x08, 0x00] | [0x86, 0xdd] => return rest.get(2..),
            [0x81, 0x00] | [0x88, 0xa8] => rest = rest.get(4..)?,
            _ => return None,
        }
    }
}

/// Returns destination port and payload of the UDP datagram (RFC 768) in an IP packet, or `None` for a fragment.
fn datagram(packet: &[u8]) -> Option<(u16, &[u8])> {
    let udp = match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet[0] & 15) * 4;
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            if *packet.get(9)? != UDP || fragment != 0 || length < 20 {
                return None;
            }
            packet.get(length..)?
        }
        6 => {
            let (mut next, mut at) = (*packet.get(6)?, 40);
            // Hop-by-hop, routing and destination options (RFC 8200 section 4).
            while matches!(next, 0 | 43 | 60) {
                next = *packet.get(at)?;
                at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
            }
            if next != UDP {
                return None;
            }
            packet.get(at..)?
        }
        _ => return None,
    };
    let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    // Truncated by the capture: the captured part.
    udp.get(8..length.min(udp.len()).max(8)).map(|payload| (port, payload))
}

const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an Ethernet frame with a datagram to `port`.
    fn frame(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut udp = vec![0x10, 0, (port >> 8) as u8, port as u8, 0, 8 + payload.len() as u8, 0, 0];
        udp.extend_from_slice(payload);
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0, 0, 5, 8, 0, 0x45, 0, 0, 20 + udp.len() as u8, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([127, 0, 0, 1, 127, 0, 0, 1]);
        frame.extend(udp);
        frame.extend([0; 6]);
        frame
    }

    fn classic_file(packets: &[(u32, u32, Vec<u8>)], big: bool) -> Vec<u8> {
        let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut file: Vec<u8> = Vec::new();
        for n in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1] {
            file.extend(word(n));
        }
        for (seconds, micros, frame) in packets {
            for n in [*seconds, *micros, frame.len() as u32, frame.len() as u32] {
                file.extend(word(n));
            }
            file.extend(frame);
        }
        file
    }

    #[test]
    fn payloads_times_and_ports() {
        let packets =
            [(7, 999_000, frame(4_000, b"a")), (8, 19_000, frame(4_001, b"bc")), (8, 10_000, frame(4_000, b""))];
        for big in [false, true] {
            let file = classic_file(&packets, big);
            let capture = Capture::parse(&file).unwrap();
            let all: Vec<_> = capture.packets().iter().map(|p| (p.at, p.above, capture.payload(p))).collect();
            assert_eq!(all, [(0, 0, &b"a"[..]), (20_000, 1, b"bc"), (20_000, 0, b"")]);
            for end in 0..file.len() {
                let _ = Capture::parse(&file[..end]);
            }
        }
    }

    #[test]
    fn the_next_generation() {
        let block = |kind: u32, body: &[u8]| {
            let length = (12 + body.len().next_multiple_of(4)) as u32;
            let mut block = [kind.to_be_bytes(), length.to_be_bytes()].concat();
            block.extend_from_slice(body);
            block.resize(length as usize - 4, 0);
            block.extend(length.to_be_bytes());
            block
        };
        let mut file =
            block(0x0a0d_0d0a, &[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        // Milliseconds.
        file.extend(block(1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0]));
        for (at, port, text) in [(100u32, 5_000, &b"x"[..]), (130, 5_000, b"yz")] {
            let frame = frame(port, text);
            let length = (frame.len() as u32).to_be_bytes();
            let body = [&[0; 8][..], &at.to_be_bytes(), &length, &length, &frame].concat();
            file.extend(block(6, &body));
        }
        let capture = Capture::parse(&file).unwrap();
        let all: Vec<_> = capture.packets().iter().map(|p| (p.at, capture.payload(p))).collect();
        assert_eq!(all, [(0, &b"x"[..]), (30_000, b"yz")]);
        for end in 0..file.len() {
            let _ = Capture::parse(&file[..end]);
        }
    }

    #[test]
    fn unplayable_captures_give_the_reason() {
        assert!(matches!(Capture::parse(b"RIFF...."), Err(CaptureError::NoCapture)));
        assert!(matches!(Capture::parse(&classic_file(&[], false)), Err(CaptureError::Empty)));
        let mut file = classic_file(&[(0, 0, vec![0; 60])], false);
        file[20] = 105;
        assert!(matches!(Capture::parse(&file), Err(CaptureError::LinkType(105))));
    }
}
