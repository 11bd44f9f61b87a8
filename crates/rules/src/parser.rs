//! Parses a condition: recursive descent; a type fault is reported at the word with the wrong type.
//!
//! ```text
//! condition = and { "or" and }
//! and       = not { "and" not }
//! not       = "not" not | "(" condition ")" | "true" | "false" | "exists" value | test
//! test      = value [ comparison ]            a flag stands without comparison, all others with one
//! value     = FIELD | SET "[" value "]"
//! comparison = ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) ( literal | value )
//!           | [ "not" ] "in" ( SET | NETWORK | "[" literal { "," literal } [ "," ] "]" )
//!           | ( "matches" | "starts_with" | "ends_with" ) TEXT
//! literal   = TEXT | NUMBER | SIZE | ADDRESS | NETWORK
//! ```

use crate::condition::MAX_DEPTH;
use crate::expression::{Expression, ExpressionNode};
use crate::fault::did_you_mean;
use crate::field::{AddressField, FIELDS, Field, FlagField, NumberField};
use crate::token::{self, Token};
use crate::value::{Key, Text, Value};
use crate::{Fault, LookupKind, SetId, SetNames};
use std::ops::Range;

/// Source of tokens, and nesting depth.
pub(crate) struct Parser<'t> {
    pub(crate) text: &'t str,
    pub(crate) sets: &'t SetNames,
    /// Position of the next token, after the end of the last one.
    pub(crate) at: usize,
    depth: usize,
}

/// A value with its type.
pub(crate) enum Operand {
    Text(Text),
    Number(NumberField),
    Address(AddressField),
    Flag(FlagField),
}

impl<'t> Parser<'t> {
    /// Creates a parser of a text whose length fits 32 bits.
    pub(crate) const fn new(text: &'t str, sets: &'t SetNames) -> Self {
        Self { text, sets, at: 0, depth: 0 }
    }

    /// Parses the whole text as one condition.
    pub(crate) fn whole(mut self) -> Result<Expression, Fault> {
        if self.peek()?.0 == Token::End {
            return Err(Fault::new(
                0..self.text.len(),
                "the condition is empty",
                "write one such as method == 'INVITE'",
            ));
        }
        let expression = self.any()?;
        match self.next()? {
            (Token::End, _) => Ok(expression),
            (Token::Close, span) => {
                Err(Fault::new(span, "no parenthesis is open here", "remove this one, or open it before"))
            }
            (token, span) => Err(self.unjoined(token, span)),
        }
    }

    fn any(&mut self) -> Result<Expression, Fault> {
        let parts = self.parts("or", Self::all)?;
        Ok(joined(parts, false))
    }

    fn all(&mut self) -> Result<Expression, Fault> {
        let parts = self.parts("and", Self::not)?;
        Ok(joined(parts, true))
    }

    /// Parses parts that are joined by this word.
    fn parts(
        &mut self,
        word: &str,
        part: impl Fn(&mut Self) -> Result<Expression, Fault>,
    ) -> Result<Vec<Expression>, Fault> {
        let mut parts = vec![part(self)?];
        while self.peek()?.0 == Token::Word(word) {
            self.next()?;
            parts.push(part(self)?);
        }
        Ok(parts)
    }

    fn not(&mut self) -> Result<Expression, Fault> {
        let (token, span) = self.peek()?;
        match token {
            Token::Word("not") => {
                self.next()?;
                let inner = self.deeper(&span, Self::not)?;
                let span = part(span.start..inner.span.end as usize);
                Ok(negated(inner, span))
            }
            Token::Open => {
                self.next()?;
                let inner = self.deeper(&span, Self::any)?;
                match self.next()? {
                    (Token::Close, end) => Ok(Expression { span: part(span.start..end.end), ..inner }),
                    (Token::End, _) => {
                        Err(Fault::new(span, "this parenthesis is not closed", "write ) behind what it holds"))
                    }
                    (token, at) => Err(self.unjoined(token, at)),
                }
            }
            Token::Word(word @ ("true" | "false")) => {
                self.next()?;
                Ok(Expression { node: ExpressionNode::Constant(word == "true"), span: part(span) })
            }
            Token::Word("exists") => {
                self.next()?;
                let (operand, of) = self.value()?;
                let value = match operand {
                    Operand::Text(text) => Value::Text(text),
                    Operand::Number(field) => Value::Number(field),
                    Operand::Address(field) => Value::Address(field),
                    Operand::Flag(field) => {
                        let cure = format!("write `{}` or `not {}`", field.name(), field.name());
                        return Err(Fault::new(of, "a flag is always there", cure));
                    }
                };
                Ok(Expression { node: ExpressionNode::Exists(value), span: part(span.start..of.end) })
            }
            _ => self.test(),
        }
    }

