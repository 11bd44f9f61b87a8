//! Pace of a media thread: when it looks at its sockets again.

/// Time between two looks under load, in microseconds. A look costs a wake-up of 15-20 us, whatever it finds; the relay of a packet costs 5 us.
const TICK: u64 = 1_000;

/// Time over which the load is measured, in microseconds.
const WINDOW: u64 = 10_000;

/// Packets in a millisecond from which on waking for each of them costs more than the delay is worth.
const BUSY: u64 = 2;

/// Age of a datagram, in microseconds, above which its socket has a backlog. A look takes one datagram of each ready socket: with a rest before each
/// look, a picture of 100 datagrams would take 100 ms.
const BACKLOG: u64 = 3 * TICK;

/// Looks at a backlog, one after another, after which the thread rests all the same: a flood at one port always has a backlog.
const LOOKS: u32 = 32;

/// Next look of a thread at its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLook {
    /// Wait for the next packet, order or timer.
    Awaited,
    /// Look without a rest, because sockets have a backlog.
    AtOnce,
    /// Rest until this time, in microseconds.
    NotBefore(u64),
}

/// Pace of one thread.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Begin of the window in microseconds.
    since: u64,
    packets: u64,
    is_busy: bool,
    /// Looks since the last rest.
    looks: u32,
}

impl Pace {
    /// Notes a look that ended at `now`, in microseconds, and found or sent these packets. `waited`: longest time for which one of them waited in its
    /// socket, in microseconds.
    pub(super) fn next_look(&mut self, now: u64, packets: usize, waited: u64) -> NextLook {
        self.packets += packets as u64;
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW {
            self.is_busy = self.packets * 1_000 >= BUSY * passed;
            (self.since, self.packets) = (now, 0);
        }
        self.looks += 1;
        if self.is_busy && waited > BACKLOG && self.looks < LOOKS {
            return NextLook::AtOnce;
        }
        self.looks = 0;
        if self.is_busy { NextLook::NotBefore(now + TICK) } else { NextLook::Awaited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_looks_once_in_a_millisecond() {
        let mut pace = Pace::default();
        // A packet each millisecond, then four, then one.
        let mut looks = |from: u64, packets| {
            let mut look = |ms: u64| pace.next_look(ms * 1_000, packets, TICK);
            (from..from + 30).filter(|ms| look(*ms) == NextLook::NotBefore(ms * 1_000 + TICK)).count()
        };
        assert_eq!(looks(1_000, 1), 0);
        assert!((20..30).contains(&looks(1_030, 4)));
        assert!(looks(1_060, 1) <= 10);
        assert_eq!(looks(1_090, 1), 0);
        // A pause ends the load.
        assert!(looks(1_120, 4) >= 20);
        assert_eq!(pace.next_look(9_000_000, 1, 0), NextLook::Awaited);
    }

    #[test]
    fn many_datagrams_at_one_socket_take_few_rests() {
        let mut pace = Pace::default();
        // Sounds keep the thread busy.
        assert!((0..=30).all(|ms| pace.next_look(ms * 1_000, 4, 0) != NextLook::AtOnce));
        let (came, mut now, mut left) = (30_000, 30_000, 100);
        while left > 0 {
            left -= 1;
            match pace.next_look(now, 1, now - came) {
                NextLook::NotBefore(next) => now = next,
                NextLook::AtOnce => now += 5,
                NextLook::Awaited => panic!("it is busy"),
            }
        }
        assert!(now < came + 10 * TICK, "{now}");
    }

    #[test]
    fn a_thread_rests_during_a_flood() {
        let (mut pace, mut rests, mut now) = (Pace::default(), 0, 0);
        while now < 1_000_000 {
            // Each look finds the flooded socket, whose buffer is full.
            now = match pace.next_look(now, 1, 10_000) {
                NextLook::NotBefore(next) => {
                    rests += 1;
                    next
                }
                NextLook::AtOnce | NextLook::Awaited => now + 10,
            };
        }
        // 32 looks of 10 us, and a millisecond of rest.
        assert!((700..800).contains(&rests), "{rests}");
    }
}
