//! Wait of messages of connections before a shard serves them. It is measured only while the shard is busy with connections.
//!
//! *Many connections*: their time in the [`ReadyQueue`](crate::ready_queue::ReadyQueue). The shard is busy if it reads many connections in a round,
//! or has left some; if not, no connection waits.
//!
//! *One connection* that has more messages than a turn takes: time stamps of the kernel. One such connection is measured at a time, since all
//! of them share the turns. Another one is measured when this one has no more data than a turn takes, or when they wait for a short time only.
//!
//! The turns of many full connections may take longer than a standstill of the shard. So the wait is also reported between them.

use crate::queue_delay::QueueDelay;
use std::os::fd::BorrowedFd;

/// Number of reads in a round from which on the shard is busy with connections.
const BUSY: u32 = 32;

/// Time for which the wait of a connection that was read is used, in milliseconds.
const VALID: u64 = 100;

/// Longest time between two turns of a connection that is measured, in milliseconds. All full connections have a turn in between.
const LONGEST_ROUND: u64 = 2_000;

/// Wait of a measured connection up to which another one is measured instead, in microseconds.
const SHORT: u64 = 5_000;

/// Time between two reports within a round that takes long, in milliseconds.
const REPORT_INTERVAL: u64 = 20;

/// Slot and generation of a connection.
type Name = (u32, u32);

/// Measured wait of connections.
#[derive(Debug, Default)]
pub(crate) struct StreamWait {
    /// Wait of the last connection that was read while the shard was busy, in microseconds, and the time of its turn. Times are those of
    /// [`strowger_core::Now::mono`].
    wait: u64,
    ended: u64,
    /// Reads since the last round.
    reads: u32,
    /// Begin of the last round, and time of the last report.
    round: u64,
    reported: u64,
    /// Connection that is measured by time stamps, and the time of its last turn.
    connection: Option<(Name, u64)>,
    delay: QueueDelay,
    /// Wait of the connection that was measured before. It stands for that of this one in its first turn: the shard is not idle.
    before: u64,
    /// Last time stamp of its data; `None` in its first turn.
    stamp: Option<i64>,
    /// True if its last turn left data.
    is_full: bool,
}

impl StreamWait {
    /// Notes that a connection was read at `now`, after it had waited for this number of milliseconds.
    #[inline]
    pub(crate) fn read(&mut self, now: u64, waited: u64) {
        self.reads += 1;
        if self.reads >= BUSY {
            (self.wait, self.ended) = (waited * 1_000, now);
        }
    }

    /// Begins a round. `queued`: wait of the first connection in the queue in milliseconds. Returns the wait of the oldest unserved message of
    /// connections in microseconds; `None` if no connection waits.
    #[inline]
    pub(crate) fn round(&mut self, now: u64, queued: Option<u64>) -> Option<u64> {
        let is_left = queued.is_some_and(|waits| waits > now.saturating_sub(self.round));
        (self.round, self.reported) = (now, now);
        let is_busy = std::mem::take(&mut self.reads) >= BUSY || is_left;
        self.oldest(now, is_busy, queued)
    }

    /// Returns a report that is due within a round: the wait, and the time since the round began, both in microseconds.
    #[inline]
    pub(crate) fn within_round(&mut self, now: u64, queued: Option<u64>) -> Option<(u64, u64)> {
        if now.saturating_sub(self.reported) < REPORT_INTERVAL {
            return None;
        }
        self.reported = now;
        let wait = self.oldest(now, self.reads >= BUSY, queued)?;
        Some((wait, now.saturating_sub(self.round) * 1_000))
    }

    #[inline]
    fn oldest(&self, now: u64, is_busy: bool, queued: Option<u64>) -> Option<u64> {
        if !is_busy && self.connection.is_none() {
            return None;
        }
        let waits = queued.map(|waits| waits * 1_000);
        let waited = (now.saturating_sub(self.ended) <= VALID).then_some(self.wait);
        let in_connection =
            self.connection.filter(|(_, at)| now.saturating_sub(*at) <= LONGEST_ROUND).map(|_| self.age());
        waits.max(waited).filter(|_| is_busy).max(in_connection)
    }

    /// Returns the wait of the measured connection.
    fn age(&self) -> u64 {
        let is_first_turn = self.stamp.is_none() && self.is_full;
        if is_first_turn { self.before } else { self.delay.age() }
    }

    /// Tells whether the data of this connection have time stamps.
    #[inline]
    pub(crate) fn is_of(&self, name: Name) -> bool {
        self.connection.is_some_and(|(measured, _)| measured == name)
    }

    /// Notes that a connection has ended.
    pub(crate) fn ended(&mut self, name: Name) {
        if self.is_of(name) {
            self.connection = None;
        }
    }

