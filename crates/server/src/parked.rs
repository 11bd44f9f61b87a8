//! Requests that wait for something slow.

use crate::registration_log::{Changes, Sender};
use std::net::SocketAddr;
use strowger_core::transaction::ServerId;
use strowger_core::{Arrival, PeerName, Target, Transport};
use strowger_store::subscriber::{Answer, LookupError};

/// What waits under a ticket.
#[derive(Debug)]
pub(crate) enum Parked {
    /// A request: it is looked at again with what was found.
    Request(Box<Waiting>),
    /// The answers to a REGISTER whose bindings are being written.
    Registration(Box<Registration>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    pub(crate) call_hash: u32,
    /// Its transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    pub(crate) found: Found,
}

#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) ok: Vec<u8>,
    pub(crate) failed: Vec<u8>,
    pub(crate) target: Option<Target>,
    /// For the log.
    pub(crate) aor: String,
    /// What is logged when it is kept, if anything is.
    pub(crate) log: Option<(Changes, Sender)>,
}

/// A name to resolve: host in lower case, port, transport, sips.
pub(crate) type HostKey = (Box<[u8]>, Option<u16>, Option<Transport>, bool);

/// Where a name leads.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub(crate) targets: Vec<(Transport, SocketAddr)>,
    /// What those of secure transports must prove: the name that was asked for, not one that it led to (RFC 5922 section 7.2).
    pub(crate) name: Option<PeerName>,
}

/// What look-ups of this request have found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) subscriber: Option<Result<Answer, LookupError>>,
    pub(crate) exists: Option<Result<Answer, LookupError>>,
    /// The look-up under way asks whether a user exists, not for a credential.
    pub(crate) asks_existence: bool,
    pub(crate) names: Vec<(HostKey, Resolved)>,
    /// Credentials were verified: a nonce counts once, so they must not be verified again.
    pub(crate) authenticated: bool,
    /// The credentials were right, but had been used before: nothing may change.
    pub(crate) replayed: bool,
    /// Its mark or seal proved that it goes to the other party of a call.
    pub(crate) in_dialog: bool,
    /// A 100 was sent.
    pub(crate) trying: bool,
}

impl Found {
    pub(crate) fn note_subscriber(&mut self, result: Result<Answer, LookupError>) {
        if self.asks_existence {
            self.exists = Some(result);
        } else {
            self.subscriber = Some(result);
        }
    }

    pub(crate) fn name(&self, key: &HostKey) -> Option<&Resolved> {
        self.names.iter().find(|(k, _)| k == key).map(|(_, resolved)| resolved)
    }
}
