//! Explanations of rules for people: each rule that was evaluated for a request, with the values that decided.
//!
//! The log at level debug and [`explain`](crate::explain) use these. They come from the same evaluation of the rules
//! that makes the decision.

use serde::Serialize;
use std::cell::RefCell;
use std::fmt;
use strowger_core::shown::brief;
use strowger_rules::{Facts, Rules, Sets};

/// Result of a rule or filter for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Name of the rule.
    pub name: String,
    /// True if the rule holds.
    pub holds: bool,
    /// Part of its condition that decided.
    pub part: String,
    /// True if that part holds.
    pub part_holds: bool,
    /// Names in that part, each with its quoted value or `absent`.
    pub values: Vec<(String, String)>,
    /// Limits under which the call counts by this rule.
    pub limits: Vec<String>,
    /// Limit of this rule without room for the call: the rule adds nothing.
    pub full: Option<String>,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.holds { "yes" } else { "no" };
        write!(f, "{sign:<4}{}: {} is {}", self.name, self.part, self.part_holds)?;
        self.values.iter().try_for_each(|(name, value)| write!(f, ", {name} is {value}"))?;
        self.full.iter().try_for_each(|limit| write!(f, "; limit {limit} is full"))
    }
}

/// Assumptions about a request that is explained, and the rules that were evaluated.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// Limits of calls that are assumed to be full.
    pub(crate) full: Vec<String>,
    /// Rules that were evaluated, up to the one that decided.
    pub(crate) path: RefCell<Vec<Judgement>>,
}

/// Returns the results of the first `most` rules.
pub(crate) fn judgements<A>(rules: &Rules<A>, facts: &impl Facts, sets: &Sets, most: usize) -> Vec<Judgement> {
    let judgement = |verdict: strowger_rules::Verdict<'_>| Judgement {
        name: verdict.name.to_owned(),
        holds: verdict.matches,
        part: verdict.decider.split_whitespace().collect::<Vec<_>>().join(" "),
        part_holds: verdict.holds,
        values: verdict.values,
        limits: Vec::new(),
        full: None,
    };
    rules.explain_first(most, facts, sets).verdicts.into_iter().map(judgement).collect()
}

/// Rule that holds.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) place: usize,
    /// True if no further rule is evaluated.
    pub(crate) is_last: bool,
    /// Limits as in [`Judgement::limits`].
    pub(crate) limits: Vec<String>,
    /// Limit as in [`Judgement::full`].
    pub(crate) full: Option<String>,
}

impl Heard {
    pub(crate) const fn of(place: usize, is_last: bool) -> Self {
        Self { place, is_last, limits: Vec::new(), full: None }
    }
}

/// Returns the rules that were evaluated for a request, up to the last. `heard`: the rules that hold.
pub(crate) fn path<A>(rules: &Rules<A>, facts: &impl Facts, sets: &Sets, heard: Vec<Heard>) -> Vec<Judgement> {
    let last = heard.last().filter(|heard| heard.is_last).map_or(rules.len(), |heard| heard.place + 1);
    let mut path = judgements(rules, facts, sets, last);
    // Only the rules in `heard` hold: they have decided.
    path.iter_mut().for_each(|judgement| judgement.holds = false);
    for Heard { place, limits, full, .. } in heard {
        if let Some(judgement) = path.get_mut(place) {
            *judgement = Judgement { holds: true, limits, full, ..std::mem::take(judgement) };
        }
    }
    path
}

/// Joins texts of peers for one value of a log line: short, printable, in ASCII.
pub(crate) fn plain(texts: impl Iterator<Item = String>) -> String {
    let text = texts.collect::<Vec<_>>().join(", ");
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => plain.push(character),
            other => plain.extend(other.escape_default()),
        }
    }
    brief(&plain).to_string()
}
