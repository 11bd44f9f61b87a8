//! A compiled condition, evaluated on the facts of a request.

use crate::expression::{Expression, ExpressionNode, TextTest};
use crate::field::{AddressField, Facts, FlagField, TextField};
use crate::parser::Parser;
use crate::token;
use crate::value::{Input, Key, Text, Value};
use crate::{Fault, SetId, SetNames, Sets};

/// Maximum length of a condition in bytes.
pub const MAX_LENGTH: usize = 16 << 10;

/// Maximum nesting depth of parentheses, `not` and look-ups.
pub const MAX_DEPTH: usize = 64;

/// One test of a condition, as passed to the callback of [`Condition::needs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The flag is true.
    Flag(FlagField),
    /// The text is present, or passes a test that every absent text fails.
    There(TextField),
    /// The text equals one that the condition lists.
    Listed(TextField),
    /// The text is in this set.
    In(TextField, SetId),
    /// The address is in a network or set.
    Address(AddressField),
}

/// A compiled condition. Its evaluation always terminates, allocates nothing and takes no lock.
#[derive(Debug)]
pub struct Condition {
    text: Box<str>,
    pub(crate) expression: Expression,
}

impl Condition {
    /// Compiles a condition that may name these sets.
    ///
    /// # Errors
    /// The first fault, with its position in the text.
    pub fn compile(text: &str, sets: &SetNames) -> Result<Self, Fault> {
        if text.len() > MAX_LENGTH {
            let at = (0..=MAX_LENGTH).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let message = format!("the condition is longer than {MAX_LENGTH} bytes");
            return Err(Fault::new(at..text.len(), message, "put its texts into a set, or cut it into several rules"));
        }
        Ok(Self {
            text: text.into(),
            expression: Parser::new(text, sets).whole().map_err(|fault| with_signs(fault, text))?,
        })
    }

    /// Creates a condition that is always true.
    pub fn always() -> Self {
        Self { text: "true".into(), expression: Expression { node: ExpressionNode::Constant(true), span: 0..4 } }
    }

    /// Returns the source text.
    pub const fn text(&self) -> &str {
        &self.text
    }

    /// Tells whether the condition holds for these facts.
    pub fn holds<F: Facts + ?Sized>(&self, facts: &F, sets: &Sets) -> bool {
        self.expression.holds(&Input { facts, sets })
    }

    /// Returns the sets that the condition queries, each once.
    pub fn sets(&self) -> Vec<SetId> {
        let mut sets = Vec::new();
        self.expression.each_set(&mut |set| {
            if !sets.contains(&set) {
                sets.push(set);
            }
        });
        sets
    }

    /// Returns the constant value of the condition; `None` if it depends on the request.
    pub fn constant(&self) -> Option<bool> {
        self.expression.constant()
    }

    /// Tells whether the condition can hold only if a test holds for which `is_one` returns true.
    pub fn needs(&self, is_one: impl Fn(Test) -> bool) -> bool {
        self.expression.needs(true, &is_one)
    }

    /// Returns the constants with which the condition compares this field, or its beginning or end.
    pub fn texts_of(&self, field: TextField) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        self.expression.each_text_test(&mut |text, test| {
            if *text == Text::Field(field) {
                match test {
                    TextTest::Is(text) | TextTest::StartsWith(text) | TextTest::EndsWith(text) => {
                        texts.push(text.to_string())
                    }
                    TextTest::OneOf(several) => texts.extend(several.iter().map(str::to_owned)),
                    TextTest::Same(_) | TextTest::In(_) | TextTest::Matches(_) => {}
                }
            }
        });
        texts
    }

    /// Returns the sets in which the condition searches this field.
    pub fn sets_of(&self, field: TextField) -> Vec<SetId> {
        let (mut sets, mut values) = (Vec::new(), Vec::new());
        self.expression.each_text_test(&mut |text, test| match test {
            TextTest::In(set) if *text == Text::Field(field) => sets.push(*set),
            _ => {}
        });
        self.expression.values(&mut values);
        for value in values {
            let Value::Text(Text::Of(set, _, key)) = value else { continue };
            if *key == Key::Text(Text::Field(field)) {
                sets.push(set);
            }
        }
        sets
    }

    /// Returns the source text of a part.
    pub(crate) fn text_of(&self, part: &Expression) -> &str {
        &self.text[part.span.start as usize..part.span.end as usize]
    }
}

