//! Call schedule: an open loop whose intended start times do not depend on earlier calls.
//!
//! The rate is a function of time. The n-th call is due when the integral of the rate reaches n (for Poisson arrivals:
//! the sum of n exponential variates of mean 1). So a change of rate neither loses nor repeats a call. A call that
//! cannot begin in time stays due: it begins late, with its intended time, and is never dropped.

use crate::random::Random;

/// Distribution of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Fixed,
    /// At exponentially distributed intervals: a Poisson process.
    Poisson,
}

/// Interval between the calls of a burst, µs, because no link carries all of them at once. A machine of half the usual speed keeps 10,000
/// calls a second with a server on the same machine. The delay that a slower generator adds is recorded as its lag.
pub const BURST_GAP: u64 = 100;

/// Part of a rate profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Linear change from one rate to another within this many microseconds; equal rates make a step.
    Ramp { from: f64, to: f64, micros: u64 },
    /// Burst: this many calls, [`BURST_GAP`] apart.
    Burst { calls: u64 },
    /// Constant rate without end.
    Hold { rate: f64 },
}

/// Schedule of one run. Rates are calls per second, times microseconds.
#[derive(Clone, Debug)]
pub struct Pace {
    parts: Vec<Part>,
    /// Position of the last arrival, or the start.
    base: Position,
    /// Integral between the last arrival and the next.
    left: f64,
    /// Set if the next arrival belongs to a burst: integral between this arrival and the first arrival after the burst.
    behind: Option<f64>,
    /// Position of the next arrival.
    at: Position,
    next: Option<u64>,
    /// Earliest time of the next arrival; other calls wait until a burst is over.
    earliest: u64,
    arrivals: Arrivals,
    random: Random,
}

/// Point of the profile.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    part: usize,
    /// Start of the part.
    since: u64,
    /// Seconds since the start of the part.
    into: f64,
    /// Calls of a burst that have begun.
    gone: u64,
}

impl Pace {
    /// Creates a schedule of constant rate from `start` on. The first call is due at `start` (Poisson: after the first
    /// interval). With rate 0 no call is due until the rate changes.
    pub fn constant(rate: f64, start: u64, arrivals: Arrivals, seed: u64) -> Self {
        Self::profile(vec![Part::Hold { rate }], start, arrivals, seed)
    }

    /// Creates a schedule from a profile that begins at `start`. No call is due after its last part.
    pub fn profile(parts: Vec<Part>, start: u64, arrivals: Arrivals, seed: u64) -> Self {
        let base = Position { since: start, ..Position::default() };
        let mut pace = Self {
            parts,
            base,
            left: 0.0,
            behind: None,
            at: base,
            next: None,
            earliest: 0,
            arrivals,
            random: Random(seed),
        };
        if arrivals == Arrivals::Poisson {
            pace.left = pace.distance();
        }
        pace.advance();
        pace
    }

    /// Returns the time of the next call.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Returns whether no call will ever be due.
    pub fn is_over(&self) -> bool {
        self.next.is_none() && self.at.part >= self.parts.len()
    }

    /// Takes the next call if it is due. Returns its intended time.
    pub fn due(&mut self, now: u64) -> Option<u64> {
        let at = self.next.filter(|&at| at <= now)?;
        self.base = self.at;
        // A burst is additional to the schedule: the interval that it interrupted continues after it.
        self.left = self.behind.take().unwrap_or_else(|| self.distance());
        self.advance();
        Some(at)
    }

    /// Returns the rate at `now`, calls per second.
    pub fn rate(&self, now: u64) -> f64 {
        let mut since = self.base.since;
        for part in &self.parts[self.base.part.min(self.parts.len())..] {
            match *part {
                Part::Hold { rate } => return rate,
                Part::Ramp { from, to, micros } if now < since + micros => {
                    return from + (to - from) * now.saturating_sub(since) as f64 / micros as f64;
                }
                Part::Ramp { micros, .. } => since += micros,
                Part::Burst { .. } => (),
            }
        }
        0.0
    }

    /// Replaces the remaining profile by a constant rate from `now` on. Due calls stay due, and the interval in
    /// progress keeps its finished share.
    pub fn set_rate(&mut self, rate: f64, now: u64) {
        self.set_profile(&[Part::Hold { rate }], now);
    }

