//! Constraints of a condition: properties of a request, and the values without which the condition cannot hold. The
//! index is built from them.

use crate::expression::{AddressTest, Expression, ExpressionNode, NumberTest, TextTest, in_set};
use crate::field::{AddressField, Facts, FlagField, NumberField};
use crate::token::OrderRelation;
use crate::value::{Input, Text};
use crate::{Network, SetId};
use std::net::IpAddr;

/// Property of a request that the index reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    Text(Text),
    Number(NumberField),
    Address(AddressField),
    /// The value is 1 if the flag is set, else 0. The next two properties have the same two values.
    Flag(FlagField),
    TextIn(Text, SetId),
    AddressIn(AddressField, SetId),
    /// Patterns that match a text.
    Matched(Text),
}

/// Value of a property in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestValue<'a> {
    Text(&'a [u8]),
    Number(u64),
    Address(IpAddr),
}

/// Value, or range of values, of a property with which a condition may hold. Case is ignored, so the condition may
/// still fail for a matching value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueRange {
    Whole(Box<str>),
    Prefix(Box<[u8]>),
    Number(u64),
    Within(Network),
    /// Texts that match this pattern.
    Pattern(Box<str>),
}

/// Property, and the values of which it must have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    pub(crate) question: Question,
    pub(crate) answers: Vec<ValueRange>,
}

impl Question {
    pub(crate) fn ask<'a, F: Facts + ?Sized>(&self, input: &Input<'a, F>) -> Option<RequestValue<'a>> {
        Some(match self {
            Self::Text(text) | Self::Matched(text) => RequestValue::Text(text.of(input)?),
            Self::Number(field) => RequestValue::Number(input.facts.number(*field)?),
            Self::Address(field) => RequestValue::Address(input.facts.address(*field)?),
            Self::Flag(field) => RequestValue::Number(input.facts.flag(*field).into()),
            Self::TextIn(text, set) => {
                let is_in = text.of(input).is_some_and(|found| in_set(input.sets, *set, found, text.case()));
                RequestValue::Number(is_in.into())
            }
            Self::AddressIn(field, set) => {
                let set = input.sets.set(*set);
                let is_in = set.zip(input.facts.address(*field)).is_some_and(|(set, address)| set.has_address(address));
                RequestValue::Number(is_in.into())
            }
        })
    }

    /// Tells whether the facts alone contain the value, so that no message or set is searched.
    pub(crate) const fn is_cheap(&self) -> bool {
        match self {
            Self::Text(text) => matches!(text, Text::Field(_)),
            Self::Number(_) | Self::Address(_) | Self::Flag(_) => true,
            Self::TextIn(..) | Self::AddressIn(..) | Self::Matched(_) => false,
        }
    }
}

/// Returns the constraints of a condition, at most one per property.
pub(crate) fn of(expression: &Expression) -> Vec<Constraint> {
    needed(expression, true)
}

/// Returns the constraints without which the expression cannot have the value `wanted`.
fn needed(expression: &Expression, wanted: bool) -> Vec<Constraint> {
    let one = |question, answers| vec![Constraint { question, answers }];
    let truth = |question| vec![Constraint { question, answers: vec![ValueRange::Number(wanted.into())] }];
    match &expression.node {
        ExpressionNode::Flag(field) => truth(Question::Flag(*field)),
        ExpressionNode::Text(text, _, TextTest::In(set)) => truth(Question::TextIn(text.clone(), *set)),
        ExpressionNode::Address(field, AddressTest::In(set)) => truth(Question::AddressIn(*field, *set)),
        ExpressionNode::Not(inner) | ExpressionNode::Opposite(inner) => needed(inner, !wanted),
        ExpressionNode::And(parts) if wanted => all_of(parts, wanted),
        ExpressionNode::Or(parts) if !wanted => all_of(parts, wanted),
        ExpressionNode::And(parts) | ExpressionNode::Or(parts) => one_of(parts, wanted),
        ExpressionNode::Text(text, _, TextTest::Matches(pattern)) if wanted && pattern.prefixes.is_none() => {
            one(Question::Matched(text.clone()), vec![ValueRange::Pattern(pattern.text.clone())])
        }
        ExpressionNode::Text(text, _, test) if wanted => {
            texts(test).map_or_else(Vec::new, |answers| one(Question::Text(text.clone()), answers))
        }
        ExpressionNode::Number(field, NumberTest::Is(OrderRelation::Equal, number)) if wanted => {
            one(Question::Number(*field), vec![ValueRange::Number(*number)])
        }
        ExpressionNode::Number(field, NumberTest::OneOf(numbers)) if wanted => {
            one(Question::Number(*field), numbers.iter().map(|number| ValueRange::Number(*number)).collect())
        }
        ExpressionNode::Address(field, AddressTest::Within(networks)) if wanted => {
            one(Question::Address(*field), networks.all().map(|(network, _)| ValueRange::Within(network)).collect())
        }
        _ => Vec::new(),
    }
}

