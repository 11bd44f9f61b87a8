//! Units of delays and scores, and their figures in these units.

use super::{Delay, Delays, Statistic, Unit};

impl Delay {
    /// Returns the unit of the figures. Ratings and scores are no times, but have the same figures.
    pub const fn unit(self) -> Unit {
        match self {
            Self::MediaRating | Self::MediaScore => Unit::Score,
            _ => Unit::Microseconds,
        }
    }

    /// Tells whether received media have this measure.
    pub(super) const fn is_of_media(self) -> bool {
        matches!(
            self,
            Self::MediaMaxDelta
                | Self::MediaJitter
                | Self::MediaMaxJitter
                | Self::MediaDeviation
                | Self::MediaDelay
                | Self::MediaRating
                | Self::MediaScore
        )
    }

    /// Returns the statistics that reports show: the longest times, the lowest scores.
    pub const fn shown(self) -> &'static [Statistic] {
        match self.unit() {
            Unit::Score => Statistic::SHOWN_OF_SCORES,
            _ => Statistic::SHOWN,
        }
    }

    /// Returns the percentile that errors and the list of measures name.
    pub const fn usual_percentile(self) -> &'static str {
        match self.unit() {
            Unit::Score => "p1",
            _ => "p95",
        }
    }

    /// Returns the recorded steps of one unit: microseconds are recorded as they are, scores in thousandths.
    const fn steps(self) -> f64 {
        match self.unit() {
            Unit::Score => 1_000.0,
            _ => 1.0,
        }
    }

    /// Converts a value in the unit to the recorded value.
    pub(super) fn recorded(self, value: f64) -> u64 {
        (value * self.steps()).round().max(0.0) as u64
    }

    /// Returns a figure of these recorded values in the unit, or `None` without a value.
    pub fn figure(self, statistic: Statistic, of: &Delays) -> Option<f64> {
        let value = statistic.of(of)?;
        Some(if statistic == Statistic::Count { value } else { value / self.steps() })
    }

    /// Returns the sum of these recorded values in the unit.
    pub fn sum(self, of: &Delays) -> f64 {
        of.sum() as f64 / self.steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_show_long_times_and_low_scores() {
        let keys = |delay: Delay| delay.shown().iter().map(|statistic| statistic.key()).collect::<Vec<_>>().join(" ");
        assert_eq!(keys(Delay::Setup), "count mean min p50 p90 p95 p99 p99.9 p99.99 max stddev");
        assert_eq!(keys(Delay::MediaScore), "count mean min p50 p10 p5 p1 p0.1 p0.01 max stddev");
        assert_eq!(keys(Delay::MediaRating), keys(Delay::MediaScore));
    }

    #[test]
    fn a_score_is_recorded_in_thousandths() {
        let mut scores = Delays::new();
        [4.409, 2.5].into_iter().for_each(|score| scores.record(Delay::MediaScore.recorded(score)));
        let of = |statistic| Delay::MediaScore.figure(statistic, &scores);
        assert_eq!((of(Statistic::Least), of(Statistic::Most)), (Some(2.5), Some(4.409)));
        assert_eq!((of(Statistic::Count), Delay::MediaScore.sum(&scores)), (Some(2.0), 6.909));
        assert_eq!(Delay::Setup.figure(Statistic::Most, &scores), Some(4_409.0));
        assert_eq!(Delay::MediaScore.figure(Statistic::Most, &Delays::new()), None);
    }
}
