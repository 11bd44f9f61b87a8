//! Contact repair: detects a Contact that other elements cannot reach, so that the real source address of its device is
//! added as a seal (see [`super::seal`]).

use super::scope::{Scope, is_shared};
use crate::{Arrival, Transport};
use std::net::{IpAddr, SocketAddr};
use strowger_message::header::Via;
use strowger_message::uri::SipUri;
use strowger_message::{Host, Message, Name};

/// Tells whether other elements cannot reach this Contact of a device that sends by `transport` from `remote`.
/// `translated`: whether the source port may be that of an address translator.
pub fn is_needed(contact: &SipUri<'_>, transport: Transport, remote: &SocketAddr, translated: bool) -> bool {
    let named = contact.params.transport().and_then(Transport::of).unwrap_or(Transport::Udp);
    if transport.is_reliable() {
        // A device behind a stream is reached by that stream only: no peer can connect to its source port.
        return true;
    }
    match contact.host {
        // A name is the device's own affair; only addresses can be seen to be wrong.
        Host::Name(name) => is_invalid(name),
        // A public address that differs from the source may be the choice of the device.
        host if host != Host::from(remote.ip()) => host.ip().is_none_or(|ip| is_private(ip, remote.ip())),
        // The device has chosen the port if the Contact names another transport than that of the message, or if there
        // is no translator: the device may listen on another port than it sends from.
        _ => translated && named == transport && contact.port.unwrap_or_else(|| named.default_port()) != remote.port(),
    }
}

/// Tells whether the sender of this request is behind an address translator: it asks for its port (RFC 3581 section 3), or its Via names
/// another address than the source.
pub fn is_translated(top: &Via<'_>, arrival: &Arrival) -> bool {
    let ip = arrival.remote.ip().to_canonical();
    top.rport.is_some() || top.host.ip().is_some_and(|named| named.to_canonical() != ip)
}

/// Tells whether the address of this Contact has a narrower scope than the source of its message, so that for this
/// server it is another host than the sender means. Such a Contact needs repair behind other elements too. (A Contact
/// with a host name is judged when a request is sent to it: [`Scope`].)
pub fn is_narrower(contact: &SipUri<'_>, remote: &SocketAddr) -> bool {
    contact.host.ip().is_some_and(|ip| Scope::of(ip) < Scope::of(remote.ip()))
}

/// Tells whether the request has only one Via, which its sender has written.
pub fn is_first_hop(message: &Message<'_>) -> bool {
    !message.has_several(Name::Via)
}

/// Tells whether a name is invalid on purpose (RFC 2606 section 2), as in the Contact of browsers.
pub fn is_invalid(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    name.len() > 8 && name[name.len() - 8..].eq_ignore_ascii_case(b".invalid")
}

