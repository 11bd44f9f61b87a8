//! Builds messages from typed values: requests, responses, and the response to a request.

use crate::header::{CSeq, CallId, Contact, MaxForwards, Party, Via};
use crate::write::Write;
use crate::{Form, Message, Method, Name, NameAddr, Uri, canonical, status};

/// Writer of one message, which appends line by line to a buffer. [`Builder::finish`] writes Content-Length, so callers
/// must not write it.
#[derive(Debug)]
#[must_use = "a message ends with `finish`"]
pub struct Builder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Builder<'o> {
    /// Starts a request: `METHOD uri SIP/2.0`.
    pub fn request(out: &'o mut Vec<u8>, method: Method, uri: &(impl Write + ?Sized)) -> Self {
        Self::request_named(out, method.text(), uri)
    }

    /// Starts a request with a method that [`Method`] does not list.
    pub fn request_named(out: &'o mut Vec<u8>, method: &[u8], uri: &(impl Write + ?Sized)) -> Self {
        let start = out.len();
        out.reserve(512);
        out.extend_from_slice(method);
        out.push(b' ');
        uri.write(out);
        out.extend_from_slice(b" SIP/2.0\r\n");
        Self { out, start }
    }

    /// Starts a response: `SIP/2.0 code reason`, with the default phrase if `reason` is `None`. `code` is 100 to 699.
    #[inline]
    pub fn response(out: &'o mut Vec<u8>, code: u16, reason: Option<&[u8]>) -> Self {
        debug_assert!((100..700).contains(&code));
        let start = out.len();
        out.reserve(512);
        let digit = |n: u16| b'0' + (n % 10) as u8;
        out.extend_from_slice(&[
            b'S',
            b'I',
            b'P',
            b'/',
            b'2',
            b'.',
            b'0',
            b' ',
            digit(code / 100),
            digit(code / 10),
            digit(code),
            b' ',
        ]);
        out.extend_from_slice(reason.unwrap_or_else(|| status::reason(code).as_bytes()));
        out.extend_from_slice(b"\r\n");
        Self { out, start }
    }

    /// Writes `Name: value`.
    #[inline]
    pub fn header(self, name: Name, value: &(impl Write + ?Sized)) -> Self {
        self.header_with(name, |out| value.write(out))
    }

    /// Writes `Name: value`, where a function writes the value.
    #[inline]
    pub fn header_with(self, name: Name, value: impl FnOnce(&mut Vec<u8>)) -> Self {
        self.out.extend_from_slice(name.text().as_bytes());
        self.out.extend_from_slice(b": ");
        value(self.out);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Writes a header field that [`Name`] does not list. Neither part may contain a line end.
    pub fn line(self, name: &[u8], value: &[u8]) -> Self {
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Writes a Via line. The first one is the topmost, the Via of the sending element (RFC 3261 section 8.1.1.7).
    pub fn via(self, via: &Via<'_>) -> Self {
        self.header(Name::Via, via)
    }

    /// Writes From: the party that makes the request, with its tag (RFC 3261 section 8.1.1.3).
    pub fn from(self, from: &Party<'_>) -> Self {
        self.header(Name::From, from)
    }

    /// Writes To: the party to which the request is addressed. It has a tag only within a dialog (RFC 3261 section
    /// 8.1.1.2).
    pub fn to(self, to: &Party<'_>) -> Self {
        self.header(Name::To, to)
    }

    /// Writes Call-ID: `text` unchanged. All requests of a dialog share one, and so do all registrations of a user
    /// agent (RFC 3261 section 8.1.1.4).
    pub fn call_id(self, text: &[u8]) -> Self {
        self.header(Name::CallId, &CallId { text })
    }

    /// Writes CSeq. `number` is below 2^31 (RFC 3261 section 8.1.1.5); this is not checked. [`Method::Other`] has no
    /// text: write such a CSeq with [`Builder::header`].
    pub fn cseq(self, number: u32, method: Method) -> Self {
        self.header(Name::CSeq, &CSeq::new(number, method))
    }

    /// Writes Max-Forwards: the number of hops that are left. A user agent starts with 70 (RFC 3261 section 8.1.1.6).
    pub fn max_forwards(self, hops: u8) -> Self {
        self.header(Name::MaxForwards, &MaxForwards(hops))
    }

    /// Writes a Contact line: the address at which the sender is reached directly (RFC 3261 section 8.1.1.8).
    pub fn contact(self, contact: &Contact<'_>) -> Self {
        self.header(Name::Contact, contact)
    }

    /// Writes a Contact line with this URI and nothing else.
    pub fn contact_uri(self, uri: &Uri<'_>) -> Self {
        self.header_with(Name::Contact, |out| {
            out.push(b'<');
            uri.write(out);
            out.push(b'>');
        })
    }

    /// Writes a Route line. The first one is the next hop (RFC 3261 section 20.34).
    pub fn route(self, route: &NameAddr<'_>) -> Self {
        self.header(Name::Route, route)
    }

    /// Writes a Record-Route line. A proxy writes its own before the received ones (RFC 3261 section 16.6 step 4).
    pub fn record_route(self, route: &NameAddr<'_>) -> Self {
        self.header(Name::RecordRoute, route)
    }

    /// Writes Expires, in seconds.
    pub fn expires(self, seconds: u32) -> Self {
        self.header(Name::Expires, &seconds)
    }

    /// Writes `Name: a, b, c`, or nothing if `items` is empty.
    pub fn list<'i>(self, name: Name, items: impl IntoIterator<Item = &'i [u8]>) -> Self {
        let mut items = items.into_iter();
        let Some(first) = items.next() else { return self };
        self.header_with(name, |out| {
            out.extend_from_slice(first);
            for item in items {
                out.extend_from_slice(b", ");
                out.extend_from_slice(item);
            }
        })
    }

    /// Copies all lines of this name from another message, unfolded but otherwise unchanged.
    #[inline]
    pub fn copy(self, message: &Message<'_>, name: Name) -> Self {
        for value in message.headers(name) {
            self.out.extend_from_slice(name.text().as_bytes());
            self.out.extend_from_slice(b": ");
            canonical::copy(message, value, self.out);
            self.out.extend_from_slice(b"\r\n");
        }
        self
    }

    /// Returns the output buffer, for lines that no method here writes; the caller ends each with CRLF.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Writes Content-Length, the blank line and the body. A body needs a Content-Type, written before.
    ///
    /// Returns the length of the whole message in bytes.
    #[inline]
    pub fn finish(self, body: &[u8]) -> usize {
        if body.is_empty() {
            self.out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        } else {
            self.out.extend_from_slice(b"Content-Length: ");
            self.out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
            self.out.extend_from_slice(b"\r\n\r\n");
            self.out.extend_from_slice(body);
        }
        self.out.len() - self.start
    }
}

