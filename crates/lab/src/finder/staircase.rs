//! Finder of "Methodology for SIP Infrastructure Performance Testing": steps of equal height, then limits read from the curves.
//!
//! The limit of the CPU is the first point at which its maximum is reached. The limit of a delay is the last point before a leap, or before
//! its boundary: 300 ms for registrations and sessions, 90 ms between media packets. The limit of failures is the last point before IRA
//! or ISA pass 1 %. The total is the least of them.

use super::{Cause, Finder, Finding, Limit, Method, Next, Trial, TrialOutcome, cause};
use crate::formula::methodology::{DELAY_LIMIT, INEFFECTIVE_LIMIT, PACKET_DELAY_LIMIT};
use crate::row::words;
use crate::statistics::median;
use std::time::Duration;

/// Settings of a staircase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaircaseSettings {
    /// First load.
    pub start: f64,
    /// Height of a step.
    pub step: f64,
    /// Highest load that may be offered.
    pub most: f64,
    /// Length of the window of a step.
    pub duration: Duration,
}

/// Step of a staircase: load and outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Offered load.
    pub load: f64,
    /// Outcome of its trial.
    pub outcome: TrialOutcome,
}

words! {
    /// Criterion of the methodology.
    Criterion {
        /// CPU of server and database.
        Cpu = "CPU utilization",
        /// Registration and session request delays.
        Delays = "RRD and SRD",
        /// Delay between media packets.
        PacketDelay = "maximum packet delay",
        /// IRA and ISA.
        Ineffective = "IRA and ISA",
    }
}

/// Limits by criterion, as the methodology's table has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Criteria {
    /// Limit by each criterion that was reached, or 0 if the first point is already beyond the criterion.
    pub limits: Vec<(Criterion, f64)>,
}

impl Criteria {
    /// Returns the limit by this criterion, or `None` if the criterion was not reached.
    pub fn limit(&self, criterion: Criterion) -> Option<f64> {
        self.limits.iter().find(|(known, _)| *known == criterion).map(|(_, load)| *load)
    }

    /// Returns the least limit and its criterion; of equal limits the first.
    pub fn total(&self) -> Option<(Criterion, f64)> {
        self.limits.iter().copied().reduce(|least, other| if other.1 < least.1 { other } else { least })
    }
}

/// Difference of CPU load that counts as none, in points of a per cent.
const SAME_CPU: f64 = 2.0;

/// Smallest rise of the CPU load that is beyond doubt, in points of a per cent.
const VISIBLE_CPU: f64 = 2.0 * SAME_CPU;

/// Share of all cores at which the CPU counts as full, in per cent.
const FULL_CPU: f64 = 98.0;

/// Ratio to the almost constant trend from which on a rise of a delay is a leap.
const LEAP: f64 = 2.0;

/// Rise of a delay that is no leap, in microseconds.
const NO_LEAP: f64 = 5_000.0;

/// Points that the almost constant trend needs.
const TREND: usize = 2;

/// Reads the limits from the points of a staircase, in the order of their loads.
pub fn criteria(points: &[Point]) -> Criteria {
    let before = |first_beyond: usize| first_beyond.checked_sub(1).map_or(0.0, |last| points[last].load);
    let packet_limit = PACKET_DELAY_LIMIT.as_micros() as f64;
    let delays =
        ["rrd.mean", "srd.mean"].into_iter().filter_map(|name| leap(points, name, DELAY_LIMIT.as_micros() as f64));
    let found = [
        (Criterion::Cpu, cpu(points).map(|at| points[at].load)),
        (Criterion::Delays, delays.min().map(before)),
        (Criterion::PacketDelay, leap(points, "packet.delay.max", packet_limit).map(before)),
        (Criterion::Ineffective, points.iter().position(|point| is_ineffective(&point.outcome)).map(before)),
    ];
    Criteria { limits: found.into_iter().filter_map(|(criterion, load)| Some((criterion, load?))).collect() }
}

