//! Start line of a message (RFC 3261 sections 7.1 and 7.2).

use crate::octet::is_token;
use crate::{Error, Limits, Method, Reason};
use std::ops::Range;

/// The start line: request or status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// `Method SP Request-URI SP SIP/2.0`; the range is the Request-URI's.
    Request {
        /// Method; [`Method::Other`] if the table does not list it: then
        /// [`Message::method_text`](crate::Message::method_text) has the text.
        method: Method,
        /// Length of the method in bytes; it ends one space before the Request-URI.
        method_len: u16,
        /// Offsets of the first byte and after the last byte, from the start of the message.
        uri: (u32, u32),
    },
    /// `SIP/2.0 SP code SP reason`; the range is the reason's.
    Status {
        /// Status code, 100 to 699; 0 if nothing was parsed or the status line was refused.
        code: u16,
        /// Offsets of the first byte and after the last byte, from the start of the message; may be empty.
        reason: (u32, u32),
    },
}

/// Parses the line.
#[inline]
pub(crate) fn parse(bytes: &[u8], line: Range<usize>, limits: &Limits) -> Result<Start, Error> {
    let at = line.start;
    let text = &bytes[line.clone()];
    let wrong = |reason, offset| Error::new(reason, offset);
    let space = memchr::memchr(b' ', text).ok_or_else(|| wrong(Reason::StartLine, at))?;
    let first = &text[..space];
    if first.len() > 3 && first[..4].eq_ignore_ascii_case(b"SIP/") {
        if !first.eq_ignore_ascii_case(b"SIP/2.0") {
            return Err(wrong(Reason::Version, at));
        }
        // More than one space before the code is accepted: RFC 3665 section 3.9 itself prints two.
        let space = space + text[space + 1..].iter().take_while(|&&b| b == b' ').count();
        let rest = &text[space + 1..];
        let code = match rest {
            [a, b, c, tail @ ..]
                if matches!(tail.first(), None | Some(b' ')) && [a, b, c].iter().all(|d| d.is_ascii_digit()) =>
            {
                (*a - b'0') as u16 * 100 + (*b - b'0') as u16 * 10 + (*c - b'0') as u16
            }
            _ => return Err(wrong(Reason::StatusCode, at + space + 1)),
        };
        if !(100..700).contains(&code) {
            return Err(wrong(Reason::StatusCode, at + space + 1));
        }
        let reason = (line.start + (space + 5).min(text.len())) as u32;
        return Ok(Start::Status { code, reason: (reason, line.end as u32) });
    }
    if first.is_empty() || first.len() > u16::MAX as usize || !first.iter().all(|&b| is_token(b)) {
        return Err(wrong(Reason::Method, at));
    }
    let Some(last) = text.len().checked_sub(8).filter(|&n| n > space && text[n..].eq_ignore_ascii_case(b" SIP/2.0"))
    else {
        // If the last word is not the right version, it determines the reason.
        let last = memchr::memrchr(b' ', text).unwrap_or(space);
        let named = text.get(last + 1..last + 5).is_some_and(|v| v.eq_ignore_ascii_case(b"SIP/"));
        let reason = if named && last > space { Reason::Version } else { Reason::StartLine };
        return Err(wrong(reason, at + last + 1));
    };
    let uri = &text[space + 1..last];
    // Not `any`: without an early exit the compiler vectorizes the loop.
    if uri.is_empty() || uri.iter().fold(false, |bad, &b| bad | (b <= b' ') | (b == 0x7f)) {
        return Err(wrong(Reason::RequestUri, at + space + 1));
    }
    if uri.len() > limits.uri {
        return Err(wrong(Reason::UriTooLong, at + space + 1));
    }
    Ok(Start::Request {
        method: Method::of(first),
        method_len: first.len() as u16,
        uri: ((at + space + 1) as u32, (at + last) as u32),
    })
}

/// Creates a start line in place of a refused one: a status line with code 0, or a request with this method (empty if
/// the method is not a token) and an empty Request-URI.
#[cold]
pub(crate) fn of_refused(bytes: &[u8], line: Range<usize>) -> Start {
    let text = &bytes[line.clone()];
    if text.get(..4).is_some_and(|t| t.eq_ignore_ascii_case(b"SIP/")) {
        return Start::Status { code: 0, reason: (line.end as u32, line.end as u32) };
    }
    let method = text.iter().take_while(|&&b| is_token(b)).count();
    let method = if text.get(method) == Some(&b' ') && method <= u16::MAX as usize { method } else { 0 };
    let uri = (line.start + method + 1) as u32;
    Start::Request { method: Method::of(&text[..method]), method_len: method as u16, uri: (uri, uri) }
}