/// Starts the response to a request (RFC 3261 section 8.2.6.2): copies Vias, From, To, Call-ID and CSeq, adds `to_tag`
/// to a To without tag, and copies Timestamp into a 100 (section 8.2.6.1). The caller adds lines and finishes. A partly
/// parsed request works too, for a 400. The copied lines are always canonical (see [`canonical`]).
///
/// The top Via is copied unchanged: it must contain `received` and `rport` already (see [`respond_via`]).
#[inline]
pub fn respond<'o>(
    request: &Message<'_>,
    code: u16,
    reason: Option<&[u8]>,
    to_tag: Option<&[u8]>,
    out: &'o mut Vec<u8>,
) -> Builder<'o> {
    respond_via(request, code, reason, to_tag, |_| false, out)
}

/// Acts as [`respond`], except that `top` writes the Via values of the first Via line (without the name). If `top`
/// returns false, the line is copied.
#[inline]
pub fn respond_via<'o>(
    request: &Message<'_>,
    code: u16,
    reason: Option<&[u8]>,
    to_tag: Option<&[u8]>,
    top: impl FnOnce(&mut Vec<u8>) -> bool,
    out: &'o mut Vec<u8>,
) -> Builder<'o> {
    let builder = Builder::response(out, code, reason);
    let out = &mut *builder.out;
    let mut vias = request.headers(Name::Via);
    if let Some(first) = vias.next() {
        out.extend_from_slice(b"Via: ");
        let before = out.len();
        if !top(out) {
            out.truncate(before);
            out.extend_from_slice(first);
        }
        if request.index().form() != Form::Canonical {
            let written = out.split_off(before);
            canonical::value(&written, out);
        }
        out.extend_from_slice(b"\r\n");
    }
    for via in vias {
        out.extend_from_slice(b"Via: ");
        canonical::copy(request, via, out);
        out.extend_from_slice(b"\r\n");
    }
    let mut copy = |name: &[u8], value: Option<&[u8]>| {
        if let Some(value) = value {
            out.extend_from_slice(name);
            canonical::copy(request, value, out);
            out.extend_from_slice(b"\r\n");
        }
    };
    copy(b"From: ", request.header(Name::From));
    if let Some(to) = request.header(Name::To) {
        out.extend_from_slice(b"To: ");
        canonical::copy(request, to, out);
        if let Some(tag) = to_tag
            && Party::parse(to).is_ok_and(|party| party.tag.is_none())
        {
            out.extend_from_slice(b";tag=");
            out.extend_from_slice(tag);
        }
        out.extend_from_slice(b"\r\n");
    }
    let mut copy = |name: &[u8], value: Option<&[u8]>| {
        if let Some(value) = value {
            out.extend_from_slice(name);
            canonical::copy(request, value, out);
            out.extend_from_slice(b"\r\n");
        }
    };
    copy(b"Call-ID: ", request.header(Name::CallId));
    copy(b"CSeq: ", request.header(Name::CSeq));
    if code == 100 {
        copy(b"Timestamp: ", request.header(Name::Timestamp));
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Index, Limits};

    fn text(out: &[u8]) -> &str {
        std::str::from_utf8(out).unwrap()
    }

    #[test]
    fn a_request() {
        let mut out = b"before".to_vec();
        let mut via = Via::new(b"UDP", Host::Name(b"a.example"), Some(5070));
        via.branch = Some(b"z9hG4bK1");
        via.rport = Some(b"");
        let alice = NameAddr { display: b"Alice", ..NameAddr::new(Uri::parse(b"sip:alice@a.example").unwrap()) };
        let bob = Uri::parse(b"sip:bob@b.example").unwrap();
        let length = Builder::request(&mut out, Method::Invite, &bob)
            .via(&via)
            .max_forwards(70)
            .from(&Party::new(alice, Some(b"1")))
            .to(&Party::new(NameAddr::new(bob), None))
            .call_id(b"c@a")
            .cseq(1, Method::Invite)
            .contact_uri(&Uri::parse(b"sip:alice@192.0.2.1").unwrap())
            .list(Name::Supported, [&b"path"[..], b"outbound"])
            .list(Name::Require, [])
            .header(Name::ContentType, b"application/sdp")
            .finish(b"v=0\r\n");
        assert_eq!(length, out.len() - 6);
        assert_eq!(
            text(&out[6..]),
            "INVITE sip:bob@b.example SIP/2.0\r\nVia: SIP/2.0/UDP a.example:5070;branch=z9hG4bK1;rport\r\nMax-Forwards: 70\r\n\
             From: Alice <sip:alice@a.example>;tag=1\r\nTo: <sip:bob@b.example>\r\nCall-ID: c@a\r\nCSeq: 1 INVITE\r\n\
             Contact: <sip:alice@192.0.2.1>\r\nSupported: path, outbound\r\nContent-Type: application/sdp\r\nContent-Length: 5\r\n\r\nv=0\r\n"
        );
    }

    #[test]
    fn a_response_to_a_request() {
        let request = b"INVITE sip:b SIP/2.0\r\nv: SIP/2.0/UDP h;branch=1\r\nTimestamp: 5\r\nVia: SIP/2.0/TCP i, SIP/2.0/TCP j\r\nt: sip:b ; x=1\r\n\
            f: sip:a;tag=1\r\ni: x\r\nCSeq: 7 INVITE\r\nl: 0\r\n\r\n";
        let mut index = Index::new();
        index.parse(request, &Limits::default()).unwrap();
        let request = Message::new(request, &index);
        let mut out = Vec::new();
        let _ = respond(&request, 100, None, None, &mut out).finish(b"");
        assert_eq!(
            text(&out),
            "SIP/2.0 100 Trying\r\nVia: SIP/2.0/UDP h;branch=1\r\nVia: SIP/2.0/TCP i, SIP/2.0/TCP j\r\nFrom: sip:a;tag=1\r\nTo: sip:b ; x=1\r\n\
             Call-ID: x\r\nCSeq: 7 INVITE\r\nTimestamp: 5\r\nContent-Length: 0\r\n\r\n"
        );
        out.clear();
        let top = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"SIP/2.0/UDP h;branch=1;received=192.0.2.1");
            true
        };
        let _ = respond_via(&request, 404, Some(b"Nobody"), Some(b"t2"), top, &mut out).expires(3).finish(b"");
        assert_eq!(
            text(&out),
            "SIP/2.0 404 Nobody\r\nVia: SIP/2.0/UDP h;branch=1;received=192.0.2.1\r\nVia: SIP/2.0/TCP i, SIP/2.0/TCP j\r\nFrom: sip:a;tag=1\r\n\
             To: sip:b ; x=1;tag=t2\r\nCall-ID: x\r\nCSeq: 7 INVITE\r\nExpires: 3\r\nContent-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn a_present_tag_stays() {
        let request = b"BYE sip:b SIP/2.0\r\nTo: <sip:b;tag=no>;TAG=yes\r\n\r\n";
        let mut index = Index::new();
        index.parse(request, &Limits::default()).unwrap();
        let mut out = Vec::new();
        let _ = respond(&Message::new(request, &index), 200, None, Some(b"new"), &mut out).finish(b"");
        assert_eq!(text(&out), "SIP/2.0 200 OK\r\nTo: <sip:b;tag=no>;TAG=yes\r\nContent-Length: 0\r\n\r\n");
    }
}
