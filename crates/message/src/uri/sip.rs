//! sip and sips URIs (RFC 3261 section 19.1.1) with the parameters of RFC 5626 and RFC 5627.

use super::compare;
use crate::Error;
use crate::host::Host;
use crate::reader::{Field, HOST, PASSWORD, Reader, URI_HEADER, URI_PARAM, USER, is};
use crate::write::Write;

/// A sip or sips URI: `sip:user:password@host:port;parameters?headers`.
#[derive(Clone, Copy, Debug)]
pub struct SipUri<'a> {
    /// True for the scheme sips.
    pub secure: bool,
    /// User part, still escaped.
    pub user: Option<&'a [u8]>,
    /// Password, still escaped.
    pub password: Option<&'a [u8]>,
    /// Domain, a server of it, or the device itself.
    pub host: Host<'a>,
    /// Port; `None` for the default: 5060, or 5061 with TLS (RFC 3261 section 19.1, table 1). `None` is not equal to
    /// the default.
    pub port: Option<u16>,
    /// Parameters of the URI itself, before any question mark.
    pub params: UriParams<'a>,
    /// Text after the question mark: `name=value` joined by `&`.
    pub headers: &'a [u8],
}

impl<'a> SipUri<'a> {
    /// Creates a `sip:` URI without port, parameters and headers; `user` is already escaped (see [`escape_user`]).
    pub const fn new(user: Option<&'a [u8]>, host: Host<'a>) -> Self {
        Self { secure: false, user, password: None, host, port: None, params: UriParams::NONE, headers: b"" }
    }

    /// Reads the URI after its scheme, as far as it extends.
    #[inline(always)]
    pub(crate) fn read(scan: &mut Reader<'a>, secure: bool) -> Option<Self> {
        let (mut user, mut password) = (None, None);
        let start = scan.at();
        // A user part may contain all characters of a host, so the character after it shows which of the two it is.
        let word = scan.span(HOST);
        if scan.peek() == Some(b'@') {
            user = Some(word);
        } else {
            scan.escaped(USER)?;
            let text = scan.since(start);
            match scan.peek() {
                Some(b'@') => user = Some(text),
                Some(b':') => {
                    scan.skip(1);
                    let word = scan.escaped(PASSWORD)?;
                    if scan.peek() == Some(b'@') {
                        user = Some(text);
                        password = Some(word);
                    }
                }
                _ => (),
            }
        }
        let host = match user {
            Some(b"") => return None,
            Some(_) => {
                scan.skip(1);
                Host::read(scan)?
            }
            None => {
                scan.go(start + word.len());
                Host::of(scan, start, word)?
            }
        };
        let port = if scan.take(b':') { Some(read_port(scan)?) } else { None };
        let params = UriParams::read(scan)?;
        let headers = if scan.take(b'?') { scan.escaped(URI_HEADER)? } else { b"" };
        Some(Self { secure, user, password, host, port, params, headers })
    }

    /// Returns the scheme, `sip` or `sips`, without the colon.
    pub const fn scheme(&self) -> &'static [u8] {
        if self.secure { b"sips" } else { b"sip" }
    }

    /// Returns the `headers` as pairs, still escaped.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        compare::pairs(self.headers)
    }

    /// Writes all parts in the order of the grammar, escapes unchanged.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.secure { b"sips:" } else { b"sip:" });
        if let Some(user) = self.user {
            out.extend_from_slice(user);
            if let Some(password) = self.password {
                out.push(b':');
                out.extend_from_slice(password);
            }
            out.push(b'@');
        }
        self.host.write(out);
        if let Some(port) = self.port {
            out.push(b':');
            (port as u32).write(out);
        }
        out.extend_from_slice(self.params.text);
        if !self.headers.is_empty() {
            out.push(b'?');
            out.extend_from_slice(self.headers);
        }
    }

    /// See [`super::Uri::write_aor`].
    pub fn write_aor(&self, out: &mut Vec<u8>) {
        if let Some(user) = self.user {
            unescape(user, out);
            out.push(b'@');
        }
        self.host.write_lower(out);
        if let Some(port) = self.port {
            out.push(b':');
            (port as u32).write(out);
        }
    }
}

impl PartialEq for SipUri<'_> {
    /// Tells whether the URIs are equivalent by RFC 3261 section 19.1.4.
    fn eq(&self, other: &Self) -> bool {
        compare::sip(self, other)
    }
}

