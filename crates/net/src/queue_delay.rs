//! Wait of datagrams in a socket before a shard reads them. The wait is measured only while it may be long, that is,
//! after a full batch, because each time stamp of the kernel has a cost.

use crate::timestamp::{self, Clocks};
use std::os::fd::BorrowedFd;

/// Time after the last full batch at which time stamps are switched off, in milliseconds.
const QUIET: u64 = 10_000;

/// Measured wait in one socket.
#[derive(Debug, Default)]
pub(crate) struct QueueDelay {
    /// True if the kernel makes time stamps, by request of this measurement or always.
    asked: bool,
    always: bool,
    clocks: Clocks,
    /// Time of the last full batch ([`strowger_core::Now::mono`]).
    full: u64,
    age: u64,
}

impl QueueDelay {
    /// Creates the measurement; `always`: the socket has time stamps anyway.
    pub(crate) fn new(always: bool) -> Self {
        Self { asked: always, always, ..Self::default() }
    }

    /// Tells whether the next batch must be [measured](Self::measure), full or not.
    #[inline]
    pub(crate) const fn is_measured(&self) -> bool {
        self.asked && (self.age > 0 || !self.always)
    }

    /// Measures the wait of a batch that was read at `now`; `stamp` is the time stamp of its last datagram. Unread
    /// datagrams arrived after that datagram, the oldest of them soon after it: their wait is [`QueueDelay::age`],
    /// which is 0 if no unread datagram can be left.
    #[cold]
    pub(crate) fn measure(&mut self, socket: BorrowedFd<'_>, full: bool, stamp: Option<i64>, now: u64) {
        if full {
            self.full = now;
            let reading = self.clocks.read();
            // Datagrams from before the first time stamp count as new.
            self.age = if self.asked { reading.now - reading.arrival(stamp) } else { 0 };
            self.asked = self.asked || timestamp::enable(socket);
            return;
        }
        self.age = 0;
        if !self.always && now >= self.full + QUIET {
            timestamp::disable(socket);
            self.asked = false;
        }
    }

    /// Returns the wait in microseconds.
    pub(crate) const fn age(&self) -> u64 {
        self.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn timestamps_are_on_from_the_first_full_batch_until_it_is_quiet() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let timestamps = || {
            let (mut value, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: the kernel writes one number of this length, to our variable.
            let result = unsafe {
                libc::getsockopt(
                    std::os::fd::AsRawFd::as_raw_fd(&socket),
                    libc::SOL_SOCKET,
                    libc::SO_TIMESTAMPNS,
                    (&raw mut value).cast(),
                    &raw mut length,
                )
            };
            assert_eq!(result, 0);
            value != 0
        };
        let mut delay = QueueDelay::new(false);
        assert!(!delay.is_measured() && !timestamps());
        delay.measure(socket.as_fd(), true, None, 1_000);
        assert!(delay.is_measured() && timestamps() && delay.age() == 0);
        // The clock begins with the process, so no datagram arrived before its zero.
        while clock::micros() < 10_000 {
            std::thread::yield_now();
        }
        let earlier = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64 - 10_000_000;
        delay.measure(socket.as_fd(), true, Some(earlier), 2_000);
        assert!((9_900..60_000_000).contains(&delay.age()), "{} us", delay.age());
        delay.measure(socket.as_fd(), false, None, 2_000 + QUIET - 1);
        assert!(delay.age() == 0 && delay.is_measured() && timestamps());
        delay.measure(socket.as_fd(), false, None, 2_000 + QUIET);
        assert!(!delay.is_measured() && !timestamps());
    }
}
