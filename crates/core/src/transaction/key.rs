//! Identity of a transaction as 128 bits: RFC 3261 sections 17.1.3 and 17.2.3.
//!
//! The matching fields are hashed with a secret key (SipHash-1-3 of 128 bits), so that a peer can neither make two
//! transactions collide nor choose the place of a transaction in a table.

use crate::siphash::Fast;
use serde::{Deserialize, Serialize};
use strowger_message::{Message, Method, Name};

/// Hash of the matching fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl Key {
    fn of(hasher: Fast) -> Self {
        let [low, high] = hasher.finish();
        Self { high, low }
    }
}

/// Parts of the topmost Via that identify a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopVia<'a> {
    /// Host and port, without white space around.
    pub(super) sent_by: &'a [u8],
    /// Branch. Empty: none.
    pub(super) branch: &'a [u8],
    /// Whole value up to the comma.
    pub(super) whole: &'a [u8],
}

/// Magic cookie: the branch follows the rules of RFC 3261 (section 8.1.1.7).
const COOKIE: &[u8] = b"z9hG4bK";

impl<'a> TopVia<'a> {
    /// Parses the first value of a Via line.
    pub(super) fn of(value: &'a [u8]) -> Option<Self> {
        let whole = &value[..end_of_part(value, b',').unwrap_or(value.len())];
        // The sent-protocol has two slashes, with optional white space around them.
        let protocol = match whole.strip_prefix(b"SIP/2.0/") {
            Some(rest) => rest,
            None => {
                let mut slashes = memchr::memchr_iter(b'/', whole);
                let (_, second) = (slashes.next()?, slashes.next()?);
                &whole[second + 1..]
            }
        };
        let rest = protocol.trim_ascii_start();
        let rest = &rest[rest.iter().position(u8::is_ascii_whitespace)?..];
        let mut parts = Parameters(Some(rest));
        let sent_by = parts.next()?.trim_ascii();
        let mut branch: &[u8] = b"";
        for part in parts {
            let Some(equals) = part.iter().position(|&b| b == b'=') else { continue };
            if part[..equals].trim_ascii().eq_ignore_ascii_case(b"branch") {
                branch = part[equals + 1..].trim_ascii();
                break;
            }
        }
        (!sent_by.is_empty()).then_some(Self { sent_by, branch, whole: whole.trim_ascii() })
    }

    pub(super) fn of_message(message: &Message<'a>) -> Option<Self> {
        Self::of(message.header(Name::Via)?)
    }
}

/// Returns the position of the first such separator outside quotes.
fn end_of_part(text: &[u8], separator: u8) -> Option<usize> {
    // Fast path, since there are usually no quotes.
    let first = memchr::memchr2(separator, b'"', text)?;
    if text[first] == separator {
        return Some(first);
    }
    let (mut quoted, mut escaped) = (false, false);
    text.iter().enumerate().skip(first).find_map(|(at, &b)| {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if b == separator && !quoted => return Some(at),
            _ => (),
        }
        None
    })
}

/// Parts between semicolons outside quotes.
struct Parameters<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Parameters<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0?;
        let end = end_of_part(text, b';');
        self.0 = end.map(|at| &text[at + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    }
}

/// Splits a CSeq value into number and method.
pub(super) fn cseq(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = value.iter().position(|b| !b.is_ascii_digit())?;
    let method = value[digits..].trim_ascii();
    (digits > 0 && !method.is_empty()).then_some((&value[..digits], method))
}

/// Returns the `tag` parameter of From or To without parsing the name-addr: it follows the angle brackets, or else the URI.
fn tag(value: &[u8]) -> &[u8] {
    let after = value.iter().rposition(|&b| b == b'>').map_or(0, |at| at + 1);
    for part in Parameters(Some(&value[after..])).skip(1) {
        if let Some(equals) = part.iter().position(|&b| b == b'=')
            && part[..equals].trim_ascii().eq_ignore_ascii_case(b"tag")
        {
            return part[equals + 1..].trim_ascii();
        }
    }
    b""
}

/// First hashed word: kind of the transaction. A transaction of an old kind follows the rules of RFC 2543.
const SERVER: u64 = 0;
const OLD_SERVER: u64 = 1;
const CLIENT: u64 = 2;

/// Maker of keys with one secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    secret: [u64; 2],
}

impl Keys {
    pub(super) const fn new(secret: [u64; 2]) -> Self {
        Self { secret }
    }

