//! Parses the comparison after a value, and its right operand.

use crate::expression::{AddressTest, ExpressionNode, NumberTest, TextTest};
use crate::fault::did_you_mean;
use crate::field::{AddressField, Case, FIELDS, Field, FlagField, NumberField};
use crate::networks::Networks;
use crate::parser::{Operand, Parser};
use crate::pattern::Pattern;
use crate::texts::{Arena, Texts};
use crate::token::{OrderRelation, Token};
use crate::value::Text;
use crate::{Fault, Network};
use std::ops::Range;

const TEXT_COMPARISONS: [&str; 7] = ["==", "!=", "in", "not in", "matches", "starts_with", "ends_with"];
const NUMBER_COMPARISONS: [&str; 8] = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"];
const ADDRESS_COMPARISONS: [&str; 4] = ["==", "!=", "in", "not in"];

const NUMBER: &str = "a number such as 70, or a size such as 4KiB";

impl<'t> Parser<'t> {
    /// Parses what follows a flag, which has no comparison.
    pub(crate) fn flag(&self, field: FlagField) -> Result<ExpressionNode, Fault> {
        let (token, span) = self.peek()?;
        if matches!(token, Token::Compare(_) | Token::Word("in" | "matches" | "starts_with" | "ends_with")) {
            let cure = format!("write `{}` or `not {}`", field.name(), field.name());
            return Err(Fault::new(span, format!("`{}` holds or does not", field.name()), cure));
        }
        Ok(ExpressionNode::Flag(field))
    }

    pub(crate) fn text_test(&mut self, text: Text, of: &Range<usize>) -> Result<(ExpressionNode, bool), Fault> {
        let case = text.case();
        let (test, is_negated) = match self.comparison(of, &TEXT_COMPARISONS)? {
            Comparison::Order(order @ (OrderRelation::Equal | OrderRelation::Unequal), _) => {
                let is_negated = order == OrderRelation::Unequal;
                if let Token::Text(wanted) = self.peek()?.0 {
                    self.next()?;
                    return Ok((ExpressionNode::Text(text, case, TextTest::Is(wanted.into())), is_negated));
                }
                let (other, span) = self.other(of, "text between quotes, such as 'alice'")?;
                let Operand::Text(other) = other else { return Err(self.type_mismatch(of, span, "text")) };
                let both = if other.case() == Case::Ignored { Case::Ignored } else { case };
                return Ok((ExpressionNode::Text(text, both, TextTest::Same(other)), is_negated));
            }
            Comparison::Order(_, at) => {
                let cure = format!("compare it by {}", or_list(&TEXT_COMPARISONS));
                return Err(Fault::new(at, "text has no order", cure));
            }
            Comparison::In(is_negated) => (self.within_texts(&text, of)?, is_negated),
            Comparison::Word(word) => {
                let (wanted, span) = self.quoted(word)?;
                let test = match word {
                    "starts_with" => TextTest::StartsWith(wanted.into()),
                    "ends_with" => TextTest::EndsWith(wanted.into()),
                    _ => TextTest::Matches(Box::new(Pattern::new(wanted, case, &(span.start + 1..span.end - 1))?)),
                };
                (test, false)
            }
        };
        Ok((ExpressionNode::Text(text, case, test), is_negated))
    }

    fn within_texts(&mut self, text: &Text, of: &Range<usize>) -> Result<TextTest, Fault> {
        let (token, span) = self.next()?;
        match token {
            Token::OpenList => {
                let mut listed = self.list(&span, |parser| Ok(parser.quoted("in")?.0))?;
                listed.sort_unstable();
                listed.dedup();
                let mut arena = Arena::default();
                listed.iter().for_each(|text| {
                    arena.push(text).expect("a list is shorter than the text of a condition");
                });
                Ok(TextTest::OneOf(Texts::new(arena)))
            }
            Token::Word(name) => {
                let (set, kind) = self.set(name, span)?;
                self.key(Operand::Text(text.clone()), kind, name, of.clone())?;
                Ok(TextTest::In(set))
            }
            _ => {
                Err(Fault::new(span, "here a set is missing", "write the name of a set, or a list such as ['a', 'b']"))
            }
        }
    }

