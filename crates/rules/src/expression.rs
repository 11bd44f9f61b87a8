//! A compiled condition as a tree of tests, and its evaluation.

use crate::condition::Test;
use crate::field::{AddressField, Case, Facts, FlagField, NumberField};
use crate::networks::Networks;
use crate::pattern::Pattern;
use crate::texts::Texts;
use crate::token::Order;
use crate::value::{Input, Text, Value};
use crate::{SetId, Sets};
use std::ops::Range;

/// A part of a condition, and its span in the text.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) node: Node,
    pub(crate) span: Range<u32>,
}

#[derive(Debug)]
pub(crate) enum Node {
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
    Is(Order, u64),
    Same(Order, NumberField),
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
    /// Visits every query of a set; a set may come several times.
    pub(crate) fn each_set(&self, visit: &mut dyn FnMut(SetId)) {
        match &self.node {
            Node::Constant(_) | Node::Flag(_) | Node::Number(..) => {}
            Node::Exists(Value::Text(text)) => text.each_set(visit),
            Node::Exists(Value::Number(_) | Value::Address(_)) => {}
            Node::Text(text, _, test) => {
                text.each_set(visit);
                match test {
                    TextTest::In(set) => visit(*set),
                    TextTest::Same(other) => other.each_set(visit),
                    _ => {}
                }
            }
            Node::Address(_, AddressTest::In(set)) => visit(*set),
            Node::Address(_, AddressTest::Within(_)) => {}
            Node::Not(part) | Node::Opposite(part) => part.each_set(visit),
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| part.each_set(visit)),
        }
    }

    /// Visits each test of a text.
    pub(crate) fn each_text_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Text, &'a TextTest)) {
        match &self.node {
            Node::Text(text, _, test) => visit(text, test),
            Node::Not(part) | Node::Opposite(part) => part.each_text_test(visit),
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| part.each_text_test(visit)),
            Node::Constant(_) | Node::Flag(_) | Node::Exists(_) | Node::Number(..) | Node::Address(..) => {}
        }
    }

    /// Constant value of the expression; `None` if its words show a dependence on the facts.
    pub(crate) fn constant(&self) -> Option<bool> {
        match &self.node {
            Node::Constant(value) => Some(*value),
            Node::Not(part) | Node::Opposite(part) => part.constant().map(|value| !value),
            Node::And(parts) if parts.iter().any(|part| part.constant() == Some(false)) => Some(false),
            Node::And(parts) => parts.iter().all(|part| part.constant() == Some(true)).then_some(true),
            Node::Or(parts) if parts.iter().any(|part| part.constant() == Some(true)) => Some(true),
            Node::Or(parts) => parts.iter().all(|part| part.constant() == Some(false)).then_some(false),
            Node::Flag(_) | Node::Exists(_) | Node::Text(..) | Node::Number(..) | Node::Address(..) => None,
        }
    }

    /// True if the expression can have the value `wanted` only if a test holds for which `is_one` returns true.
    pub(crate) fn needs(&self, wanted: bool, is_one: &dyn Fn(Test) -> bool) -> bool {
        match &self.node {
            // A constant never has the other value.
            Node::Constant(value) => *value != wanted,
            Node::Not(part) | Node::Opposite(part) => part.needs(!wanted, is_one),
            Node::And(parts) if wanted => parts.iter().any(|part| part.needs(wanted, is_one)),
            Node::Or(parts) if !wanted => parts.iter().any(|part| part.needs(wanted, is_one)),
            Node::And(parts) | Node::Or(parts) => parts.iter().all(|part| part.needs(wanted, is_one)),
            _ => wanted && self.is_test(is_one),
        }
    }

    /// True if this is a test for which `is_one` returns true.
    fn is_test(&self, is_one: &dyn Fn(Test) -> bool) -> bool {
        match &self.node {
            Node::Flag(field) => is_one(Test::Flag(*field)),
            Node::Text(Text::Field(field), _, TextTest::Is(_) | TextTest::OneOf(_)) => is_one(Test::Listed(*field)),
            Node::Text(Text::Field(field), _, TextTest::In(set)) => is_one(Test::In(*field, *set)),
            Node::Text(text, _, TextTest::Same(other)) => [text, other].into_iter().any(|text| text.needs(is_one)),
            Node::Exists(Value::Text(text)) | Node::Text(text, ..) => text.needs(is_one),
            Node::Address(field, _) => is_one(Test::Address(*field)),
            _ => false,
        }
    }

    /// Evaluates the expression. A test of an absent value fails.
    pub(crate) fn holds<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> bool {
        match &self.node {
            Node::Constant(value) => *value,
            Node::Flag(field) => input.facts.flag(*field),
            Node::Exists(value) => value.is_present(input),
            Node::Text(text, case, test) => text.of(input).is_some_and(|text| test.holds(text, *case, input)),
            Node::Number(field, test) => input.facts.number(*field).is_some_and(|number| test.holds(number, input)),
            Node::Address(field, test) => input.facts.address(*field).is_some_and(|address| match test {
                AddressTest::Within(networks) => networks.longest(address).is_some(),
                AddressTest::In(set) => input.sets.set(*set).is_some_and(|set| set.has_address(address)),
            }),
            Node::Not(inner) | Node::Opposite(inner) => !inner.holds(input),
            Node::And(all) => all.iter().all(|one| one.holds(input)),
            Node::Or(any) => any.iter().any(|one| one.holds(input)),
        }
    }

    /// The deciding part and its value: the first that fails if all must hold, the first that holds if one suffices.
    pub(crate) fn decider<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> (&Self, bool) {
        let whole = self.holds(input);
        match &self.node {
            Node::And(all) if !whole => all.iter().find(|one| !one.holds(input)),
            Node::Or(any) if whole => any.iter().find(|one| one.holds(input)),
            Node::Not(inner) => Some(&**inner),
            _ => None,
        }
        .map_or((self, whole), |part| part.decider(input))
    }

    /// Collects each value that it uses, in the order of the text.
    pub(crate) fn values(&self, found: &mut Vec<Value>) {
        match &self.node {
            Node::Constant(_) | Node::Flag(_) => (),
            Node::Exists(value) => found.push(value.clone()),
            Node::Text(text, _, test) => {
                found.push(Value::Text(text.clone()));
                if let TextTest::Same(other) = test {
                    found.push(Value::Text(other.clone()));
                }
            }
            Node::Number(field, test) => {
                found.push(Value::Number(*field));
                if let NumberTest::Same(_, other) = test {
                    found.push(Value::Number(*other));
                }
            }
            Node::Address(field, _) => found.push(Value::Address(*field)),
            Node::Not(inner) | Node::Opposite(inner) => inner.values(found),
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| part.values(found)),
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

/// True if a text is in a set.
pub(crate) fn in_set(sets: &Sets, set: SetId, text: &[u8], case: Case) -> bool {
    sets.set(set).is_some_and(|set| set.has_text(text, case))
}

fn same(text: &[u8], other: &[u8], case: Case) -> bool {
    match case {
        Case::Exact => text == other,
        Case::Ignored => text.eq_ignore_ascii_case(other),
    }
}
