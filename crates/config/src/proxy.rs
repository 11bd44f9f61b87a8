//! `[proxy]`: forwarding of requests (RFC 3261 section 16).

use std::time::Duration;

use strowger_message::Uri;

use super::ban::Network;
use super::key::{Rule, Text, words};
use super::reader::{ANY, section};

words! {
    /// Callers that may reach a Request-URI outside the local domains.
    pub enum RelayFor {
        /// Authenticated users: never an open relay.
        Authenticated = "authenticated",
        /// Callers whose From is of a local domain (which must authenticate if `auth.calls`).
        LocalDomains = "local-domains",
        /// All callers: an open relay, for trusted networks and experiments.
        Everyone = "everyone",
    }
}

words! {
    /// Order in which the contacts of a user ring (RFC 3261 section 16.6).
    pub enum Fork {
        /// All at the same time, whatever their q.
        Parallel = "parallel",
        /// One after the other, the highest q first.
        Sequence = "sequence",
        /// Contacts of equal q at the same time, the groups one after the other, the highest q first.
        ByQ = "by-q",
    }
}

words! {
    /// Handling of a CANCEL that matches no INVITE.
    pub enum UnmatchedCancel {
        /// The server answers 481 (RFC 3261 section 9.2).
        Answer = "answer",
        /// The server does not answer.
        Drop = "drop",
    }
}

/// A sip or sips URI of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SipUri(String);

impl SipUri {
    /// Returns the URI, without angle brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for SipUri {
    const EXPECTED: &'static str = "a URI without angle brackets, such as \"sip:gateway.example.org;lr\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match Uri::parse(text.as_bytes()) {
            Ok(Uri::Sip(_)) => Ok(Self(text.to_owned())),
            _ => Err(format!("is {text:?}, which is not a SIP URI")),
        }
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

section! {
    /// Forwarding of requests (RFC 3261 section 16).
    pub struct Proxy = "proxy" {
        /// Callers that may reach a Request-URI outside the local domains.
        pub relay_for: RelayFor = RelayFor::Authenticated, ANY;
        /// Stay in the path of later requests of a call (RFC 3261 section 16.6 step 4).
        pub record_route: bool = true, ANY;
        /// Lifetime of the route tokens and seals that the server writes into a call, by which later requests of the call are accepted without a
        /// password. The token in Record-Route is valid from the start of the call, the seal of a Contact from its message. A refresh of the call
        /// within this time (RFC 4028) renews them; a request after this time needs a password like the first request.
        pub route_lifetime: Duration = Duration::from_secs(86_400), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Max-Forwards given to a request that has none (RFC 3261 section 16.6 step 3).
        pub max_forwards: u8 = 70, Rule::number(1, 255);
        /// Order in which the contacts of a user ring (RFC 3261 section 16.6).
        pub fork: Fork = Fork::ByQ, ANY;
        /// Longest ringing of one contact, or of one group of equal q, before the next contact or group is tried.
        pub fork_timeout: Duration = Duration::from_secs(20), Rule::time(Duration::from_secs(1), Duration::from_secs(600));
        /// Most branches of one request in all. Contacts and their addresses count, also sequential ones, and so do further branches of a request
        /// that returns to this server. If there are more contacts, those of the highest q are tried; a request that returns when no branches are
        /// left gets 440.
        pub max_branches: u16 = 64, Rule::number(1, 1_024);
        /// Handling of a CANCEL that matches no INVITE.
        pub unmatched_cancel: UnmatchedCancel = UnmatchedCancel::Answer, ANY;
        /// Status of the answer to a request for a user who exists but is not registered.
        pub unregistered_status: u16 = 480, Rule::number(400, 699);
        /// Skip contacts whose devices do not support the method of the request, as their REGISTER says (`methods` of the Contact, RFC 3840, or
        /// Allow).
        pub method_filter: bool = false, ANY;
        /// Status of the answer if `method_filter` leaves no contact.
        pub unfit_status: u16 = 405, Rule::number(400, 699);
        /// Size above which a request is sent by TCP (RFC 3261 section 18.1.1). If no connection is established within 0.3 s, it is sent by UDP, and
        /// for ten minutes large requests to this peer are sent by UDP at once. A request to a phone stays on the flow of its binding.
        pub udp_to_tcp_above: Option<usize> = Some(1_300), Rule::bytes(200, 65_535).or("never");
        /// Networks that any peer may name as a target, by a Request-URI, Route, Contact or Path, independent of the address that it sends from; for
        /// private networks that peers of other networks must reach. Otherwise a peer must not name an address of a narrower scope than its own
        /// (loopback, link-local, private), a multicast address, or a port of this machine that is no listener of this server; a peer on this machine
        /// may name such a port. Databases, caches, `control.listen` and `metrics.listen` remain forbidden as targets, and so do other ports of this
        /// machine, unless an entry is a single address of this machine or a loopback network. WebSocket peers count as peers of other networks.
        /// Targets that this file names (rules, gateways, networks of a `[[source]]`), and devices at the address that they send from, need no entry.
        pub reachable: Vec<Network> = Vec::new(), ANY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_the_configuration() {
        for text in ["sip:a.org", "sips:edge.example.org:5061;lr", "sip:112@psap.example.org", "sip:[::1]:5060"] {
            assert!(SipUri::from_text(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "a.org",
            "<sip:a.org>",
            "http://a.org",
            "tel:+112",
            "sip:",
            "sip:a b",
            "sip:user@",
            "sip:;lr",
            "sip:a.org\r\nX: y",
        ] {
            assert!(SipUri::from_text(text).is_err(), "{text}");
        }
    }
}
