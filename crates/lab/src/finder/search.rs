//! Default finder, in the manner of MLRsearch: several short trials a load instead of a long one.

use super::history::{History, Made};
use super::{Cause, Finder, Finding, Goal, Judgement, Limit, Method, Next, Trial, TrialOutcome, cause};
use std::time::Duration;

/// Settings of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// First load.
    pub start: f64,
    /// Highest load that may be offered.
    pub most: f64,
    /// Length of a short trial.
    pub trial: Duration,
    /// Length of the trial that confirms the limit.
    pub hold: Duration,
    /// Number of trials by which one judgement must outnumber the other before a load is decided.
    pub agreement: u32,
    /// Trials after which the search narrows its interval no further.
    pub trials: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            start: 10.0,
            most: 50_000.0,
            trial: Duration::from_secs(3),
            hold: Duration::from_secs(30),
            agreement: 3,
            trials: 1_000,
        }
    }
}

impl Settings {
    /// Returns the settings of a search that answers within three minutes; with noise the search may take a fourth
    /// minute.
    pub fn brief() -> Self {
        Self { trial: Duration::from_secs(2), agreement: 2, trials: 30, ..Self::default() }
    }
}

/// Width of the interval at which the search ends, as a ratio.
const WIDTH: f64 = 1.05;

/// Step of the first climb.
const DOUBLE: f64 = 2.0;

/// Step above the highest load that was carried. At most one trial may offer 1.5 times the capacity, so the step is smaller than that. It is smaller
/// still if noise may have made a load above the capacity look carried.
const STEP: f64 = 1.4;
const NOISY_STEP: f64 = 1.25;

/// Share of the limit at which it is confirmed.
const HOLD: f64 = 0.9;

/// Confirmations that may miss the goal while short trials at the same load meet it.
const HOLDS: u32 = 5;

/// Times that short trials at the load of a confirmation may miss the goal.
const FAILED_CHECKS: u32 = 2;

/// Ratio of the lowest load that is not carried to the highest load that was carried before. At this ratio or below, the system is
/// degrading, because noise of 20 % in both directions cannot explain the ratio.
const DEGRADED: f64 = 0.7;

/// Loads of a search before the one that confirms the limit.
const LOADS: usize = 17;

/// Number of lower loads that are tried if the first one is not carried.
const DESCENTS: u32 = 3;

/// Search by several short trials a load.
///
/// A load is carried when most of its trials meet the goal. The search doubles the load until a trial misses the goal, then halves the
/// interval down to 5 %, then confirms the limit by a long trial at 0.9 of it. A system is called unstable if it no longer carries a load
/// that it carried before.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    goal: Goal,
    history: History,
    /// Highest load that is carried, as far as is known.
    low: Option<f64>,
    /// Lowest load that is not carried, as far as is known.
    high: Option<f64>,
    missed_holds: u32,
    failed_checks: u32,
    descents: u32,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// One trial decides.
    Climb(f64),
    /// Trials are votes.
    Vote(f64),
    /// Long trial below the limit.
    Hold(f64),
    /// Votes at the load of a long trial that missed the goal.
    Check(f64),
    Done(Finding),
}

impl Search {
    /// Begins a search.
    pub fn new(settings: Settings, goal: Goal) -> Self {
        let phase = Phase::Climb(settings.start.min(settings.most));
        Self {
            settings,
            goal,
            history: History::default(),
            low: None,
            high: None,
            missed_holds: 0,
            failed_checks: 0,
            descents: 0,
            phase,
        }
    }

    /// Stops narrowing the interval, so that the next trial confirms the highest load that is carried.
    pub fn hurry(&mut self) {
        self.settings.trials = 0;
        if matches!(self.phase, Phase::Climb(_) | Phase::Vote(_)) {
            self.phase = self.narrow();
        }
    }

    /// Returns the present limit, which no long trial has confirmed until the search ends.
    pub fn so_far(&self) -> Limit {
        self.limit(match self.phase {
            Phase::Done(finding) => finding,
            _ if self.missed_holds > 0 => Finding::Unstable,
            _ if self.low.is_none() => Finding::Nothing,
            _ if self.high.is_none() => Finding::AtLeast,
            _ => Finding::Found,
        })
    }

    /// Tells whether the load is carried, once enough trials agree.
    fn decision(&self, load: f64) -> Option<bool> {
        let (met, missed) = self.history.votes(load);
        let agreement = self.settings.agreement.max(1);
        // Trials that differ show noise, and noise needs a greater lead.
        let lead = if met.min(missed) == 0 { agreement } else { agreement + 2 };
        // Out of trials, the majority decides.
        let is_over = met + missed >= 7 * agreement || (self.is_out_of_trials() && met != missed);
        (met.abs_diff(missed) >= lead || is_over).then_some(met > missed)
    }

    const fn is_out_of_trials(&self) -> bool {
        self.history.trials() >= self.settings.trials
    }

    fn climbed(&mut self, load: f64, is_met: bool) -> Phase {
        if is_met {
            self.low = Some(load);
            if load < self.settings.most && !self.is_out_of_trials() {
                return Phase::Climb(self.step(load));
            }
        } else {
            self.high = Some(load);
        }
        self.narrow()
    }

