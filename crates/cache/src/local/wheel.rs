//! Wheel of expiry times: finds expired entries without inspecting the others.

use super::cells::{Cells, NEVER, NIL, WHEEL};
use super::list::List;

/// Buckets, one per second. A later end stays in its bucket for several turns.
const BUCKETS: u64 = 1024;

pub(super) struct Wheel {
    /// Empty before the first entry with an end.
    buckets: Box<[List]>,
    /// Last second whose bucket was inspected.
    looked: u64,
    /// Next entry to inspect in the second after that, if its inspection has begun.
    at: Option<u32>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { buckets: Box::default(), looked: 0, at: None }
    }

    /// Returns the bytes of the wheel itself.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    pub(super) fn link(&mut self, cells: &mut Cells, slot: u32) {
        let end = cells.end(slot);
        if end == NEVER {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![List::EMPTY; BUCKETS as usize].into();
        }
        // The entry is added at the front, because an inspection of this bucket in progress continues after it.
        self.buckets[bucket(end)].push_front(cells, WHEEL, slot);
    }

    pub(super) fn unlink(&mut self, cells: &mut Cells, slot: u32) {
        let end = cells.end(slot);
        if end == NEVER {
            return;
        }
        if self.at == Some(slot) {
            self.at = Some(cells.link(slot, WHEEL + 4));
        }
        self.buckets[bucket(end)].unlink(cells, WHEEL, slot);
    }

    /// Returns an expired entry, which the caller unlinks. Inspects at most `looks` entries and decrements `looks` for
    /// each. If the result is `None` and `looks` is not 0, no other entry has expired.
    pub(super) fn due(&mut self, cells: &Cells, now: u64, looks: &mut u32) -> Option<u32> {
        let second = now / 1000;
        if self.buckets.is_empty() {
            self.looked = second.saturating_sub(1);
            return None;
        }
        // After a long pause each bucket is inspected once. The current second has not ended.
        if self.looked + BUCKETS < second {
            self.looked = second - BUCKETS;
            self.at = None;
        }
        while self.looked + 1 < second {
            let first = || self.buckets[((self.looked + 1) % BUCKETS) as usize].first().unwrap_or(NIL);
            let mut slot = self.at.unwrap_or_else(first);
            while slot != NIL {
                if *looks == 0 {
                    self.at = Some(slot);
                    return None;
                }
                *looks -= 1;
                if cells.end(slot) <= now {
                    self.at = Some(slot);
                    return Some(slot);
                }
                slot = cells.link(slot, WHEEL + 4);
            }
            self.looked += 1;
            self.at = None;
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                return None;
            }
        }
        None
    }
}

const fn bucket(end: u64) -> usize {
    (end / 1000 % BUCKETS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(wheel: &mut Wheel, cells: &mut Cells, now: u64, each: u32) -> Vec<u32> {
        let mut found = Vec::new();
        loop {
            let mut looks = each;
            while let Some(slot) = wheel.due(cells, now, &mut looks) {
                wheel.unlink(cells, slot);
                found.push(slot);
            }
            if looks > 0 {
                found.sort_unstable();
                return found;
            }
        }
    }

    #[test]
    fn entries_come_due_once_their_second_has_ended_and_no_turn_early() {
        for each in [1, 2, 3, 100] {
            let (mut cells, mut wheel) = (Cells::new(1 << 20), Wheel::new());
            let mut add = |wheel: &mut Wheel, end| {
                let slot = cells.add(1, b"key", b"", end);
                wheel.link(&mut cells, slot);
                slot
            };
            let ends = [10_500, 10_999, 11_000, 12_000, 10_500 + BUCKETS * 1000, NEVER];
            let [a, b, c, d, e, _] = ends.map(|end| add(&mut wheel, end));
            assert_eq!(sweep(&mut wheel, &mut cells, 10_600, each), []);
            assert_eq!(sweep(&mut wheel, &mut cells, 11_000, each), [a, b]);
            assert_eq!(sweep(&mut wheel, &mut cells, 12_000, each), [c]);
            wheel.unlink(&mut cells, d);
            assert_eq!(sweep(&mut wheel, &mut cells, 900_000, each), []);
            assert_eq!(sweep(&mut wheel, &mut cells, 9_000_000, each), [e]);
        }
    }
}
