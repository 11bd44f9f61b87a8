//! Reach of media: hosts to which a relay may send before a packet has come from there ([`StreamPeer::may_send_first`]).
//!
//! A description may name any host. The source of its signalling has proved itself by its messages, and [`crate::reach`] says what other addresses
//! its sender may name. Any other host gets nothing, RTCP included, until it sends. No peer makes this server send media to its own SIP listeners, or
//! to a service that the server uses.
//!
//! [`StreamPeer::may_send_first`]: strowger_media::session::StreamPeer::may_send_first

use crate::policy::Policy;
use std::net::{IpAddr, SocketAddr};
use strowger_core::routing::Scope;
use strowger_core::{ListenerId, Target, Transport};

impl Policy {
    /// Tells whether media may go to the address of a description before a packet has come from there. `source`: source address of the message with
    /// the description; `sender`: scope of its sender ([`Policy::scope_of_sender`]).
    pub(crate) fn may_send_media(&self, sender: Scope, source: IpAddr, media: SocketAddr) -> bool {
        let identity = self.router.identity();
        if media.port() == 0 || identity.machine().is_service(&media) || identity.listens(Transport::Udp, &media) {
            return false;
        }
        media.ip().to_canonical() == source.to_canonical()
            || self.may_name(sender, &Target::new(Transport::Udp, ListenerId(0), media))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advance::tests::engine_of;

    /// Answers for a sender at `source` whose scope is that of its address.
    fn may(settings: &str, source: &str, media: &str) -> bool {
        let engine = engine_of("domains = [\"example.org\"]\n", settings);
        let source: IpAddr = source.parse().expect("an address");
        let sender = engine.policy.router.identity().machine().scope_of_sender(source);
        engine.policy.may_send_media(sender, source, media.parse().expect("an address"))
    }

    #[test]
    fn a_description_names_its_sender_or_a_host_in_its_reach() {
        let public = "198.51.100.7";
        // The sender, and another host of the world.
        assert!(may("", public, "198.51.100.7:4000") && may("", public, "203.0.113.9:4000"));
        // Networks into which the world does not reach.
        for inside in ["10.0.0.5:4000", "192.168.1.5:4000", "127.0.0.1:4000", "169.254.1.1:4000", "[::1]:4000"] {
            assert!(!may("", public, inside), "{inside}");
        }
        assert!(may("proxy.reachable = [\"10.0.0.0/24\"]\n", public, "10.0.0.5:4000"));
        // An office routes between its networks.
        assert!(may("", "10.0.0.5", "192.168.1.5:4000") && may("", "10.0.0.5", "203.0.113.9:4000"));
        // No unicast address, no port.
        for none in ["224.0.0.1:4000", "0.0.0.0:4000", "203.0.113.9:0"] {
            assert!(!may("", public, none), "{none}");
        }
    }

    #[test]
    fn no_description_names_a_listener_of_this_server() {
        // The server is at 192.0.2.1:5060.
        for source in ["198.51.100.7", "10.0.0.5", "192.0.2.1"] {
            assert!(!may("", source, "192.0.2.1:5060"), "{source}");
        }
        assert!(!may("", "198.51.100.7", "192.0.2.1:16384"));
        // A peer on this machine.
        assert!(may("", "192.0.2.1", "192.0.2.1:4000"));
    }
}
