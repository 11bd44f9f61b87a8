//! Medians, and how sure they are.

/// Returns the middle value, or the mean of the two middle values.
///
/// # Panics
/// Without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The median of a few values, and between which of them it lies for sure enough.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The middle one.
    pub median: f64,
    /// The least that it may be.
    pub low: f64,
    /// The greatest that it may be.
    pub high: f64,
    /// Confidence, from 0 to 1: at least 0.95 if there are six values or more.
    pub confidence: f64,
}

impl Interval {
    /// Computes the interval without assuming a distribution: of n independent values, the true median lies between the k-th from below and
    /// the k-th from above unless fewer than k of n fair coins show one side.
    ///
    /// Returns `None` without values.
    pub fn of_median(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let (low, high) = (*values.first()?, *values.last()?);
        // Probability of exactly i heads of n.
        let mut heads = 0.5f64.powi(n as i32);
        let (mut outside, mut best) =
            (heads, Self { median: median(values.clone()), low, high, confidence: 1.0 - 2.0 * heads });
        for i in 1..n / 2 {
            heads *= (n - i + 1) as f64 / i as f64;
            outside += heads;
            if 1.0 - 2.0 * outside < 0.95 {
                break;
            }
            best = Self { low: values[i], high: values[n - 1 - i], confidence: 1.0 - 2.0 * outside, ..best };
        }
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_that_of_the_sign_test() {
        let of = |n: u32| Interval::of_median((1..=n).rev().map(f64::from).collect()).expect("there are values");
        // Tables of the sign test: n, rank of the lower bound, confidence.
        for (n, rank, confidence) in [(7, 1, 0.984), (9, 2, 0.961), (12, 3, 0.961), (20, 6, 0.959), (25, 8, 0.957)] {
            let interval = of(n);
            assert_eq!((interval.low, interval.high), (f64::from(rank), f64::from(n + 1 - rank)), "{n}");
            assert!((interval.confidence - confidence).abs() < 0.001, "{n}: {interval:?}");
            assert_eq!(interval.median, f64::from(n + 1) / 2.0);
        }
        // So few are not enough to be sure.
        assert!(of(3).confidence < 0.8 && of(1).confidence == 0.0);
        assert_eq!(Interval::of_median(Vec::new()), None);
    }
}
