//! Several texts in one piece of memory.

use serde::{Deserialize, Serialize};

/// Texts of at most 65,535 bytes each, behind their lengths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Texts(Box<[u8]>);

impl Texts {
    /// Longer ones are cut.
    pub(crate) fn new<const N: usize>(texts: [&[u8]; N]) -> Self {
        let cut = texts.map(|text| &text[..text.len().min(usize::from(u16::MAX))]);
        let mut bytes = Vec::with_capacity(1 + 2 * N + cut.iter().map(|text| text.len()).sum::<usize>());
        bytes.push(N as u8);
        cut.iter().for_each(|text| bytes.extend_from_slice(&(text.len() as u16).to_le_bytes()));
        cut.iter().for_each(|text| bytes.extend_from_slice(text));
        Self(bytes.into())
    }

    /// The text with this number; empty where there is none.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let count = self.0.first().map_or(0, |count| usize::from(*count));
        let length = |n: usize| match self.0.get(1 + 2 * n..3 + 2 * n) {
            Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
            _ => 0,
        };
        if number >= count {
            return b"";
        }
        let from = 1 + 2 * count + (0..number).map(length).sum::<usize>();
        self.0.get(from..from + length(number)).unwrap_or_default()
    }

    /// The same with another text in this place, which is there.
    pub(crate) fn with<const N: usize>(&self, number: usize, text: &[u8]) -> Self {
        Self::new(std::array::from_fn::<_, N, _>(|n| if n == number { text } else { self.get(n) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let texts = Texts::new([b"one", b"", b"three"]);
        assert_eq!([0, 1, 2, 3].map(|n| texts.get(n)), [&b"one"[..], b"", b"three", b""]);
        let other = texts.with::<3>(1, b"two");
        assert_eq!([0, 1, 2].map(|n| other.get(n)), [&b"one"[..], b"two", b"three"]);
        assert_eq!(Texts::default().get(0), b"");
    }

    #[test]
    fn bytes_that_were_no_texts_have_none() {
        for bytes in [&[3][..], &[1, 9, 0, b'x'], &[255, 255, 255]] {
            let texts = Texts(bytes.into());
            assert!((0..4).all(|n| texts.get(n).is_empty()), "{bytes:?}");
        }
    }
}