/// Adds to a fault the cures for signs of other languages that occur later in the text.
fn with_signs(mut fault: Fault, text: &str) -> Fault {
    for cure in token::foreign_signs(text, fault.span.end) {
        fault.cure.push_str("; ");
        fault.cure.push_str(&cure);
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LookupKind;

    #[test]
    fn a_condition_says_what_a_field_is_compared_with() {
        let mut names = SetNames::default();
        let [a, b] = ["a", "b"].map(|name| names.add(name, LookupKind::Prefixes).expect("a name"));
        let of = |text: &str| Condition::compile(text, &names).expect(text);
        let condition = of("number == '1' or not (number in ['3', '2']) and number starts_with '4' and user == '5'");
        let mut texts = condition.texts_of(TextField::Number);
        texts.sort();
        assert_eq!(texts, ["1", "2", "3", "4"]);
        let sets = of("number in a and b[number] == 'x' and user in b").sets_of(TextField::Number);
        assert_eq!(sets, [a, b]);
        for (text, constant) in [
            ("true", Some(true)),
            ("not true", Some(false)),
            ("true or exists user", Some(true)),
            ("false and exists user", Some(false)),
            ("true and exists user", None),
            ("authenticated", None),
        ] {
            assert_eq!(of(text).constant(), constant, "{text}");
        }
    }

    #[test]
    fn a_condition_says_what_it_needs() {
        let mut names = SetNames::default();
        let vips = names.add("vips", LookupKind::Texts).expect("a name");
        let of = |text: &str| Condition::compile(text, &names).expect(text);
        let is_one = |test| match test {
            Test::Flag(flag) => flag == FlagField::Authenticated,
            Test::There(field) | Test::Listed(field) => field == TextField::User,
            Test::In(field, set) => field == TextField::User && set == vips,
            Test::Address(field) => field == AddressField::SourceAddress,
        };
        for text in [
            "authenticated",
            "method == 'INVITE' and authenticated",
            "authenticated or user in vips",
            "not (in_dialog or not authenticated)",
            "exists user and user != 'guest'",
            "user matches 'a'",
            "vips[user] == 'gold' or source.address in 10.0.0.0/8",
            "false or user == 'alice'",
        ] {
            assert!(of(text).needs(is_one), "{text}");
        }
        for text in [
            "true",
            "not authenticated",
            "authenticated or method == 'INVITE'",
            "user != 'guest'",
            "user not in vips",
            "not (in_dialog and not authenticated)",
            "not exists user",
            "from.user in vips",
            "source.address not in 10.0.0.0/8",
        ] {
            assert!(!of(text).needs(is_one), "{text}");
        }
    }

    #[test]
    fn a_condition_names_the_sets_that_it_queries() {
        let mut names = SetNames::default();
        let kinds = [
            ("a", LookupKind::Texts),
            ("b", LookupKind::Prefixes),
            ("c", LookupKind::Networks),
            ("d", LookupKind::Texts),
        ];
        let [a, b, c, d] = kinds.map(|(name, kind)| names.add(name, kind).expect("a name"));
        for (text, sets) in [
            ("method == 'INVITE' and size > 3", &[][..]),
            ("user in a or not (source.address not in c)", &[a, c]),
            ("a[b[number]] == 'x' and number in b", &[a, b]),
            ("exists d[user] and from.user != c[source.address]", &[d, c]),
        ] {
            assert_eq!(Condition::compile(text, &names).expect(text).sets(), sets, "{text}");
        }
    }

    #[test]
    fn a_fault_names_later_signs_of_other_languages() {
        let fault = Condition::compile("number startswith '00' && authenticated || x", &SetNames::default());
        let fault = fault.expect_err("no comparison is called so");
        assert!(fault.cure.contains("starts_with"), "{fault}");
        assert!(fault.cure.ends_with("; write `and` for `&&`; write `or` for `||`"), "{fault}");
    }
}