/// Returns the values with which a text passes a test, if they can be listed.
fn texts(test: &TextTest) -> Option<Vec<ValueRange>> {
    let whole = |text: &str| ValueRange::Whole(text.to_ascii_lowercase().into());
    let prefix = |text: &[u8]| ValueRange::Prefix(text.to_ascii_lowercase().into());
    match test {
        TextTest::Is(text) => Some(vec![whole(text)]),
        TextTest::OneOf(texts) => Some((0..texts.keys().len()).map(|id| whole(texts.keys().text(id))).collect()),
        TextTest::StartsWith(text) => Some(vec![prefix(text.as_bytes())]),
        TextTest::Matches(pattern) => Some(pattern.prefixes.as_ref()?.iter().map(|text| prefix(text)).collect()),
        TextTest::Same(_) | TextTest::In(_) | TextTest::EndsWith(_) => None,
    }
}

/// Returns the constraints if all parts must have the value `wanted`: the constraints of each part. Of two constraints
/// on one property, the one with fewer values is kept.
fn all_of(parts: &[Expression], wanted: bool) -> Vec<Constraint> {
    let mut found: Vec<Constraint> = Vec::new();
    for constraint in parts.iter().flat_map(|part| needed(part, wanted)) {
        match found.iter_mut().find(|known| known.question == constraint.question) {
            Some(known) if known.answers.len() > constraint.answers.len() => *known = constraint,
            Some(_) => (),
            None => found.push(constraint),
        }
    }
    found
}

/// Returns the constraints if one part must have the value `wanted`: the properties common to all parts, with all their values.
fn one_of(parts: &[Expression], wanted: bool) -> Vec<Constraint> {
    let mut parts = parts.iter().map(|part| needed(part, wanted));
    let mut found = parts.next().unwrap_or_default();
    for part in parts {
        found.retain_mut(|known| {
            let same = part.iter().find(|constraint| constraint.question == known.question);
            known.answers.extend(same.iter().flat_map(|same| same.answers.iter().cloned()));
            same.is_some()
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, LookupKind, SetNames};

    /// Formats constraints as `question: answer answer`.
    fn constraints(text: &str) -> Vec<String> {
        let mut sets = SetNames::default();
        sets.add("vips", LookupKind::Texts).expect("a name");
        sets.add("rates", LookupKind::Prefixes).expect("a name");
        sets.add("nets", LookupKind::Networks).expect("a name");
        let condition = Condition::compile(text, &sets).expect(text);
        let question = |question: &Question| match question {
            Question::Text(text) => text.to_string(),
            Question::Number(field) => field.name().into(),
            Question::Address(field) => field.name().into(),
            Question::Flag(field) => field.name().into(),
            Question::TextIn(text, _) => format!("{text} in"),
            Question::AddressIn(field, _) => format!("{} in", field.name()),
            Question::Matched(text) => format!("{text} matches"),
        };
        let answer = |answer: &ValueRange| match answer {
            ValueRange::Whole(text) => text.to_string(),
            ValueRange::Prefix(text) => format!("{}*", text.escape_ascii()),
            ValueRange::Number(number) => number.to_string(),
            ValueRange::Within(network) => network.to_string(),
            ValueRange::Pattern(pattern) => pattern.to_string(),
        };
        let shown = |constraint: &Constraint| {
            let answers: Vec<String> = constraint.answers.iter().map(answer).collect();
            format!("{}: {}", question(&constraint.question), answers.join(" "))
        };
        of(&condition.expression).iter().map(shown).collect()
    }

    #[test]
    fn the_constraints_of_a_condition_are_found() {
        for (text, want) in [
            ("method == 'INVITE' and source.port == 5060", &["method: invite", "source.port: 5060"][..]),
            ("method in ['INVITE', 'BYE'] and method == 'BYE'", &["method: bye"]),
            ("method == 'INVITE' or method == 'BYE'", &["method: invite bye"]),
            ("method == 'INVITE' or user == 'x'", &[]),
            ("(method == 'A' and user == 'x') or (user == 'y' and size > 3)", &["user: x y"]),
            ("number starts_with '49' or number matches '^(50|51)1'", &["number: 49* 501* 511*"]),
            ("number matches '49' and number ends_with '1' and exists user", &["number matches: 49"]),
            ("number matches 'a' or number matches 'b$'", &["number matches: a b$"]),
            ("not number matches 'a'", &[]),
            ("not method == 'INVITE' and method != 'BYE'", &[]),
            ("not (in_dialog or not authenticated)", &["in_dialog: 0", "authenticated: 1"]),
            ("not (in_dialog and authenticated)", &[]),
            ("not (in_dialog and in_dialog)", &["in_dialog: 0 0"]),
            ("user in vips and user not in vips", &["user in: 1"]),
            (
                "source.address in nets and source.address in [10.0.0.0/8, ::1]",
                &["source.address in: 1", "source.address: 10.0.0.0/8 ::1"],
            ),
            ("rates[number] == 'West'", &["rates[number]: west"]),
            ("true", &[]),
        ] {
            assert_eq!(constraints(text), want, "{text}");
        }
    }
}