impl Write for SipUri<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        SipUri::write(self, out);
    }
}

/// Reads a port number up to 65,535.
#[inline(always)]
pub(crate) fn read_port(scan: &mut Reader<'_>) -> Option<u16> {
    u16::try_from(scan.decimal()?).ok()
}

/// Appends the unescaped text.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) {
    out.extend(unescaped(text));
}

/// Returns the bytes of the unescaped text.
pub fn unescaped(text: &[u8]) -> impl Iterator<Item = u8> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *text.get(at)?;
        Some(match text.get(at + 1..at + 3) {
            Some(&[high, low]) if byte == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                at += 3;
                hex(high) << 4 | hex(low)
            }
            _ => {
                at += 1;
                byte
            }
        })
    })
}

/// Appends text as a user part, with escapes where necessary.
pub fn escape_user(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        if crate::reader::CLASS[b as usize] & USER != 0 {
            out.push(b);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.extend_from_slice(&[b'%', DIGITS[b as usize >> 4], DIGITS[b as usize & 15]]);
        }
    }
}

/// Returns the value of a hexadecimal digit.
#[inline]
pub(super) const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10) & 15,
    }
}

/// Parameters of a SIP URI. The parser records which of the well-known ones are present, so a query for an absent one
/// costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct UriParams<'a> {
    text: &'a [u8],
    found: u8,
}

const LR: u8 = 1;
const TRANSPORT: u8 = 1 << 1;
const MADDR: u8 = 1 << 2;
const TTL: u8 = 1 << 3;
const USER_PARAM: u8 = 1 << 4;
const METHOD: u8 = 1 << 5;
const OB: u8 = 1 << 6;
const GR: u8 = 1 << 7;

impl<'a> UriParams<'a> {
    /// No parameters.
    pub const NONE: UriParams<'static> = UriParams { text: b"", found: 0 };

    /// Parses text like `;transport=tcp;lr`, or an empty one.
    ///
    /// # Errors
    /// A name is missing, or a byte is not escaped that must be.
    pub fn parse(text: &'a [u8]) -> Result<Self, Error> {
        let mut scan = Reader::new(text);
        match Self::read(&mut scan) {
            Some(params) if scan.is_done() => Ok(params),
            _ => Err(scan.error()),
        }
    }

    #[inline(always)]
    pub(crate) fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let from = scan.at();
        let mut found = 0;
        while scan.take(b';') {
            let name = scan.escaped(URI_PARAM)?;
            found |= match name.len() {
                0 => return None,
                2 if is(name, b"lr") => LR,
                2 if is(name, b"ob") => OB,
                2 if is(name, b"gr") => GR,
                3 if is(name, b"ttl") => TTL,
                4 if is(name, b"user") => USER_PARAM,
                5 if is(name, b"maddr") => MADDR,
                6 if is(name, b"method") => METHOD,
                9 if is(name, b"transport") => TRANSPORT,
                _ => 0,
            };
            if scan.take(b'=') {
                scan.escaped(URI_PARAM)?;
                // Base64 without escapes occurs in practice; accepting it loses nothing.
                while scan.take(b'=') {
                    scan.escaped(URI_PARAM)?;
                }
            }
        }
        Some(Self { text: scan.since(from), found })
    }

    /// Returns the raw parameters, from the first semicolon on.
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Tells whether there is no parameter.
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the names and values, still escaped.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone {
        // A semicolon precedes each one, the first too.
        let mut rest = self.text.get(1..);
        std::iter::from_fn(move || {
            let text = rest?;
            let end = memchr::memchr(b';', text);
            rest = end.map(|n| &text[n + 1..]);
            let part = &text[..end.unwrap_or(text.len())];
            Some(match memchr::memchr(b'=', part) {
                Some(n) => (&part[..n], Some(&part[n + 1..])),
                None => (part, None),
            })
        })
    }

    /// Returns the value of the parameter of this name, still escaped; `Some(None)` if it has no value. Names compare
    /// in any case, unescaped (RFC 3261 section 19.1.4).
    pub fn find(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().find(|(n, _)| compare::equal(n, name, true)).map(|(_, value)| value)
    }

    #[inline]
    fn known(&self, flag: u8, name: &[u8]) -> Option<&'a [u8]> {
        if self.found & flag == 0 { None } else { self.find(name)? }
    }

    /// `lr`: the mark of a loose router (RFC 3261 section 16.4).
    #[inline]
    pub const fn lr(&self) -> bool {
        self.found & LR != 0
    }

    /// Returns the raw transport: `udp`, `tcp`, `tls`, `ws`, ...; compares in any case. `None`: the resolver of RFC
    /// 3263 decides.
    #[inline]
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.known(TRANSPORT, b"transport")
    }

    /// Returns the raw address to contact instead of the host (RFC 3261 section 19.1.1).
    pub fn maddr(&self) -> Option<&'a [u8]> {
        self.known(MADDR, b"maddr")
    }

    /// Returns the time to live of a UDP multicast packet (RFC 3261 section 19.1.1), raw digits.
    pub fn ttl(&self) -> Option<&'a [u8]> {
        self.known(TTL, b"ttl")
    }

    /// `phone` or `ip`.
    pub fn user(&self) -> Option<&'a [u8]> {
        self.known(USER_PARAM, b"user")
    }

    /// Returns the method of a request that is formed from this URI, as in a Refer-To; INVITE if none is named (RFC
    /// 3261 section 19.1.5).
    pub fn method(&self) -> Option<&'a [u8]> {
        self.known(METHOD, b"method")
    }

    /// `ob`: requests to this contact go over the flow of its registration (RFC 5626 section 5.4).
    pub const fn ob(&self) -> bool {
        self.found & OB != 0
    }

    /// `gr`: marks a GRUU (RFC 5627); its value may be empty (a temporary one).
    pub fn gr(&self) -> Option<&'a [u8]> {
        if self.found & GR == 0 { None } else { self.find(b"gr").map(Option::unwrap_or_default) }
    }
}

