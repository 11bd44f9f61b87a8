//! An ordered list of rules: each has a name, a condition, and an action that only its owner interprets.

use crate::explanation::{Explanation, RuleVerdict};
use crate::field::Facts;
use crate::index::Index;
use crate::value::Input;
use crate::{Condition, Sets, constraint};
use std::ops::ControlFlow;

/// A rule.
#[derive(Debug)]
pub struct Rule<A> {
    /// Name, for people.
    pub name: Box<str>,
    /// Condition under which it applies.
    pub condition: Condition,
    /// Action of the owner.
    pub action: A,
}

/// An immutable list of rules in order. Build a new list to change it.
#[derive(Debug)]
pub struct Rules<A> {
    rules: Box<[Rule<A>]>,
    index: Index,
}

impl<A> Rules<A> {
    /// Builds a list from rules whose conditions were compiled against the same set names.
    pub fn new(rules: impl IntoIterator<Item = Rule<A>>) -> Self {
        let rules: Box<[Rule<A>]> = rules.into_iter().collect();
        let constraints: Vec<_> = rules.iter().map(|rule| constraint::of(&rule.condition.expression)).collect();
        Self { rules, index: Index::new(&constraints) }
    }

    /// Visits the rules that match, in order and with their positions, until the visitor breaks. `sets` must belong to
    /// the set names against which the conditions were compiled. Allocates nothing.
    pub fn walk<'a, F: Facts + ?Sized, B>(
        &'a self,
        facts: &F,
        sets: &Sets,
        mut visit: impl FnMut(usize, &'a Rule<A>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let input = Input { facts, sets };
        for place in self.index.candidates(&input) {
            let rule = &self.rules[place];
            if rule.condition.expression.holds(&input) {
                visit(place, rule)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Acts as [`Rules::walk`] without the index: evaluates each rule. To be used in tests, and to measure the gain by
    /// the index.
    pub fn walk_each<'a, F: Facts + ?Sized, B>(
        &'a self,
        facts: &F,
        sets: &Sets,
        mut visit: impl FnMut(usize, &'a Rule<A>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for (place, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.condition.holds(facts, sets)) {
            visit(place, rule)?;
        }
        ControlFlow::Continue(())
    }

    /// Finds the first rule that matches.
    pub fn first<F: Facts + ?Sized>(&self, facts: &F, sets: &Sets) -> Option<&Rule<A>> {
        self.walk(facts, sets, |_, rule| ControlFlow::Break(rule)).break_value()
    }

    /// Explains the verdict of each rule.
    pub fn explain<F: Facts + ?Sized>(&self, facts: &F, sets: &Sets) -> Explanation<'_> {
        self.explain_first(self.rules.len(), facts, sets)
    }

    /// Explains the verdicts of the first `most` rules.
    pub fn explain_first<F: Facts + ?Sized>(&self, most: usize, facts: &F, sets: &Sets) -> Explanation<'_> {
        let input = Input { facts, sets };
        let first = self.rules.iter().take(most);
        Explanation { verdicts: first.map(|rule| RuleVerdict::of(&rule.name, &rule.condition, &input)).collect() }
    }

    /// Returns the number of rules.
    pub const fn len(&self) -> usize {
        self.rules.len()
    }

    /// Tells whether there is no rule.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns all rules in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule<A>> {
        self.rules.iter()
    }

    /// Returns the number of properties of a request that the index looks up before rules are evaluated.
    pub const fn questions(&self) -> usize {
        self.index.questions()
    }
}

impl<'a, A> IntoIterator for &'a Rules<A> {
    type Item = &'a Rule<A>;
    type IntoIter = std::slice::Iter<'a, Rule<A>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_rules_and_sets() {
        const fn shared<T: Send + Sync>() {}
        shared::<Rules<()>>();
        shared::<Sets>();
    }
}
