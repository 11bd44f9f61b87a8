//! `c=`, `b=` and `k=`: destination, bandwidth and key of media (RFC 8866 section 5.7, 5.8 and 5.12).

use std::net::IpAddr;

use super::{fields, number, trim, write_number};
use crate::write::Write;

/// Connection data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection<'a> {
    /// Net type, `IN`.
    pub net_type: &'a [u8],
    /// Address type, `IP4` or `IP6`.
    pub address_type: &'a [u8],
    /// Address or name, without the part after a slash.
    pub address: &'a [u8],
    /// Time to live of an IPv4 multicast address.
    pub ttl: Option<u8>,
    /// Number of multicast addresses, starting with this one.
    pub count: Option<u32>,
}

impl<'a> Connection<'a> {
    /// Reads the value of the line.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut fields = fields(value);
        let (net_type, address_type, address) = (fields.next()?, fields.next()?, fields.next()?);
        if fields.next().is_some() {
            return None;
        }
        let mut parts = address.split(|&b| b == b'/');
        let address = parts.next().filter(|address| !address.is_empty())?;
        let (first, second) = (parts.next().map(number), parts.next().map(number));
        if parts.next().is_some() {
            return None;
        }
        // IPv4 has the TTL, then the count; IPv6 has no TTL.
        let (ttl, count) = match (first, second) {
            (None, _) => (None, None),
            (Some(first), None) if address_type == b"IP6" => (None, Some(first?)),
            (Some(_), Some(_)) if address_type == b"IP6" => return None,
            (Some(first), second) => {
                let count = match second {
                    Some(count) => Some(count?),
                    None => None,
                };
                (Some(u8::try_from(first?).ok()?), count)
            }
        };
        let count = match count {
            Some(count) => Some(u32::try_from(count).ok()?),
            None => None,
        };
        Some(Self { net_type, address_type, address, ttl, count })
    }

    /// Returns the IP address; `None` for a name.
    pub fn ip(&self) -> Option<IpAddr> {
        std::str::from_utf8(self.address).ok()?.parse().ok()
    }

    /// Tells whether this is `0.0.0.0` or `::`, with which RFC 2543 put a call on hold (RFC 3264 section 8.4).
    pub fn is_hold(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_unspecified())
    }
}

impl Write for Connection<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        for field in [self.net_type, self.address_type] {
            out.extend_from_slice(field);
            out.push(b' ');
        }
        out.extend_from_slice(self.address);
        for number in [self.ttl.map(u64::from), self.count.map(u64::from)].into_iter().flatten() {
            out.push(b'/');
            write_number(number, out);
        }
    }
}

/// Returns the address type of an IP address: `IP4` or `IP6`.
pub fn address_type(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IP4" } else { "IP6" }
}

/// A bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth<'a> {
    /// Bandwidth type: `CT`, `AS`, `TIAS`, `RS`, `RR` or an `X-` name.
    pub kind: &'a [u8],
    /// Bandwidth in kbit/s for CT and AS, in bit/s for TIAS, RS and RR.
    pub value: u64,
}

impl<'a> Bandwidth<'a> {
    /// Reads the value of the line.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let colon = value.iter().position(|&b| b == b':').filter(|&colon| colon > 0)?;
        Some(Self { kind: &value[..colon], value: number(trim(&value[colon + 1..]))? })
    }
}

impl Write for Bandwidth<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.kind);
        out.push(b':');
        write_number(self.value, out);
    }
}

/// An encryption key, obsolete since RFC 8866.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Method: `prompt`, `clear`, `base64` or `uri`.
    pub method: &'a [u8],
    /// Raw text after the colon; `None` for `prompt`.
    pub key: Option<&'a [u8]>,
}

impl<'a> Key<'a> {
    /// Reads the value of the line; accepts any text.
    pub fn parse(value: &'a [u8]) -> Self {
        match value.iter().position(|&b| b == b':') {
            Some(colon) => Self { method: &value[..colon], key: Some(&value[colon + 1..]) },
            None => Self { method: value, key: None },
        }
    }
}

impl Write for Key<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method);
        if let Some(key) = self.key {
            out.push(b':');
            out.extend_from_slice(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &impl Write) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn connections_read_and_written_back() {
        for (text, ttl, count) in [
            ("IN IP4 192.0.2.1", None, None),
            ("IN IP4 host.example.org", None, None),
            ("IN IP4 233.252.0.1/127", Some(127), None),
            ("IN IP4 233.252.0.1/127/3", Some(127), Some(3)),
            ("IN IP6 ff00::db8:0:101/3", None, Some(3)),
            ("ATM NSAP 47.0091", None, None),
        ] {
            let read = Connection::parse(text.as_bytes()).expect(text);
            assert_eq!((read.ttl, read.count), (ttl, count), "{text}");
            assert_eq!(written(&read), text);
        }
        for bad in
            ["", "IN IP4", "IN IP4 h x", "IN IP4 /1", "IN IP4 h/256", "IN IP4 h/x", "IN IP4 h/1/x", "IN IP6 h/1/2"]
        {
            assert_eq!(Connection::parse(bad.as_bytes()), None, "{bad}");
        }
        assert!(Connection::parse(b"IN IP4 0.0.0.0").expect("valid").is_hold());
        assert!(!Connection::parse(b"IN IP4 h").expect("valid").is_hold());
    }

    #[test]
    fn bandwidths_and_keys() {
        let read = Bandwidth::parse(b"X-YZ:128").expect("valid");
        assert_eq!((written(&read).as_str(), read.value), ("X-YZ:128", 128));
        assert!(Bandwidth::parse(b"AS").is_none() && Bandwidth::parse(b":1").is_none());
        assert_eq!(written(&Key::parse(b"uri:http://a:1")), "uri:http://a:1");
        assert_eq!(Key::parse(b"prompt").key, None);
    }
}
