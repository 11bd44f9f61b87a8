//! Validity of a trial: its failed checks, each with values and cure. No check reads a clock or a file.

use crate::row::{Check, Figures, Reason};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum share of time that the hypervisor may take, in per cent.
const STOLEN: f64 = 5.0;

/// Maximum share of all cores that other programs may use, in per cent.
const NEIGHBOUR: f64 = 10.0;

/// Part of a window that samples may lack, because they do not begin at the same time as the window.
const UNSAMPLED: Duration = Duration::from_millis(250);

/// Share of a window that samples may lack.
const UNSAMPLED_SHARE: f64 = 0.02;

/// Begin of the name of samples of a server.
const SERVER: &str = "the server";

/// Evidence of a trial besides its figures.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Failed checks of the generator: its own verdict, the rate, both ends.
    pub generator: Vec<Reason>,
    /// Sentence about a host of the server whose clock was set.
    pub clock: Option<String>,
    /// Sentence about a server that ended or was started again.
    pub ended: Option<String>,
    /// Sentence about an event that was not made at its time.
    pub late: Option<String>,
    /// Rows of accounting.
    pub accounting: Option<Accounting>,
    /// Window.
    pub window: Duration,
    /// Time of the window in which the server was to be away.
    pub away: Duration,
    /// Sampled time of the window, by the name of the sampled part.
    pub sampled: Vec<(String, Duration)>,
    /// Sentence about a log of samples that is not whole.
    pub log: Option<String>,
    /// Load of everything together, in per cent of all cores, for the sentence about other programs.
    pub busiest: Option<String>,
    /// True if the system must lose no media packet.
    pub is_lossless: bool,
}

/// Rows of accounting of the calls of a trial, warm-up included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Rows that were written.
    pub written: u64,
    /// Rows of the calls that were completed.
    pub wanted: u64,
    /// Rows that calls which failed may have.
    pub allowed: u64,
}

impl Accounting {
    const fn is_complete(self) -> bool {
        self.wanted <= self.written && self.written <= self.wanted + self.allowed
    }
}

/// Lists the failed checks of a trial.
pub fn reasons(evidence: &Evidence, figures: &Figures) -> Vec<Reason> {
    let reason = |check, sentence| Reason { check, sentence };
    let mut found = evidence.generator.clone();
    found.extend(evidence.clock.clone().map(|sentence| reason(Check::Clock, sentence)));
    if let Some(ended) = &evidence.ended {
        found.push(reason(
            Check::Restart,
            format!("{ended}: look into the log of the system in the folder of the trial"),
        ));
    }
    if let Some(late) = &evidence.late {
        found.push(reason(Check::Events, format!("{late}: the machine is too busy")));
    }
    if let Some(accounting) = evidence.accounting.filter(|accounting| !accounting.is_complete()) {
        let Accounting { written, wanted, .. } = accounting;
        let sentence = format!(
            "{written} rows of accounting were written, and {wanted} belong to the calls: look for errors in the log of the system"
        );
        found.push(reason(Check::Accounting, sentence));
    }
    if let Some(sentence) = missing_samples(evidence) {
        found.push(reason(Check::Samples, sentence));
    }
    if let Some(stolen) = figures.value("machine.stolen").filter(|stolen| *stolen > STOLEN) {
        let sentence = format!(
            "the hypervisor took {stolen:.1} % of the processor time, over {STOLEN} %: measure on a quieter host"
        );
        found.push(reason(Check::Stolen, sentence));
    }
    if let Some(other) = figures.value("machine.other").filter(|other| *other > NEIGHBOUR) {
        let busiest = evidence.busiest.as_ref().map_or_else(String::new, |name| format!(", most by {name}"));
        let sentence = format!(
            "other programs used {other:.0} % of all cores, over {NEIGHBOUR} %{busiest}: end them during the run"
        );
        found.push(reason(Check::Neighbour, sentence));
    }
    if let Some(lost) = figures.value("media.lost").filter(|lost| evidence.is_lossless && *lost > 0.0) {
        let sentence = format!(
            "the floor lost {lost} media packets, so that losses of the systems would be the machine's: measure on a quieter machine, or with \
             fewer calls"
        );
        found.push(reason(Check::Loss, sentence));
    }
    found
}

fn missing_samples(evidence: &Evidence) -> Option<String> {
    let lack = UNSAMPLED.max(evidence.window.mul_f64(UNSAMPLED_SHARE));
    let away = |name: &str| match (name.starts_with(SERVER), &evidence.ended) {
        (false, _) => Duration::ZERO,
        (true, None) => evidence.away,
        // Another check reports that the server has ended.
        (true, Some(_)) => evidence.window,
    };
    let short = evidence.sampled.iter().find(|(name, time)| *time + away(name) + lack < evidence.window);
    let short = short.map(|(name, time)| {
        let (time, window) = (time.as_secs_f64(), evidence.window.as_secs_f64());
        format!("{name} has samples of {time:.1} of {window:.1} s: the machine is too busy to be sampled")
    });
    let nothing = evidence.sampled.is_empty().then(|| "nothing was sampled: see that /proc can be read".to_owned());
    evidence.log.clone().or(short).or(nothing)
}
