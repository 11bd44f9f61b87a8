//! Contact repair: which Contact others cannot reach at what it says, so that the address from which its device really sends is
//! put beside it (see [`super::seal`]).

use super::scope::{Scope, is_shared};
use crate::{Arrival, Transport};
use std::net::{IpAddr, SocketAddr};
use strowger_message::header::Via;
use strowger_message::uri::SipUri;
use strowger_message::{Host, Message, Name};

/// A Contact that others could not reach, of a device that sends by `transport` from `remote`. `translated`: its port there may be
/// that of a translator, not its own.
pub fn is_needed(contact: &SipUri<'_>, transport: Transport, remote: &SocketAddr, translated: bool) -> bool {
    let named = contact.params.transport().and_then(Transport::of).unwrap_or(Transport::Udp);
    if transport.is_reliable() {
        // A device behind a stream is reached by that stream alone: no peer can connect to the port it connected from.
        return true;
    }
    match contact.host {
        // A name is the device's own affair; only addresses can be seen to be wrong.
        Host::Name(name) => is_invalid(name),
        // Another address may be the device's own choice, if the whole world reaches it.
        host if host != Host::from(remote.ip()) => host.ip().is_none_or(|ip| is_private(ip, remote.ip())),
        // By another transport than it sent by, its port is its own affair; so it is where nothing was translated: it may send
        // from another port than it listens on.
        _ => translated && named == transport && contact.port.unwrap_or_else(|| named.default_port()) != remote.port(),
    }
}

/// The sender of this request does not know its own port: it asks for it (RFC 3581 section 3), or names another address than the one
/// that the request came from.
pub fn is_translated(top: &Via<'_>, arrival: &Arrival) -> bool {
    let ip = arrival.remote.ip().to_canonical();
    top.rport.is_some() || top.host.ip().is_some_and(|named| named.to_canonical() != ip)
}

/// An address of a narrower scope than the one that its message came from: what the server reaches there is another host than its sender
/// means. It needs repair also where other elements stand between. (What a Contact leads to by other words is judged when a request goes there: [`Scope`].)
pub fn is_narrower(contact: &SipUri<'_>, remote: &SocketAddr) -> bool {
    contact.host.ip().is_some_and(|ip| Scope::of(ip) < Scope::of(remote.ip()))
}

/// The request has one Via: its sender's.
pub fn is_first_hop(message: &Message<'_>) -> bool {
    !message.has_several(Name::Via)
}

/// A name that leads nowhere on purpose (RFC 2606 section 2): browsers have no other.
pub fn is_invalid(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    name.len() > 8 && name[name.len() - 8..].eq_ignore_ascii_case(b".invalid")
}

/// An address that means something only where the device is: RFC 1918, RFC 6598, RFC 3927, RFC 4193, loopback seen
/// from elsewhere.
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