    /// Replaces the remaining profile from `now` on, as [`Pace::set_rate`] does.
    pub fn set_profile(&mut self, profile: &[Part], now: u64) {
        let here = self.rate(now);
        self.parts.drain(..self.base.part.min(self.parts.len()));
        self.base.part = 0;
        let mut since = self.base.since;
        let mut kept = 0;
        for part in &mut self.parts {
            kept += 1;
            match *part {
                Part::Hold { rate } => {
                    *part = Part::Ramp { from: rate, to: rate, micros: now.saturating_sub(since) };
                    break;
                }
                Part::Ramp { from, micros, .. } if now < since + micros => {
                    *part = Part::Ramp { from, to: here, micros: now.saturating_sub(since) };
                    break;
                }
                Part::Ramp { micros, .. } => since += micros,
                Part::Burst { .. } if since > now => {
                    kept -= 1;
                    break;
                }
                Part::Burst { .. } => (),
            }
        }
        self.parts.truncate(kept);
        self.parts.extend_from_slice(profile);
        self.advance();
    }

    fn distance(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Fixed => 1.0,
            // Inversion method; the variate is above 0, so the logarithm is finite.
            Arrivals::Poisson => -(((self.random.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln(),
        }
    }

    /// Finds the time at which the integral has grown by `left` since the last arrival.
    fn advance(&mut self) {
        let mut left = self.left;
        let mut at = self.base;
        self.behind = None;
        self.next = loop {
            match self.parts.get(at.part) {
                None => break None,
                Some(&Part::Hold { rate }) => {
                    if rate <= 0.0 {
                        break None;
                    }
                    at.into += left / rate;
                    break Some(at.since + (at.into * 1e6).round() as u64);
                }
                Some(&Part::Burst { calls }) => {
                    if at.gone < calls {
                        let due = at.since.max(self.earliest) + if at.gone == 0 { 0 } else { BURST_GAP };
                        at.gone += 1;
                        self.behind = Some(left);
                        self.earliest = due;
                        break Some(due);
                    }
                    at.gone = 0;
                    at.part += 1;
                }
                Some(&Part::Ramp { from, to, micros }) => {
                    let length = micros as f64 / 1e6;
                    let slope = if micros == 0 { 0.0 } else { (to - from) / length };
                    let here = from + slope * at.into;
                    let rest = (length - at.into).max(0.0);
                    let area = (here + slope * rest / 2.0) * rest;
                    // The end of a part belongs to the next one.
                    if micros == 0 || left >= area - 1e-9 {
                        left = (left - area).max(0.0);
                        at = Position { part: at.part + 1, since: at.since + micros, into: 0.0, gone: 0 };
                        continue;
                    }
                    // Solves here * t + slope / 2 * t^2 = left in the form that allows a slope of 0.
                    let root = (here * here + 2.0 * slope * left).max(0.0).sqrt();
                    at.into += if here + root > 0.0 { 2.0 * left / (here + root) } else { 0.0 };
                    break Some(at.since + (at.into * 1e6).round() as u64);
                }
            }
        };
        self.next = self.next.map(|next| next.max(self.earliest));
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pace: &mut Pace, until: u64) -> Vec<u64> {
        std::iter::from_fn(|| pace.due(until)).collect()
    }

    #[test]
    fn even_distances_from_the_start_and_nothing_is_lost_in_a_stall() {
        let mut pace = Pace::constant(1_000.0, 5_000, Arrivals::Fixed, 1);
        assert_eq!(pace.next(), Some(5_000));
        assert_eq!(all(&mut pace, 8_999), [5_000, 6_000, 7_000, 8_000]);
        // A stall of two seconds: every call is still due at its own time.
        let late = all(&mut pace, 2_008_000);
        assert_eq!((late.len(), late[0], late[1_999]), (2_000, 9_000, 2_008_000));
        let odd: Vec<u64> = all(&mut Pace::constant(3.0, 0, Arrivals::Fixed, 1), 1_000_000);
        assert_eq!(odd, [0, 333_333, 666_667, 1_000_000]);
    }

    #[test]
    fn ramps_steps_and_bursts_have_the_calls_that_their_area_says() {
        let parts = vec![
            Part::Ramp { from: 0.0, to: 100.0, micros: 2_000_000 },
            Part::Ramp { from: 100.0, to: 100.0, micros: 1_000_000 },
            Part::Burst { calls: 50 },
            Part::Ramp { from: 50.0, to: 0.0, micros: 2_000_000 },
        ];
        let mut pace = Pace::profile(parts, 0, Arrivals::Fixed, 1);
        assert_eq!((pace.rate(1_000_000), pace.rate(2_500_000), pace.rate(9_000_000)), (50.0, 100.0, 0.0));
        let calls = all(&mut pace, u64::MAX);
        let between = |a: u64, b: u64| calls.iter().filter(|&&at| (a..b).contains(&at)).count();
        assert!(calls.is_sorted());
        assert!((99..=101).contains(&between(0, 2_000_000)), "{}", between(0, 2_000_000));
        assert!((24..=26).contains(&between(0, 1_000_000)));
        assert!((99..=101).contains(&between(2_000_000, 3_000_000)));
        // The calls of the burst follow each other; calls that fall due meanwhile follow the burst.
        let burst: Vec<u64> = (0..50).map(|call| 3_000_000 + call * BURST_GAP).collect();
        let begun = calls.partition_point(|&at| at < 3_000_000);
        assert!(calls[begun..begun + 51].windows(50).any(|window| window == burst), "{:?}", &calls[begun..begun + 51]);
        assert!((48..=51).contains(&between(3_000_000 + 50 * BURST_GAP, 5_000_001)));
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn a_burst_swallows_nothing_and_rate_0_makes_no_call() {
        let hold = |rate: f64, seconds: u64| Part::Ramp { from: rate, to: rate, micros: seconds * 1_000_000 };
        let ramp = Part::Ramp { from: 50.0, to: 150.0, micros: 1_000_000 };
        let parts = vec![hold(50.0, 1), ramp, Part::Burst { calls: 40 }, hold(0.0, 1), hold(20.0, 1)];
        assert_eq!(all(&mut Pace::profile(parts, 0, Arrivals::Fixed, 1), u64::MAX).len(), 50 + 100 + 40 + 20);
        // The burst interrupts a half-finished interval; half is left.
        let parts = vec![Part::Ramp { from: 1.0, to: 1.0, micros: 1_500_000 }, Part::Burst { calls: 2 }, hold(1.0, 2)];
        let calls = all(&mut Pace::profile(parts, 0, Arrivals::Fixed, 1), u64::MAX);
        assert_eq!(calls, [0, 1_000_000, 1_500_000, 1_500_000 + BURST_GAP, 2_000_000, 3_000_000]);
        let parts = vec![Part::Burst { calls: 1_000 }, hold(1_000.0, 1)];
        let calls = all(&mut Pace::profile(parts, 0, Arrivals::Fixed, 1), u64::MAX);
        assert_eq!((calls.len(), calls[999], calls[1_000], calls[1_100]), (2_000, 99_900, 99_900, 100_000));
        let mut none = Pace::constant(0.0, 0, Arrivals::Fixed, 1);
        assert_eq!(none.due(u64::MAX), None);
        none.set_rate(10.0, 2_000_000);
        assert_eq!(none.next(), Some(2_000_000));
    }

    #[test]
    fn poisson_has_the_mean_and_the_spread_of_its_name_and_repeats_by_its_seed() {
        let run = |seed| all(&mut Pace::constant(1_000.0, 0, Arrivals::Poisson, seed), 100_000_000);
        let calls = run(7);
        assert!((calls.len() as f64 - 100_000.0).abs() < 1_500.0, "{}", calls.len());
        let gaps: Vec<f64> = calls.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{} {mean}", variance.sqrt());
        assert_eq!(calls, run(7));
        assert_ne!(calls, run(8));
    }

    #[test]
    fn a_new_rate_keeps_the_share_of_the_old_interval() {
        let mut pace = Pace::constant(1.0, 0, Arrivals::Fixed, 1);
        assert_eq!(pace.due(0), Some(0));
        pace.set_rate(10.0, 500_000);
        // Half of the interval passed at the old rate; the other half takes 50 ms at the new one.
        assert_eq!(all(&mut pace, 700_000), [550_000, 650_000]);
        pace.set_rate(0.0, 700_000);
        assert_eq!((pace.next(), pace.rate(700_000)), (None, 0.0));
        pace.set_rate(10.0, 5_000_000);
        assert_eq!(pace.due(5_100_000), Some(5_050_000));
    }
}