    fn voted(&mut self, load: f64) -> Phase {
        match self.decision(load) {
            None => return Phase::Vote(load),
            Some(true) => {
                self.low = Some(self.low.map_or(load, |low| low.max(load)));
                if self.high.is_some_and(|high| high <= load) {
                    self.high = self.history.missed_above(load);
                }
            }
            Some(false) => {
                self.high = Some(load);
                if self.low.is_some_and(|low| low >= load) {
                    self.low = self.history.met_below(load);
                }
            }
        }
        self.narrow()
    }

    fn held(&mut self, load: f64, is_met: bool) -> Phase {
        if is_met {
            let is_highest = self.high.is_none();
            return Phase::Done(if is_highest { Finding::AtLeast } else { Finding::Found });
        }
        self.missed_holds += 1;
        if self.missed_holds == HOLDS {
            return Phase::Done(Finding::Unstable);
        }
        self.history.forget_votes();
        Phase::Check(load)
    }

    fn checked(&mut self, load: f64) -> Phase {
        match self.decision(load) {
            None => Phase::Check(load),
            Some(true) => Phase::Hold(load),
            Some(false) => {
                self.failed_checks += 1;
                if self.failed_checks == FAILED_CHECKS { Phase::Done(Finding::Unstable) } else { Phase::Hold(load) }
            }
        }
    }

    fn narrow(&mut self) -> Phase {
        if self.high.is_some_and(|high| high <= DEGRADED * self.history.highest_met()) {
            return Phase::Done(Finding::Unstable);
        }
        let Some(low) = self.low else {
            self.descents += 1;
            let first = self.high.unwrap_or(self.settings.start);
            let is_over = self.descents > DESCENTS;
            return if is_over { Phase::Done(Finding::Nothing) } else { Phase::Vote(round(first / 4.0)) };
        };
        if self.decision(low).is_none() {
            return Phase::Vote(low);
        }
        if self.history.loads() >= LOADS || self.is_out_of_trials() {
            return Phase::Hold(round(HOLD * low));
        }
        let Some(high) = self.high else {
            let at_most = low >= self.settings.most;
            return if at_most { Phase::Hold(round(HOLD * low)) } else { Phase::Climb(self.step(low)) };
        };
        if high / low > WIDTH {
            let middle = round((low * high).sqrt().min(self.careful_step() * low));
            if low < middle && middle < high {
                return Phase::Vote(middle);
            }
        }
        if self.decision(high).is_none() {
            return Phase::Vote(high);
        }
        Phase::Hold(round(HOLD * low))
    }

    fn careful_step(&self) -> f64 {
        if self.history.is_noisy() { NOISY_STEP } else { STEP }
    }

    /// Returns the load of the next climb.
    fn step(&self, load: f64) -> f64 {
        let factor = if self.history.has_missed() { self.careful_step() } else { DOUBLE };
        round(load * factor).min(self.settings.most)
    }

    fn limit(&self, finding: Finding) -> Limit {
        let load = match finding {
            Finding::Unstable => self.history.highest_met(),
            _ => self.low.unwrap_or(0.0),
        };
        let held = round(HOLD * self.low.unwrap_or(0.0));
        let beyond = self.high.filter(|_| finding != Finding::AtLeast);
        // An unstable system misses the goal below its limit too.
        let below = (finding == Finding::Unstable).then_some(held);
        let missed: Vec<&Made> =
            [below, beyond].into_iter().flatten().flat_map(|at| self.history.missed_at(at)).collect();
        let name = missed.iter().find_map(|made| match &made.judgement {
            Judgement::Missed(figure) => Some(figure.clone()),
            Judgement::Met => None,
        });
        let cause = match missed.is_empty() {
            true => Cause::unknown("no load was too high"),
            false => cause(missed.iter().map(|made| &made.outcome)),
        };
        let near: Vec<f64> = [Some(load), beyond, Some(held)].into_iter().flatten().collect();
        Limit {
            method: Method::Search,
            finding,
            load,
            beyond,
            missed: name,
            cause,
            loads: self.history.loads(),
            trials: self.history.trials(),
            marked: self.history.is_doubtful(&near),
        }
    }
}

impl Finder for Search {
    fn next(&self) -> Next {
        let Settings { trial, hold, .. } = self.settings;
        match self.phase {
            Phase::Climb(load) | Phase::Vote(load) | Phase::Check(load) => Next::Trial(Trial { load, duration: trial }),
            Phase::Hold(load) => Next::Trial(Trial { load, duration: hold }),
            Phase::Done(finding) => Next::Done(self.limit(finding)),
        }
    }

    fn take(&mut self, outcome: TrialOutcome) {
        let Next::Trial(Trial { load, duration }) = self.next() else { return };
        let is_hold = matches!(self.phase, Phase::Hold(_));
        let judgement = match is_hold {
            true => self.goal.judge_hold(&outcome, duration),
            false => self.goal.judge(&outcome, duration),
        };
        let is_met = judgement.is_met();
        self.history.push(Made { load, judgement, outcome, is_hold });
        self.phase = match self.phase {
            Phase::Climb(_) => self.climbed(load, is_met),
            Phase::Vote(_) => self.voted(load),
            Phase::Hold(_) => self.held(load, is_met),
            Phase::Check(_) => self.checked(load),
            Phase::Done(finding) => Phase::Done(finding),
        };
    }
}

/// Rounds a load to a whole number, or to tenths if it is small.
fn round(load: f64) -> f64 {
    if load >= 50.0 { load.round() } else { ((load * 10.0).round() / 10.0).max(0.1) }
}
