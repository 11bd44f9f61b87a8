//! A condition: a text that was compiled, and is judged by the facts of a request.

use crate::expression::{Expression, Node};
use crate::field::Facts;
use crate::parser::Parser;
use crate::value::World;
use crate::{Fault, SetId, SetNames, Sets};

/// The longest text of a condition, in bytes.
pub const MAX_LENGTH: usize = 16 << 10;

/// How deep parentheses, `not` and look-ups may be nested.
pub const MAX_DEPTH: usize = 64;

/// A condition that was compiled. Judging it ends always, allocates nothing and takes no lock.
#[derive(Debug)]
pub struct Condition {
    text: Box<str>,
    pub(crate) expression: Expression,
}

impl Condition {
    /// Compiles a condition that may name these sets.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place in the text.
    pub fn compile(text: &str, sets: &SetNames) -> Result<Self, Fault> {
        if text.len() > MAX_LENGTH {
            let at = (0..=MAX_LENGTH).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let message = format!("the condition is longer than {MAX_LENGTH} bytes");
            return Err(Fault::new(at..text.len(), message, "put its texts into a set, or cut it into several rules"));
        }
        Ok(Self { text: text.into(), expression: Parser::new(text, sets).whole()? })
    }

    /// One that always holds.
    pub fn always() -> Self {
        Self { text: "true".into(), expression: Expression { node: Node::Constant(true), span: 0..4 } }
    }

    /// What it was compiled from.
    pub const fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for these facts.
    pub fn holds<F: Facts + ?Sized>(&self, facts: &F, sets: &Sets) -> bool {
        self.expression.holds(&World { facts, sets })
    }

    /// The sets that it asks, each once.
    pub fn sets(&self) -> Vec<SetId> {
        let mut sets = Vec::new();
        self.expression.each_set(&mut |set| {
            if !sets.contains(&set) {
                sets.push(set);
            }
        });
        sets
    }

    /// The text of a part.
    pub(crate) fn text_of(&self, part: &Expression) -> &str {
        &self.text[part.span.start as usize..part.span.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_condition_names_the_sets_that_it_asks() {
        let mut names = SetNames::default();
        let kinds = [("a", Kind::Texts), ("b", Kind::Prefixes), ("c", Kind::Networks), ("d", Kind::Texts)];
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
}
