//! Verdict on a trial.

use super::words;
use serde::{Deserialize, Serialize};

words! {
    /// Check that a trial has to pass.
    Check {
        /// The generator kept up with its schedule.
        Generator = "generator",
        /// The offered rate was met within 1 %.
        Rate = "rate",
        /// Both ends of the calls counted the same.
        Ends = "ends",
        /// Each call has its rows of accounting.
        Accounting = "accounting",
        /// No sample of the window is missing.
        Samples = "samples",
        /// The hypervisor took at most 5 % of the processor time.
        Stolen = "stolen",
        /// No other program was busy.
        Neighbour = "neighbour",
        /// No clock of a host was set.
        Clock = "clock",
        /// The server ran from begin to end.
        Restart = "restart",
        /// Each event was made at its time.
        Events = "events",
        /// The floor of media lost no packet.
        Loss = "loss",
    }
}

/// Check that a trial failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Failed check.
    pub check: Check,
    /// Values and cure, for people.
    pub sentence: String,
}

/// Verdict on a trial: `"valid"`, or `{"reasons": [...]}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// All checks passed.
    Valid,
    /// One check or more failed.
    #[serde(deserialize_with = "at_least_one")]
    Reasons(Vec<Reason>),
}

impl Validity {
    /// Tells whether all checks passed.
    pub const fn is_valid(&self) -> bool {
        matches!(self, Self::Valid)
    }

    /// Tells whether this check failed.
    pub fn fails(&self, check: Check) -> bool {
        matches!(self, Self::Reasons(reasons) if reasons.iter().any(|reason| reason.check == check))
    }

    /// Tells whether the generator and not the server was the limit.
    pub fn is_limit_of_generator(&self) -> bool {
        self.fails(Check::Generator) || self.fails(Check::Rate)
    }

    /// Returns the verdict of these failed checks.
    pub fn of(reasons: Vec<Reason>) -> Self {
        if reasons.is_empty() { Self::Valid } else { Self::Reasons(reasons) }
    }
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Reason>, D::Error> {
    let reasons = Vec::deserialize(deserializer)?;
    if reasons.is_empty() {
        return Err(serde::de::Error::custom("an invalid row has at least one reason"));
    }
    Ok(reasons)
}
