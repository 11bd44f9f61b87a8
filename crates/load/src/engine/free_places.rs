//! Free places below the limit of concurrent calls, with the time since which each is free. Waiting calls take the
//! places of ended calls in the order in which the calls fell due. So each wait is split into the share of the limit
//! and the share of the generator.

use std::collections::VecDeque;

/// Places freed while calls waited; never more than the limit.
#[derive(Debug, Default)]
pub(super) struct FreePlaces {
    /// Times (µs) and numbers of freed places, the earliest first.
    freed: VecDeque<(u64, u64)>,
    count: u64,
}

impl FreePlaces {
    /// Adds places that became free at `at`.
    #[inline]
    pub(super) fn free(&mut self, at: u64, places: u64) {
        self.count += places;
        match self.freed.back_mut() {
            // Timestamps within one batch may be out of order.
            Some((last, count)) if *last >= at => *count += places,
            _ => self.freed.push_back((at, places)),
        }
    }

    /// Takes one of `free` places for the next call. Returns the time since which the place is free, or 0 if it was
    /// free before any call waited.
    #[inline]
    pub(super) fn take(&mut self, free: u64) -> u64 {
        // The limit was lowered: fewer places are free than were freed.
        while self.count > free.max(1) {
            self.pop();
        }
        if free > self.count { 0 } else { self.pop() }
    }

    fn pop(&mut self) -> u64 {
        let Some((at, places)) = self.freed.front_mut() else { return 0 };
        let at = *at;
        *places -= 1;
        if *places == 0 {
            self.freed.pop_front();
        }
        self.count -= 1;
        at
    }

    /// Clears the record. No call waits at this moment, so that all free places count as old.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.freed.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_wait_gets_the_first_free_place() {
        let mut places = FreePlaces::default();
        // Ten places, all taken; at 50 two end, at 70 one.
        places.free(50, 1);
        places.free(50, 1);
        places.free(70, 1);
        assert_eq!([places.take(3), places.take(2), places.take(1)], [50, 50, 70]);
        // Three have been free before; one more is freed and is the last to be taken.
        places.free(90, 1);
        assert_eq!([places.take(4), places.take(3), places.take(2), places.take(1)], [0, 0, 0, 90]);
        // Nothing is recorded while no call waits.
        places.free(95, 1);
        places.forget();
        assert_eq!(places.take(1), 0);
    }

    #[test]
    fn a_limit_that_is_lowered_takes_places_away() {
        let mut places = FreePlaces::default();
        for at in [10, 20, 30] {
            places.free(at, 1);
        }
        assert_eq!(places.take(2), 20);
        assert_eq!(places.take(1), 30);
        places.free(40, 5);
        assert_eq!((places.take(5), places.count, places.freed.len()), (40, 4, 1));
    }
}
