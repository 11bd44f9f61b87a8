//! Names of sets for conditions, and a snapshot of their contents.

use crate::fault::did_you_mean;
use crate::field::Field;
use crate::token::in_word;
use crate::{LookupKind, Refusal, Set};
use std::sync::Arc;

/// Reserved words of the language.
const WORDS: [&str; 11] =
    ["and", "or", "not", "in", "exists", "matches", "starts_with", "ends_with", "true", "false", "header"];

/// Identifier of a named set: its index in each snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u32);

/// Names and kinds of sets, against which a condition is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetNames(Vec<(Box<str>, LookupKind)>);

impl SetNames {
    /// Adds a named set.
    ///
    /// # Errors
    /// Another set has the name, it is a word of the language or a field, or its form is wrong: a name begins with a
    /// letter and consists of letters, digits, `-`, `_` and `.`.
    pub fn add(&mut self, name: &str, kind: LookupKind) -> Result<SetId, Refusal> {
        let has_form = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(in_name);
        let refuse = |message: String, cure: &str| Err(Refusal::new(message, cure));
        if !has_form {
            let cure = "begin with a letter and go on with letters, digits, -, _ and .";
            return refuse(format!("`{}` is no name of a set", name.escape_debug()), cure);
        }
        if WORDS.contains(&name) || Field::named(name).is_some() {
            return refuse(format!("`{name}` has another meaning in conditions"), "give the set another name");
        }
        if self.id(name).is_some() {
            return refuse(format!("two sets are called `{name}`"), "give each set a name of its own");
        }
        let id = SetId(u32::try_from(self.0.len()).expect("sets are few"));
        self.0.push((name.into(), kind));
        Ok(id)
    }

    /// Returns the set with this name.
    pub fn id(&self, name: &str) -> Option<SetId> {
        let place = self.0.iter().position(|(known, _)| **known == *name)?;
        u32::try_from(place).ok().map(SetId)
    }

    /// Returns the name and kind of a set.
    pub fn of(&self, id: SetId) -> Option<(&str, LookupKind)> {
        self.0.get(id.0 as usize).map(|(name, kind)| (&**name, *kind))
    }

    /// Returns all sets, with name and kind.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &str, LookupKind)> {
        self.0.iter().zip(0..).map(|((name, kind), id)| (SetId(id), &**name, *kind))
    }

    /// Returns a question with the nearest name.
    pub(crate) fn nearest(&self, written: &str) -> Option<String> {
        did_you_mean(written, self.0.iter().map(|(name, _)| &**name))
    }
}

/// Tells whether a name may contain this character. Unlike a word, a name contains neither `:` nor `/`.
const fn in_name(c: char) -> bool {
    in_word(c) && !matches!(c, ':' | '/')
}

/// Snapshot of the contents of all sets. Copies share the sets; a change makes a new snapshot.
#[derive(Clone, Debug)]
pub struct Sets(Arc<[Arc<Set>]>);

impl Sets {
    /// Creates a snapshot of empty sets.
    pub fn empty(names: &SetNames) -> Self {
        let empty = |kind| Set::new(kind, [("", None::<&str>); 0]).expect("no entry is wrong");
        Self(names.0.iter().map(|(_, kind)| Arc::new(empty(*kind))).collect())
    }

    /// Returns a snapshot with one set replaced; rules that name it need no recompilation.
    ///
    /// # Errors
    /// The new set has another kind than the one for which the rules were compiled, or `id` does not exist.
    pub fn with(&self, id: SetId, set: Arc<Set>) -> Result<Self, Refusal> {
        let mut sets: Vec<Arc<Set>> = self.0.to_vec();
        let there = sets.get_mut(id.0 as usize);
        let there =
            there.ok_or_else(|| Refusal::new("there is no such set", "take the id from the names of this snapshot"))?;
        if there.kind() != set.kind() {
            let message = format!("this set holds {}", set.kind().word());
            return Err(Refusal::new(message, format!("its rules need {}", there.kind().word())));
        }
        *there = set;
        Ok(Self(sets.into()))
    }

    /// Returns the contents of this set; `None` if the snapshot was made for other names of sets.
    pub fn set(&self, id: SetId) -> Option<&Arc<Set>> {
        self.0.get(id.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_form_and_is_no_other_word() {
        let mut names = SetNames::default();
        let id = names.add("vip-users.de", LookupKind::Texts).expect("a name");
        assert_eq!((names.id("vip-users.de"), names.of(id)), (Some(id), Some(("vip-users.de", LookupKind::Texts))));
        for (name, message) in [
            ("vip-users.de", "two sets are called `vip-users.de`"),
            ("in", "`in` has another meaning in conditions"),
            ("from.user", "`from.user` has another meaning in conditions"),
            ("header.x", "`header.x` has another meaning in conditions"),
            ("", "`` is no name of a set"),
            ("49", "`49` is no name of a set"),
            ("a:b", "`a:b` is no name of a set"),
            ("a b", "`a b` is no name of a set"),
        ] {
            assert_eq!(names.add(name, LookupKind::Texts).expect_err(name).message, message);
        }
        assert_eq!(names.iter().count(), 1);
    }

    #[test]
    fn a_snapshot_stays_when_another_is_made() {
        let mut names = SetNames::default();
        let id = names.add("a", LookupKind::Texts).expect("a name");
        let before = Sets::empty(&names);
        let set = Set::new(LookupKind::Texts, [("x", None::<&str>)]).expect("a set");
        let after = before.with(id, Arc::new(set)).expect("a set of texts");
        let len = |sets: &Sets| sets.set(id).map(|set| set.len());
        assert_eq!((len(&before), len(&after)), (Some(0), Some(1)));
        let other = Set::new(LookupKind::Prefixes, [("x", None::<&str>)]).expect("a set");
        let refusal = before.with(id, Arc::new(other)).expect_err("another kind");
        assert_eq!(refusal.to_string(), "this set holds prefixes: its rules need texts");
        assert!(before.with(SetId(7), Arc::clone(after.set(id).expect("it is there"))).is_err());
        assert!(before.set(SetId(7)).is_none());
    }
}