    pub(crate) fn number_test(
        &mut self,
        field: NumberField,
        of: &Range<usize>,
    ) -> Result<(ExpressionNode, bool), Fault> {
        let (test, is_negated) = match self.comparison(of, &NUMBER_COMPARISONS)? {
            Comparison::Order(order, _) => {
                // An absent number is unequal to all numbers, so that `!=` is the opposite of `==`.
                let is_negated = order == OrderRelation::Unequal;
                let order = if is_negated { OrderRelation::Equal } else { order };
                let (token, span) = self.peek()?;
                if let Token::Word(word) = token
                    && !word.starts_with(|c: char| c.is_ascii_digit())
                {
                    let (other, span) = self.other(of, NUMBER)?;
                    let Operand::Number(other) = other else { return Err(self.type_mismatch(of, span, "a number")) };
                    (NumberTest::Same(order, other), is_negated)
                } else {
                    self.next()?;
                    (NumberTest::Is(order, self.number(token, span)?), is_negated)
                }
            }
            Comparison::In(is_negated) => {
                let (token, span) = self.next()?;
                if token != Token::OpenList {
                    let cure = "write a list such as [5060, 5061], or compare it by < and >";
                    return Err(Fault::new(span, "a number is in a list alone", cure));
                }
                let mut listed = self.list(&span, |parser| {
                    let (token, span) = parser.next()?;
                    parser.number(token, span)
                })?;
                listed.sort_unstable();
                (NumberTest::OneOf(listed.into()), is_negated)
            }
            Comparison::Word(_) => unreachable!("no comparison of numbers is another word"),
        };
        Ok((ExpressionNode::Number(field, test), is_negated))
    }

    fn number(&self, token: Token<'_>, span: Range<usize>) -> Result<u64, Fault> {
        let cure = match token {
            Token::Word(word) => match number(word) {
                Some(number) => return Ok(number),
                None => format!("write {}", NUMBER),
            },
            Token::Text(text) if number(text).is_some() => "write it without quotes".into(),
            _ => format!("write {}", NUMBER),
        };
        Err(Fault::new(span.clone(), format!("{} is no number", self.named(&span)), cure))
    }

    pub(crate) fn address_test(
        &mut self,
        field: AddressField,
        of: &Range<usize>,
    ) -> Result<(ExpressionNode, bool), Fault> {
        let (test, is_negated) = match self.comparison(of, &ADDRESS_COMPARISONS)? {
            Comparison::Order(order @ (OrderRelation::Equal | OrderRelation::Unequal), _) => {
                let (token, span) = self.next()?;
                let network = self.network(token, span.clone())?;
                if !network.is_address() {
                    let cure = format!("write `{} in {network}`", field.name());
                    return Err(Fault::new(span, "a network is more than one address", cure));
                }
                (AddressTest::Within(Networks::new(&[(network, 0)])), order == OrderRelation::Unequal)
            }
            Comparison::Order(_, at) => {
                let cure = format!("compare it by {}", or_list(&ADDRESS_COMPARISONS));
                return Err(Fault::new(at, "addresses have no order", cure));
            }
            Comparison::In(is_negated) => (self.within_networks(field, of)?, is_negated),
            Comparison::Word(_) => unreachable!("no comparison of addresses is another word"),
        };
        Ok((ExpressionNode::Address(field, test), is_negated))
    }

    fn within_networks(&mut self, field: AddressField, of: &Range<usize>) -> Result<AddressTest, Fault> {
        let (token, span) = self.next()?;
        match token {
            Token::OpenList => {
                let mut listed = self.list(&span, |parser| {
                    let (token, span) = parser.next()?;
                    Ok((parser.network(token, span)?, 0))
                })?;
                listed.sort_unstable();
                listed.dedup();
                Ok(AddressTest::Within(Networks::new(&listed)))
            }
            Token::Word(word) if Network::read(word).is_err() && !word.contains([':', '/']) => {
                let (set, kind) = self.set(word, span)?;
                self.key(Operand::Address(field), kind, word, of.clone())?;
                Ok(AddressTest::In(set))
            }
            _ => Ok(AddressTest::Within(Networks::new(&[(self.network(token, span)?, 0)]))),
        }
    }

    fn network(&self, token: Token<'_>, span: Range<usize>) -> Result<Network, Fault> {
        match token {
            Token::Word(text) | Token::Text(text) => Network::read(text).map_err(|refusal| refusal.at(span)),
            _ => {
                let message = format!("{} is no address", self.named(&span));
                Err(Fault::new(span, message, format!("write {}", Network::EXPECTED)))
            }
        }
    }