/// Tells whether an address has a meaning only in the network of the device: RFC 1918, RFC 6598, RFC 3927, RFC 4193, or
/// loopback in a message from another machine.
pub fn is_private(ip: IpAddr, seen_from: IpAddr) -> bool {
    let alone = ip.is_unspecified() || (ip.is_loopback() && !seen_from.to_canonical().is_loopback());
    alone
        || match ip.to_canonical() {
            IpAddr::V4(ip) => ip.is_private() || ip.is_link_local() || is_shared(ip),
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ListenerId;
    use strowger_message::{Index, Limits, Uri};

    fn needed(contact: &str, transport: Transport, remote: &str) -> bool {
        let uri = Uri::parse(contact.as_bytes()).unwrap();
        is_needed(uri.sip().unwrap(), transport, &remote.parse().unwrap(), true)
    }

    #[test]
    fn only_unreachable_contacts_need_repair() {
        assert!(!needed("sip:a@192.0.2.1", Transport::Udp, "192.0.2.1:5060"));
        assert!(!needed("sip:a@192.0.2.1:5070", Transport::Udp, "192.0.2.1:5070"));
        assert!(needed("sip:a@10.0.0.1:5070", Transport::Udp, "192.0.2.1:5070"));
        assert!(needed("sip:a@192.0.2.1:5060", Transport::Udp, "192.0.2.1:40000"));
        for private in ["172.16.0.9", "100.64.0.1", "169.254.1.1", "127.0.0.1", "0.0.0.0", "[fd00::1]", "[fe80::1]"] {
            assert!(needed(&format!("sip:a@{private}"), Transport::Udp, "192.0.2.1:5060"), "{private}");
        }
        // These addresses are public: a device, or a carrier, may send from one address and listen at another.
        for public in ["203.0.113.7", "[2001:db8::7]:5070", "172.32.0.1", "100.128.0.1"] {
            assert!(!needed(&format!("sip:a@{public}"), Transport::Udp, "192.0.2.1:5060"), "{public}");
        }
        assert!(!needed("sip:a@127.0.0.1:5070", Transport::Udp, "127.0.0.2:5070"));
        assert!(needed("sip:a@x1b2.invalid;transport=ws", Transport::Ws, "192.0.2.1:40000"));
        assert!(needed("sip:a@x1b2.invalid.", Transport::Udp, "192.0.2.1:40000"));
        assert!(!needed("sip:a@phone.example", Transport::Udp, "192.0.2.1:40000"));
        assert!(needed("sip:a@192.0.2.1:5060;transport=tcp", Transport::Tcp, "192.0.2.1:40000"));
        assert!(needed("sip:a@192.0.2.1:40000;transport=tcp", Transport::Tcp, "192.0.2.1:40000"));
        assert!(!needed("sip:a@192.0.2.1:5060;transport=tcp", Transport::Udp, "192.0.2.1:40000"));
    }

    #[test]
    fn no_contact_is_narrower_than_the_source_of_its_request() {
        let narrower = |contact: &str, remote: &str| {
            let uri = Uri::parse(contact.as_bytes()).unwrap();
            is_narrower(uri.sip().unwrap(), &remote.parse().unwrap())
        };
        for (contact, remote) in [
            ("sip:a@10.0.0.1", "192.0.2.1:5060"),
            ("sip:a@127.0.0.1:7379;transport=tcp", "192.0.2.1:5060"),
            ("sip:a@127.0.0.1", "10.0.0.1:5060"),
            ("sip:a@169.254.169.254", "10.0.0.1:5060"),
            ("sip:a@0.0.0.0", "10.0.0.1:5060"),
            ("sip:a@[::1]", "[2001:db8::1]:5060"),
            ("sip:a@[fe80::1]", "[fd00::1]:5060"),
            ("sip:a@[::ffff:10.0.0.1]", "192.0.2.1:5060"),
        ] {
            assert!(narrower(contact, remote), "{contact} {remote}");
        }
        for (contact, remote) in [
            ("sip:a@10.0.0.1", "192.168.0.1:5060"),
            ("sip:a@127.0.0.2", "127.0.0.1:5060"),
            ("sip:a@203.0.113.1", "10.0.0.1:5060"),
            ("sip:a@203.0.113.1", "192.0.2.1:5060"),
            ("sip:a@pbx.example", "192.0.2.1:5060"),
        ] {
            assert!(!narrower(contact, remote), "{contact} {remote}");
        }
    }

    #[test]
    fn a_device_that_knows_its_port_listens_there() {
        let remote = "192.0.2.1:40000".parse().unwrap();
        let needed = |contact: &str| {
            let uri = Uri::parse(contact.as_bytes()).unwrap();
            is_needed(uri.sip().unwrap(), Transport::Udp, &remote, false)
        };
        assert!(!needed("sip:a@192.0.2.1:5060") && !needed("sip:a@192.0.2.1"));
        assert!(needed("sip:a@10.0.0.1:5060"), "the address is wrong all the same");
        let translated = |via: &str| {
            let text = format!("OPTIONS sip:a SIP/2.0\r\nVia: {via}\r\n\r\n");
            let mut index = Index::new();
            index.parse(text.as_bytes(), &Limits::default()).unwrap();
            let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
            is_translated(&Message::new(text.as_bytes(), &index).via().unwrap(), &arrival)
        };
        assert!(!translated("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1"));
        assert!(!translated("SIP/2.0/UDP gateway.example;branch=z9hG4bK1;received=192.0.2.1"));
        assert!(translated("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1;rport"));
        assert!(translated("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1;rport=40000"));
        assert!(translated("SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK1;received=192.0.2.1"));
    }
}
