//! Interval of a ratio between two groups of repetitions.

/// Ratio of two groups and its interval.
///
/// The ratio is the median of all ratios of a value of the second group to one of the first (Hodges and Lehmann). The ends of the interval
/// are two of these ratios in their order (Mann and Whitney). Five repetitions show no form of distribution, and this interval is exact for
/// every form. A neighbour that spoils one repetition moves the interval little. The interval depends on no seed, in contrast to a
/// bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// Median ratio.
    pub middle: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence from 0 to 1: the requested one if the groups are large enough.
    pub confidence: f64,
}

/// Repetitions of a group that are used. With more repetitions the counts of orders overflow.
const MOST: usize = 25;

impl RatioInterval {
    /// Computes the interval of `after` over `before`.
    ///
    /// Returns `None` if a group is empty or has a value that is not positive.
    pub fn of(before: &[f64], after: &[f64], confidence: f64) -> Option<Self> {
        let [before, after] = [before, after].map(|values| &values[..values.len().min(MOST)]);
        if before.is_empty() || after.is_empty() || before.iter().chain(after).any(|value| *value <= 0.0) {
            return None;
        }
        let mut ratios: Vec<f64> = after.iter().flat_map(|new| before.iter().map(move |old| new / old)).collect();
        ratios.sort_by(f64::total_cmp);
        let (cut, confidence) = cut(before.len(), after.len(), confidence);
        Some(Self {
            middle: crate::statistics::median(ratios.clone()),
            low: ratios[cut],
            high: ratios[ratios.len() - 1 - cut],
            confidence,
        })
    }

    /// Divides this ratio by an independent ratio. The relative widths of the two intervals are added as independent
    /// errors.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let middle = self.middle / other.middle;
        let width = |own: f64, of_other: f64| own.ln().hypot(of_other.ln()).exp();
        Self {
            middle,
            low: middle / width(self.middle / self.low, other.high / other.middle),
            high: middle * width(self.high / self.middle, other.middle / other.low),
            confidence: self.confidence.min(other.confidence),
        }
    }

    /// Returns the ratio of the inverse quantities.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { middle: 1.0 / self.middle, low: 1.0 / self.high, high: 1.0 / self.low, confidence: self.confidence }
    }
}

/// Returns how many ratios may be left out at each end with this confidence, and the confidence that this gives.
///
/// With `n` and `m` values of one distribution, each order of all values is equally likely. The number of pairs in which the second value
/// is the smaller one has the distribution of Mann and Whitney's U.
fn cut(n: usize, m: usize, confidence: f64) -> (usize, f64) {
    // orders[u]: orders of i and m values with u such pairs. The greatest of the values is either one of the first group or one of the
    // second.
    let pairs = n * m;
    let mut table = vec![vec![vec![0.0_f64; pairs + 1]; m + 1]; n + 1];
    for i in 0..=n {
        for j in 0..=m {
            for u in 0..=pairs {
                table[i][j][u] = match (i, j) {
                    (0, _) | (_, 0) => f64::from(u == 0),
                    _ => (if u >= j { table[i - 1][j][u - j] } else { 0.0 }) + table[i][j - 1][u],
                };
            }
        }
    }
    let orders = &table[n][m];
    let all: f64 = orders.iter().sum();
    let mut below = orders[0];
    let mut reached = (0, 1.0 - 2.0 * below / all);
    for (u, orders) in orders.iter().enumerate().take(pairs / 2).skip(1) {
        below += orders;
        let confidence_here = 1.0 - 2.0 * below / all;
        if confidence_here < confidence {
            break;
        }
        reached = (u, confidence_here);
    }
    (reached.0, reached.1.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the tables of the two-sided Mann-Whitney test at 5 %: sizes and the greatest U that is
    /// significant.
    #[test]
    fn the_cut_is_that_of_the_tables() {
        for (n, m, most) in [(4, 4, 0), (5, 5, 2), (6, 6, 5), (7, 7, 8), (8, 8, 13), (10, 10, 23), (5, 8, 6)] {
            let (cut, confidence) = cut(n, m, 0.95);
            assert_eq!(cut, most, "{n} {m}");
            assert!(confidence >= 0.95, "{n} {m}: {confidence}");
        }
        let exact = |n| cut(n, n, 0.999_999).1;
        // Of 20, 70 and 252 orders two are the extremes.
        assert!((exact(3) - 0.9).abs() < 1e-12 && (exact(4) - 34.0 / 35.0).abs() < 1e-12);
        assert!((exact(5) - 125.0 / 126.0).abs() < 1e-12);
        assert_eq!(cut(1, 1, 0.95), (0, 0.0));
    }

    #[test]
    fn an_interval_lies_around_the_ratio() {
        let before = [10.0, 10.2, 9.9, 10.1, 10.0];
        let after = before.map(|value| value * 1.1);
        let found = RatioInterval::of(&before, &after, 0.99).expect("positive values");
        assert!((found.middle - 1.1).abs() < 1e-9 && found.low > 1.06 && found.high < 1.14, "{found:?}");
        let inverse = found.inverse();
        assert!((inverse.middle * found.middle - 1.0).abs() < 1e-12 && inverse.low < inverse.high);
        // The ratio divided by itself, as if both were independent, is 1 and has a wider interval.
        let one = found.over(found);
        assert!((one.middle - 1.0).abs() < 1e-12 && one.low < found.low / found.middle, "{one:?}");
        assert!(one.low < 1.0 && one.high > 1.0);
        assert_eq!(RatioInterval::of(&[], &after, 0.95), None);
        assert_eq!(RatioInterval::of(&[0.0], &after, 0.95), None);
    }
}