    /// Notes the end of a turn of a connection. `full`: whether it has more data than the turn took; `stamp`: last time stamp of the data
    /// that were read.
    #[cold]
    pub(crate) fn turn_ended(&mut self, name: Name, socket: BorrowedFd<'_>, full: bool, stamp: Option<i64>, now: u64) {
        if !self.is_of(name) {
            // The first turn of a connection gives no wait, so it must have a second one.
            let is_short = self.stamp.is_some() && self.delay.age() < SHORT;
            let is_lost = self.connection.is_none_or(|(_, at)| now.saturating_sub(at) > LONGEST_ROUND);
            let is_free = is_lost || is_short || !self.is_full;
            if !full || !is_free {
                return;
            }
            self.before = if is_lost { 0 } else { self.age() };
            (self.delay, self.stamp) = (QueueDelay::new(false), None);
        }
        self.connection = Some((name, now));
        self.stamp = stamp.or(self.stamp);
        self.is_full = full;
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

    fn read(wait: &mut StreamWait, connections: u32, now: u64, waited: u64) {
        (0..connections).for_each(|_| wait.read(now, waited));
    }

    #[test]
    fn connections_wait_in_the_queue_of_a_busy_shard() {
        let mut wait = StreamWait::default();
        read(&mut wait, BUSY - 1, 10, 4);
        assert_eq!(wait.round(10, Some(0)), None, "few connections");
        read(&mut wait, BUSY, 20, 5);
        assert_eq!(wait.round(21, None), Some(5_000), "the last one has waited");
        read(&mut wait, BUSY, 22, 6);
        assert_eq!(wait.round(23, Some(9)), Some(9_000), "one still waits");
        // The messages of few connections fill a round: others came before it and are left.
        read(&mut wait, 4, 24, 2);
        assert_eq!(wait.round(50, Some(40)), Some(40_000));
        // One that had its turn in the round waits for the next one.
        read(&mut wait, 4, 200, 2);
        assert_eq!(wait.round(202, Some(2)), None);
        read(&mut wait, BUSY, 210, 3);
        assert_eq!(
            wait.round(211 + VALID, Some(1)),
            Some(1_000),
            "the wait of those that were read is of another time"
        );
    }

    #[test]
    fn one_full_connection_is_measured_until_it_is_idle() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut wait = StreamWait::default();
        let turn = |wait: &mut StreamWait, name, full, now| wait.turn_ended(name, socket.as_fd(), full, None, now);
        turn(&mut wait, (1, 1), false, 10);
        assert!(!wait.is_of((1, 1)) && wait.round(10, None).is_none());
        turn(&mut wait, (1, 1), true, 20);
        assert!(wait.is_of((1, 1)));
        assert_eq!(wait.round(20, None), Some(0));
        // Its wait is not known yet. If it has no further data, another connection is measured.
        turn(&mut wait, (2, 1), true, 25);
        assert!(wait.is_of((1, 1)));
        turn(&mut wait, (1, 1), false, 28);
        turn(&mut wait, (2, 1), true, 30);
        assert!(wait.is_of((2, 1)) && !wait.is_of((1, 1)));
        turn(&mut wait, (2, 1), false, 40);
        assert_eq!((wait.is_of((2, 1)), wait.round(40, None)), (true, Some(0)));
        // It may have been closed.
        assert_eq!(wait.round(41 + LONGEST_ROUND, None), None);
        turn(&mut wait, (2, 1), false, 20_000);
        assert!(!wait.is_of((2, 1)) && wait.round(20_000, None).is_none());
    }

    /// Checks that two full connections that have their turns by turns do not take the measurement from each other.
    #[test]
    fn the_wait_of_one_of_several_full_connections_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<TcpStream> =
            (0..2).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        let mut wait = StreamWait::default();
        // The clock begins with the process, so no data arrived before its zero.
        while crate::clock::micros() < 60_000 {
            std::thread::yield_now();
        }
        let earlier = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let stamps = [earlier - 10_000_000, earlier - 50_000_000];
        for now in [10, 20] {
            for (slot, socket) in (0..).zip(&sockets) {
                let stamp = Some(stamps[slot as usize]).filter(|_| wait.is_of((slot, 1)));
                wait.turn_ended((slot, 1), socket.as_fd(), true, stamp, now);
            }
        }
        assert!(wait.is_of((0, 1)) && wait.round(20, None).is_some_and(|wait| wait >= 9_900));
        // It is used for a round of long turns, and until the connection ends.
        assert!(wait.round(20 + LONGEST_ROUND, None).is_some() && wait.round(21 + LONGEST_ROUND, None).is_none());
        wait.ended((1, 1));
        assert!(wait.is_of((0, 1)));
        wait.ended((0, 1));
        assert!(!wait.is_of((0, 1)) && wait.round(20, None).is_none());
        // Another connection is measured while this one waits for a short time.
        let mut wait = StreamWait::default();
        for (now, slot) in [(10, 0), (20, 0), (30, 1)] {
            let now_stamp =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
            // An hour ahead: the wait is 0 on any machine.
            let stamp = Some(now_stamp + 3_600_000_000_000).filter(|_| wait.is_of((slot, 1)));
            wait.turn_ended((slot, 1), sockets[slot as usize].as_fd(), true, stamp, now);
        }
        // Its wait is not known yet.
        wait.before = 3_000;
        assert!(wait.is_of((1, 1)) && wait.round(30, None) == Some(3_000));
        wait.turn_ended((1, 1), sockets[1].as_fd(), false, None, 40);
        assert_eq!(wait.round(40, None), Some(0));
    }

    #[test]
    fn a_long_round_is_reported_meanwhile() {
        let mut wait = StreamWait::default();
        assert_eq!(wait.round(100, None), None);
        read(&mut wait, BUSY, 101, 1);
        assert_eq!(wait.within_round(119, Some(19)), None);
        assert_eq!(wait.within_round(120, Some(19)), Some((19_000, 20_000)));
        assert_eq!(
            (wait.within_round(139, Some(38)), wait.within_round(150, Some(49))),
            (None, Some((49_000, 50_000)))
        );
        // The round finds the reads of all.
        assert_eq!(wait.round(151, Some(50)), Some(50_000));
        // Few connections have been read since.
        read(&mut wait, BUSY - 1, 152, 1);
        assert_eq!(wait.within_round(300, Some(9)), None);
    }
}
