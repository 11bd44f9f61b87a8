//! Addresses and time limits of a cache on another machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::servers::{Credentials, Endpoint, Service};
use rustls::ClientConfig;

/// Addresses of servers, the newest last.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Vec<SocketAddr>>);

impl Peers {
    /// Maximum number of addresses in the list, more than any cluster has.
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

/// Settings of a cache in other processes.
#[derive(Clone)]
pub struct RemoteSettings {
    /// Name in the log and of the thread.
    pub name: String,
    /// Protocol, and arrangement of the servers.
    pub service: Service,
    /// Servers; at least one.
    pub servers: Vec<Endpoint>,
    /// Deadline of a request, after which its ticket comes back with
    /// [`CacheError::TimedOut`](crate::error::CacheError::TimedOut), kept within 50 ms; also the limit for opening a
    /// connection.
    pub timeout: Duration,
    /// Connections of the engine's thread to each server; a shard with its own connections has one each. Requests for
    /// one key use one connection, in order.
    pub connections: usize,
    /// Maximum number of requests waiting or in flight.
    pub queue: usize,
    /// Number of missed deadlines in a row after which a connection is closed, and further requests fail at once.
    pub misses: u32,
    /// Longest pause between two attempts to reach a server; the first pauses are shorter.
    pub pause: Duration,
    /// Maximum size of a key, in bytes.
    pub key: usize,
    /// Maximum size of a value, in bytes. Memcached by default refuses 1 MiB and more.
    pub value: usize,
    /// True if early loss of an entry is harmful, so that a server that may evict it deserves a warning.
    pub is_relied_upon: bool,
    /// Credentials for the servers.
    pub credentials: Option<Credentials>,
    /// Addresses of connections, including servers named by a Sentinel or a cluster.
    pub peers: Arc<Peers>,
    /// TLS, with the authorities that must have signed the servers' certificates.
    pub tls: Option<Arc<ClientConfig>>,
}

impl RemoteSettings {
    /// Returns the defaults for these servers.
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
