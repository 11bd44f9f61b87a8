//! Goal of a search: bounds that a trial has to meet.

use super::TrialOutcome;
use crate::formula::methodology::{DELAY_LIMIT, INEFFECTIVE_LIMIT};
use std::time::Duration;

/// Goal of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Figures with the maximum of each, in the units of their definitions.
    pub at_most: Vec<(String, f64)>,
    /// Longest delay allowed at the end of [`Goal::HORIZON`].
    pub delay: Duration,
}

/// Judgement of a trial by a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// All bounds are met.
    Met,
    /// The bound of this figure is missed, or the figure was not measured.
    Missed(String),
}

impl Judgement {
    /// Tells whether the goal was met.
    pub const fn is_met(&self) -> bool {
        matches!(self, Self::Met)
    }
}

/// Growth of a delay that is no news while the load stays, in microseconds.
const STEADY: f64 = 30_000.0;

impl Goal {
    /// Time for which the system has to bear a load. Above the capacity of a server with a queue, delays grow each second by the
    /// share of the overload. A trial of three seconds at 1.05 of the capacity ends before the queue shows in its percentiles,
    /// but the growth of the delay already shows.
    pub const HORIZON: Duration = Duration::from_secs(10);

    /// Returns the goal of calls: 1 % failed for any reason, 300 ms of session request delay at the 95th percentile.
    pub fn calls() -> Self {
        Self::of("isa.any", "srd.p95")
    }

    /// Returns the goal of registrations: 1 % failed for any reason, 300 ms of registration request delay at the 95th
    /// percentile.
    pub fn registrations() -> Self {
        Self::of("ira.any", "rrd.p95")
    }

    /// Returns the goal of requests outside calls: 1 % failed for any reason, 300 ms to the response at the 95th
    /// percentile.
    pub fn requests() -> Self {
        Self::of("failed.any", "request.p95")
    }

    fn of(failed: &str, delay: &str) -> Self {
        let delays = DELAY_LIMIT.as_micros() as f64;
        Self { at_most: vec![(failed.into(), INEFFECTIVE_LIMIT), (delay.into(), delays)], delay: DELAY_LIMIT }
    }

    /// Judges a trial of this duration.
    pub fn judge(&self, outcome: &TrialOutcome, duration: Duration) -> Judgement {
        if outcome.validity.is_limit_of_generator() {
            return Judgement::Missed("generator".into());
        }
        let missed =
            self.at_most.iter().find(|(figure, bound)| outcome.value(figure).is_none_or(|value| value > *bound));
        if let Some((figure, _)) = missed {
            return Judgement::Missed(figure.clone());
        }
        match projected(outcome, duration) {
            Some(delay) if delay > self.delay.as_micros() as f64 => Judgement::Missed("delay.last".into()),
            _ => Judgement::Met,
        }
    }

    /// Judges a trial at a load below the limit, in which delays must not grow either.
    pub fn judge_hold(&self, outcome: &TrialOutcome, duration: Duration) -> Judgement {
        let grows = ends(outcome).is_some_and(|(first, last)| last > 2.0 * first + STEADY);
        match self.judge(outcome, duration) {
            Judgement::Met if grows => Judgement::Missed("delay.last".into()),
            judgement => judgement,
        }
    }
}

/// Returns the delays in the first and the last third of the window.
fn ends(outcome: &TrialOutcome) -> Option<(f64, f64)> {
    outcome.value("delay.first").zip(outcome.value("delay.last"))
}

/// Returns the delay that the end of the horizon would have if its growth continued.
fn projected(outcome: &TrialOutcome, duration: Duration) -> Option<f64> {
    let (first, last) = ends(outcome)?;
    // The middles of the first and last third are two thirds of the window apart.
    let a_second = (last - first).max(0.0) / (duration.as_secs_f64() * 2.0 / 3.0);
    let rest = Goal::HORIZON.saturating_sub(duration).as_secs_f64();
    (!duration.is_zero()).then_some(last + a_second * rest)
}
