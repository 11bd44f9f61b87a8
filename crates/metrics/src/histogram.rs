//! Histogram of durations: fixed buckets, one writer, no allocation.

use crate::Count;

/// Upper bounds of the buckets in microseconds: 100 µs to a minute. Longer durations count only in the sum and the
/// number.
pub const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Durations that one thread observes and any thread may read.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Counts per bucket, not cumulative; the last one counts durations beyond all buckets.
    counts: [Count; BOUNDS.len() + 1],
    /// Sum in microseconds.
    sum: Count,
}

impl Histogram {
    /// Records a duration in microseconds.
    #[inline]
    pub fn observe(&self, microseconds: u64) {
        let bucket = BOUNDS.iter().position(|bound| microseconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].one();
        self.sum.add(microseconds);
    }

    /// Returns the values so far.
    pub fn observed(&self) -> Observed {
        Observed { counts: std::array::from_fn(|n| self.counts[n].value()), sum: self.sum.value() }
    }
}

/// Values of a histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    counts: [u64; BOUNDS.len() + 1],
    sum: u64,
}

impl Observed {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations in microseconds.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the number of durations up to each of [`BOUNDS`].
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS.into_iter().zip(sums)
    }

    /// Returns the upper bound in microseconds of the bucket that contains this quantile (0 to 1) of the durations;
    /// `None` if there are no durations, or the bucket is beyond the last bound.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (self.count() as f64 * share).ceil().max(1.0);
        self.up_to().find(|(_, count)| *count as f64 >= rank).map(|(bound, _)| bound)
    }
}

impl std::ops::AddAssign for Observed {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_buckets() {
        let histogram = Histogram::default();
        for microseconds in [0, 100, 101, 1_000_000, 90_000_000] {
            histogram.observe(microseconds);
        }
        let mut observed = histogram.observed();
        assert_eq!((observed.count(), observed.sum()), (5, 91_000_201));
        let up_to: Vec<(u64, u64)> = observed.up_to().collect();
        assert_eq!((up_to[0], up_to[1], up_to[12], up_to[17]), ((100, 2), (250, 3), (1_000_000, 4), (60_000_000, 4)));
        assert_eq!(observed.quantile(0.5), Some(250));
        assert_eq!(observed.quantile(0.8), Some(1_000_000));
        assert_eq!(observed.quantile(1.0), None);
        assert_eq!(Observed::default().quantile(0.5), None);
        observed += observed;
        assert_eq!((observed.count(), observed.sum()), (10, 182_000_402));
    }
}
