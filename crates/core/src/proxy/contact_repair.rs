//! Contact repair: the address that a device behind NAT really sends from, carried as a parameter of its
//! Contact URI, so that requests within the dialog find their way back to it.
//!
//! The parameter is `alias=IP~port~transport`, for a stream followed by `~flow`. It is taken off again
//! before the request leaves for the device, which sees its own Contact unchanged.

use crate::{Flow, ListenerId, Target, Transport};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use strowger_message::Host;
use strowger_message::uri::SipUri;

/// The parameter's name.
pub const NAME: &[u8] = b"alias";

/// A Contact that others could not reach at the address that its message came from.
pub fn is_needed(contact: &SipUri<'_>, transport: Transport, remote: &SocketAddr) -> bool {
    if contact.params.find(NAME).is_some() {
        return false;
    }
    let named = contact.params.transport().and_then(Transport::of).unwrap_or(Transport::Udp);
    if transport.is_reliable() {
        // A device behind a stream is reached by that stream alone: nobody can connect to the port it connected from.
        return true;
    }
    match contact.host {
        // A name is the device's own affair; only addresses can be seen to be wrong.
        Host::Name(name) => name.len() > 8 && name[name.len() - 8..].eq_ignore_ascii_case(b".invalid"),
        // Another address may be the device's own choice, if the whole world reaches it.
        host if host != Host::from(remote.ip()) => host.ip().is_none_or(|ip| is_private(ip, remote.ip())),
        // By another transport than it sent by, its port is its own affair.
        _ => named == transport && contact.port.unwrap_or_else(|| named.default_port()) != remote.port(),
    }
}

/// An address that means something only where the device is: RFC 1918, RFC 6598, RFC 3927, RFC 4193, loopback seen
/// from elsewhere.
fn is_private(ip: IpAddr, seen_from: IpAddr) -> bool {
    let alone = ip.is_unspecified() || (ip.is_loopback() && !seen_from.to_canonical().is_loopback());
    alone
        || match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, ..] = ip.octets();
                ip.is_private() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
            }
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
        }
}

/// `;alias=...` for the device at `remote`.
pub fn write(transport: Transport, remote: &SocketAddr, flow: Option<Flow>, out: &mut Vec<u8>) {
    out.push(b';');
    out.extend_from_slice(NAME);
    out.push(b'=');
    Host::from(remote.ip()).write(out);
    // Writing to a Vec does not fail.
    let _ = write!(out, "~{}~{}", remote.port(), transport as u8);
    if let Some(f) = flow {
        let _ = write!(out, "~{:x}.{:x}.{:x}.{:x}.{:x}", f.node, f.process, f.shard, f.slot, f.generation);
    }
}

/// The target that an alias names; none if it is not one of ours.
pub fn parse(value: &[u8], listener: ListenerId) -> Option<Target> {
    let mut parts = std::str::from_utf8(value).ok()?.split('~');
    let ip = strowger_message::host::parse_ip(parts.next()?.as_bytes())?;
    let port = parts.next()?.parse().ok()?;
    let transport = *Transport::ALL.get(parts.next()?.parse::<usize>().ok()?)?;
    let flow = match parts.next() {
        None => None,
        Some(text) => {
            let mut numbers = text.split('.').map(|n| u32::from_str_radix(n, 16).ok());
            let mut next = || numbers.next().flatten();
            Some(Flow {
                node: next()?.try_into().ok()?,
                process: next()?.try_into().ok()?,
                shard: next()?.try_into().ok()?,
                slot: next()?,
                generation: next()?,
            })
        }
    };
    Some(Target { transport, listener, address: SocketAddr::new(ip, port), flow })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::Uri;

    fn needed(contact: &str, transport: Transport, remote: &str) -> bool {
        let uri = Uri::parse(contact.as_bytes()).unwrap();
        is_needed(uri.sip().unwrap(), transport, &remote.parse().unwrap())
    }

    #[test]
    fn only_what_cannot_be_reached() {
        assert!(!needed("sip:a@192.0.2.1", Transport::Udp, "192.0.2.1:5060"));
        assert!(!needed("sip:a@192.0.2.1:5070", Transport::Udp, "192.0.2.1:5070"));
        assert!(needed("sip:a@10.0.0.1:5070", Transport::Udp, "192.0.2.1:5070"));
        assert!(needed("sip:a@192.0.2.1:5060", Transport::Udp, "192.0.2.1:40000"));
        for private in ["172.16.0.9", "100.64.0.1", "169.254.1.1", "127.0.0.1", "0.0.0.0", "[fd00::1]", "[fe80::1]"] {
            assert!(needed(&format!("sip:a@{private}"), Transport::Udp, "192.0.2.1:5060"), "{private}");
        }
        // The whole world reaches these: a device, or a carrier, may send from one address and listen at another.
        for public in ["203.0.113.7", "[2001:db8::7]:5070", "172.32.0.1", "100.128.0.1"] {
            assert!(!needed(&format!("sip:a@{public}"), Transport::Udp, "192.0.2.1:5060"), "{public}");
        }
        assert!(!needed("sip:a@127.0.0.1:5070", Transport::Udp, "127.0.0.2:5070"));
        assert!(needed("sip:a@x1b2.invalid;transport=ws", Transport::Ws, "192.0.2.1:40000"));
        assert!(!needed("sip:a@phone.example", Transport::Udp, "192.0.2.1:40000"));
        assert!(needed("sip:a@192.0.2.1:5060;transport=tcp", Transport::Tcp, "192.0.2.1:40000"));
        assert!(needed("sip:a@192.0.2.1:40000;transport=tcp", Transport::Tcp, "192.0.2.1:40000"));
        assert!(!needed("sip:a@192.0.2.1:5060;transport=tcp", Transport::Udp, "192.0.2.1:40000"));
    }

    #[test]
    fn written_as_read() {
        let flow = Flow { node: 1, process: 2, shard: 3, slot: 400_000, generation: 77 };
        for (address, flow) in [("192.0.2.1:5060", None), ("[2001:db8::1]:40000", Some(flow))] {
            let address = address.parse().unwrap();
            let mut out = Vec::new();
            write(Transport::Tls, &address, flow, &mut out);
            let value = out.strip_prefix(b";alias=").unwrap();
            let target = parse(value, ListenerId(2)).unwrap();
            assert_eq!(target, Target { transport: Transport::Tls, listener: ListenerId(2), address, flow });
            // It stands in a URI.
            let uri = [b"sip:a@10.0.0.1", &out[..]].concat();
            assert_eq!(Uri::parse(&uri).unwrap().sip().unwrap().params.find(NAME), Some(Some(value)));
        }
        assert!(parse(b"192.0.2.1~99999~1", ListenerId(0)).is_none());
        assert!(parse(b"192.0.2.1~1~9", ListenerId(0)).is_none());
        assert!(parse(b"", ListenerId(0)).is_none());
    }
}
