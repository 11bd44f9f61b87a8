//! Header of the PROXY protocol, versions 1 and 2 (haproxy, `doc/proxy-protocol.txt`): the first bytes of a connection
//! from a load balancer. They name the peer whose connection the balancer has accepted. This module does no I/O; section
//! numbers are those of that document.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest line of version 1 with its line end, in bytes (section 2.1).
const LONGEST_LINE: usize = 107;

/// Longest accepted header of version 2, in bytes. The protocol allows 65,551; the largest part in use is the certificate of a client.
const LONGEST: usize = 4_096;

/// First bytes of version 2 (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the part of version 2 that every header has: signature, command, family and length.
const FIXED: usize = 16;

/// Type of the field with the checksum of the header (section 2.2.4).
const CRC32C: u8 = 3;

/// Complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the header in bytes. The data of the peer follow.
    pub length: usize,
    /// Address of the balancer's peer, IPv4 in its own form. `None`: the peer is the balancer itself (LOCAL), or the balancer names none (UNKNOWN, or
    /// another protocol than TCP).
    pub source: Option<SocketAddr>,
}

/// Reason to refuse a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// The bytes are no header of either version, or contradict themselves.
    Malformed,
    /// The header is longer than a receiver accepts.
    TooLong,
}

/// Reads the header at the start of the bytes. Returns `None` if more bytes are needed, at most 4,096 in all. Each part
/// of a stream gives `None` or the result of the whole stream.
///
/// # Errors
/// The bytes cannot become a valid header: the connection must be closed (section 2).
pub fn read(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    if begins_like(bytes, SIGNATURE) {
        version_2(bytes)
    } else if begins_like(bytes, b"PROXY ") {
        version_1(bytes)
    } else {
        Err(HeaderFault::Malformed)
    }
}

/// Tells whether the bytes and the pattern are the same up to the end of the shorter one.
fn begins_like(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.iter().zip(pattern).all(|(a, b)| a == b)
}

/// Reads a line such as `PROXY TCP4 192.0.2.1 198.51.100.7 40000 5060` (section 2.1).
fn version_1(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    let line = &bytes[..bytes.len().min(LONGEST_LINE)];
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let end = match end.map(|end| (end, line[end], line.get(end + 1))) {
        Some((end, b'\r', Some(b'\n'))) => end,
        None | Some((_, b'\r', None)) if bytes.len() < LONGEST_LINE => return Ok(None),
        None | Some((_, b'\r', None)) => return Err(HeaderFault::TooLong),
        Some(_) => return Err(HeaderFault::Malformed),
    };
    let source = source_of_line(&line[..end]).ok_or(HeaderFault::Malformed)?;
    Ok(Some(Header { length: end + 2, source }))
}

/// Returns the source that a line without its line end names; `Some(None)` for UNKNOWN, whose further text has no meaning.
fn source_of_line(line: &[u8]) -> Option<Option<SocketAddr>> {
    let rest = line.strip_prefix(b"PROXY ")?;
    if rest == b"UNKNOWN" || rest.starts_with(b"UNKNOWN ") {
        return Some(None);
    }
    let mut words = std::str::from_utf8(rest).ok()?.split(' ');
    let mut word = || words.next();
    let (Some(family), Some(from), Some(to), Some(port), Some(port_there), None) =
        (word(), word(), word(), word(), word(), word())
    else {
        return None;
    };
    let address = match family {
        "TCP4" => first_of::<Ipv4Addr>(from, to)?.into(),
        "TCP6" => first_of::<Ipv6Addr>(from, to)?.into(),
        _ => return None,
    };
    let (port, _) = (decimal(port)?, decimal(port_there)?);
    peer(address, port).map(Some)
}

/// Parses two addresses of one family, and returns the first.
fn first_of<A: FromStr>(from: &str, to: &str) -> Option<A> {
    let (from, _) = (from.parse().ok()?, to.parse::<A>().ok()?);
    Some(from)
}

