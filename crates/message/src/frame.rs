//! Splits a stream into messages by Content-Length, with keep-alive CRLFs between them (RFC 3261 section 18.3, RFC 5626
//! section 4.4.1).
//!
//! Line ends, folds and Content-Length are decided by the same code here and in [`crate::Index`]. Two readers that
//! disagree about the end of a message could be made to take a body for a request. For the same reason a stream is
//! stricter than a datagram: lines end with CRLF, or with LF if the start line ends with LF. Another reader may take a
//! bare CR, or a bare LF after a start line that ends with CRLF, for part of a header field, so a stream with one is
//! refused as broken.

use crate::scan::{self, Lines};
use crate::{Limits, Name, Reason, index};

/// The next frame of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// CRLF CRLF: a ping, to be answered with one CRLF. The number is its length, with skipped line ends before it. It
    /// is less than four if the start of the ping was skipped in an earlier call.
    Ping(usize),
    /// Line ends without meaning (a pong, or left over): number of bytes to skip.
    Skip(usize),
    /// A whole message and its length.
    Message(usize),
    /// More bytes are needed. The number, if known, is the length of the whole message.
    Partial(Option<usize>),
    /// The boundaries of messages in the stream are unknown: the connection must be closed for this reason.
    Broken(Reason),
}

/// Examines the start of `bytes`. `scanned` is the state of the reader: 0 for a new connection, kept between calls. The
/// caller must remove the bytes of a frame before the next call. The state saves a second search of a header that
/// arrives in small pieces and a second measurement of a long body, and it recognizes a ping in pieces. The same stream
/// gives the same messages and pings however it is split.
///
/// A caller that sends pings itself sets `scanned` back to 0 after a [`Frame::Skip`] while a pong is due: two pongs in
/// succession look like a ping.
///
/// A CR at the end is judged only when the next byte has arrived.
pub fn next(bytes: &[u8], scanned: &mut usize, limits: &Limits) -> Frame {
    let memory = Memory::read(*scanned);
    let (frame, memory) = look(bytes, memory, limits);
    *scanned = memory.write();
    frame
}

/// State kept for the bytes that stay for the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Within a header: no line end before this offset ends the header.
    Header(usize),
    /// Length of the message.
    Total(usize),
    /// The last skipped bytes are the first 1 to 3 bytes of a ping.
    Ping(usize),
}

impl Memory {
    const TOTAL: usize = 1 << (usize::BITS - 1);

    fn read(word: usize) -> Self {
        match usize::MAX - word {
            ping @ 1..=3 => Self::Ping(ping),
            _ if word & Self::TOTAL != 0 => Self::Total(word & !Self::TOTAL),
            _ => Self::Header(word),
        }
    }

    fn write(self) -> usize {
        match self {
            Self::Header(offset) => offset,
            Self::Total(length) => length | Self::TOTAL,
            Self::Ping(bytes) => usize::MAX - bytes,
        }
    }
}

fn look(bytes: &[u8], memory: Memory, limits: &Limits) -> (Frame, Memory) {
    let start = Memory::Header(0);
    let total = match memory {
        Memory::Total(total) => total,
        Memory::Ping(_) | Memory::Header(0) if matches!(bytes.first(), Some(b'\r' | b'\n')) => {
            return line_ends(bytes, if let Memory::Ping(seen) = memory { seen } else { 0 });
        }
        _ if bytes.is_empty() => return (Frame::Partial(None), memory),
        _ => {
            let from = if let Memory::Header(from) = memory { from } else { 0 };
            let header = match header_end(bytes, from) {
                End::At(header) if header <= limits.message => header,
                // If there are two faults, the same one is reported however the stream is split.
                End::Wrong(seen) if seen <= limits.message + 1 => return (Frame::Broken(Reason::LineEnd), start),
                End::Open(seen) if bytes.len() <= limits.message => {
                    return (Frame::Partial(None), Memory::Header(seen));
                }
                _ => return (Frame::Broken(Reason::MessageTooLarge), start),
            };
            let length = match content_length(&bytes[..header]) {
                Ok(length) => length,
                Err(reason) => return (Frame::Broken(reason), start),
            };
            match header.checked_add(length).filter(|&total| total <= limits.message) {
                Some(total) => total,
                None => return (Frame::Broken(Reason::MessageTooLarge), start),
            }
        }
    };
    if bytes.len() < total {
        (Frame::Partial(Some(total)), Memory::Total(total))
    } else {
        (Frame::Message(total), start)
    }
}