    fn test(&mut self) -> Result<Expression, Fault> {
        let (operand, of) = self.value()?;
        let (node, is_negated) = match operand {
            Operand::Flag(field) => (self.flag(field)?, false),
            Operand::Text(text) => self.text_test(text, &of)?,
            Operand::Number(field) => self.number_test(field, &of)?,
            Operand::Address(field) => self.address_test(field, &of)?,
        };
        let span = part(of.start..self.at);
        let test = Expression { node, span: span.clone() };
        Ok(if is_negated { Expression { node: ExpressionNode::Opposite(Box::new(test)), span } } else { test })
    }

    /// Parses a field, or a look-up of one in a set.
    pub(crate) fn value(&mut self) -> Result<(Operand, Range<usize>), Fault> {
        let (token, span) = self.next()?;
        let Token::Word(word) = token else { return Err(self.no_value(token, span)) };
        match Field::named(word) {
            Some(Field::Text(field)) => Ok((Operand::Text(Text::Field(field)), span)),
            Some(Field::Header(name)) => Ok((Operand::Text(Text::Header(name)), span)),
            Some(Field::Number(field)) => Ok((Operand::Number(field), span)),
            Some(Field::Address(field)) => Ok((Operand::Address(field), span)),
            Some(Field::Flag(field)) => Ok((Operand::Flag(field), span)),
            None if self.peek().is_ok_and(|(token, _)| token == Token::OpenList) => {
                self.next()?;
                self.lookup(word, span)
            }
            None => Err(self.no_field(word, span)),
        }
    }

    /// Parses a look-up after `SET[`.
    fn lookup(&mut self, name: &str, at: Range<usize>) -> Result<(Operand, Range<usize>), Fault> {
        let (set, kind) = self.set(name, at.clone())?;
        let (key, of) = self.deeper(&at, Self::value)?;
        let key = self.key(key, kind, name, of)?;
        match self.next()? {
            (Token::CloseList, end) => {
                Ok((Operand::Text(Text::Of(set, name.into(), Box::new(key))), at.start..end.end))
            }
            (_, end) => Err(Fault::new(end, format!("`{name}[` is not closed"), format!("write `{name}[FIELD]`"))),
        }
    }

    /// Converts a value to a key of a set of this kind.
    pub(crate) fn key(&self, operand: Operand, kind: LookupKind, name: &str, span: Range<usize>) -> Result<Key, Fault> {
        match (operand, kind) {
            (Operand::Text(text), LookupKind::Texts | LookupKind::Prefixes) => Ok(Key::Text(text)),
            (Operand::Address(field), LookupKind::Networks) => Ok(Key::Address(field)),
            (_, kind) => {
                let cure = if kind == LookupKind::Networks {
                    "ask it for source.address"
                } else {
                    "ask it for text such as number"
                };
                let message = format!("`{name}` holds {}, which `{}` is not", kind.word(), &self.text[span.clone()]);
                Err(Fault::new(span, message, cure))
            }
        }
    }

    pub(crate) fn set(&self, name: &str, span: Range<usize>) -> Result<(SetId, LookupKind), Fault> {
        let found = self.sets.id(name).and_then(|id| Some((id, self.sets.of(id)?.1)));
        found.ok_or_else(|| {
            let cure = self.sets.nearest(name).unwrap_or_else(|| match self.sets.iter().next() {
                None => "no set is defined; a list stands in brackets, such as ['a', 'b']".into(),
                Some(_) => {
                    let names: Vec<&str> = self.sets.iter().map(|(_, name, _)| name).take(8).collect();
                    format!("sets are {}", names.join(", "))
                }
            });
            Fault::new(span, format!("there is no set `{}`", name.escape_debug()), cure)
        })
    }

