//! A compiled condition as a tree of tests, and its evaluation.

use crate::condition::Test;
use crate::field::{AddressField, Case, Facts, FlagField, NumberField};
use crate::networks::Networks;
use crate::pattern::Pattern;
use crate::texts::Texts;
use crate::token::OrderRelation;
use crate::value::{Input, Text, Value};
use crate::{SetId, Sets};
use std::ops::Range;

/// A part of a condition, and its span in the text.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) node: ExpressionNode,
    pub(crate) span: Range<u32>,
}

#[derive(Debug)]
pub(crate) enum ExpressionNode {
    Constant(bool),
    Flag(FlagField),
    Exists(Value),
    Text(Text, Case, TextTest),
    Number(NumberField, NumberTest),
    Address(AddressField, AddressTest),
    Not(Box<Expression>),
    /// `!=` and `not in`: the opposite of a test that does not occur by itself in the text.
    Opposite(Box<Expression>),
    /// All of at least two parts.
    And(Box<[Expression]>),
    /// One of at least two parts.
    Or(Box<[Expression]>),
}

/// Test of a text that is present.
#[derive(Debug)]
pub(crate) enum TextTest {
    Is(Box<str>),
    OneOf(Texts),
    Same(Text),
    In(SetId),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Matches(Box<Pattern>),
}

/// Test of a number that is present.
#[derive(Debug)]
pub(crate) enum NumberTest {
    Is(OrderRelation, u64),
    Same(OrderRelation, NumberField),
    /// Sorted numbers.
    OneOf(Box<[u64]>),
}

/// Test of an address that is present.
#[derive(Debug)]
pub(crate) enum AddressTest {
    Within(Networks),
    In(SetId),
}

impl Expression {
    /// Visits every query of a set; a set may be visited several times.
    pub(crate) fn each_set(&self, visit: &mut dyn FnMut(SetId)) {
        match &self.node {
            ExpressionNode::Constant(_) | ExpressionNode::Flag(_) | ExpressionNode::Number(..) => {}
            ExpressionNode::Exists(Value::Text(text)) => text.each_set(visit),
            ExpressionNode::Exists(Value::Number(_) | Value::Address(_)) => {}
            ExpressionNode::Text(text, _, test) => {
                text.each_set(visit);
                match test {
                    TextTest::In(set) => visit(*set),
                    TextTest::Same(other) => other.each_set(visit),
                    _ => {}
                }
            }
            ExpressionNode::Address(_, AddressTest::In(set)) => visit(*set),
            ExpressionNode::Address(_, AddressTest::Within(_)) => {}
            ExpressionNode::Not(part) | ExpressionNode::Opposite(part) => part.each_set(visit),
            ExpressionNode::And(parts) | ExpressionNode::Or(parts) => {
                parts.iter().for_each(|part| part.each_set(visit))
            }
        }
    }

