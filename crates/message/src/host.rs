//! Hosts: names, IPv4 addresses, IPv6 references (RFC 3261 section 25.1, RFC 5118).

use crate::Error;
use crate::reader::{self, Field, HOST, Reader};
use crate::write::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host of a URI or a Via.
#[derive(Clone, Copy, Debug)]
pub enum Host<'a> {
    /// Raw domain name. Names compare in any case.
    Name(&'a [u8]),
    /// Four numbers of at most three digits each.
    V4(Ipv4Addr),
    /// IPv6 address; written in brackets (IPv6reference).
    V6(Ipv6Addr),
}

impl<'a> Host<'a> {
    /// Reads a whole host, without port.
    ///
    /// # Errors
    /// The text is neither a name, an IPv4 address nor an IPv6 address in brackets.
    pub fn parse(text: &'a [u8]) -> Result<Self, Error> {
        reader::whole(text)
    }

    /// Returns the IP address; `None` for a name.
    #[inline]
    pub const fn ip(&self) -> Option<IpAddr> {
        match *self {
            Self::Name(_) => None,
            Self::V4(ip) => Some(IpAddr::V4(ip)),
            Self::V6(ip) => Some(IpAddr::V6(ip)),
        }
    }

    /// Writes the host as a lookup key: a name in lower case and without trailing dot.
    pub fn write_lower(&self, out: &mut Vec<u8>) {
        let from = out.len();
        match self {
            Self::Name(name) => out.extend_from_slice(without_dot(name)),
            address => address.write(out),
        }
        out[from..].make_ascii_lowercase();
    }

    /// Returns the name without trailing dot; `None` for an address.
    pub fn name(&self) -> Option<&'a [u8]> {
        if let Self::Name(name) = self { Some(without_dot(name)) } else { None }
    }

    /// Tells whether [`Self::write_lower`] would write `key`.
    pub fn is_lower(&self, key: &[u8]) -> bool {
        match self {
            Self::Name(name) => without_dot(name).eq_ignore_ascii_case(key),
            address => Host::parse(key).is_ok_and(|key| key == *address),
        }
    }

    /// Writes the host, an IPv6 address in brackets.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Name(name) => out.extend_from_slice(name),
            Self::V4(ip) => write_v4(*ip, out),
            Self::V6(ip) => {
                use std::io::Write as _;
                // Writing to a Vec does not fail.
                let _ = write!(out, "[{ip}]");
            }
        }
    }
}

impl From<IpAddr> for Host<'_> {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => Self::V6(ip),
        }
    }
}

/// Removes the trailing dot of a fully qualified name (RFC 1034 section 3.1).
fn without_dot(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

/// Names compare in any case, with or without a trailing dot.
impl PartialEq for Host<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => without_dot(a).eq_ignore_ascii_case(without_dot(b)),
            (Self::V4(a), Self::V4(b)) => a == b,
            (Self::V6(a), Self::V6(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Host<'_> {}

impl Write for Host<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        Host::write(self, out);
    }
}

/// Reads the address of a `received` parameter: an IPv6 address with or without brackets (RFC 5118 section 4.5).
pub fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    if let Some(ip) = v4(text) {
        return Some(IpAddr::V4(ip));
    }
    let bare = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]")).unwrap_or(text);
    v6(bare).map(IpAddr::V6)
}

impl<'a> Field<'a> for Host<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let from = scan.at();
        let text = scan.span(HOST);
        Self::of(scan, from, text)
    }
}

impl<'a> Host<'a> {
    /// Completes a host whose name or IPv4 address has already been read: `text`, which starts at `from`.
    #[inline(always)]
    pub(crate) fn of(scan: &mut Reader<'a>, from: usize, text: &'a [u8]) -> Option<Self> {
        match text.first() {
            None => return scan.lend(reference).map(Self::V6),
            Some(b'0'..=b'9') => {
                if let Some(ip) = v4(text) {
                    return Some(Self::V4(ip));
                }
                // Digits and points that form no address are no name either.
                if text.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
                    scan.go(from);
                    return None;
                }
            }
            Some(b'-' | b'.') => {
                scan.go(from);
                return None;
            }
            _ => (),
        }
        Some(Self::Name(text))
    }
}

/// Reads an IPv6 address in brackets.
fn reference(scan: &mut Reader<'_>) -> Option<Ipv6Addr> {
    let inner = scan.rest().strip_prefix(b"[")?;
    let end = memchr::memchr(b']', inner)?;
    let ip = v6(&inner[..end])?;
    scan.skip(end + 2);
    Some(ip)
}