/// Returns the first point with the highest CPU use, if the CPU is full or its use no longer rises. The use counts as no longer rising only
/// if it rose visibly over the same number of earlier steps.
fn cpu(points: &[Point]) -> Option<usize> {
    let of = |point: &Point| {
        let part = |name| point.outcome.value(name);
        Some(part("server.cpu")? + part("database.cpu").unwrap_or(0.0))
    };
    let most = points.iter().filter_map(of).reduce(f64::max)?;
    let first = points.iter().position(|point| of(point).is_some_and(|cpu| cpu >= most - SAME_CPU))?;
    let after = points.len() - 1 - first;
    let rise = of(&points[first])? - of(&points[first.saturating_sub(after)])?;
    (most >= FULL_CPU || (after > 0 && rise >= VISIBLE_CPU)).then_some(first)
}

/// Returns the first point from which on a delay has left its almost constant trend, or at which the delay passes its
/// boundary.
fn leap(points: &[Point], name: &str, boundary: f64) -> Option<usize> {
    let values: Vec<Option<f64>> = points.iter().map(|point| point.outcome.value(name)).collect();
    let has_left = |at: usize, trend: f64| {
        let value = values.get(at).copied().flatten();
        value.is_some_and(|value| value > LEAP * trend && value > trend + NO_LEAP)
    };
    (0..points.len()).find(|at| {
        let Some(value) = values[*at] else { return false };
        let trend: Vec<f64> = values[..*at].iter().copied().flatten().collect();
        if value > boundary {
            return true;
        }
        // A single outlier is no leap: the next point must have left the trend too, unless there is no next point.
        trend.len() >= TREND && {
            let trend = median(trend);
            has_left(*at, trend) && (at + 1 == points.len() || has_left(at + 1, trend))
        }
    })
}

fn is_ineffective(outcome: &TrialOutcome) -> bool {
    ["ira.any", "isa.any"].into_iter().any(|name| outcome.value(name).is_some_and(|share| share > INEFFECTIVE_LIMIT))
}

/// Search by steps of equal height. It ends at the highest load, or after two consecutive steps beyond 1 % of IRA or ISA: the second step
/// shows whether the CPU rises any further.
#[derive(Clone, Debug)]
pub struct Staircase {
    settings: StaircaseSettings,
    points: Vec<Point>,
}

impl Staircase {
    /// Begins a staircase.
    pub const fn new(settings: StaircaseSettings) -> Self {
        Self { settings, points: Vec::new() }
    }

    /// Returns the points so far.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn limit(&self) -> Limit {
        let total = criteria(&self.points).total();
        let load = total.map_or_else(|| self.points.last().map_or(0.0, |point| point.load), |(_, load)| load);
        let beyond = total.and_then(|_| self.points.iter().find(|point| point.load > load));
        let near = self.points.iter().filter(|point| point.load == load).chain(beyond);
        Limit {
            method: Method::Staircase,
            finding: match total {
                None => Finding::AtLeast,
                Some(_) if load > 0.0 => Finding::Found,
                Some(_) => Finding::Nothing,
            },
            load,
            beyond: beyond.map(|point| point.load),
            missed: total.map(|(criterion, _)| criterion.to_string()),
            cause: match beyond {
                Some(point) => cause([&point.outcome]),
                None => Cause::unknown("no load was too high"),
            },
            loads: self.points.len(),
            trials: self.points.len(),
            marked: near.into_iter().any(|point| point.outcome.is_doubtful()),
        }
    }
}

impl Finder for Staircase {
    fn next(&self) -> Next {
        let StaircaseSettings { start, step, most, duration } = self.settings;
        // A product instead of a sum: a tenth added ten times is not one.
        let load = start + step * self.points.len() as f64;
        let is_over =
            matches!(self.points.as_slice(), [.., a, b] if is_ineffective(&a.outcome) && is_ineffective(&b.outcome));
        let is_last = step <= 0.0 && !self.points.is_empty();
        if is_over || is_last || load > most {
            return Next::Done(self.limit());
        }
        Next::Trial(Trial { load, duration })
    }

    fn take(&mut self, outcome: TrialOutcome) {
        if let Next::Trial(Trial { load, .. }) = self.next() {
            self.points.push(Point { load, outcome });
        }
    }
}
