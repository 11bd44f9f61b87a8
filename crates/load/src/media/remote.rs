//! Media addresses of a call's peer: the session description (RFC 8866) in a message, also as a part of `multipart`
//! (RFC 5621).
//!
//! Parsed as loosely as scenarios are written: any line end, any order, unknown lines skipped.

use std::net::{IpAddr, SocketAddr};

/// Media addresses of the peer, as far as it gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    pub audio: Option<SocketAddr>,
    pub video: Option<SocketAddr>,
    pub image: Option<SocketAddr>,
}

impl Remote {
    /// Parses a whole SIP message. Returns `None` if it has no session description.
    pub fn of(message: &[u8]) -> Option<Self> {
        Self::read(message).map(|(remote, _)| remote)
    }

    /// Parses a whole SIP message. Returns the addresses and the session description, or `None` if it has none.
    pub(super) fn read(message: &[u8]) -> Option<(Self, &[u8])> {
        let (headers, body) = split(message)?;
        Self::of_entity(headers, body, 0)
    }

    /// Parses an entity nested in `depth` `multipart` bodies.
    fn of_entity<'a>(headers: &[u8], body: &'a [u8], depth: usize) -> Option<(Self, &'a [u8])> {
        let described = |body: &'a [u8]| Self::of_description(body).map(|remote| (remote, body));
        let kind = header(headers, b"content-type").or_else(|| header(headers, b"c"));
        let Some(kind) = kind else {
            // A part without type is text/plain (RFC 2046 section 5.1). A message without type may be a description if
            // it begins as one.
            return if depth == 0 && body.starts_with(b"v=") { described(body) } else { None };
        };
        if begins(kind, b"application/sdp") {
            return described(body);
        }
        if !begins(kind, b"multipart/") || depth == DEEPEST {
            return None;
        }
        let delimiter = boundary(kind)?;
        parts(body, &delimiter).find_map(|part| {
            // A part without headers begins with the empty line.
            let (headers, body): (&[u8], &'a [u8]) = match part.first() {
                Some(b'\r' | b'\n') => (&b""[..], part.trim_ascii_start()),
                _ => split(part)?,
            };
            Self::of_entity(headers, body, depth + 1)
        })
    }

    /// Parses a session description.
    pub fn of_description(body: &[u8]) -> Option<Self> {
        let mut remote = Self::default();
        let mut session = None;
        // Current medium, its port, and its own address.
        let mut medium: Option<(&[u8], u16)> = None;
        let mut own = None;
        let mut found = false;
        let mut settle = |medium: Option<(&[u8], u16)>, ip: Option<IpAddr>| {
            let (Some((name, port)), Some(ip)) = (medium, ip) else { return };
            // Port 0 refuses the medium (RFC 3264 section 6).
            let address = (port != 0).then(|| SocketAddr::new(ip, port));
            let place = match name {
                b"audio" => &mut remote.audio,
                b"video" => &mut remote.video,
                b"image" => &mut remote.image,
                _ => return,
            };
            // The first of a kind counts.
            if place.is_none() {
                *place = address;
            }
        };
        for line in lines(body) {
            match line {
                [b'c', b'=', value @ ..] => {
                    let ip = connection(value);
                    if medium.is_some() { own = ip } else { session = ip }
                }
                [b'm', b'=', value @ ..] => {
                    found = true;
                    settle(medium, own.or(session));
                    own = None;
                    let mut words = value.split(|b| *b == b' ').filter(|w| !w.is_empty());
                    let name = words.next().unwrap_or_default();
                    medium = Some((name, words.next().and_then(number).unwrap_or(0)));
                }
                _ => (),
            }
        }
        settle(medium, own.or(session));
        found.then_some(remote)
    }
}

/// Limit of nested `multipart` bodies.
const DEEPEST: usize = 4;

/// Splits a text at the first empty line.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let crlf = memchr::memmem::find(text, b"\r\n\r\n").map(|at| (at, 4));
    let lf = memchr::memmem::find(text, b"\n\n").map(|at| (at, 2));
    let (at, length) = match (crlf, lf) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    Some((&text[..at], &text[at + length..]))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns the value of a header by its name in lower case.
fn header<'a>(headers: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(headers).find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].trim_ascii().eq_ignore_ascii_case(name).then(|| line[colon + 1..].trim_ascii())
    })
}

fn begins(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && text[..start.len()].eq_ignore_ascii_case(start)
}

