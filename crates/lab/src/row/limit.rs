//! Limit in the row that ends a search.

use crate::finder::{Cause, Finding, Limit, Method, Part};
use serde::{Deserialize, Serialize};

/// Limit that a search found: method and cause. Its loads are the figures `limit`, `limit.low` and `limit.high`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundLimit {
    /// Method of the search.
    pub method: Method,
    /// Result of the search.
    pub finding: Finding,
    /// Part of the test bed that is the limit.
    pub part: Part,
    /// Busiest thread of the part, if one thread used up its core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Sign by which the cause was recognised, for people.
    pub sign: String,
    /// Bound of the goal that is missed beyond the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// Number of trials.
    pub trials: u32,
    /// A trial next to the limit is not valid.
    pub marked: bool,
}

impl From<&Limit> for FoundLimit {
    fn from(limit: &Limit) -> Self {
        Self {
            method: limit.method,
            finding: limit.finding,
            part: limit.cause.part,
            thread: limit.cause.thread.clone(),
            sign: limit.cause.sign.clone(),
            missed: limit.missed.clone(),
            trials: u32::try_from(limit.trials).unwrap_or(u32::MAX),
            marked: limit.marked,
        }
    }
}

impl FoundLimit {
    /// Returns the cause.
    pub fn cause(&self) -> Cause {
        Cause { part: self.part, thread: self.thread.clone(), sign: self.sign.clone() }
    }
}
