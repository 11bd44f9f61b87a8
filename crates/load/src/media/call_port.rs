//! Sockets of single calls (`[auto_media_port]`), of which one thread reads.

use super::hearing::Ear;
use super::tally::Tally;
use hashbrown::HashMap;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strowger_net::datagrams;
use strowger_net::ready_set::ReadySet;

/// Distance of the ports of two calls: RTP and RTCP of audio and of video.
pub(super) const APART: u16 = 4;

/// Distance of the video port from the audio port.
pub(super) const VIDEO: u16 = 2;

/// Streams that the socket of a call judges at once. A call has one or two, and a few more if its peer changes.
const STREAMS: usize = 16;

/// Audio or video socket of an open call.
pub(super) struct CallPort {
    pub(super) port: u16,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) ear: Ear,
    /// Drops of the socket that were counted.
    drops: AtomicU32,
}

impl CallPort {
    /// Counts the datagrams that the kernel has dropped since the last call. The streams of the call then have no figures.
    pub(super) fn count_drops(&self, tally: &Tally) {
        let now = datagrams::drops(&self.socket);
        let drops = now.wrapping_sub(self.drops.swap(now, Relaxed));
        if drops > 0 {
            tally.heard.drops.fetch_add(u64::from(drops), Relaxed);
            self.ear.streams().damage(0);
        }
    }
}

type Ports = HashMap<u16, Arc<CallPort>, foldhash::fast::RandomState>;

/// Sockets of all open calls by their ports.
pub(super) struct CallPorts {
    set: ReadySet,
    ports: Mutex<Ports>,
    /// Port given last to a call that did not get the port of its number.
    last: AtomicU16,
}

impl CallPorts {
    /// Creates an empty table.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { set: ReadySet::new()?, ports: Mutex::default(), last: AtomicU16::new(0) })
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read from a port for a call. `socket` opens the socket of a port that no call has.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if an open call has the port; the error of `socket`; the kernel has no room for one more.
    pub(super) fn open(
        &self,
        port: u16,
        is_audio: bool,
        socket: impl FnOnce() -> io::Result<Arc<UdpSocket>>,
    ) -> io::Result<Arc<CallPort>> {
        let mut ports = self.ports();
        if ports.contains_key(&port) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let socket = socket()?;
        self.set.add(socket.as_fd(), u64::from(port))?;
        let drops = AtomicU32::new(datagrams::drops(&socket));
        let open = Arc::new(CallPort { port, socket, ear: Ear::of_call(is_audio, STREAMS), drops });
        ports.insert(port, open.clone());
        Ok(open)
    }

    /// Ends the reading from the port of a call. A stream that is still played may keep the socket open: the next call of this port adds the
    /// same socket to the set again, so this socket leaves the set before the port is free.
    pub(super) fn close(&self, open: &CallPort) {
        let mut ports = self.ports();
        self.set.remove(open.socket.as_fd());
        ports.remove(&open.port);
    }

    /// Returns the next port for a call that does not get the port of its number: ports above `base`, four apart, in turn.
    pub(super) fn next(&self, base: u16) -> u16 {
        let first = base.saturating_add(APART);
        let next = self.last.load(Relaxed).max(base).checked_add(APART);
        // The ports of RTCP and video are above.
        let next = next.filter(|port| *port <= u16::MAX - (APART - 1)).unwrap_or(first);
        self.last.store(next, Relaxed);
        next
    }

    /// Counts the drops of all open sockets.
    pub(super) fn count_drops(&self, tally: &Tally) {
        let open: Vec<Arc<CallPort>> = self.ports().values().cloned().collect();
        open.iter().for_each(|port| port.count_drops(tally));
    }

    /// Waits for readable sockets, at most for `limit`, and appends them.
    ///
    /// # Errors
    /// Errors of the system call.
    pub(super) fn wait(
        &self,
        limit: Duration,
        names: &mut Vec<u64>,
        readable: &mut Vec<Arc<CallPort>>,
    ) -> io::Result<()> {
        names.clear();
        self.set.wait(limit, names)?;
        let ports = self.ports();
        let port = |name: &u64| ports.get(&u16::try_from(*name).ok()?).cloned();
        readable.extend(names.iter().filter_map(port));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const LIMIT: Duration = Duration::from_secs(5);

    fn socket(receive_buffer: usize) -> Arc<UdpSocket> {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Arc::new(datagrams::bind(address, receive_buffer, 4_096).expect("a port is free"))
    }

    /// Returns how many sockets are readable once a datagram has come to this one.
    fn readable(ports: &CallPorts, socket: &UdpSocket) -> usize {
        socket.send_to(b"x", socket.local_addr().expect("it is bound")).expect("it is sent");
        let mut readable = Vec::new();
        ports.wait(LIMIT, &mut Vec::new(), &mut readable).expect("the set can be read");
        socket.recv(&mut [0; 9]).expect("it came");
        readable.len()
    }

    #[test]
    fn a_port_is_of_one_call_and_is_read_in_the_next_call_too() {
        let ports = CallPorts::new().expect("descriptors are left");
        // A player may hold the socket after the end of the call.
        let socket = socket(65_536);
        let open = |port: u16| ports.open(port, true, || Ok(socket.clone()));
        let first = open(6_004).expect("no call has it");
        assert_eq!(open(6_004).err().map(|error| error.kind()), Some(ErrorKind::AddrInUse));
        assert_eq!(readable(&ports, &socket), 1);
        ports.close(&first);
        // The reading thread may still hold the first one.
        let second = open(6_004).expect("the call has ended");
        assert!(!Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(readable(&ports, &socket), 1);
    }

    #[test]
    fn other_ports_follow_in_turn() {
        let ports = CallPorts::new().expect("descriptors are left");
        assert_eq!([0; 3].map(|_| ports.next(65_520)), [65_524, 65_528, 65_532]);
        assert_eq!([0; 2].map(|_| ports.next(65_520)), [65_524, 65_528]);
    }

    #[test]
    fn dropped_datagrams_are_counted_once() {
        let ports = CallPorts::new().expect("descriptors are left");
        let (tally, socket) = (Tally::new(), socket(4_096));
        let flood = || {
            for _ in 0..20 {
                socket.send_to(&[0; 1_000], socket.local_addr().expect("it is bound")).expect("it is sent");
            }
        };
        let counted = || tally.heard.drops.load(Relaxed);
        flood();
        // These were of an earlier call.
        let open = ports.open(6_004, true, || Ok(socket.clone())).expect("no call has it");
        open.count_drops(&tally);
        assert_eq!(counted(), 0);
        flood();
        ports.count_drops(&tally);
        assert_eq!(counted(), 20);
        open.count_drops(&tally);
        assert_eq!(counted(), 20);
    }
}
