//! Clock of a host against that of this machine.

use std::time::Duration;

/// Maximum difference between the clock of a host and that of the laboratory. A larger difference has a cause to
/// repair, such as a missing time server.
const MOST: Duration = Duration::from_secs(1);

/// Maximum uncertainty of the difference.
const UNSURE: Duration = Duration::from_millis(100);

/// Maximum change of the difference within a trial.
const CHANGE: Duration = Duration::from_millis(20);

/// Difference between the clock of a host and that of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Microseconds by which the host is ahead; negative if it is behind.
    pub micros: i64,
    /// Maximum error of `micros`.
    pub within: Duration,
}

/// Exchange with a host: its clock, read between two readings of the local clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) asked: u64,
    pub(super) theirs: u64,
    pub(super) heard: u64,
}

impl Ahead {
    /// Computes the difference from the shortest of several exchanges.
    pub(super) fn of(exchanges: &[Exchange]) -> Self {
        let length = |exchange: &&Exchange| exchange.heard.saturating_sub(exchange.asked);
        let best = exchanges.iter().min_by_key(length);
        let Some(best) = best else { return Self { micros: 0, within: Duration::MAX } };
        let half = best.heard.saturating_sub(best.asked) / 2;
        Self { micros: best.theirs as i64 - (best.asked + half) as i64, within: Duration::from_micros(half) }
    }

    const fn size(self) -> Duration {
        Duration::from_micros(self.micros.unsigned_abs())
    }

    /// Returns a sentence about the clock if it cannot be used.
    pub(super) fn fault(self) -> Option<String> {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        if self.size() > MOST + self.within {
            let side = if self.micros > 0 { "ahead of" } else { "behind" };
            let size = seconds(self.size());
            return Some(format!(
                "its clock is {size} {side} that of this machine: set both by a time server (timedatectl set-ntp true)"
            ));
        }
        (self.within > UNSURE).then(|| {
            format!(
                "a question takes {} there and back, too long to compare clocks: use a nearer host",
                seconds(2 * self.within)
            )
        })
    }

    /// Returns a sentence about the clock if it was set since an earlier measurement.
    pub(crate) fn changed(self, earlier: Self) -> Option<String> {
        let by = Duration::from_micros(self.micros.abs_diff(earlier.micros));
        (by > CHANGE + self.within + earlier.within).then(|| {
            format!("its clock moved by {:.0} ms during the trial: end what sets it in steps", by.as_secs_f64() * 1e3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(micros: i64, within: u64) -> Ahead {
        Ahead { micros, within: Duration::from_micros(within) }
    }

    #[test]
    fn the_shortest_exchange_counts() {
        let of = |asked, theirs, heard| Exchange { asked, theirs, heard };
        let exchanges =
            [of(1_000, 9_000_000, 800_000), of(2_000_000, 5_000_300, 2_000_200), of(3_000_000, 1, 3_900_000)];
        assert_eq!(Ahead::of(&exchanges), ahead(3_000_200, 100));
        assert_eq!(Ahead::of(&[of(5_000, 2_000, 5_400)]), ahead(-3_200, 200));
    }

    #[test]
    fn clocks_far_apart_or_unsure_are_refused() {
        assert_eq!(
            [ahead(999_000, 0), ahead(-1_000_000, 90_000), ahead(0, 100_000)].map(Ahead::fault),
            [None, None, None]
        );
        let text = |of: Ahead| of.fault().expect("a fault");
        assert!(text(ahead(3_000_000, 100)).starts_with("its clock is 3.0 s ahead of"));
        assert!(text(ahead(-3_000_000, 100)).starts_with("its clock is 3.0 s behind"));
        assert!(text(ahead(0, 150_000)).starts_with("a question takes 0.3 s"));
    }

    #[test]
    fn a_clock_that_is_set_is_seen() {
        assert_eq!(ahead(30_000, 6_000).changed(ahead(0, 6_000)), None);
        let moved = ahead(-40_000, 1_000).changed(ahead(0, 1_000)).expect("it moved");
        assert!(moved.starts_with("its clock moved by 40 ms"), "{moved}");
    }
}
