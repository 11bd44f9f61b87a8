//! End of a schedule with a duration. Calls that wait at the end for a place below the limit of concurrent calls are
//! not started.

use super::pace::Part;
use super::run::Load;

/// End of a shard's schedule, and the limit of its calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// End, µs; `u64::MAX`: never.
    at: u64,
    /// Limit of calls begun in all; `u64::MAX` before the end.
    most: u64,
}

impl Bound {
    /// Computes the end of a schedule that begins at `now`, µs. A profile whose last part is a burst has no end in
    /// time.
    pub(super) fn of(load: &Load, now: u64) -> Self {
        let ends = load.keep_limited && load.users.is_none() && matches!(load.profile.last(), Some(Part::Ramp { .. }));
        let length = load.profile.iter().try_fold(0u64, |sum, part| match part {
            Part::Hold { .. } => None,
            Part::Ramp { micros, .. } => Some(sum.saturating_add(*micros)),
            Part::Burst { .. } => Some(sum),
        });
        let at = length.filter(|_| ends).map_or(u64::MAX, |length| now.saturating_add(length));
        Self { at, most: u64::MAX }
    }

    /// Closes the schedule after its end has passed. From then on only as many calls may start as there are free places
    /// at that moment.
    pub(super) fn look(&mut self, now: u64, begun: u64, room: u64) {
        if now >= self.at {
            (self.at, self.most) = (u64::MAX, begun.saturating_add(room));
        }
    }

    pub(super) const fn allows(&self, begun: u64) -> bool {
        begun < self.most
    }

    /// Returns the time of the next check, µs.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Returns how many of `due` calls will begin.
    pub(super) fn of_due(&self, due: u64) -> u64 {
        due.min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_with_a_time_ends_with_the_places_of_that_moment() {
        let of = |profile: Vec<Part>| Bound::of(&Load { profile, ..Load::default() }, 1_000);
        let step = Part::Ramp { from: 9.0, to: 9.0, micros: 500 };
        let mut bound = of(vec![Part::Burst { calls: 9 }, step]);
        bound.look(1_499, 3, 2);
        assert!(bound.allows(1_000_000) && bound.of_due(99) == 99);
        bound.look(1_500, 3, 2);
        bound.look(1_600, 5, 7);
        assert!(bound.allows(4) && !bound.allows(5) && bound.of_due(99) == 5);
        for endless in [vec![step, Part::Burst { calls: 9 }], vec![Part::Hold { rate: 1.0 }]] {
            assert_eq!(of(endless).at(), u64::MAX);
        }
        let as_sipp = Load { profile: vec![step], keep_limited: false, ..Load::default() };
        assert_eq!(Bound::of(&as_sipp, 0).at(), u64::MAX);
    }
}
