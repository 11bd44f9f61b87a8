//! Since when there has been room for the call that begins next, where so many calls may be open at once: the places of calls
//! that have ended are taken by those that wait in the order in which they fell due. So of each wait it is known how much of it the
//! limit asked for, and how much the generator took.

use std::collections::VecDeque;

/// The places that have become free while calls waited. Never more than the limit.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The earliest first: the moment (µs), and how many became free then.
    freed: VecDeque<(u64, u64)>,
    count: u64,
}

impl Places {
    /// So many more have become free at this moment.
    #[inline]
    pub(super) fn free(&mut self, at: u64, places: u64) {
        self.count += places;
        match self.freed.back_mut() {
            // Stamps of one round may be out of order by what a batch is.
            Some((last, count)) if *last >= at => *count += places,
            _ => self.freed.push_back((at, places)),
        }
    }

    /// The next call takes one of `free` places: since when that is free. 0: before any call waited.
    #[inline]
    pub(super) fn take(&mut self, free: u64) -> u64 {
        // Fewer than became free: the limit was lowered.
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

    /// No call waits: who falls due from now on finds all that is free.
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
    fn who_waits_first_gets_what_is_free_first() {
        let mut places = Places::default();
        // Ten places, all taken; at 50 two end, at 70 one.
        places.free(50, 1);
        places.free(50, 1);
        places.free(70, 1);
        assert_eq!([places.take(3), places.take(2), places.take(1)], [50, 50, 70]);
        // Three are free for long, one ends: it is the last to be taken.
        places.free(90, 1);
        assert_eq!([places.take(4), places.take(3), places.take(2), places.take(1)], [0, 0, 0, 90]);
        // Where no call waits nothing is remembered.
        places.free(95, 1);
        places.forget();
        assert_eq!(places.take(1), 0);
    }

    #[test]
    fn a_limit_that_is_lowered_takes_places_away() {
        let mut places = Places::default();
        for at in [10, 20, 30] {
            places.free(at, 1);
        }
        assert_eq!(places.take(2), 20);
        assert_eq!(places.take(1), 30);
        places.free(40, 5);
        assert_eq!((places.take(5), places.count, places.freed.len()), (40, 4, 1));
    }
}
