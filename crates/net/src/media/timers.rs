//! Timers of sessions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times at which sessions have work, the earliest first. A session may have several; its owner knows the valid one.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timers {
    /// Adds a time, in microseconds, of the session with this number.
    pub(super) fn add(&mut self, at: u64, session: u32) {
        self.heap.push(Reverse((at, session)));
    }

    /// Returns the earliest time.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the earliest time if it has come: the time and its session.
    pub(super) fn due(&mut self, now: u64) -> Option<(u64, u32)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_in_their_order() {
        let mut timers = Timers::default();
        for (at, session) in [(30, 1), (10, 2), (20, 3)] {
            timers.add(at, session);
        }
        assert_eq!((timers.next(), timers.due(9)), (Some(10), None));
        assert_eq!([timers.due(25), timers.due(25), timers.due(25)], [Some((10, 2)), Some((20, 3)), None]);
        assert_eq!((timers.due(30), timers.next()), (Some((30, 1)), None));
    }
}