/// Reads four numbers up to 255, of at most three digits each.
fn v4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut rest = text;
    let mut octets = [0; 4];
    for (n, octet) in octets.iter_mut().enumerate() {
        if n > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let (number, digits) = match *rest {
            [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => (digit(a) * 100 + digit(b) * 10 + digit(c), 3),
            [a @ b'0'..=b'9', b @ b'0'..=b'9', ..] => (digit(a) * 10 + digit(b), 2),
            [a @ b'0'..=b'9', ..] => (digit(a), 1),
            _ => return None,
        };
        *octet = u8::try_from(number).ok()?;
        rest = &rest[digits..];
    }
    rest.is_empty().then(|| octets.into())
}

const fn digit(text: u8) -> u16 {
    (text - b'0') as u16
}

fn v6(text: &[u8]) -> Option<Ipv6Addr> {
    if text.len() > 45 || !text.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn write_v4(ip: Ipv4Addr, out: &mut Vec<u8>) {
    let mut text = [0u8; 16];
    let mut n = 0;
    for octet in ip.octets() {
        if octet >= 100 {
            text[n] = b'0' + octet / 100;
            n += 1;
        }
        if octet >= 10 {
            text[n] = b'0' + octet / 10 % 10;
            n += 1;
        }
        text[n] = b'0' + octet % 10;
        text[n + 1] = b'.';
        n += 2;
    }
    out.extend_from_slice(&text[..n - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_accepts_the_text_of_the_standard_library_and_leading_zeros() {
        for text in [
            "0.0.0.0",
            "255.255.255.255",
            "192.0.2.1",
            "1.2.3",
            "1.2.3.4.5",
            "256.1.1.1",
            "1.2.3.999",
            "1..2.3",
            "",
            ".1.2.3",
        ] {
            assert_eq!(v4(text.as_bytes()), text.parse().ok(), "{text}");
        }
        assert_eq!(v4(b"010.1.1.001"), Some(Ipv4Addr::new(10, 1, 1, 1)));
        for text in [&b"1.2.3.0004"[..], b"4294967297.1.1", b"999999999999999", b"1.2.3.", b"1.2.3.4x", b"1,2.3.4"] {
            assert_eq!(v4(text), None);
        }
    }

    #[test]
    fn the_three_kinds() {
        assert_eq!(Host::parse(b"Example.COM").unwrap(), Host::Name(b"example.com"));
        assert_eq!(Host::parse(b"192.0.2.1").unwrap(), Host::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(Host::parse(b"[2001:DB8::1]").unwrap(), Host::V6("2001:db8::1".parse().unwrap()));
        assert_eq!(Host::parse(b"[::ffff:192.0.2.1]").unwrap(), Host::V6("::ffff:192.0.2.1".parse().unwrap()));
        assert_eq!(Host::parse(b"4f2a.example").unwrap(), Host::Name(b"4f2a.example"));
        assert_eq!(Host::parse(b"host.example.").unwrap(), Host::Name(b"host.example."));
    }

    #[test]
    fn a_trailing_dot_makes_no_other_name() {
        let (with, without) = (Host::parse(b"Example.org.").unwrap(), Host::parse(b"example.org").unwrap());
        assert_eq!(with, without);
        let (mut key, mut as_it_came) = (Vec::new(), Vec::new());
        with.write_lower(&mut key);
        with.write(&mut as_it_came);
        assert_eq!((&key[..], &as_it_came[..]), (&b"example.org"[..], &b"Example.org."[..]));
        assert_ne!(Host::Name(b"example.org.."), without);
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            &b""[..],
            b"1.2.3",
            b"1.2.3.256",
            b"1.2.3.4.5",
            b"2001:db8::1",
            b"[2001:db8::1",
            b"[]",
            b"[:::1]",
            b"-a",
            b"a b",
            b"[fe80::1%25eth0]",
        ] {
            assert!(Host::parse(text).is_err(), "{:?}", text.escape_ascii().to_string());
        }
    }

    #[test]
    fn written_as_read() {
        for text in ["a.example", "0.0.0.0", "255.10.9.100", "[2001:db8::1]", "[::]"] {
            let mut out = Vec::new();
            Host::parse(text.as_bytes()).unwrap().write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn received_takes_both_forms_of_ipv6() {
        assert_eq!(parse_ip(b"[2001:db8::1]"), parse_ip(b"2001:db8::1"));
        assert!(parse_ip(b"2001:db8::1").is_some());
        assert!(parse_ip(b"example.com").is_none());
    }
}
