//! Via (RFC 3261 section 20.42; rport RFC 3581, alias RFC 5923, keep RFC 6223).

use super::view;
use crate::host::{Host, parse_ip};
use crate::params::Params;
use crate::reader::{Field, Reader, is, number, strict_number};
use crate::uri::sip::read_port;
use crate::write::Write;
use std::net::IpAddr;

/// A Via: `SIP/2.0/UDP host:port;branch=...`. One pass finds all parameters that routing needs.
#[derive(Clone, Copy, Debug)]
pub struct Via<'a> {
    /// Raw value; empty if it was created, not parsed.
    pub text: &'a [u8],
    /// Raw transport, `UDP`, `TCP`, ...; compares in any case.
    pub transport: &'a [u8],
    /// The sent-by host: the sender's own claim, which `received` may contradict (RFC 3261 section 18.2.1).
    pub host: Host<'a>,
    /// The sent-by port; `None` for the default of the transport (RFC 3261 section 18.1.1).
    pub port: Option<u16>,
    /// All parameters, those below included. If there are none, the fields below are written instead.
    pub params: Params<'a>,
    /// Transaction identifier; unique in space and time if it starts with [`MAGIC`] (RFC 3261 section 8.1.1.7).
    pub branch: Option<&'a [u8]>,
    /// Raw `received`; see [`Via::received_ip`].
    pub received: Option<&'a [u8]>,
    /// Some empty text if the parameter has no value: a client asks for one, and `=port` is inserted at this position,
    /// after the name (RFC 3581 section 4).
    pub rport: Option<&'a [u8]>,
    /// Raw `maddr`: destination of the response instead of the host (RFC 3261 section 18.2.2); meant for multicast.
    pub maddr: Option<&'a [u8]>,
    /// The time to live of a multicast packet, in hops (RFC 3261 section 18.1.1).
    pub ttl: Option<u8>,
    /// True if the connection may carry requests backwards (RFC 5923).
    pub alias: bool,
    /// Like `rport`: empty until the value is filled in (RFC 6223).
    pub keep: Option<&'a [u8]>,
}

view!(Via);

/// Prefix of a branch that is unique in space and time (RFC 3261 section 8.1.1.7).
pub const MAGIC: &[u8] = b"z9hG4bK";

impl<'a> Via<'a> {
    /// Creates a Via to write, without parameters.
    pub fn new(transport: &'a [u8], host: Host<'a>, port: Option<u16>) -> Self {
        Self {
            text: b"",
            transport,
            host,
            port,
            params: Params::default(),
            branch: None,
            received: None,
            rport: None,
            maddr: None,
            ttl: None,
            alias: false,
            keep: None,
        }
    }

    /// Returns the branch, if it names a transaction by itself: the magic cookie with at least one character after it
    /// (RFC 3261 section 17.2.3).
    #[inline]
    pub fn magic_branch(&self) -> Option<&'a [u8]> {
        self.branch.filter(|b| b.len() > MAGIC.len() && b[..MAGIC.len()].eq_ignore_ascii_case(MAGIC))
    }

    /// Tells whether this is the transport, in any case.
    pub fn is_transport(&self, text: &[u8]) -> bool {
        self.transport.eq_ignore_ascii_case(text)
    }

    /// Returns the source address as the next element saw it.
    pub fn received_ip(&self) -> Option<IpAddr> {
        self.received.and_then(parse_ip)
    }

    /// Returns the source port as the next element saw it; `None` if `rport` has no value yet.
    pub fn rport_port(&self) -> Option<u16> {
        self.rport.and_then(strict_number).and_then(|n| u16::try_from(n).ok())
    }

    /// Writes `SIP/2.0/UDP host:port` and the parameters, or the fields if it has none.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"SIP/2.0/");
        out.extend_from_slice(self.transport);
        out.push(b' ');
        self.host.write(out);
        if let Some(port) = self.port {
            out.push(b':');
            (port as u32).write(out);
        }
        self.params.write(out);
        if self.params.is_empty() {
            self.write_made(out);
        }
    }

    /// Writes the fields of a Via that was created, not parsed.
    #[inline]
    fn write_made(&self, out: &mut Vec<u8>) {
        let mut text = |name: &[u8], value: Option<&[u8]>| {
            if let Some(value) = value {
                out.push(b';');
                out.extend_from_slice(name);
                if !value.is_empty() {
                    out.push(b'=');
                    out.extend_from_slice(value);
                }
            }
        };
        text(b"branch", self.branch);
        text(b"received", self.received);
        text(b"rport", self.rport);
        text(b"maddr", self.maddr);
        text(b"keep", self.keep);
        text(b"alias", self.alias.then_some(b""));
        if let Some(ttl) = self.ttl {
            out.extend_from_slice(b";ttl=");
            (ttl as u32).write(out);
        }
    }
}

impl<'a> Field<'a> for Via<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        if scan.rest().starts_with(b"SIP/2.0/") {
            scan.skip(8);
        } else {
            // Name and version compare in any case, and white space may separate them.
            for (n, part) in [&b"SIP"[..], b"2.0"].into_iter().enumerate() {
                let at = scan.at();
                if !scan.token()?.eq_ignore_ascii_case(part) {
                    scan.go(at);
                    return None;
                }
                scan.ws();
                if !scan.take(b'/') {
                    return None;
                }
                if n == 0 {
                    scan.ws();
                }
            }
        }
        scan.ws();
        let transport = scan.token()?;
        let end = scan.at();
        scan.ws();
        if scan.at() == end {
            return None;
        }
        let host = Host::read(scan)?;
        let mut end = scan.at();
        scan.ws();
        let mut port = None;
        if scan.take(b':') {
            scan.ws();
            port = Some(read_port(scan)?);
            end = scan.at();
        }
        let mut via = Self::new(transport, host, port);
        via.params = Params::read(scan, |name, value| via_param(&mut via, name, value))?;
        if !via.params.is_empty() {
            via.text = scan.between(start, via.params.text());
        } else {
            let after = scan.at();
            scan.go(end);
            via.text = scan.since(start);
            scan.go(after);
        }
        Some(via)
    }
}