    /// Returns the key of the server transaction of a request with this method. An ACK belongs to the transaction of
    /// its INVITE, and a CANCEL searches the transaction of its INVITE (RFC 3261 sections 17.2.3 and 9.2).
    pub(super) fn server(&self, message: &Message<'_>, via: &TopVia<'_>, method: &[u8]) -> Key {
        let mut hasher = Fast::new(self.secret);
        if via.branch.starts_with(COOKIE) && via.branch.len() > COOKIE.len() {
            hasher.word(SERVER);
            hasher.part(via.branch);
            hasher.part_lower(via.sent_by);
            hasher.part(method);
        } else {
            // The To tag is not part of the key of an INVITE, because its ACK has the tag of the response, and its
            // CANCEL has no tag.
            let to = if method == b"INVITE" { &b""[..] } else { message.header(Name::To).map_or(&b""[..], tag) };
            hasher.word(OLD_SERVER);
            hasher.part(message.request_uri());
            hasher.part(to);
            hasher.part(message.header(Name::From).map_or(b"", tag));
            hasher.part(message.header(Name::CallId).unwrap_or_default());
            hasher.part(message.header(Name::CSeq).and_then(cseq).map_or(&b""[..], |(number, _)| number));
            hasher.part(method);
            hasher.part(via.whole);
        }
        Key::of(hasher)
    }

    /// Returns the key of the client transaction of a response: branch of the topmost Via and method of CSeq (section 17.1.3).
    pub(super) fn client(&self, branch: &[u8], method: &[u8]) -> Key {
        let mut hasher = Fast::new(self.secret);
        hasher.word(CLIENT);
        hasher.part(branch);
        hasher.part(method);
        Key::of(hasher)
    }
}

/// Returns the name of a method, including an unknown one.
pub(super) fn method_text(method: Method, text: &[u8]) -> &[u8] {
    if method == Method::Other { text } else { method.text() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    #[test]
    fn the_top_via_is_found_in_odd_clothes() {
        let via = |text: &'static str| {
            TopVia::of(text.as_bytes())
                .map(|v| (std::str::from_utf8(v.sent_by).unwrap(), std::str::from_utf8(v.branch).unwrap()))
        };
        assert_eq!(via("SIP/2.0/UDP a.example:5060;branch=z9hG4bK1"), Some(("a.example:5060", "z9hG4bK1")));
        assert_eq!(
            via("SIP / 2.0 / TCP  [::1]:5 ; Branch = z9hG4bK2;rport, SIP/2.0/UDP b"),
            Some(("[::1]:5", "z9hG4bK2"))
        );
        assert_eq!(via("SIP/2.0/UDP\r\n host;x=\";branch=no,\\\"\";branch=yes"), Some(("host", "yes")));
        assert_eq!(via("SIP/2.0/UDP host"), Some(("host", "")));
        for bad in ["", "SIP/2.0", "SIP/2.0/UDP", "SIP/2.0/UDP ", "SIP/2.0/UDP ;branch=x"] {
            assert_eq!(via(bad), None, "{bad}");
        }
    }

    fn server_key(text: &str, method: &[u8]) -> Key {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        Keys::new([1, 2]).server(&message, &TopVia::of_message(&message).unwrap(), method)
    }

    #[test]
    fn old_requests_are_told_apart_by_more_than_the_branch() {
        let request = |uri: &str, to: &str, call: &str, cseq: &str| {
            format!(
                "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP old;branch=1\r\nFrom: <sip:a@b>;tag=f\r\nTo: {to}\r\nCall-ID: {call}\r\nCSeq: {cseq}\r\n\r\n"
            )
        };
        let invite = server_key(&request("sip:x", "<sip:x>", "c", "1 INVITE"), b"INVITE");
        let ack = request("sip:x", "<sip:x;tag=no>;tag=t", "c", "1 ACK");
        assert_eq!(server_key(&ack, b"INVITE"), invite);
        for other in [
            request("sip:y", "<sip:x>", "c", "1 INVITE"),
            request("sip:x", "<sip:x>", "d", "1 INVITE"),
            request("sip:x", "<sip:x>", "c", "2 INVITE"),
        ] {
            assert_ne!(server_key(&other, b"INVITE"), invite);
        }
        assert_ne!(server_key(&ack, b"BYE"), server_key(&request("sip:x", "<sip:x>", "c", "1 ACK"), b"BYE"));
        assert_eq!(tag(b"sip:a@b;tag=1"), b"1");
    }
}
