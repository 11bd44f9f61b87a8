//! Addresses of this machine and of the services that the server uses, read again and again: both change while it runs.

use crate::caches::Caches;
use crate::identity::{identity, identity_again};
use crate::reload::Running;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use strowger_config::Config;
use strowger_core::routing::Identity;
use strowger_net::clock;

/// How often interfaces are read, and names that could not be resolved are tried again.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long addresses of a name are taken for true.
const FRESH: Duration = Duration::from_secs(30);
/// How long a name may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Addresses of a name, and when they were read.
type Resolved = (Vec<SocketAddr>, Instant);

/// Addresses of databases, caches, control and metrics.
pub(crate) struct ServiceAddresses {
    /// Bound addresses for control and metrics.
    bound: Vec<SocketAddr>,
    caches: Arc<Caches>,
    /// Addresses by host name and port.
    names: Mutex<HashMap<(String, u16), Resolved>>,
}

impl ServiceAddresses {
    /// Resolves the names of this configuration, as far as that takes no more than two seconds.
    pub(crate) fn new(config: &Config, bound: Vec<SocketAddr>, caches: Arc<Caches>) -> Self {
        let this = Self { bound, caches, names: Mutex::default() };
        let (found, answers) = mpsc::channel();
        let names = this.stale(config);
        for name in names.iter().cloned() {
            let found = found.clone();
            // The system's own resolver cannot be told to end.
            let _ = std::thread::Builder::new().name("service name".into()).spawn(move || {
                let addresses = name.to_socket_addrs().map(Iterator::collect);
                let _ = found.send((name, addresses.unwrap_or_default()));
            });
        }
        drop(found);
        let end = Instant::now() + LIMIT;
        while let Ok((name, addresses)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            this.learn(name, addresses);
        }
        this
    }

    /// Known addresses of the services of this configuration.
    pub(crate) fn of(&self, config: &Config) -> Vec<SocketAddr> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = literal(config);
        let resolved = config.services().into_iter().filter_map(|service| names.get(&service));
        addresses.extend(resolved.flat_map(|(addresses, _)| addresses));
        addresses.extend(&self.bound);
        addresses.extend(self.caches.peers());
        addresses
    }

    /// Names without addresses, or with such as may have changed.
    fn stale(&self, config: &Config) -> Vec<(String, u16)> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut services = config.services();
        services.sort_unstable();
        services.dedup();
        services.retain(|service| {
            service.0.parse::<IpAddr>().is_err() && names.get(service).is_none_or(|(_, at)| at.elapsed() >= FRESH)
        });
        services
    }

    /// A name that has no address now keeps those that it had.
    fn learn(&self, name: (String, u16), addresses: Vec<SocketAddr>) {
        if !addresses.is_empty() {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(name, (addresses, Instant::now()));
        }
    }

    async fn resolve(&self, config: &Config) {
        for name in self.stale(config) {
            let found = tokio::time::timeout(LIMIT, tokio::net::lookup_host(name.clone())).await;
            if let Ok(Ok(addresses)) = found {
                self.learn(name, addresses.collect());
            }
        }
    }

    /// Identity of a server with this configuration and these bound addresses.
    pub(crate) fn identity(&self, config: &Config, bound: &[SocketAddr]) -> Identity {
        identity(config, bound, &self.of(config))
    }
}

/// Services of this configuration that need no look-up.
pub(crate) fn literal(config: &Config) -> Vec<SocketAddr> {
    let address = |(host, port): (String, u16)| Some(SocketAddr::new(host.parse().ok()?, port));
    config.services().into_iter().filter_map(address).collect()
}

/// Has new requests go by the addresses of now, whenever they are others than before.
pub(crate) async fn keep_up(running: Running) {
    loop {
        clock::beat(INTERVAL).await;
        let policy = running.shared.policy();
        running.services.addresses.resolve(&policy.config).await;
        let addresses = running.services.addresses.of(&policy.config);
        if identity_again(&policy, &addresses).machine() == policy.identity().machine() {
            continue;
        }
        let job = running.clone();
        running.services.policies.submit(move || {
            let policy = job.shared.policy();
            let addresses = job.services.addresses.of(&policy.config);
            job.shared.set_identity(identity_again(&policy, &addresses));
            job.wait_for_shards();
        });
    }
}
