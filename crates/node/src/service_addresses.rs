//! Addresses of the services that the server uses and of its advertised names.

use crate::caches::Caches;
use crate::identity::{Guarded, identity};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use strowger_config::Config;
use strowger_core::routing::Identity;

/// Lifetime of the addresses of a name, and of a failure to resolve an advertised name.
const FRESH: Duration = Duration::from_secs(30);
/// Longest time for one name.
const LIMIT: Duration = Duration::from_secs(2);

/// Addresses of a name, and the time of their look-up.
type Resolved = (Vec<SocketAddr>, Instant);

/// Addresses of databases, caches, control and metrics, and of advertised names.
pub(crate) struct ServiceAddresses {
    /// Bound addresses of control and metrics.
    bound: Vec<SocketAddr>,
    caches: Arc<Caches>,
    /// Addresses by host name and port.
    names: Mutex<HashMap<(String, u16), Resolved>>,
    /// Addresses of advertised names, and the time of their look-up.
    advertised: Mutex<HashMap<String, (Vec<IpAddr>, Instant)>>,
}

impl ServiceAddresses {
    /// Resolves the names of this configuration, for at most two seconds.
    pub(crate) fn new(config: &Config, bound: Vec<SocketAddr>, caches: Arc<Caches>) -> Self {
        let this = Self { bound, caches, names: Mutex::default(), advertised: Mutex::default() };
        let (found, answers) = mpsc::channel();
        let names = this.stale(config);
        for name in names.iter().cloned() {
            let found = found.clone();
            // The resolver of the system cannot be cancelled.
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

    /// Returns the known addresses of the services and advertised names of this configuration.
    pub(crate) fn of(&self, config: &Config) -> Guarded {
        let known = self.advertised.lock().unwrap_or_else(PoisonError::into_inner);
        let of_name = |name: &str| known.get(name).map_or(Vec::new(), |(addresses, _)| addresses.clone());
        Guarded { services: self.of_services(config), advertised: advertised(config).flat_map(of_name).collect() }
    }

    fn of_services(&self, config: &Config) -> Vec<SocketAddr> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = literal(config);
        let resolved = config.services().into_iter().filter_map(|service| names.get(&service));
        addresses.extend(resolved.flat_map(|(addresses, _)| addresses));
        addresses.extend(&self.bound);
        addresses.extend(self.caches.peers());
        addresses
    }

    /// Returns names without addresses, or with outdated ones.
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

    /// Stores the new addresses of a name. A name for which none were found keeps its earlier addresses.
    fn learn(&self, name: (String, u16), addresses: Vec<SocketAddr>) {
        if !addresses.is_empty() {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(name, (addresses, Instant::now()));
        }
    }

    pub(crate) async fn resolve(&self, config: &Config) {
        for name in self.stale(config) {
            let found = tokio::time::timeout(LIMIT, tokio::net::lookup_host(name.clone())).await;
            if let Ok(Ok(addresses)) = found {
                self.learn(name, addresses.collect());
            }
        }
        for name in advertised(config) {
            let known = self.advertised_addresses(name);
            if known.as_ref().is_some_and(|(_, at)| at.elapsed() < FRESH) {
                continue;
            }
            let found = tokio::time::timeout(LIMIT, tokio::net::lookup_host((name, 0))).await;
            let found = found.ok().and_then(Result::ok).map(|found| found.map(|address| address.ip()).collect());
            let addresses = found.or_else(|| known.map(|(addresses, _)| addresses)).unwrap_or_default();
            let mut names = self.advertised.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(name.to_owned(), (addresses, Instant::now()));
        }
    }

    fn advertised_addresses(&self, name: &str) -> Option<(Vec<IpAddr>, Instant)> {
        self.advertised.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns the identity of a server with this configuration and these bound addresses.
    pub(crate) fn identity(&self, config: &Config, bound: &[SocketAddr]) -> Identity {
        identity(config, bound, &self.of(config))
    }
}

/// Returns the advertised names of listeners. Addresses need no look-up.
fn advertised(config: &Config) -> impl Iterator<Item = &str> {
    let hosts = config.listeners.iter().filter_map(|listener| Some(listener.advertise.as_ref()?.host.as_str()));
    hosts.filter(|host| !host.starts_with('[') && host.parse::<IpAddr>().is_err())
}

/// Returns the services of this configuration that need no look-up.
pub(crate) fn literal(config: &Config) -> Vec<SocketAddr> {
    let address = |(host, port): (String, u16)| Some(SocketAddr::new(host.parse().ok()?, port));
    config.services().into_iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    #[test]
    fn advertised_names_are_looked_up() {
        let listener = |port: u16, host: &str| {
            format!(
                "[[listener]]\ntransport = \"udp\"\naddress = \"127.0.0.1\"\nport = {port}\nadvertise = \"{host}\"\n"
            )
        };
        let text =
            [listener(5060, "localhost:5070"), listener(5061, "192.0.2.1"), listener(5062, "[2001:db8::1]")].concat();
        let read = Config::read(Source { text: &text, ..Source::default() });
        let (config, _) = read.unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(advertised(&config).collect::<Vec<_>>(), ["localhost"]);
        let addresses = ServiceAddresses::new(&config, Vec::new(), Arc::default());
        assert!(addresses.of(&config).advertised.is_empty());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(addresses.resolve(&config));
        let found = addresses.of(&config).advertised;
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