impl Default for UriParams<'_> {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri::Uri;

    fn sip(text: &str) -> SipUri<'_> {
        match Uri::parse(text.as_bytes()) {
            Ok(Uri::Sip(uri)) => uri,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn all_parts() {
        let uri = sip("sips:a%20b:p&w@[2001:db8::1]:5061;transport=tcp;lr;x?subject=a%20b&to=c");
        assert!(uri.secure);
        assert_eq!(uri.user, Some(&b"a%20b"[..]));
        assert_eq!(uri.password, Some(&b"p&w"[..]));
        assert_eq!(uri.host, Host::parse(b"[2001:db8::1]").unwrap());
        assert_eq!(uri.port, Some(5061));
        assert!(uri.params.lr() && !uri.params.ob());
        assert_eq!(uri.params.transport(), Some(&b"tcp"[..]));
        assert_eq!(uri.params.find(b"X"), Some(None));
        assert_eq!(uri.params.find(b"y"), None);
        assert_eq!(uri.header_pairs().collect::<Vec<_>>(), [(&b"subject"[..], &b"a%20b"[..]), (b"to", b"c")]);
    }

    #[test]
    fn users_that_look_like_something_else() {
        assert_eq!(sip("sip:user;par=u%40example.net@example.com").user, Some(&b"user;par=u%40example.net"[..]));
        let odd = sip(
            "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com",
        );
        assert_eq!(odd.password, Some(&b"&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"[..]));
        assert_eq!(sip("sip:%00%00@h").user, Some(&b"%00%00"[..]));
        assert_eq!(sip("sip:host").user, None);
    }

    #[test]
    fn written_as_read() {
        for text in [
            "sip:alice@atlanta.example",
            "sips:alice:pw@192.0.2.1:5061;transport=tcp;lr?subject=x",
            "sip:[2001:db8::1]",
            "sip:+1(212)555@gw;user=phone;gr=urn:uuid:1",
        ] {
            let mut out = Vec::new();
            sip(text).write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn refused() {
        for text in [
            "sip:@host",
            "sip:a@",
            "sip:a@b:",
            "sip:a@b:99999",
            "sip:a@b;",
            "sip:a@b;;x",
            "sip:a%4@b",
            "sip:a%zz@b",
            "sip:a@b;x=%",
            "sip:a@2001:db8::1",
            "sip:a@b?x=\"",
            "sip:a<b@c",
            "sip:a@b@c",
            "sip:a@b;=x",
        ] {
            assert!(Uri::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn escaping_a_user() {
        let mut out = Vec::new();
        escape_user(b"a b@c\0", &mut out);
        assert_eq!(out, b"a%20b%40c%00");
        let mut back = Vec::new();
        unescape(&out, &mut back);
        assert_eq!(back, b"a b@c\0");
    }
}
