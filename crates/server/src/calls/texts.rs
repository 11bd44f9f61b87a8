//! Several texts in one piece of memory.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Texts of at most 65,535 bytes each, and as many of them, behind their number and their lengths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Texts(Box<[u8]>);

/// Bytes of the number, and of each length.
const WORD: usize = 2;

impl Texts {
    /// Longer ones are cut.
    pub(crate) fn new(texts: &[&[u8]]) -> Self {
        let word = |number: usize| (number as u16).to_le_bytes();
        let texts = &texts[..texts.len().min(usize::from(u16::MAX))];
        let cut = texts.iter().map(|text| &text[..text.len().min(usize::from(u16::MAX))]);
        let length: usize = cut.clone().map(|text| WORD + text.len()).sum();
        let mut bytes = Vec::with_capacity(WORD + length);
        bytes.extend_from_slice(&word(texts.len()));
        cut.clone().for_each(|text| bytes.extend_from_slice(&word(text.len())));
        cut.for_each(|text| bytes.extend_from_slice(text));
        Self(bytes.into())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.word(0)
    }

    fn word(&self, number: usize) -> usize {
        match self.0.get(WORD * number..WORD * (number + 1)) {
            Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
            _ => 0,
        }
    }

    /// The text with this number; empty where there is none.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let count = self.count();
        if number >= count {
            return b"";
        }
        let from = WORD * (1 + count) + (0..number).map(|n| self.word(1 + n)).sum::<usize>();
        self.0.get(from..from + self.word(1 + number)).unwrap_or_default()
    }

    /// The same with other texts in these places.
    pub(crate) fn with(&self, others: &[(usize, &[u8])]) -> Self {
        let count = others.iter().map(|(number, _)| number + 1).fold(self.count(), usize::max);
        let other = |n: usize| others.iter().find(|(number, _)| *number == n).map(|(_, text)| *text);
        let texts: SmallVec<[&[u8]; 16]> = (0..count).map(|n| other(n).unwrap_or_else(|| self.get(n))).collect();
        Self::new(&texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let texts = Texts::new(&[b"one", b"", b"three"]);
        assert_eq!([0, 1, 2, 3].map(|n| texts.get(n)), [&b"one"[..], b"", b"three", b""]);
        let other = texts.with(&[(1, b"two"), (4, b"five")]);
        assert_eq!([0, 1, 2, 3, 4].map(|n| other.get(n)), [&b"one"[..], b"two", b"three", b"", b"five"]);
        assert_eq!((texts.count(), other.count()), (3, 5));
        assert_eq!((Texts::default().get(0), Texts::default().count()), (&b""[..], 0));
    }

    #[test]
    fn bytes_that_were_no_texts_have_none() {
        for bytes in [&[3][..], &[1, 0, 9, 0, b'x'], &[255, 255, 255]] {
            let texts = Texts(bytes.into());
            assert!((0..4).all(|n| texts.get(n).is_empty()), "{bytes:?}");
        }
    }
}