    /// Returns the fault of a token after the end of a test that no operator joins.
    fn unjoined(&self, token: Token<'_>, span: Range<usize>) -> Fault {
        let near = if let Token::Word(word) = token { did_you_mean(word, ["and", "or"]) } else { None };
        let cure = near.unwrap_or_else(|| "write `and` or `or` before it, or remove it".into());
        Fault::new(span.clone(), format!("the condition goes on with `{}`", &self.text[span]), cure)
    }

    /// Returns the fault for a word in the position of a field that is not the name of a field.
    pub(crate) fn no_field(&self, word: &str, span: Range<usize>) -> Fault {
        if self.sets.id(word).is_some() {
            let cure = format!("write `FIELD in {word}`, or `{word}[FIELD] == 'text'`");
            return Fault::new(span, format!("`{word}` is a set"), cure);
        }
        let others = ["not", "exists", "true", "false"].into_iter();
        let names = FIELDS.iter().map(|row| row.name).chain(self.sets.iter().map(|(_, name, _)| name)).chain(others);
        let cure = did_you_mean(word, names).unwrap_or_else(|| match word {
            "header" | "header." => "write the name of the header field, such as header.User-Agent".into(),
            _ => "a test begins with a field, such as method or from.user".into(),
        });
        Fault::new(span, format!("there is no field `{word}`"), cure)
    }

    /// Returns the fault for a token in the position of a field that is not a word.
    fn no_value(&self, token: Token<'_>, span: Range<usize>) -> Fault {
        let cure = match token {
            Token::Text(_) => "write the field first: method == 'INVITE'",
            _ => "a test begins with a field, such as method or from.user",
        };
        let message = if token == Token::End {
            "the condition ends where a test should stand".into()
        } else {
            format!("{} is no field", self.named(&span))
        };
        Fault::new(span, message, cure)
    }

    /// Returns the token as a sentence names it.
    pub(crate) fn named(&self, span: &Range<usize>) -> String {
        if span.is_empty() { "the end".into() } else { format!("`{}`", &self.text[span.clone()]) }
    }

    /// Parses a nested part; `at` is the span of the enclosing one.
    fn deeper<T>(&mut self, at: &Range<usize>, part: impl Fn(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            let message = format!("this is nested deeper than {MAX_DEPTH} levels");
            return Err(Fault::new(at.clone(), message, "cut the condition into several rules"));
        }
        self.depth += 1;
        let read = part(self);
        self.depth -= 1;
        read
    }

    pub(crate) fn peek(&self) -> Result<(Token<'t>, Range<usize>), Fault> {
        token::next(self.text, self.at)
    }

    pub(crate) fn next(&mut self) -> Result<(Token<'t>, Range<usize>), Fault> {
        let (token, span) = self.peek()?;
        self.at = span.end;
        Ok((token, span))
    }
}

/// Returns the span of a part; the length of a condition fits 32 bits.
fn part(span: Range<usize>) -> Range<u32> {
    let short = |at| u32::try_from(at).expect("a condition is short");
    short(span.start)..short(span.end)
}

/// Negates an expression.
fn negated(inner: Expression, span: Range<u32>) -> Expression {
    let node = match inner.node {
        ExpressionNode::Constant(value) => ExpressionNode::Constant(!value),
        _ => ExpressionNode::Not(Box::new(inner)),
    };
    Expression { node, span }
}

/// Joins parts of which all must hold, or one. Constants decide or disappear.
fn joined(mut parts: Vec<Expression>, all: bool) -> Expression {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { unreachable!("there is a part at least") };
    let span = first.span.start..last.span.end;
    if let Some(decides) =
        parts.iter().position(|part| matches!(part.node, ExpressionNode::Constant(value) if value != all))
    {
        return parts.swap_remove(decides);
    }
    if parts.len() > 1 {
        parts.retain(|part| !matches!(part.node, ExpressionNode::Constant(_)));
    }
    match parts.len() {
        0 => Expression { node: ExpressionNode::Constant(all), span },
        1 => parts.remove(0),
        _ => Expression {
            node: if all { ExpressionNode::And(parts.into()) } else { ExpressionNode::Or(parts.into()) },
            span,
        },
    }
}
