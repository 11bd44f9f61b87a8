//! RTP packets (RFC 3550 section 5).

/// Header of an RTP packet (RFC 3550 section 5.1) without contributing sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    /// Sound begins after silence (RFC 3551 section 4.1).
    pub marker: bool,
    pub sequence: u16,
    /// Sampling time of the first octet, in ticks of the payload's clock.
    pub timestamp: u32,
    /// SSRC.
    pub source: u32,
}

impl Header {
    /// Appends the 12 bytes of the header.
    pub fn write(&self, out: &mut Vec<u8>) {
        // Version 2, no padding, no extension.
        self.write_after(VERSION, out);
    }

    /// Appends a first byte and the remaining header.
    fn write_after(&self, first: u8, out: &mut Vec<u8>) {
        out.extend([first, u8::from(self.marker) << 7 | self.payload_type & 0x7f]);
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.source.to_be_bytes());
    }
}

/// Version 2 in the first byte.
const VERSION: u8 = 0x80;
/// Bits of the first byte: padding follows the payload, an extension follows the header.
const PADDING: u8 = 0x20;
const EXTENSION: u8 = 0x10;

/// View of an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub header: Header,
    /// CSRCs, at most 15.
    pub contributors: &'a [[u8; 4]],
    pub extension: Option<Extension<'a>>,
    /// Payload without padding.
    pub payload: &'a [u8],
}

/// Header extension (RFC 3550 section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// First 16 bits, which a profile defines.
    pub profile: u16,
    /// Words after the length, at most 65,535.
    pub words: &'a [[u8; 4]],
}

impl<'a> Packet<'a> {
    /// Reads a datagram. Returns `None` for another version than 2, or a length beyond the datagram (RFC 3550 appendix A.1). This
    /// function does not distinguish RTP from RTCP; [`crate::rtcp::is_rtcp`] does.
    pub fn read(datagram: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = datagram.split_first_chunk::<12>()?;
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *fixed;
        if first & 0xc0 != VERSION {
            return None;
        }
        let header = Header {
            payload_type: second & 0x7f,
            marker: second & 0x80 != 0,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            source: u32::from_be_bytes([c0, c1, c2, c3]),
        };
        let (contributors, mut rest) = split_words(rest, usize::from(first & 0x0f))?;
        let mut extension = None;
        if first & EXTENSION != 0 {
            let ([p0, p1, l0, l1], after) = rest.split_first_chunk()?;
            let (words, after) = split_words(after, usize::from(u16::from_be_bytes([*l0, *l1])))?;
            extension = Some(Extension { profile: u16::from_be_bytes([*p0, *p1]), words });
            rest = after;
        }
        let mut payload = rest;
        if first & PADDING != 0 {
            // The last byte counts the padding, itself included.
            let padding = usize::from(*rest.last()?);
            payload = rest.get(..rest.len().checked_sub(padding).filter(|_| padding > 0)?)?;
        }
        Some(Self { header, contributors, extension, payload })
    }

    /// Appends the packet, without padding. Of contributors the first 15 are written, of an extension the first 65,535 words.
    pub fn write(&self, out: &mut Vec<u8>) {
        let contributors = &self.contributors[..self.contributors.len().min(15)];
        let extends = if self.extension.is_some() { EXTENSION } else { 0 };
        self.header.write_after(VERSION | extends | contributors.len() as u8, out);
        out.extend_from_slice(contributors.as_flattened());
        if let Some(Extension { profile, words }) = self.extension {
            let words = &words[..words.len().min(usize::from(u16::MAX))];
            out.extend(profile.to_be_bytes());
            out.extend((words.len() as u16).to_be_bytes());
            out.extend_from_slice(words.as_flattened());
        }
        out.extend_from_slice(self.payload);
    }
}

/// Splits `count` words off the front, or returns `None` if there are fewer.
fn split_words(bytes: &[u8], count: usize) -> Option<(&[[u8; 4]], &[u8])> {
    let (words, rest) = bytes.split_at_checked(4 * count)?;
    Some((words.as_chunks().0, rest))
}

/// Numbering of the packets of a stream: SSRC, and sequence number and timestamp of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbering {
    source: u32,
    sequence: u16,
    timestamp: u32,
    /// True if the next packet begins a talkspurt.
    begins: bool,
}

impl Numbering {
    /// Creates the numbering of a new stream. All three values should be unpredictable to other parties (RFC 3550
    /// section 5.1).
    pub const fn new(source: u32, sequence: u16, timestamp: u32) -> Self {
        Self { source, sequence, timestamp, begins: true }
    }

    /// Begins a talkspurt, so that the next packet has the marker.
    pub const fn begin(&mut self) {
        self.begins = true;
    }