    /// Visits each test of a text.
    pub(crate) fn each_text_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Text, &'a TextTest)) {
        match &self.node {
            ExpressionNode::Text(text, _, test) => visit(text, test),
            ExpressionNode::Not(part) | ExpressionNode::Opposite(part) => part.each_text_test(visit),
            ExpressionNode::And(parts) | ExpressionNode::Or(parts) => {
                parts.iter().for_each(|part| part.each_text_test(visit))
            }
            ExpressionNode::Constant(_)
            | ExpressionNode::Flag(_)
            | ExpressionNode::Exists(_)
            | ExpressionNode::Number(..)
            | ExpressionNode::Address(..) => {}
        }
    }

    /// Returns the constant value of the expression; `None` if its words show a dependence on the facts.
    pub(crate) fn constant(&self) -> Option<bool> {
        match &self.node {
            ExpressionNode::Constant(value) => Some(*value),
            ExpressionNode::Not(part) | ExpressionNode::Opposite(part) => part.constant().map(|value| !value),
            ExpressionNode::And(parts) if parts.iter().any(|part| part.constant() == Some(false)) => Some(false),
            ExpressionNode::And(parts) => parts.iter().all(|part| part.constant() == Some(true)).then_some(true),
            ExpressionNode::Or(parts) if parts.iter().any(|part| part.constant() == Some(true)) => Some(true),
            ExpressionNode::Or(parts) => parts.iter().all(|part| part.constant() == Some(false)).then_some(false),
            ExpressionNode::Flag(_)
            | ExpressionNode::Exists(_)
            | ExpressionNode::Text(..)
            | ExpressionNode::Number(..)
            | ExpressionNode::Address(..) => None,
        }
    }

    /// Tells whether the expression can have the value `wanted` only if a test holds for which `is_one` returns true.
    pub(crate) fn needs(&self, wanted: bool, is_one: &dyn Fn(Test) -> bool) -> bool {
        match &self.node {
            // A constant never has the other value.
            ExpressionNode::Constant(value) => *value != wanted,
            ExpressionNode::Not(part) | ExpressionNode::Opposite(part) => part.needs(!wanted, is_one),
            ExpressionNode::And(parts) if wanted => parts.iter().any(|part| part.needs(wanted, is_one)),
            ExpressionNode::Or(parts) if !wanted => parts.iter().any(|part| part.needs(wanted, is_one)),
            ExpressionNode::And(parts) | ExpressionNode::Or(parts) => {
                parts.iter().all(|part| part.needs(wanted, is_one))
            }
            _ => wanted && self.is_test(is_one),
        }
    }

    /// Tells whether this is a test for which `is_one` returns true.
    fn is_test(&self, is_one: &dyn Fn(Test) -> bool) -> bool {
        match &self.node {
            ExpressionNode::Flag(field) => is_one(Test::Flag(*field)),
            ExpressionNode::Text(Text::Field(field), _, TextTest::Is(_) | TextTest::OneOf(_)) => {
                is_one(Test::Listed(*field))
            }
            ExpressionNode::Text(Text::Field(field), _, TextTest::In(set)) => is_one(Test::In(*field, *set)),
            ExpressionNode::Text(text, _, TextTest::Same(other)) => {
                [text, other].into_iter().any(|text| text.needs(is_one))
            }
            ExpressionNode::Exists(Value::Text(text)) | ExpressionNode::Text(text, ..) => text.needs(is_one),
            ExpressionNode::Address(field, _) => is_one(Test::Address(*field)),
            _ => false,
        }
    }

    /// Evaluates the expression. A test of an absent value is false.
    pub(crate) fn holds<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> bool {
        match &self.node {
            ExpressionNode::Constant(value) => *value,
            ExpressionNode::Flag(field) => input.facts.flag(*field),
            ExpressionNode::Exists(value) => value.is_present(input),
            ExpressionNode::Text(text, case, test) => text.of(input).is_some_and(|text| test.holds(text, *case, input)),
            ExpressionNode::Number(field, test) => {
                input.facts.number(*field).is_some_and(|number| test.holds(number, input))
            }
            ExpressionNode::Address(field, test) => input.facts.address(*field).is_some_and(|address| match test {
                AddressTest::Within(networks) => networks.longest(address).is_some(),
                AddressTest::In(set) => input.sets.set(*set).is_some_and(|set| set.has_address(address)),
            }),
            ExpressionNode::Not(inner) | ExpressionNode::Opposite(inner) => !inner.holds(input),
            ExpressionNode::And(all) => all.iter().all(|one| one.holds(input)),
            ExpressionNode::Or(any) => any.iter().any(|one| one.holds(input)),
        }
    }

    /// Returns the deciding part and its value. If all parts must hold, this is the first that fails; if one suffices,
    /// the first that holds.
    pub(crate) fn decider<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> (&Self, bool) {
        let whole = self.holds(input);
        match &self.node {
            ExpressionNode::And(all) if !whole => all.iter().find(|one| !one.holds(input)),
            ExpressionNode::Or(any) if whole => any.iter().find(|one| one.holds(input)),
            ExpressionNode::Not(inner) => Some(&**inner),
            _ => None,
        }
        .map_or((self, whole), |part| part.decider(input))
    }

    /// Collects each value that the expression uses, in the order of the text.
    pub(crate) fn values(&self, found: &mut Vec<Value>) {
        match &self.node {
            ExpressionNode::Constant(_) | ExpressionNode::Flag(_) => (),
            ExpressionNode::Exists(value) => found.push(value.clone()),
            ExpressionNode::Text(text, _, test) => {
                found.push(Value::Text(text.clone()));
                if let TextTest::Same(other) = test {
                    found.push(Value::Text(other.clone()));
                }
            }
            ExpressionNode::Number(field, test) => {
                found.push(Value::Number(*field));
                if let NumberTest::Same(_, other) = test {
                    found.push(Value::Number(*other));
                }
            }
            ExpressionNode::Address(field, _) => found.push(Value::Address(*field)),
            ExpressionNode::Not(inner) | ExpressionNode::Opposite(inner) => inner.values(found),
            ExpressionNode::And(parts) | ExpressionNode::Or(parts) => parts.iter().for_each(|part| part.values(found)),
        }
    }
}

impl TextTest {
    fn holds<F: Facts + ?Sized>(&self, text: &[u8], case: Case, input: &Input<'_, F>) -> bool {
        match self {
            Self::Is(wanted) => same(text, wanted.as_bytes(), case),
            Self::OneOf(texts) => texts.find(text, case).is_some(),
            Self::Same(other) => other.of(input).is_some_and(|other| same(text, other, case)),
            Self::In(set) => in_set(input.sets, *set, text, case),
            Self::StartsWith(part) => text.get(..part.len()).is_some_and(|start| same(start, part.as_bytes(), case)),
            Self::EndsWith(part) => {
                let end = text.len().checked_sub(part.len()).map(|at| &text[at..]);
                end.is_some_and(|end| same(end, part.as_bytes(), case))
            }
            Self::Matches(pattern) => pattern.is_in(text),
        }
    }
}

impl NumberTest {
    fn holds<F: Facts + ?Sized>(&self, number: u64, input: &Input<'_, F>) -> bool {
        match self {
            Self::Is(order, wanted) => order.holds(number, *wanted),
            Self::Same(order, field) => input.facts.number(*field).is_some_and(|other| order.holds(number, other)),
            Self::OneOf(numbers) => numbers.binary_search(&number).is_ok(),
        }
    }
}

/// Tells whether a text is in a set.
pub(crate) fn in_set(sets: &Sets, set: SetId, text: &[u8], case: Case) -> bool {
    sets.set(set).is_some_and(|set| set.has_text(text, case))
}

fn same(text: &[u8], other: &[u8], case: Case) -> bool {
    match case {
        Case::Exact => text == other,
        Case::Ignored => text.eq_ignore_ascii_case(other),
    }
}
