//! Explanations of rules for operators: each rule that was evaluated for a request, with the values that decided.
//!
//! The log at level debug and [`explain`](crate::explain) use these explanations, which come from the same evaluation
//! of the rules as the decision.

use serde::Serialize;
use std::cell::RefCell;
use std::fmt;
use strowger_core::shown::brief;
use strowger_rules::{Facts, Rules, Sets};

/// Result of a rule or filter for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleResult {
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
    /// Limit of this rule without room for the call, because of which the rule adds nothing.
    pub full: Option<String>,
}

impl fmt::Display for RuleResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.holds { "yes" } else { "no" };
        write!(f, "{sign:<4}{}: {} is {}", self.name, self.part, self.part_holds)?;
        self.values.iter().try_for_each(|(name, value)| write!(f, ", {name} is {value}"))?;
        self.full.iter().try_for_each(|limit| write!(f, "; limit {limit} is full"))
    }
}

/// Assumptions about a request that is explained, and the rules that were evaluated.
#[derive(Debug, Default)]
pub(crate) struct TraceRequest {
    /// Limits of calls that are assumed to be full.
    pub(crate) full: Vec<String>,
    /// Rules that were evaluated, up to the one that decided.
    pub(crate) path: RefCell<Vec<RuleResult>>,
}

/// Returns the results of the first `most` rules.
pub(crate) fn rule_results<A>(rules: &Rules<A>, facts: &impl Facts, sets: &Sets, most: usize) -> Vec<RuleResult> {
    let rule_result = |verdict: strowger_rules::RuleVerdict<'_>| RuleResult {
        name: verdict.name.to_owned(),
        holds: verdict.matches,
        part: verdict.decider.split_whitespace().collect::<Vec<_>>().join(" "),
        part_holds: verdict.holds,
        values: verdict.values,
        limits: Vec::new(),
        full: None,
    };
    rules.explain_first(most, facts, sets).verdicts.into_iter().map(rule_result).collect()
}

/// Rule that holds.
#[derive(Debug)]
pub(crate) struct MatchedRule {
    pub(crate) place: usize,
    /// True if no further rule is evaluated.
    pub(crate) is_last: bool,
    /// Limits as in [`RuleResult::limits`].
    pub(crate) limits: Vec<String>,
    /// Limit as in [`RuleResult::full`].
    pub(crate) full: Option<String>,
}

impl MatchedRule {
    pub(crate) const fn of(place: usize, is_last: bool) -> Self {
        Self { place, is_last, limits: Vec::new(), full: None }
    }
}

/// Returns the rules that were evaluated for a request, up to the last. `matched`: the rules that hold.
pub(crate) fn path<A>(rules: &Rules<A>, facts: &impl Facts, sets: &Sets, matched: Vec<MatchedRule>) -> Vec<RuleResult> {
    let last = matched.last().filter(|matched| matched.is_last).map_or(rules.len(), |matched| matched.place + 1);
    let mut path = rule_results(rules, facts, sets, last);
    // Only the rules in `matched` hold: they have decided.
    path.iter_mut().for_each(|rule_result| rule_result.holds = false);
    for MatchedRule { place, limits, full, .. } in matched {
        if let Some(rule_result) = path.get_mut(place) {
            *rule_result = RuleResult { holds: true, limits, full, ..std::mem::take(rule_result) };
        }
    }
    path
}

/// Joins texts from peers to one value of a log line, which is short, printable and ASCII.
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