    /// Reads the sign or word between two values; it must be one that the type of the left value allows.
    fn comparison(&mut self, of: &Range<usize>, allowed: &[&str]) -> Result<Comparison<'t>, Fault> {
        let (token, span) = self.next()?;
        match token {
            Token::Compare(order) => return Ok(Comparison::Order(order, span)),
            Token::Word("in") => return Ok(Comparison::In(false)),
            Token::Word("not") if self.peek()?.0 == Token::Word("in") => {
                self.next()?;
                return Ok(Comparison::In(true));
            }
            Token::Word(word) if allowed.contains(&word) => return Ok(Comparison::Word(word)),
            _ => (),
        }
        let value = &self.text[of.clone()];
        let near = match token {
            Token::Word(word) if TEXT_COMPARISONS.contains(&word) => {
                let message = format!("`{word}` compares texts, which `{value}` is not");
                return Err(Fault::new(span, message, format!("compare it by {}", or_list(allowed))));
            }
            Token::Word(word) => did_you_mean(word, allowed.iter().copied()),
            _ => None,
        };
        let cure = near.unwrap_or_else(|| format!("write {} behind `{value}`", or_list(allowed)));
        Err(Fault::new(span, format!("here a comparison of `{value}` is missing"), cure))
    }

    /// Reads a value to the right of a comparison; `literal` names the allowed literals.
    fn other(&mut self, of: &Range<usize>, literal: &str) -> Result<(Operand, Range<usize>), Fault> {
        let (token, span) = self.peek()?;
        match token {
            Token::Word(word) if Field::named(word).is_some() || self.sets.id(word).is_some() => self.value(),
            Token::Word(word) if did_you_mean(word, FIELDS.iter().map(|row| row.name)).is_none() => {
                let cure = if literal == NUMBER {
                    format!("write {NUMBER}")
                } else {
                    format!("text stands between quotes: '{word}'")
                };
                Err(Fault::new(span, format!("`{word}` is neither a field nor a constant"), cure))
            }
            Token::Word(word) => Err(self.no_field(word, span)),
            _ => {
                let message = format!("here is nothing to compare `{}` with", &self.text[of.clone()]);
                Err(Fault::new(span, message, format!("write {literal}")))
            }
        }
    }

    /// Returns the fault of a value whose type differs from that of the value to its left.
    fn type_mismatch(&self, of: &Range<usize>, span: Range<usize>, word: &str) -> Fault {
        let message = format!("`{}` is {word}, `{}` is not", &self.text[of.clone()], &self.text[span.clone()]);
        Fault::new(span, message, format!("compare {word} with {word}"))
    }

    /// Reads quoted text after this word.
    fn quoted(&mut self, word: &str) -> Result<(&'t str, Range<usize>), Fault> {
        let (token, span) = self.next()?;
        let cure = match token {
            Token::Text(text) => return Ok((text, span)),
            Token::Word(text) => format!("text stands between quotes: '{text}'"),
            _ => "write text between quotes, such as '49'".into(),
        };
        Err(Fault::new(span, format!("`{word}` needs text here"), cure))
    }

    /// Reads items up to the end of a list that begins at `open`.
    fn list<I>(
        &mut self,
        open: &Range<usize>,
        mut item: impl FnMut(&mut Self) -> Result<I, Fault>,
    ) -> Result<Vec<I>, Fault> {
        let mut items = Vec::new();
        loop {
            let (token, span) = self.peek()?;
            match token {
                Token::CloseList if items.is_empty() => {
                    return Err(Fault::new(
                        open.start..span.end,
                        "the list is empty",
                        "write what is in it, or `false`",
                    ));
                }
                Token::CloseList => {
                    self.next()?;
                    return Ok(items);
                }
                Token::End => {
                    return Err(Fault::new(open.clone(), "this list is not closed", "write ] behind its last item"));
                }
                _ => items.push(item(self)?),
            }
            let (token, span) = self.peek()?;
            match token {
                Token::Comma => self.at = span.end,
                Token::CloseList | Token::End => (),
                _ => {
                    return Err(Fault::new(
                        span,
                        "here a comma is missing",
                        "write , between two items, ] behind the last",
                    ));
                }
            }
        }
    }
}

/// Operator between two values.
enum Comparison<'t> {
    Order(OrderRelation, Range<usize>),
    /// `in`; true for `not in`.
    In(bool),
    Word(&'t str),
}

/// Parses a number, or a size with a unit.
fn number(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Joins words for a sentence.
fn or_list(words: &[&str]) -> String {
    let [others @ .., last] = words else { return String::new() };
    format!("{} or {last}", others.join(", "))
}
