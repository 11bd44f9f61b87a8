//! Directory of the connections of all shards, by target.

use crate::partition::{self, PARTS};
use crate::peer_names::PeerNames;
use crate::verified_certificate::VerifiedCertificate;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use strowger_core::{Flow, PeerName, Target, Transport};

/// Process-wide; its locks are held for a look-up only, never across I/O.
pub(crate) struct Directory {
    places: [Mutex<Partition>; PARTS],
    names: Arc<PeerNames>,
}

/// Connections by target.
#[derive(Default)]
struct Partition {
    /// Connections made by this side, by server name; also aliases of unencrypted connections.
    by_name: HashMap<(Transport, SocketAddr, Option<PeerName>), Flow>,
    /// Secure connections with an alias requested by the peer, and the peer's certificate.
    aliases: HashMap<(Transport, SocketAddr), (Flow, Arc<VerifiedCertificate>)>,
}

impl Directory {
    pub(crate) fn new(names: Arc<PeerNames>) -> Self {
        Self { places: Default::default(), names }
    }

    /// Returns the connection for this target: a connection that was made for the name of the target, or whose peer has
    /// proved that name.
    pub(crate) fn find(&self, target: &Target) -> Option<Flow> {
        self.places(target.address).find(target, &self.names)
    }

    /// Returns the connection to this target. If there is no connection, or only `stale`, stores the connection that
    /// `make` makes. The second value tells whether it was made.
    pub(crate) fn find_or(&self, target: &Target, stale: Option<Flow>, make: impl FnOnce() -> Flow) -> (Flow, bool) {
        let mut places = self.places(target.address);
        match places.find(target, &self.names) {
            Some(flow) if Some(flow) != stale => (flow, false),
            _ => {
                let flow = make();
                places.by_name.insert((target.transport, target.address, target.name), flow);
                (flow, true)
            }
        }
    }

    /// Removes a connection from this target, because the connection has ended or serves another address.
    pub(crate) fn forget(&self, of: Transport, to: SocketAddr, name: Option<PeerName>, flow: Flow) {
        let mut places = self.places(to);
        if places.by_name.get(&(of, to, name)) == Some(&flow) {
            places.by_name.remove(&(of, to, name));
        }
        if of.is_secure() && places.aliases.get(&(of, to)).is_some_and(|(known, _)| *known == flow) {
            places.aliases.remove(&(of, to));
        }
    }

    /// Directs messages for this address to that connection, until it is [forgotten](Self::forget). Returns whether
    /// this is a change. Must not be used for secure connections; see [`Directory::add_verified_alias`].
    pub(crate) fn add_alias(&self, of: Transport, to: SocketAddr, flow: Flow) -> bool {
        self.places(to).by_name.insert((of, to, None), flow) != Some(flow)
    }

    /// Adds an alias of a secure connection, only for messages whose peer name the certificate proves.
    pub(crate) fn add_verified_alias(
        &self,
        of: Transport,
        to: SocketAddr,
        flow: Flow,
        certificate: Arc<VerifiedCertificate>,
    ) {
        self.places(to).aliases.insert((of, to), (flow, certificate));
    }

    /// Tells whether [`Directory::add_verified_alias`] has stored this connection.
    pub(crate) fn is_alias(&self, of: Transport, to: SocketAddr, flow: Flow) -> bool {
        self.places(to).aliases.get(&(of, to)).is_some_and(|(known, _)| *known == flow)
    }

    fn places(&self, of: SocketAddr) -> MutexGuard<'_, Partition> {
        lock(&self.places[partition::of(of.ip())])
    }
}

impl Partition {
    fn find(&self, target: &Target, names: &PeerNames) -> Option<Flow> {
        let Target { transport, address, name, .. } = *target;
        let alias = if transport.is_secure() { self.aliases.get(&(transport, address)) } else { None };
        let proven =
            alias.filter(|(_, certificate)| certificate.is_valid_for(name, address.ip(), names)).map(|(flow, _)| *flow);
        proven.or_else(|| self.by_name.get(&(transport, address, name)).copied())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    use strowger_core::ListenerId;

    fn flow(slot: u32) -> Flow {
        Flow { node: 0, process: 0, shard: 0, slot, generation: 1 }
    }

    fn directory() -> Directory {
        Directory::new(Arc::new(PeerNames::at_most(10)))
    }

    fn to(transport: Transport, address: &str) -> Target {
        Target::new(transport, ListenerId(0), address.parse().unwrap())
    }

    #[test]
    fn one_connection_for_one_address_and_an_alias_until_it_is_forgotten() {
        use Transport::{Tcp, Tls};
        let directory = directory();
        let [a, b] = ["192.0.2.1:5060", "192.0.2.1:5070"].map(|a| to(Tcp, a));
        assert_eq!(directory.find_or(&a, None, || flow(1)), (flow(1), true));
        assert_eq!(directory.find_or(&a, None, || unreachable!()), (flow(1), false));
        assert_eq!(directory.find_or(&Target { transport: Tls, ..a }, None, || flow(2)), (flow(2), true));
        assert!(directory.add_alias(Tcp, b.address, flow(1)) && !directory.add_alias(Tcp, b.address, flow(1)));
        assert_eq!(directory.find_or(&b, None, || unreachable!()), (flow(1), false));
        directory.forget(Tcp, b.address, None, flow(2));
        assert_eq!(directory.find_or(&b, None, || unreachable!()), (flow(1), false), "of another");
        directory.forget(Tcp, b.address, None, flow(1));
        assert_eq!(directory.find_or(&b, None, || flow(3)), (flow(3), true));
    }

    #[test]
    fn each_name_at_an_address_has_a_connection_of_its_own() {
        let directory = directory();
        let plain = to(Transport::Tls, "192.0.2.1:5061");
        let [a, b] = ["a.test", "b.test"].map(|n| Target { name: Some(directory.names.intern(n)), ..plain });
        for (n, target) in [plain, a, b].iter().enumerate() {
            assert_eq!(directory.find_or(target, None, || flow(n as u32)), (flow(n as u32), true));
        }
        directory.forget(a.transport, a.address, a.name, flow(1));
        assert_eq!([plain, a, b].map(|t| directory.find(&t)), [Some(flow(0)), None, Some(flow(2))]);
    }

    #[test]
    fn a_secure_alias_serves_whom_its_certificate_proves() {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned(), "192.0.2.1".to_owned()]).unwrap();
        let directory = directory();
        let plain = to(Transport::Tls, "192.0.2.1:5061");
        let [a, b] = ["a.test", "b.test"].map(|n| Target { name: Some(directory.names.intern(n)), ..plain });
        directory.add_verified_alias(
            plain.transport,
            plain.address,
            flow(7),
            Arc::new(VerifiedCertificate::new(made.cert.der().clone())),
        );
        assert!(directory.is_alias(plain.transport, plain.address, flow(7)));
        for _ in 0..2 {
            assert_eq!([plain, a, b].map(|t| directory.find(&t)), [Some(flow(7)), Some(flow(7)), None]);
        }
        assert_eq!(directory.find_or(&b, None, || flow(8)), (flow(8), true));
        let elsewhere = to(Transport::Tls, "192.0.2.2:5061");
        directory.add_verified_alias(
            plain.transport,
            elsewhere.address,
            flow(9),
            Arc::new(VerifiedCertificate::new(made.cert.der().clone())),
        );
        assert_eq!(directory.find(&elsewhere), None, "an address that it does not prove");
        directory.forget(plain.transport, plain.address, None, flow(7));
        assert_eq!([plain, a, b].map(|t| directory.find(&t)), [None, None, Some(flow(8))]);
    }
}
