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
        out.extend([0x80, u8::from(self.marker) << 7 | self.payload_type & 0x7f]);
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.source.to_be_bytes());
    }
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
    /// Creates the numbering of a new stream. All three values should be unpredictable to others (RFC 3550 section 5.1).
    pub const fn new(source: u32, sequence: u16, timestamp: u32) -> Self {
        Self { source, sequence, timestamp, begins: true }
    }

    /// Begins a talkspurt: the next packet has the marker.
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

    /// Advances the timestamp over a silence of these ticks.
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
    }
}
