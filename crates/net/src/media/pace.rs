//! Pace of a media thread: when it looks at its sockets again.

/// Time between two looks under load, in microseconds. A look costs a wake-up of 15-20 us, whatever it finds; the relay of a packet costs 5 us.
const TICK: u64 = 1_000;

/// Time over which the load is measured, in microseconds.
const WINDOW: u64 = 10_000;

/// Packets in a millisecond from which on waking for each of them costs more than the delay is worth.
const BUSY: u64 = 2;

/// Pace of one thread.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Begin of the window in microseconds.
    since: u64,
    packets: u64,
    is_busy: bool,
}

impl Pace {
    /// Notes a look at `now`, in microseconds, that found or sent these packets. Returns the time before which the thread does not look again; `None`:
    /// it waits for the next packet.
    pub(super) fn next_look(&mut self, now: u64, packets: usize) -> Option<u64> {
        self.packets += packets as u64;
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW {
            self.is_busy = self.packets * 1_000 >= BUSY * passed;
            (self.since, self.packets) = (now, 0);
        }
        self.is_busy.then_some(now + TICK)
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
            (from..from + 30).filter(|ms| pace.next_look(ms * 1_000, packets) == Some(ms * 1_000 + TICK)).count()
        };
        assert_eq!(looks(1_000, 1), 0);
        assert!((20..30).contains(&looks(1_030, 4)));
        assert!(looks(1_060, 1) <= 10);
        assert_eq!(looks(1_090, 1), 0);
        // A pause ends the load.
        assert!(looks(1_120, 4) >= 20);
        assert_eq!(pace.next_look(9_000_000, 1), None);
    }
}
