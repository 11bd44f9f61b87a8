//! Trials of a search, and the votes on each load.

use super::{Judgement, TrialOutcome};

/// Trial that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub load: f64,
    pub judgement: Judgement,
    pub outcome: TrialOutcome,
    /// Long trial below the limit, which is not counted as a vote on its load.
    pub is_hold: bool,
}

/// Trials in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    made: Vec<Made>,
    /// Votes before this trial are out of date.
    since: usize,
}

impl History {
    pub(super) fn push(&mut self, made: Made) {
        self.made.push(made);
    }

    pub(super) const fn trials(&self) -> usize {
        self.made.len()
    }

    /// Returns the number of different loads that were tried.
    pub(super) fn loads(&self) -> usize {
        let mut loads: Vec<f64> = self.made.iter().map(|made| made.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads.len()
    }

    /// Discards all votes, because the system may have changed.
    pub(super) const fn forget_votes(&mut self) {
        self.since = self.made.len();
    }

    /// Returns how many trials at this load met the goal, and how many missed it.
    pub(super) fn votes(&self, load: f64) -> (u32, u32) {
        let votes = self.made[self.since..].iter().filter(|made| made.load == load && !made.is_hold);
        votes.fold((0, 0), |(met, missed), made| match made.judgement.is_met() {
            true => (met + 1, missed),
            false => (met, missed + 1),
        })
    }

    /// Returns whether the trials of some load disagree: one met the goal and another missed it.
    pub(super) fn is_noisy(&self) -> bool {
        self.made.iter().any(|made| {
            let (met, missed) = self.votes(made.load);
            met.min(missed) > 0
        })
    }

    /// Returns the highest load that met the goal in any short trial.
    pub(super) fn highest_met(&self) -> f64 {
        self.met().fold(0.0, f64::max)
    }

    /// Returns the highest load below this one that met the goal in a short trial.
    pub(super) fn met_below(&self, load: f64) -> Option<f64> {
        self.met().filter(|met| *met < load).reduce(f64::max)
    }

    fn met(&self) -> impl Iterator<Item = f64> + '_ {
        self.made.iter().filter(|made| !made.is_hold && made.judgement.is_met()).map(|made| made.load)
    }

    /// Returns the lowest load above this one that missed the goal more often than it met it.
    pub(super) fn missed_above(&self, load: f64) -> Option<f64> {
        let above = self.made.iter().map(|made| made.load).filter(|above| {
            let (met, missed) = self.votes(*above);
            *above > load && missed > met
        });
        above.reduce(f64::min)
    }

    /// Tells whether any trial missed the goal.
    pub(super) fn has_missed(&self) -> bool {
        self.made.iter().any(|made| !made.judgement.is_met())
    }

    /// Returns the trials that missed the goal at this load.
    pub(super) fn missed_at(&self, load: f64) -> impl Iterator<Item = &Made> {
        self.made.iter().filter(move |made| made.load == load && !made.judgement.is_met())
    }

    /// Tells whether a trial at one of these loads is doubtful.
    pub(super) fn is_doubtful(&self, loads: &[f64]) -> bool {
        self.made.iter().any(|made| loads.contains(&made.load) && made.outcome.is_doubtful())
    }
}