/// Returns the frame of the line ends at the start of `bytes`, up to a whole ping. `seen`: number of bytes of the ping
/// that were skipped before.
fn line_ends(bytes: &[u8], mut seen: usize) -> (Frame, Memory) {
    for (n, &b) in bytes.iter().enumerate() {
        seen = match (seen, b) {
            (3, b'\n') => return (Frame::Ping(n + 1), Memory::Header(0)),
            (2, b'\r') => 3,
            (_, b'\r') => 1,
            (1, b'\n') => 2,
            (_, b'\n') => 0,
            _ => return (Frame::Skip(n), Memory::Header(0)),
        };
    }
    (Frame::Skip(bytes.len()), if seen > 0 { Memory::Ping(seen) } else { Memory::Header(0) })
}

/// Result of the search for the end of a header.
enum End {
    /// Offset after the blank line.
    At(usize),
    /// Not found yet: offset at which to resume.
    Open(usize),
    /// Number of bytes up to a line end that differs from the one of the start line.
    Wrong(usize),
}

/// Searches the end of the header from offset `from`.
fn header_end(bytes: &[u8], from: usize) -> End {
    let mut lines = Lines::new(bytes, from.min(bytes.len()));
    let mut end = lines.end(from.min(bytes.len()));
    // A CR at the end of the bytes may be half of a CRLF.
    let open = |at: usize| bytes[at] == b'\r' && at + 1 == bytes.len();
    let mut plain = None;
    let mut wrong = |at: usize, next: usize| {
        let bare = next - at != 2;
        // The next byte shows whether a CR stands alone.
        (bare && !is_plain_lf(bytes, at, &mut plain)).then_some(at + 1 + usize::from(bytes[at] == b'\r'))
    };
    while end < bytes.len() && !open(end) {
        let next = scan::past(bytes, end);
        if let Some(seen) = wrong(end, next) {
            return End::Wrong(seen);
        }
        match bytes.get(next) {
            None => break,
            Some(b'\r' | b'\n') if open(next) => break,
            Some(b'\r' | b'\n') => {
                let blank = scan::past(bytes, next);
                return wrong(next, blank).map_or(End::At(blank), End::Wrong);
            }
            Some(_) => end = lines.end(next),
        }
    }
    End::Open(end)
}

/// Tells whether the line end at `end` is a bare LF, and the start line ends with a bare LF too. `plain` caches the
/// result for the start line.
#[cold]
fn is_plain_lf(bytes: &[u8], end: usize, plain: &mut Option<bool>) -> bool {
    let of_start_line = || memchr::memchr2(b'\r', b'\n', bytes).is_some_and(|at| bytes[at] == b'\n');
    bytes[end] == b'\n' && *plain.get_or_insert_with(of_start_line)
}