#[inline]
fn via_param<'a>(via: &mut Via<'a>, name: &'a [u8], value: Option<&'a [u8]>) -> bool {
    // Without a value: the empty position after the name.
    let place = || Some(value.unwrap_or_else(|| &name[name.len()..]));
    match name.len() {
        3 if is(name, b"ttl") => {
            via.ttl = value.and_then(strict_number).and_then(|n| u8::try_from(n).ok());
            return via.ttl.is_some();
        }
        4 if is(name, b"keep") => via.keep = place(),
        5 if is(name, b"rport") => {
            via.rport = place();
            return value.is_none_or(|v| v.iter().all(u8::is_ascii_digit) && number(v) <= 65_535);
        }
        5 if is(name, b"maddr") => {
            via.maddr = value;
            return value.is_some();
        }
        5 if is(name, b"alias") => via.alias = true,
        6 if is(name, b"branch") => {
            // Two branches would identify two transactions.
            let first = via.branch.is_none();
            via.branch = value;
            return first && value.is_some();
        }
        8 if is(name, b"received") => {
            via.received = value;
            return value.is_some();
        }
        _ => (),
    }
    true
}

/// Equal if transport, sent-by and parameters are.
impl PartialEq for Via<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.transport.eq_ignore_ascii_case(other.transport)
            && self.host == other.host
            && self.port == other.port
            && self.branch == other.branch
            && self.received == other.received
            && self.rport == other.rport
            && self.maddr == other.maddr
            && self.ttl == other.ttl
            && self.alias == other.alias
            && self.keep == other.keep
            && (self.params == other.params || self.params.is_empty() || other.params.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Via<'_> {
        Via::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn all_fields() {
        let via = parse(
            "SIP/2.0/UDP a.example:5070;branch=z9hG4bKx;rport;received=192.0.2.1;maddr=224.2.0.1;ttl=16;alias;keep=30;x=y",
        );
        assert_eq!((via.transport, via.port), (&b"UDP"[..], Some(5070)));
        assert_eq!(via.magic_branch(), Some(&b"z9hG4bKx"[..]));
        assert_eq!((via.rport, via.rport_port()), (Some(&b""[..]), None));
        assert_eq!(via.received_ip(), "192.0.2.1".parse().ok());
        assert_eq!(
            (via.maddr, via.ttl, via.alias, via.keep),
            (Some(&b"224.2.0.1"[..]), Some(16), true, Some(&b"30"[..]))
        );
        assert_eq!(via.params.value(b"x"), Some(&b"y"[..]));
        assert_eq!(parse("SIP/2.0/TCP [2001:db8::9:1]:6050;received=2001:db8::1").port, Some(6050));
        assert_eq!(parse("SIP/2.0/TCP h;received=[2001:db8::1]").received_ip(), "2001:db8::1".parse().ok());
        assert_eq!(parse("SIP/2.0/UDP h;rport=5061").rport_port(), Some(5061));
        assert_eq!(parse("SIP/2.0/UDP h;branch=z9hG4bK").magic_branch(), None);
        for text in ["SIP/2.0/UDP h;rport=", "SIP/2.0/UDP h;rport=;branch=z9hG4bKx", "SIP/2.0/UDP h;rport= ;x"] {
            assert_eq!((parse(text).rport, parse(text).rport_port()), (Some(&b""[..]), None), "{text}");
        }
        assert!(Via::parse(b"SIP/2.0/UDP h;branch=").is_err());
    }

    #[test]
    fn spaced_and_folded() {
        let via = parse("sip  / 2.0\r\n /UDP\r\n    192.0.2.2 : 5062 ;\r\n branch = 390skdjuw ");
        assert_eq!((via.port, via.branch), (Some(5062), Some(&b"390skdjuw"[..])));
        assert!(via.text.ends_with(b"390skdjuw"));
        let mut out = Vec::new();
        via.write(&mut out);
        assert_eq!(out, b"SIP/2.0/UDP 192.0.2.2:5062;branch=390skdjuw");
        assert_eq!(Via::parse(&out).unwrap(), via);
        assert_eq!(parse("SIP/2.0/UDP h ").text, b"SIP/2.0/UDP h");
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "SIP/2.0/UDP",
            "SIP/2.0/UDP ",
            "SIP/7.0/UDP h",
            "SIP/2.0 h",
            "SIP/2.0/UDP h;;",
            "SIP/2.0/UDP h;branch",
            "SIP/2.0/UDP h:",
            "SIP/2.0/UDP h:70000",
            "SIP/2.0/UDP h;ttl=256",
            "SIP/2.0/UDP h;rport=x",
            "SIP/2.0/UDP h;branch=a;branch=b",
            "SIP/2.0/UDP 192.0.2.15;;,;,,",
            "SIP/2.0/UDP h x",
            "HTTP/1.1/TCP h",
        ] {
            assert!(Via::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn created_values_are_written_from_their_fields() {
        let mut via = Via::new(b"TCP", Host::Name(b"a.example"), None);
        via.branch = Some(b"z9hG4bK1");
        via.rport = Some(b"");
        via.alias = true;
        let mut out = Vec::new();
        via.write(&mut out);
        assert_eq!(out, b"SIP/2.0/TCP a.example;branch=z9hG4bK1;rport;alias");
        assert_eq!(Via::parse(&out).unwrap(), via);
    }
}
