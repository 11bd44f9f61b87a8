//! Where a cache on another machine is, and for how long it is waited for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::servers::{Credentials, Endpoint, Service};
use rustls::ClientConfig;

/// Addresses of servers, the newest last.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Vec<SocketAddr>>);

impl Peers {
    /// Bound of the list, beyond the size of any cluster.
    const MOST: usize = 1_024;

    pub(super) fn add(&self, address: SocketAddr) {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.contains(&address) {
            return;
        }
        if addresses.len() >= Self::MOST {
            addresses.remove(0);
        }
        addresses.push(address);
    }

    pub(super) fn list(&self) -> Vec<SocketAddr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A cache in other processes.
#[derive(Clone)]
pub struct RemoteSettings {
    /// What the log and the thread call it.
    pub name: String,
    /// What is spoken, and how its servers belong together.
    pub service: Service,
    /// Its servers; at least one.
    pub servers: Vec<Endpoint>,
    /// How long a request may take before its ticket comes back with [`CacheError::TimedOut`](crate::error::CacheError::TimedOut), kept within
    /// 50 ms; how long a connection may take until it can be used.
    pub timeout: Duration,
    /// Connections of the engine's thread to each server; one that asks by its own has one. Requests for one key take one connection, in their order.
    pub connections: usize,
    /// Most requests that wait or are under way.
    pub queue: usize,
    /// Requests in a row that were not answered in time after which a connection is given up, and further requests fail at once.
    pub misses: u32,
    /// Longest pause between two attempts to reach a server; the first are shorter.
    pub pause: Duration,
    /// Most bytes of a key.
    pub key: usize,
    /// Most bytes of a value. Memcached by default takes none of 1 MiB and more.
    pub value: usize,
    /// Whether an entry may be missing before its life ends only at a price, so that a server which may evict it is worth a warning.
    pub is_relied_upon: bool,
    /// What servers are shown.
    pub credentials: Option<Credentials>,
    /// Addresses of connections, also to servers that a Sentinel or a cluster named.
    pub peers: Arc<Peers>,
    /// TLS, with the authorities that servers must be signed by.
    pub tls: Option<Arc<ClientConfig>>,
}

impl RemoteSettings {
    /// The defaults, for these servers.
    pub fn new(service: Service, servers: Vec<Endpoint>) -> Self {
        Self {
            name: "cache".into(),
            service,
            servers,
            timeout: Duration::from_millis(500),
            connections: 2,
            queue: 10_000,
            misses: 5,
            pause: Duration::from_secs(1),
            key: 1024,
            value: 1_000_000,
            is_relied_upon: false,
            credentials: None,
            peers: Arc::default(),
            tls: None,
        }
    }
}
