//! Wait of messages of connections before a shard serves them. It is measured only while the shard is busy with connections.
//!
//! *Many connections*: a probe, which is a task that is woken and waits for its turn as a connection does that has become readable. The
//! shard is busy if it has read many connections between two rounds; if not, no connection waits.
//!
//! *One connection* that has more messages than a turn takes: time stamps of the kernel. One such connection is measured at a time, since all
//! of them share the turns.

use crate::queue_delay::QueueDelay;
use std::os::fd::BorrowedFd;
use std::task::Waker;

/// Number of reads between two rounds from which on the shard is busy with connections. The runtime runs about 60 tasks between two rounds.
const BUSY: u32 = 32;

/// Time for which a result is used, in milliseconds.
const VALID: u64 = 100;

/// Slot and generation of a connection.
type Name = (u32, u32);

/// Measured wait of connections.
#[derive(Debug, Default)]
pub(crate) struct StreamWait {
    /// Waker of the probe.
    waker: Option<Waker>,
    /// Time at which the probe was woken; `None` if it has had its turn. Times are those of [`strowger_core::Now::mono`].
    woken: Option<u64>,
    /// Wait of the last probe in microseconds, and the time of its turn.
    wait: u64,
    ended: u64,
    /// Reads since the last round.
    reads: u32,
    /// Connection that is measured by time stamps, and the time of its last turn.
    connection: Option<(Name, u64)>,
    delay: QueueDelay,
    /// Last time stamp of its data.
    stamp: Option<i64>,
}

impl StreamWait {
    /// Notes that a connection was read at `now`, and wakes the probe if the shard is busy, once a millisecond at most.
    #[inline]
    pub(crate) fn read(&mut self, now: u64) {
        self.reads += 1;
        if self.reads >= BUSY && self.woken.is_none() && now > self.ended {
            self.wake(now);
        }
    }

    fn wake(&mut self, now: u64) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
            self.woken = Some(now);
        }
    }

    /// Notes the turn of the probe.
    pub(crate) fn probed(&mut self, now: u64, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        if let Some(woken) = self.woken.take() {
            (self.wait, self.ended) = (now.saturating_sub(woken) * 1_000, now);
        }
    }

    /// Begins a round. Returns the wait of the oldest unserved message of connections in microseconds; `None` if no connection waits.
    #[inline]
    pub(crate) fn round(&mut self, now: u64) -> Option<u64> {
        let is_busy = std::mem::take(&mut self.reads) >= BUSY;
        if !is_busy && self.connection.is_none() {
            return None;
        }
        let waits = self.woken.map(|woken| now.saturating_sub(woken) * 1_000);
        let waited = (now.saturating_sub(self.ended) <= VALID).then_some(self.wait);
        let in_connection =
            self.connection.filter(|(_, at)| now.saturating_sub(*at) <= VALID).map(|_| self.delay.age());
        waits.max(waited).filter(|_| is_busy).max(in_connection)
    }

    /// Tells whether the data of this connection have time stamps.
    #[inline]
    pub(crate) fn is_of(&self, name: Name) -> bool {
        self.connection.is_some_and(|(measured, _)| measured == name)
    }

    /// Notes the end of a turn of a connection. `full`: whether it has more data than the turn took; `stamp`: last time stamp of the data
    /// that were read.
    #[cold]
    pub(crate) fn turn_ended(&mut self, name: Name, socket: BorrowedFd<'_>, full: bool, stamp: Option<i64>, now: u64) {
        if !self.is_of(name) {
            let is_free = self.connection.is_none_or(|(_, at)| now.saturating_sub(at) > VALID) || self.delay.age() == 0;
            if !full || !is_free {
                return;
            }
            (self.delay, self.stamp) = (QueueDelay::new(false), None);
        }
        self.connection = Some((name, now));
        self.stamp = stamp.or(self.stamp);
        self.delay.measure(socket, full, self.stamp, now);
        if !full && !self.delay.is_measured() {
            self.connection = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn read(wait: &mut StreamWait, connections: u32, now: u64) {
        (0..connections).for_each(|_| wait.read(now));
    }

    #[test]
    fn a_probe_waits_as_long_as_connections_do() {
        let mut wait = StreamWait::default();
        wait.probed(5, Waker::noop());
        read(&mut wait, BUSY - 1, 10);
        assert_eq!((wait.round(10), wait.woken), (None, None));
        read(&mut wait, BUSY, 20);
        assert_eq!((wait.woken, wait.round(27)), (Some(20), Some(7_000)));
        read(&mut wait, BUSY, 30);
        wait.probed(32, Waker::noop());
        assert_eq!((wait.woken, wait.round(33)), (None, Some(12_000)));
        // The next probe is woken in another millisecond.
        read(&mut wait, BUSY, 32);
        assert_eq!(wait.woken, None);
        wait.read(33);
        assert_eq!((wait.woken, wait.round(34)), (Some(33), Some(12_000)));
        // The shard has read all connections.
        read(&mut wait, BUSY - 1, 40);
        assert_eq!(wait.round(40), None);
    }

    #[test]
    fn one_full_connection_is_measured_until_it_is_idle() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut wait = StreamWait::default();
        let turn = |wait: &mut StreamWait, name, full, now| wait.turn_ended(name, socket.as_fd(), full, None, now);
        turn(&mut wait, (1, 1), false, 10);
        assert!(!wait.is_of((1, 1)) && wait.round(10).is_none());
        turn(&mut wait, (1, 1), true, 20);
        assert!(wait.is_of((1, 1)));
        assert_eq!(wait.round(20), Some(0));
        // Without a wait another connection may be measured.
        turn(&mut wait, (2, 1), true, 30);
        assert!(wait.is_of((2, 1)) && !wait.is_of((1, 1)));
        turn(&mut wait, (2, 1), false, 40);
        assert_eq!((wait.is_of((2, 1)), wait.round(40)), (true, Some(0)));
        // It may have been closed.
        assert_eq!(wait.round(41 + VALID), None);
        turn(&mut wait, (2, 1), false, 20_000);
        assert!(!wait.is_of((2, 1)) && wait.round(20_000).is_none());
    }
}
