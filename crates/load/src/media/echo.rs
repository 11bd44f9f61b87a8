//! Thread of a media socket: receives datagrams and sends back those to be echoed.

use super::settings::Settings;
use super::tally::Tally;
use hashbrown::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strowger_net::datagrams::{Incoming, Outgoing};

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

    fn wants(&self, peer: SocketAddr) -> bool {
        self.all.load(Relaxed)
            || self.some.load(Relaxed) && self.peers.lock().unwrap_or_else(|e| e.into_inner()).contains(&peer)
    }
}

/// Longest time until the thread notices `stopping`.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs on its own thread until `stopping`. `place`: 0 is the audio socket, 1 the video socket.
pub(super) fn run(
    socket: &UdpSocket,
    place: usize,
    mirror: &Mirror,
    tally: &Tally,
    settings: &Settings,
    stopping: impl Fn() -> bool,
) {
    let mut incoming = Incoming::new(settings.batch);
    let mut out = Outgoing::new(settings.batch);
    if let Err(error) = socket.set_read_timeout(Some(PATIENCE)) {
        tracing::warn!(%error, "the media socket cannot be read");
        return;
    }
    while !stopping() {
        let Ok(n) = incoming.receive(socket) else {
            // Waits for a datagram without taking it, which also clears an error of an earlier send.
            let _ = socket.peek(&mut [0]);
            continue;
        };
        let mut bytes = 0;
        for i in 0..n {
            let Some((datagram, peer)) = incoming.datagram(i) else { continue };
            bytes += datagram.len() as u64;
            if mirror.wants(peer) {
                out.push(peer, |out| out.extend_from_slice(datagram));
            }
        }
        tally.received.fetch_add(n as u64, Relaxed);
        tally.received_bytes.fetch_add(bytes, Relaxed);
        if !out.is_empty() {
            let sent = out.send(socket);
            tally.echoed[place].fetch_add(sent.datagrams, Relaxed);
            tally.echoed_bytes[place].fetch_add(sent.bytes, Relaxed);
            tally.failures.fetch_add(sent.failed, Relaxed);
        }
    }
}