    /// Returns the header of the next packet. `ticks`: duration of its payload.
    pub fn next(&mut self, payload_type: u8, ticks: u32) -> Header {
        let header = Header {
            payload_type,
            marker: std::mem::take(&mut self.begins),
            sequence: self.sequence,
            timestamp: self.timestamp,
            source: self.source,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.skip(ticks);
        header
    }

    /// Returns the header of the next packet with a separate timestamp, such as that of the beginning of a telephone event. The timestamp
    /// of later packets does not change.
    pub const fn next_at(&mut self, payload_type: u8, marker: bool, timestamp: u32) -> Header {
        let header = Header { payload_type, marker, sequence: self.sequence, timestamp, source: self.source };
        self.sequence = self.sequence.wrapping_add(1);
        header
    }

    /// Returns the timestamp of the next packet.
    pub const fn timestamp(&self) -> u32 {
        self.timestamp
    }

    /// Advances the timestamp over a silence of this number of ticks.
    pub const fn skip(&mut self, ticks: u32) {
        self.timestamp = self.timestamp.wrapping_add(ticks);
    }
}

/// Appends `length` bytes from `at` on, wrapping at the end. Returns the next offset.
pub fn around(bytes: &[u8], at: usize, length: usize, out: &mut Vec<u8>) -> usize {
    let mut at = at % bytes.len().max(1);
    let mut left = length;
    while left > 0 && !bytes.is_empty() {
        let now = left.min(bytes.len() - at);
        out.extend_from_slice(&bytes[at..at + now]);
        left -= now;
        at = (at + now) % bytes.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut out = Vec::new();
        Header { payload_type: 8, marker: true, sequence: 0x1234, timestamp: 0x0102_0304, source: 0xa1b2_c3d4 }
            .write(&mut out);
        assert_eq!(out, [0x80, 0x88, 0x12, 0x34, 1, 2, 3, 4, 0xa1, 0xb2, 0xc3, 0xd4]);
    }

    #[test]
    fn packets_are_read() {
        let fixed = |first: u8| vec![first, 0x88, 0x12, 0x34, 1, 2, 3, 4, 0xa1, 0xb2, 0xc3, 0xd4];
        let packet = |first: u8, rest: &[u8]| [&fixed(first)[..], rest].concat();
        let plain = packet(0x80, b"sound");
        let read = Packet::read(&plain).expect("a packet");
        let header =
            Header { payload_type: 8, marker: true, sequence: 0x1234, timestamp: 0x0102_0304, source: 0xa1b2_c3d4 };
        assert_eq!(read, Packet { header, contributors: &[], extension: None, payload: b"sound" });

        // Two contributors, an extension of one word, two bytes of padding.
        let full = packet(0xb2, b"CSRCcsrc\xbe\xde\0\x01wordsound\0\x02");
        let read = Packet::read(&full).expect("a packet");
        assert_eq!(read.contributors, [*b"CSRC", *b"csrc"]);
        assert_eq!(read.extension, Some(Extension { profile: 0xbede, words: &[*b"word"] }));
        assert_eq!((read.header, read.payload), (header, &b"sound"[..]));
        let mut written = Vec::new();
        read.write(&mut written);
        assert_eq!(written, packet(0x92, b"CSRCcsrc\xbe\xde\0\x01wordsound"));
        assert_eq!(Packet::read(&written), Some(read));
    }

    #[test]
    fn wrong_lengths_and_versions_are_no_packets() {
        let fixed = [0x80, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
        assert!(Packet::read(&fixed).is_some_and(|packet| packet.payload.is_empty()));
        assert_eq!(Packet::read(&fixed[..11]), None);
        let cases: [(u8, &[u8]); 9] = [
            (0x00, b"version 0"),
            (0x40, b"version 1"),
            (0xc0, b"version 3"),
            (0x82, b"one CSRC"),
            (0x90, b"\0\0\0"),
            (0x90, b"\0\0\0\x02word"),
            (0xa0, b""),
            (0xa0, b"ab\x04"),
            (0xa0, b"ab\0"),
        ];
        for (first, rest) in cases {
            let mut packet = [&fixed[..], rest].concat();
            packet[0] = first;
            if first == 0x82 {
                packet.truncate(19);
            }
            assert_eq!(Packet::read(&packet), None, "{packet:?}");
        }
        let all = [&[0xa0][..], &fixed[1..], b"ab\x03"].concat();
        assert!(Packet::read(&all).is_some_and(|packet| packet.payload.is_empty()));
    }

    #[test]
    fn files_go_around() {
        let mut out = Vec::new();
        let at = around(b"abcde", 3, 9, &mut out);
        assert_eq!((&out[..], at), (&b"deabcdeab"[..], 2));
    }

    #[test]
    fn numbers_wrap_and_talkspurts_are_marked() {
        let mut numbering = Numbering::new(7, u16::MAX, u32::MAX - 159);
        let mut next = |skip: u32| {
            if skip > 0 {
                numbering.skip(skip);
                numbering.begin();
            }
            let header = numbering.next(0, 160);
            (header.marker, header.sequence, header.timestamp, header.source)
        };
        assert_eq!(next(0), (true, u16::MAX, u32::MAX - 159, 7));
        assert_eq!(next(0), (false, 0, 0, 7));
        assert_eq!(next(320), (true, 1, 480, 7));
        let event = numbering.next_at(101, true, 480);
        assert_eq!((event.sequence, event.timestamp, numbering.timestamp()), (2, 480, 640));
        assert_eq!(numbering.next(0, 160).sequence, 3);
    }
}