/// Parses a port without a sign and without leading zeros.
fn decimal(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// Returns the address of a peer; `None` if no peer sends from it.
fn peer(address: IpAddr, port: u16) -> Option<SocketAddr> {
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(ip) if ip.is_broadcast());
    let is_of_a_host = !(address.is_unspecified() || address.is_multicast() || is_broadcast);
    is_of_a_host.then(|| SocketAddr::new(address, port))
}

/// Reads the binary form (section 2.2).
fn version_2(bytes: &[u8]) -> Result<Option<Header>, HeaderFault> {
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let (family, protocol) = (fixed[13] >> 4, fixed[13] & 15);
    let is_local = match fixed[12] {
        // The family of a LOCAL connection has no meaning.
        0x20 => true,
        0x21 if family <= 3 && protocol <= 2 => false,
        _ => return Err(HeaderFault::Malformed),
    };
    if length > LONGEST {
        return Err(HeaderFault::TooLong);
    }
    let addresses = match (family, protocol) {
        _ if is_local => 0,
        (0, _) | (_, 0) => 0,
        (1, _) => 12,
        (2, _) => 36,
        _ => 216,
    };
    if length < FIXED + addresses {
        return Err(HeaderFault::Malformed);
    }
    let Some(header) = bytes.get(..length) else { return Ok(None) };
    if addresses == 0 {
        return Ok(Some(Header { length, source: None }));
    }
    if !has_valid_fields(header, FIXED + addresses) {
        return Err(HeaderFault::Malformed);
    }
    let body = &header[FIXED..];
    let named = match (family, protocol, body) {
        (1, 1, [a, b, c, d, _, _, _, _, p, q, ..]) => {
            Some((IpAddr::from([*a, *b, *c, *d]), u16::from_be_bytes([*p, *q])))
        }
        (2, 1, _) => body.first_chunk::<16>().map(|ip| (IpAddr::from(*ip), u16::from_be_bytes([body[32], body[33]]))),
        _ => None,
    };
    let source = named.map(|(address, port)| peer(address, port).ok_or(HeaderFault::Malformed)).transpose()?;
    Ok(Some(Header { length, source }))
}

/// Checks the additional fields (TLV) from this offset: they fill the header, and a checksum among them is right (sections 2.2.1 and 2.2.4).
fn has_valid_fields(header: &[u8], mut at: usize) -> bool {
    while at < header.len() {
        let Some(&[kind, high, low]) = header[at..].first_chunk() else { return false };
        let value = at + 3;
        at = value + usize::from(u16::from_be_bytes([high, low]));
        let Some(content) = header.get(value..at) else { return false };
        if kind == CRC32C && *content != crc32c(header, value).to_be_bytes() {
            return false;
        }
    }
    true
}

/// Computes the CRC32c of a header (RFC 9260 appendix A), as if the four bytes from `sum` were zero.
fn crc32c(header: &[u8], sum: usize) -> u32 {
    let byte = |(at, byte): (usize, &u8)| if (sum..sum + 4).contains(&at) { 0 } else { *byte };
    let crc = header.iter().enumerate().map(byte).fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    !crc
}

/// Checks the invariants of [`read`] for arbitrary bytes: the result does not depend on how the bytes arrive, and is bounded.
///
/// # Panics
/// An invariant does not hold.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz_header(data: &[u8]) {
    let whole = read(data);
    let mut parts = (0..=data.len()).map(|cut| (cut, read(&data[..cut])));
    match parts.find(|(_, part)| *part != Ok(None)) {
        Some((cut, part)) => {
            assert_eq!(part, whole);
            assert!(cut <= LONGEST, "{cut} bytes are waited for");
            if let Ok(Some(header)) = whole {
                assert_eq!(header.length, cut);
            }
        }
        None => assert!(whole == Ok(None) && data.len() < LONGEST),
    }
    if let Ok(Some(Header { source: Some(source), .. })) = whole {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let (ip, port) = (source.ip(), source.port());
        let line = format!("PROXY {family} {ip} {ip} {port} 5060\r\n");
        assert_eq!(read(line.as_bytes()), Ok(Some(Header { length: line.len(), source: Some(source) })));
    }
}

#[cfg(test)]
mod tests;
