//! Selection of received datagrams to echo.

use hashbrown::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Selection of datagrams to echo.
pub(super) struct Mirror {
    /// True if all are echoed.
    pub(super) all: AtomicBool,
    /// True if there are peers whose datagrams are echoed; read before the lock is taken.
    some: AtomicBool,
    peers: Mutex<HashSet<SocketAddr, foldhash::fast::RandomState>>,
}

impl Mirror {
    pub(super) fn new(all: bool) -> Self {
        Self { all: AtomicBool::new(all), some: AtomicBool::new(false), peers: Mutex::default() }
    }

    /// Switches the echo for this peer.
    pub(super) fn set(&self, peer: SocketAddr, on: bool) {
        let mut peers = self.peers.lock().unwrap_or_else(|e| e.into_inner());
        if on {
            peers.insert(peer);
        } else {
            peers.remove(&peer);
        }
        self.some.store(!peers.is_empty(), Relaxed);
    }

    /// Tells whether the datagrams of all peers are echoed.
    pub(super) fn wants_all(&self) -> bool {
        self.all.load(Relaxed)
    }

    /// Tells whether a scenario has chosen the echo for this peer.
    pub(super) fn has_chosen(&self, peer: SocketAddr) -> bool {
        self.some.load(Relaxed) && self.peers.lock().unwrap_or_else(|e| e.into_inner()).contains(&peer)
    }
}
