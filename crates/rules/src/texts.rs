//! Whole texts: sorted, with a hash table that costs a few octets per text.

use crate::Case;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

/// Texts in one buffer, each with a number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arena {
    text: String,
    /// End of each text.
    ends: Vec<u32>,
}

impl Arena {
    /// Adds a text and returns its number; `None` if the total would exceed 4 GiB.
    pub(crate) fn push(&mut self, text: &str) -> Option<u32> {
        let id = u32::try_from(self.ends.len()).ok()?;
        let end = u32::try_from(self.text.len() + text.len()).ok()?;
        self.text.push_str(text);
        self.ends.push(end);
        Some(id)
    }

    /// Returns the text with a number that [`Self::push`] returned.
    pub(crate) fn text(&self, id: u32) -> &str {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.text[start..self.ends[id] as usize]
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).expect("push counts in 32 bits")
    }

    /// Converts all ASCII letters to lower case.
    pub(crate) fn make_lowercase(&mut self) {
        self.text.make_ascii_lowercase();
    }

    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub(crate) const fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// Sorted texts for exact look-up. The number of each is its index.
#[derive(Debug)]
pub(crate) struct Texts {
    keys: Arena,
    places: HashTable<u32>,
}

/// The hash table follows from the keys.
impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for Texts {}

impl Texts {
    /// Builds the table from sorted, distinct texts.
    pub(crate) fn new(mut keys: Arena) -> Self {
        keys.shrink();
        let mut places = HashTable::with_capacity(keys.len() as usize);
        for id in 0..keys.len() {
            let hash = |id: &u32| hash(keys.text(*id).as_bytes());
            places.insert_unique(hash(&id), id, hash);
        }
        Self { keys, places }
    }

    /// Returns all texts in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.keys.len()).map(|id| self.keys.text(id))
    }

    /// Returns the number of a text. If case is ignored, several texts may be equal: the result is the first of them in
    /// order.
    pub(crate) fn find(&self, text: &[u8], case: Case) -> Option<u32> {
        let hash = hash(text);
        match case {
            Case::Exact => self.places.find(hash, |id| self.keys.text(*id).as_bytes() == text).copied(),
            Case::Ignored => {
                let same = |id: &&u32| self.keys.text(**id).as_bytes().eq_ignore_ascii_case(text);
                self.places.iter_hash(hash).filter(same).min().copied()
            }
        }
    }

    pub(crate) const fn keys(&self) -> &Arena {
        &self.keys
    }

    /// Returns the numbers of the texts that begin with this text.
    pub(crate) fn beginning(&self, beginning: &str) -> impl Iterator<Item = u32> + use<'_> {
        let (mut low, mut high) = (0, self.keys.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.keys.text(middle) < beginning { low = middle + 1 } else { high = middle }
        }
        let beginning = beginning.to_owned();
        (low..self.keys.len()).take_while(move |id| self.keys.text(*id).starts_with(&beginning))
    }

    pub(crate) fn memory(&self) -> usize {
        self.keys.memory() + self.places.allocation_size()
    }
}

/// Returns a hash that is equal for texts that differ only in case, so that one table serves both comparisons. The seed
/// is not secret: the entries of a table come from the operator, and a peer's text is only looked up.
pub(crate) fn hash(text: &[u8]) -> u64 {
    /// The bit that makes letters of both cases equal. Other octets become equal too, which does no harm.
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let mut hasher = FixedState::with_seed(0x5e75).build_hasher();
    let (words, rest) = text.as_chunks::<8>();
    for word in words {
        hasher.write_u64(u64::from_le_bytes(*word) | LOWER);
    }
    let last = match text.last_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => rest.iter().fold(0, |word, octet| word << 8 | u64::from(*octet)),
    };
    hasher.write_u64(last | LOWER);
    hasher.write_usize(text.len());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(keys: &[&str]) -> Texts {
        let mut arena = Arena::default();
        keys.iter().for_each(|key| assert!(arena.push(key).is_some()));
        Texts::new(arena)
    }

    #[test]
    fn a_text_is_found_with_and_without_its_case() {
        let long = "x".repeat(200);
        let texts = texts(&["", "ALICE", "Alice", "alice", "bob", &long]);
        for (text, exact, ignored) in [
            ("alice", Some(3), Some(1)),
            ("ALICE", Some(1), Some(1)),
            ("aLICE", None, Some(1)),
            ("BOB", None, Some(4)),
            ("", Some(0), Some(0)),
            (&long, Some(5), Some(5)),
            ("carol", None, None),
        ] {
            assert_eq!(texts.find(text.as_bytes(), Case::Exact), exact, "{text}");
            assert_eq!(texts.find(text.as_bytes(), Case::Ignored), ignored, "{text}");
        }
        assert_eq!(texts.find(b"\xff", Case::Exact), None);
    }

    #[test]
    fn texts_with_a_beginning_are_adjacent() {
        let texts = texts(&["1", "10", "11", "110", "2"]);
        assert_eq!(texts.beginning("11").collect::<Vec<_>>(), [2, 3]);
        assert_eq!(texts.beginning("").count(), 5);
        assert_eq!(texts.beginning("3").count(), 0);
    }
}
