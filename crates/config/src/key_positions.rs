//! Positions of the keys in the text of a configuration.

use std::collections::BTreeMap;
use std::ops::Range;

/// Positions of a key and its value.
#[derive(Debug, Clone)]
struct KeyPosition {
    key: Range<usize>,
    value: Range<usize>,
}

/// Positions of all keys of a text, by their names with table: `timers.t1`, `listener[0].port`.
#[derive(Debug, Clone, Default)]
pub struct KeyPositions(BTreeMap<String, KeyPosition>);

impl KeyPositions {
    pub(super) fn note(&mut self, path: &str, key: Range<usize>, value: Range<usize>) {
        self.0.insert(path.to_owned(), KeyPosition { key, value });
    }

    /// Tells whether the text has this key.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Returns the position of the value of a key, if the text has it.
    pub fn value_of(&self, path: &str) -> Option<Range<usize>> {
        self.0.get(path).map(|place| place.value.clone())
    }

    /// Returns the position of the value of the first of these keys that the text has.
    pub fn first_of(&self, paths: &[&str]) -> Option<Range<usize>> {
        paths.iter().find_map(|path| self.value_of(path))
    }

    /// Returns the position of a key itself, if the text has it.
    pub fn key_of(&self, path: &str) -> Option<Range<usize>> {
        self.0.get(path).map(|place| place.key.clone())
    }

    /// Returns the names of `all` listeners: first the entries of `listen`, then the tables `[[listener]]`.
    pub fn listeners(&self, all: usize) -> Vec<String> {
        let short = all - (0..).take_while(|index| self.has(&format!("listener[{index}]"))).count().min(all);
        let path = |index: usize| match index.checked_sub(short) {
            None => format!("listen[{index}]"),
            Some(index) => format!("listener[{index}]"),
        };
        (0..all).map(path).collect()
    }
}