/// Returns the delimiter of the parts: two hyphens and the parameter `boundary` (RFC 2046 section 5.1.1).
fn boundary(kind: &[u8]) -> Option<Vec<u8>> {
    let value = kind.split(|b| *b == b';').find_map(|parameter| {
        let parameter = parameter.trim_ascii();
        begins(parameter, b"boundary").then(|| parameter[8..].trim_ascii_start().strip_prefix(b"="))?
    })?;
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"\"").map_or(value, |v| v.strip_suffix(b"\"").unwrap_or(v));
    (!value.is_empty()).then(|| [b"--", value].concat())
}

/// Returns the parts between delimiters.
fn parts<'a>(body: &'a [u8], delimiter: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut at = find_line(body, delimiter, 0);
    std::iter::from_fn(move || {
        let start = at? + delimiter.len();
        if body[start..].starts_with(b"--") {
            return None;
        }
        let start = start + memchr::memchr(b'\n', &body[start..])? + 1;
        let end = find_line(body, delimiter, start);
        at = end;
        Some(&body[start..end.unwrap_or(body.len())])
    })
}

/// Returns the position of `wanted` at the start of a line.
fn find_line(body: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find_iter(&body[from..], wanted).map(|at| from + at).find(|&at| at == 0 || body[at - 1] == b'\n')
}

/// Parses `IN IP4 192.0.2.1/127` (RFC 8866 section 5.7); names are not resolved.
fn connection(value: &[u8]) -> Option<IpAddr> {
    let address = value.split(|b| *b == b' ').filter(|w| !w.is_empty()).nth(2)?;
    let address = address.split(|b| *b == b'/').next()?;
    std::str::from_utf8(address).ok()?.trim_matches(['[', ']']).parse().ok()
}

/// Parses `5072` or `5072/2`.
fn number(word: &[u8]) -> Option<u16> {
    let digits = word.split(|b| *b == b'/').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn of_the_session_and_of_a_medium() {
        let message = b"SIP/2.0 200 OK\r\nc: application/sdp\r\n\r\nv=0\r\nc=IN IP4 127.0.0.9\r\nt=0 0\r\n\
            m=audio 4000/2 RTP/AVP 8\r\na=sendrecv\r\nm=video 5000 RTP/AVP 99\r\nc=IN IP6 ::1\r\nm=image 0 udptl t38\r\n";
        let remote = Remote::of(message).unwrap();
        assert_eq!(remote.audio, at("127.0.0.9:4000"));
        assert_eq!(remote.video, at("[::1]:5000"));
        assert_eq!(remote.image, None);
    }

    #[test]
    fn inside_multipart() {
        let message = b"INVITE sip:x SIP/2.0\r\nContent-Type: multipart/mixed; boundary=\"b42\"\r\n\r\npreamble\r\n--b42\r\n\
            Content-Type: application/pidf+xml\r\n\r\n<m>m=audio 1 RTP/AVP 0</m>\r\n--b42\r\nContent-Type: application/sdp\r\n\r\n\
            v=0\r\nc=IN IP4 127.0.0.1\r\nm=audio 5072 RTP/AVP 8 0\r\n\r\n--b42--\r\n";
        assert_eq!(Remote::of(message).unwrap().audio, at("127.0.0.1:5072"));
        let without = b"INVITE sip:x SIP/2.0\r\nContent-Type: multipart/mixed;boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nm=audio 5\r\n--b--";
        assert_eq!(Remote::of(without), None);
    }

    #[test]
    fn no_description_no_address() {
        assert_eq!(Remote::of(b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"), None);
        assert_eq!(Remote::of(b"SIP/2.0 200 OK\r\nContent-Type: text/plain\r\n\r\nm=audio 1 RTP/AVP 0\r\n"), None);
        let named = Remote::of_description(b"v=0\nc=IN IP4 host.example\nm=audio 4000 RTP/AVP 0\n").unwrap();
        assert_eq!(named, Remote::default());
    }

    #[test]
    fn any_cut_of_a_message_is_read() {
        let message = b"I\r\nContent-Type: multipart/mixed;boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b\r\nContent-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 1.2.3.4\r\nm=audio 7 RTP/AVP 0\r\n--b--\r\n";
        for end in 0..=message.len() {
            let _ = Remote::of(&message[..end]);
        }
        assert_eq!(Remote::of(message).unwrap().audio, at("1.2.3.4:7"));
    }
}
