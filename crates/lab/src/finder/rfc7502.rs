//! Finder of RFC 7502 section 4.10: the session establishment rate.
//!
//! A rate is carried when all sessions of a trial are established. The rate rises by a tenth after each success and falls by a tenth after
//! each failure; ten successes that bring no higher rate end the search. Rates are whole numbers, so that a rate of 9 or less cannot rise.
//!
//! Three bounds are not in the RFC: no rate is above `most`, a search that falls below a tenth of its first rate ends, and a trial has a
//! least duration. The least duration is necessary because a server that queues and retransmits establishes each session of a short burst
//! at any rate.

use super::{Cause, Finder, Finding, Limit, Method, Next, Trial, TrialOutcome, cause};
use crate::row::Check;
use std::time::Duration;

/// Parameters of the algorithm, by their names in the RFC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rfc7502Settings {
    /// N: sessions of a trial.
    pub sessions: u32,
    /// Least duration of a trial. At a rate that sends N sessions sooner, the trial has more than N sessions.
    pub least: Duration,
    /// r: first rate, in sessions a second.
    pub rate: f64,
    /// w: weight of an increase.
    pub increase: f64,
    /// Highest rate.
    pub most: f64,
}

impl Default for Rfc7502Settings {
    fn default() -> Self {
        Self { sessions: 50_000, least: Duration::ZERO, rate: 100.0, increase: LEAST_WEIGHT, most: f64::INFINITY }
    }
}

/// Least weight of increases and decreases.
pub const LEAST_WEIGHT: f64 = 0.10;

/// Share of the first rate below which a search ends.
const LOWEST: f64 = 0.1;

/// Successes without a higher rate that end the search.
const REPEATS: u32 = 10;

/// Search of RFC 7502 section 4.10.
#[derive(Clone, Debug)]
pub struct Rfc7502 {
    sessions: u32,
    least: Duration,
    rate: f64,
    /// Lowest and highest rate.
    bounds: [f64; 2],
    increase: f64,
    decrease: f64,
    /// `old_r` of the RFC: highest rate that was carried.
    best: f64,
    repeats: u32,
    trials: Vec<(f64, bool, TrialOutcome)>,
}

impl Rfc7502 {
    /// Begins a search.
    pub fn new(settings: Rfc7502Settings) -> Self {
        let Rfc7502Settings { sessions, least, rate, increase, most } = settings;
        let decrease = LEAST_WEIGHT.max(increase / 2.0);
        Self {
            sessions: sessions.max(1),
            least,
            rate: rate.floor(),
            bounds: [(rate * LOWEST).max(1.0), most.max(rate)],
            increase,
            decrease,
            best: 0.0,
            repeats: 0,
            trials: Vec::new(),
        }
    }

    /// Returns the lowest rate above the result that failed.
    fn beyond(&self) -> Option<f64> {
        let failed = self.trials.iter().filter(|(rate, is_carried, _)| !is_carried && *rate > self.best);
        failed.map(|(rate, ..)| *rate).reduce(f64::min)
    }

    fn limit(&self) -> Limit {
        let beyond = self.beyond();
        let at = |wanted: f64| self.trials.iter().filter(move |(rate, ..)| *rate == wanted);
        let failed = || beyond.into_iter().flat_map(at).filter(|(_, is_carried, _)| !is_carried);
        let mut rates: Vec<f64> = self.trials.iter().map(|(rate, ..)| *rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        Limit {
            method: Method::Rfc7502,
            finding: match (self.best > 0.0, beyond) {
                (false, _) => Finding::Nothing,
                (true, Some(_)) => Finding::Found,
                (true, None) => Finding::AtLeast,
            },
            load: self.best,
            beyond,
            missed: beyond.map(|_| "failed".into()),
            cause: match beyond {
                Some(_) => cause(failed().map(|(.., outcome)| outcome)),
                None => Cause::unknown("no rate was too high"),
            },
            loads: rates.len(),
            trials: self.trials.len(),
            marked: failed().chain(at(self.best)).any(|(.., outcome)| outcome.is_doubtful()),
        }
    }
}

/// Share of the rate that a trial has to reach.
const REACHED: f64 = 0.99;

/// Returns whether a trial at this rate established all its sessions. A trial without a count of failures did not; a trial whose generator
/// was late, but reached the rate in the end, did.
pub(crate) fn is_carried(rate: f64, outcome: &TrialOutcome) -> bool {
    let is_met = outcome.value("rate.achieved").is_none_or(|achieved| achieved >= rate * REACHED);
    outcome.value("failed") == Some(0.0) && is_met && !outcome.validity.fails(Check::Rate)
}

impl Finder for Rfc7502 {
    fn next(&self) -> Next {
        if self.repeats >= REPEATS || self.rate < self.bounds[0] {
            return Next::Done(self.limit());
        }
        let duration = Duration::from_secs_f64(f64::from(self.sessions) / self.rate).max(self.least);
        Next::Trial(Trial { load: self.rate, duration })
    }

    fn take(&mut self, outcome: TrialOutcome) {
        if matches!(self.next(), Next::Done(_)) {
            return;
        }
        let is_carried = is_carried(self.rate, &outcome);
        self.trials.push((self.rate, is_carried, outcome));
        if is_carried {
            if self.rate > self.best {
                self.best = self.rate;
            } else {
                self.repeats += 1;
            }
            self.rate = (self.rate + self.increase * self.rate).floor().min(self.bounds[1]);
        } else {
            self.rate = (self.rate - self.decrease * self.rate).floor();
            self.decrease = LEAST_WEIGHT.max(self.decrease / 2.0);
            self.increase = LEAST_WEIGHT.max(self.increase / 2.0);
        }
    }
}
