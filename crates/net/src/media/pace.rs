//! Pace of a media thread: when it looks at its sockets again.

/// Time between two looks under load, in microseconds. A look costs a wake-up of 15-20 us, whatever it finds; the relay of a packet costs 5 us.
const TICK: u64 = 1_000;

/// Time over which the load is measured, in microseconds.
const WINDOW: u64 = 10_000;

/// Packets in a millisecond from which on waking for each of them costs more than the delay is worth.
const BUSY: u64 = 2;

/// Looks under load, one after another, after which the thread rests. A look takes one datagram of each ready socket: without further looks a picture
/// of 100 datagrams would take 100 ms. With more of them a flood at one port would keep the thread from ever resting.
const LOOKS: u32 = 32;

/// Next look of a thread at its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLook {
    /// With the next packet, order or timer.
    Awaited,
    /// At once: sockets may have further datagrams.
    AtOnce,
    /// Not before this time in microseconds.
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
    /// Notes a look that ended at `now`, in microseconds. `found`: sockets of which it took a datagram; `sent`: packets of sounds that left before it.
    pub(super) fn next_look(&mut self, now: u64, found: usize, sent: usize) -> NextLook {
        self.packets += (found + sent) as u64;
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW {
            self.is_busy = self.packets * 1_000 >= BUSY * passed;
            (self.since, self.packets) = (now, 0);
        }
        self.looks += 1;
        if self.is_busy && found > 0 && self.looks < LOOKS {
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
        // A packet each millisecond, then four, then one. A second look finds nothing.
        let mut looks = |from: u64, packets| {
            let mut look = |ms: u64| match pace.next_look(ms * 1_000, packets, 0) {
                NextLook::AtOnce => pace.next_look(ms * 1_000, 0, 0) == NextLook::NotBefore(ms * 1_000 + TICK),
                NextLook::NotBefore(_) => panic!("a further look finds the rest"),
                NextLook::Awaited => false,
            };
            (from..from + 30).filter(|ms| look(*ms)).count()
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
        let rests = |ms: u64| pace.next_look(ms * 1_000, 0, 4) != NextLook::AtOnce;
        assert!((0..30).all(rests));
        let (mut now, mut left) = (30_000, 100);
        while left > 0 {
            left -= 1;
            match pace.next_look(now, 1, 0) {
                NextLook::NotBefore(next) => now = next,
                NextLook::AtOnce => now += 5,
                NextLook::Awaited => panic!("it is busy"),
            }
        }
        assert!(now < 30_000 + 5 * TICK, "{now}");
    }

    #[test]
    fn a_thread_rests_during_a_flood() {
        let (mut pace, mut rests, mut now) = (Pace::default(), 0, 0);
        while now < 1_000_000 {
            // Each look finds the flooded socket.
            now = match pace.next_look(now, 1, 0) {
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
