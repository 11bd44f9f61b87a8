//! Several texts in one piece of memory.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Texts of at most [`LONGEST`] bytes each. Before each text is its length as a LEB128 varint: one byte for most texts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Texts(Box<[u8]>);

/// Maximum bytes of a text.
const LONGEST: usize = u16::MAX as usize;

/// Maximum bytes of a length, seven bits in each.
const LENGTH_BYTES: usize = 3;

impl Texts {
    /// Stores these texts. A longer text is cut.
    pub(crate) fn new(texts: &[&[u8]]) -> Self {
        let texts = texts.iter().map(|text| &text[..text.len().min(LONGEST)]);
        let mut bytes = Vec::with_capacity(texts.clone().map(|text| length_bytes(text.len()) + text.len()).sum());
        for text in texts {
            push_length(text.len(), &mut bytes);
            bytes.extend_from_slice(text);
        }
        Self(bytes.into())
    }

    /// Returns the number of texts.
    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    /// Returns the text with this number; empty if there is none.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        self.iter().nth(number).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, behind) = split_length(rest)?;
            let (text, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(text)
        })
    }

    /// Returns a copy with other texts at these numbers.
    pub(crate) fn with(&self, others: &[(usize, &[u8])]) -> Self {
        let mut texts: SmallVec<[&[u8]; 16]> = self.iter().collect();
        for &(number, text) in others {
            texts.resize(texts.len().max(number + 1), b"");
            texts[number] = text;
        }
        Self::new(&texts)
    }
}

const fn length_bytes(length: usize) -> usize {
    match length {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => LENGTH_BYTES,
    }
}

fn push_length(mut length: usize, bytes: &mut Vec<u8>) {
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

/// Splits the length off the front; returns `None` if there is none.
fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let last = bytes.iter().take(LENGTH_BYTES).position(|byte| byte & 0x80 == 0)?;
    let (length, behind) = bytes.split_at(last + 1);
    Some((length.iter().rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f)), behind))
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
    fn a_length_takes_as_few_bytes_as_it_needs() {
        for (length, bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (65_535, 3), (65_536, 3)] {
            let text = vec![b'x'; length];
            let texts = Texts::new(&[&text, b"end"]);
            assert_eq!(texts.get(0), &text[..length.min(LONGEST)], "{length}");
            assert_eq!((texts.get(1), texts.0.len()), (&b"end"[..], bytes + length.min(LONGEST) + 4), "{length}");
        }
    }

    #[test]
    fn bytes_that_were_no_texts_have_none() {
        for bytes in [&[3][..], &[9, b'x'], &[0x80, 0x80, 0x80, 0], &[255, 255, 255], &[0x80]] {
            let texts = Texts(bytes.into());
            assert!((0..4).all(|n| texts.get(n).is_empty()), "{bytes:?}");
        }
    }
}
