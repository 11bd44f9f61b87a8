//! User-Agent texts, each stored once for the whole process.
//!
//! A million phones have a few hundred different User-Agent values, so a binding refers to its text by a 16-bit number.
//! Numbers are never released: a reader needs no lock. A flood of texts is bounded: after `limit` different texts (or
//! for a text over [`LONGEST`] bytes) a binding carries its own copy, some bytes more each.

use std::hash::BuildHasher;
use std::sync::{OnceLock, PoisonError, RwLock};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

/// Longest shared text, in bytes. Longer ones are rare and stay in the binding itself.
pub const LONGEST: usize = 255;

/// Table of shared texts.
pub struct UserAgentTexts {
    texts: Box<[OnceLock<Box<[u8]>>]>,
    index: RwLock<HashTable<u16>>,
    hasher: RandomState,
}

impl UserAgentTexts {
    /// Creates a table for `limit` different texts (at most 65,535); with 0 no text is shared.
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(usize::from(u16::MAX));
        Self {
            texts: (0..limit).map(|_| OnceLock::new()).collect(),
            index: RwLock::new(HashTable::new()),
            hasher: RandomState::default(),
        }
    }

    /// Returns the number of `text`, or `None` if it is empty, too long, or all numbers are taken.
    pub fn intern(&self, text: &[u8]) -> Option<u16> {
        if text.is_empty() || text.len() > LONGEST {
            return None;
        }
        let hash = self.hasher.hash_one(text);
        let same = |n: &u16| self.text(*n) == text;
        if let Some(n) = self.index.read().unwrap_or_else(PoisonError::into_inner).find(hash, same) {
            return Some(*n);
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = index.find(hash, same) {
            return Some(*n);
        }
        let n = index.len();
        self.texts.get(n)?.set(text.into()).ok()?;
        let n = u16::try_from(n).expect("the constructor allows at most 65,535 texts");
        index.insert_unique(hash, n, |n| self.hasher.hash_one(self.text(*n)));
        Some(n)
    }

    /// Returns the text of a number; empty for a number that was never given out.
    pub fn text(&self, n: u16) -> &[u8] {
        self.texts.get(usize::from(n)).and_then(|t| t.get()).map_or(&[], |t| t)
    }

    /// Returns the number of shared texts.
    pub fn len(&self) -> usize {
        self.index.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Tells whether no text is shared yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_a_number() {
        let agents = UserAgentTexts::new(8);
        let a = agents.intern(b"Phone 1.0").unwrap();
        let b = agents.intern(b"Phone 2.0").unwrap();
        assert_ne!(a, b);
        assert_eq!(agents.intern(b"Phone 1.0"), Some(a));
        assert_eq!(agents.text(a), b"Phone 1.0");
        assert_eq!(agents.text(b), b"Phone 2.0");
        assert_eq!(agents.len(), 2);
    }

    #[test]
    fn a_flood_of_texts_is_bounded() {
        let agents = UserAgentTexts::new(3);
        let given = (0..1000).filter(|n| agents.intern(format!("agent {n}").as_bytes()).is_some()).count();
        assert_eq!(given, 3);
        assert_eq!(agents.intern(b"agent 1"), Some(1), "known texts are still shared");
        assert_eq!(agents.intern(&[b'x'; LONGEST + 1]), None);
        assert_eq!(agents.intern(b""), None);
        assert_eq!(agents.text(999), b"");
    }
}