/// Returns the Content-Length of a header. Without one, the message has no body (RFC 3261 section 18.3 demands the
/// field on streams).
fn content_length(header: &[u8]) -> Result<usize, Reason> {
    let mut found = None;
    let mut lines = Lines::new(header, 0);
    let mut at = scan::past(header, lines.end(0));
    while at < header.len() {
        let named = matches!(header[at], b'c' | b'C' | b'l' | b'L');
        let colon = if named { lines.end_or_colon(at) } else { at };
        let mut end = lines.end(colon);
        let mut next = scan::past(header, end);
        while let Some(b' ' | b'\t') = header.get(next) {
            end = lines.end(next);
            next = scan::past(header, end);
        }
        if named && header.get(colon) == Some(&b':') && index::name(header, at, colon).0 == Name::ContentLength {
            let number = index::length(&header[scan::trim(header, colon + 1..end)]).ok_or(Reason::ContentLength)?;
            if found.is_some_and(|other| other != number) {
                return Err(Reason::ContentLength);
            }
            found = Some(number);
        }
        at = next;
    }
    Ok(found.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Frame> {
        let (mut at, mut memory, mut frames) = (0, 0, Vec::new());
        loop {
            let frame = next(&bytes[at..], &mut memory, &Limits::default());
            frames.push(frame);
            match frame {
                Frame::Ping(n) | Frame::Skip(n) | Frame::Message(n) => at += n,
                Frame::Partial(_) | Frame::Broken(_) => return frames,
            }
        }
    }

    #[test]
    fn memory_is_kept_in_one_word() {
        for memory in
            [Memory::Header(0), Memory::Header(70_000), Memory::Total(0), Memory::Total(70_000), Memory::Ping(3)]
        {
            assert_eq!(Memory::read(memory.write()), memory);
        }
    }

    #[test]
    fn pings_and_pongs() {
        assert_eq!(all(b"\r\n\r\n"), [Frame::Ping(4), Frame::Partial(None)]);
        assert_eq!(all(b"\r\n"), [Frame::Skip(2), Frame::Partial(None)]);
        assert_eq!(all(b"\r\n\r\n\r\n"), [Frame::Ping(4), Frame::Skip(2), Frame::Partial(None)]);
        let mut memory = 0;
        assert_eq!(next(b"\r\n\r", &mut memory, &Limits::default()), Frame::Skip(3));
        assert_eq!(next(b"", &mut memory, &Limits::default()), Frame::Partial(None));
        assert_eq!(next(b"\nO", &mut memory, &Limits::default()), Frame::Ping(1));
    }

    #[test]
    fn length_long_compact_folded_and_none() {
        for (line, body) in [
            ("Content-Length: 3\r\n", 3),
            ("l:3\r\n", 3),
            ("L : \r\n 3\r\n", 3),
            ("CONTENT-LENGTH\t:3\r\n", 3),
            ("X: y\r\n l: 3\r\n", 0),
            ("Xl: 3\r\n", 0),
            ("l: 3\r\nContent-Length: 003\r\n", 3),
        ] {
            let text = format!("OPTIONS sip:a SIP/2.0\r\n{line}\r\nabcd");
            assert_eq!(all(text.as_bytes())[0], Frame::Message(text.len() - 4 + body), "{text:?}");
        }
        for line in ["l: 3\r\nl: 4\r\n", "l: -3\r\n", "l:\r\n", "l: 3, 3\r\n", "l: 99999999999999999999\r\n"] {
            let text = format!("OPTIONS sip:a SIP/2.0\r\n{line}\r\nabcd");
            assert_eq!(all(text.as_bytes()), [Frame::Broken(Reason::ContentLength)], "{text:?}");
        }
    }

    #[test]
    fn line_ends_are_those_of_the_start_line() {
        for text in [
            "OPTIONS sip:a SIP/2.0\r\nX: y\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\nX: y\nl: 0\n\n",
            "OPTIONS sip:a SIP/2.0\nX: y\r\n z\nl: 0\n\r\n",
        ] {
            assert_eq!(all(text.as_bytes())[0], Frame::Message(text.len()), "{text:?}");
        }
        for text in [
            "OPTIONS sip:a SIP/2.0\r\nX: y\r\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: y\rl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\rX: y\rl: 0\r\r",
            "OPTIONS sip:a SIP/2.0\nX: y\rl: 0\n\n",
            "OPTIONS sip:a SIP/2.0\r\nX: y\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: y\r\n\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: y\r\n\rl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: y\r z\r\nl: 0\r\n\r\n",
        ] {
            assert_eq!(all(text.as_bytes()), [Frame::Broken(Reason::LineEnd)], "{text:?}");
        }
    }

    #[test]
    fn limits_break_the_stream() {
        let limits = Limits { message: 40, ..Limits::default() };
        let mut memory = 0;
        assert_eq!(next(&[b'a'; 40], &mut memory, &limits), Frame::Partial(None));
        assert_eq!(next(&[b'a'; 41], &mut memory, &limits), Frame::Broken(Reason::MessageTooLarge));
        let mut memory = 0;
        assert_eq!(
            next(b"OPTIONS sip:a SIP/2.0\r\nl: 99\r\n\r\n", &mut memory, &limits),
            Frame::Broken(Reason::MessageTooLarge)
        );
    }
}
