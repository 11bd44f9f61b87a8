//! Cutting messages out of a stream by Content-Length, keep-alive CRLFs between them (RFC 3261 section
//! 18.3, RFC 5626 section 4.4.1).

use crate::{Limits, Reason};

/// What stands at the start of the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// CRLF CRLF: a ping, to be answered with one CRLF; so many bytes belong to it.
    Ping(usize),
    /// Line ends that mean nothing (a pong, or left over): skip so many bytes.
    Skip(usize),
    /// A whole message of so many bytes.
    Message(usize),
    /// More bytes are needed. The number, if known, is the whole message's length.
    Partial(Option<usize>),
    /// The stream cannot be cut any more: close the connection for this reason.
    Broken(Reason),
}

/// Looks at the start of `bytes`. `scanned` is the reader's memory of how far a partial header was already
/// searched (start with 0, keep it between calls, reset to 0 after each frame): so that a header that
/// comes in many small pieces is not searched again from its start.
pub fn next(bytes: &[u8], scanned: &mut usize, limits: &Limits) -> Frame {
    let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    if blank > 0 {
        *scanned = 0;
        return if bytes.starts_with(b"\r\n\r\n") {
            Frame::Ping(4)
        } else if bytes == b"\r\n\r" {
            Frame::Partial(None)
        } else {
            Frame::Skip(blank)
        };
    }
    let Some(header) = header_end(bytes, *scanned) else {
        *scanned = bytes.len().saturating_sub(3);
        return if bytes.len() > limits.message { Frame::Broken(Reason::MessageTooLarge) } else { Frame::Partial(None) };
    };
    let length = match content_length(&bytes[..header]) {
        Ok(length) => length,
        Err(reason) => return Frame::Broken(reason),
    };
    let Some(total) = header.checked_add(length).filter(|&t| t <= limits.message) else {
        return Frame::Broken(Reason::MessageTooLarge);
    };
    if bytes.len() < total {
        return Frame::Partial(Some(total));
    }
    *scanned = 0;
    Frame::Message(total)
}

/// One past the blank line.
fn header_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(n) = memchr::memchr(b'\n', &bytes[at..]) {
        at += n + 1;
        match bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => (),
        }
    }
    None
}

/// The Content-Length of a header; without one, no body (RFC 3261 section 18.3 demands it on streams;
/// a message without is taken to end with its header).
fn content_length(header: &[u8]) -> Result<usize, Reason> {
    let mut found = None;
    for line in header.split(|&b| b == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = line[..colon].trim_ascii_end();
        if !(name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"l")) {
            continue;
        }
        let value = line[colon + 1..].trim_ascii();
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(Reason::ContentLength);
        }
        let number = value
            .iter()
            .try_fold(0usize, |n, d| n.checked_mul(10)?.checked_add((d - b'0') as usize))
            .ok_or(Reason::ContentLength)?;
        if found.is_some_and(|other| other != number) {
            return Err(Reason::ContentLength);
        }
        found = Some(number);
    }
    Ok(found.unwrap_or(0))
}
