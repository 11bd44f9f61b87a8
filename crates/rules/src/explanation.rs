//! Explains to people why rules match or do not.

use crate::Condition;
use crate::field::Facts;
use crate::value::Input;
use std::fmt;

/// The reason for the verdict of each rule of a list. Displays as one line per rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// Verdicts in the order of the rules.
    pub verdicts: Vec<RuleVerdict<'a>>,
}

/// Verdict of one rule and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict<'a> {
    /// Name of the rule.
    pub name: &'a str,
    /// True if the rule matches.
    pub matches: bool,
    /// Part of its condition that decided.
    pub decider: &'a str,
    /// True if that part holds.
    pub holds: bool,
    /// Values that this part used: name, and the value in quotes or `absent`. Text may come from a peer, so control
    /// octets are escaped.
    pub values: Vec<(String, String)>,
}

impl<'a> RuleVerdict<'a> {
    pub(crate) fn of<F: Facts + ?Sized>(name: &'a str, condition: &'a Condition, input: &Input<'_, F>) -> Self {
        let (decider, holds) = condition.expression.decider(input);
        let mut asked = Vec::new();
        decider.values(&mut asked);
        let mut values: Vec<(String, String)> = Vec::new();
        for value in asked {
            let name = value.to_string();
            if !values.iter().any(|(known, _)| *known == name) {
                values.push((name, value.shown(input)));
            }
        }
        let matches = condition.expression.holds(input);
        Self { name, matches, decider: condition.text_of(decider), holds, values }
    }

    /// Formats one line; rule names are padded to `width`.
    fn line(&self, width: usize) -> String {
        let sign = if self.matches { "yes" } else { "no" };
        let mut decider: String = self.decider.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((cut, _)) = decider.char_indices().nth(LONGEST) {
            decider.truncate(cut);
            decider.push_str("...");
        }
        let values: Vec<String> = self.values.iter().map(|(name, value)| format!("{name} is {value}")).collect();
        let colon = if values.is_empty() { "" } else { ": " };
        format!("{sign:<3}  {:<width$}  `{decider}` is {}{colon}{}", self.name, self.holds, values.join(", "))
    }
}

/// Maximum number of characters of a condition in a line.
const LONGEST: usize = 120;

impl fmt::Display for RuleVerdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(0))
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.verdicts.iter().map(|verdict| verdict.name.chars().count()).max().unwrap_or(0);
        self.verdicts.iter().try_for_each(|verdict| writeln!(f, "{}", verdict.line(width)))
    }
}
