//! Texts of a dialog in one byte buffer.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Text of a dialog, in the order of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    CallId,
    LocalTag,
    RemoteTag,
    /// Our From or To without its tag.
    Local,
    /// Peer's From or To without its tag.
    Remote,
    /// URI of the remote target.
    Target,
    /// Value of Route: name-addrs joined with commas.
    Routes,
}

const PIECES: usize = 7;

impl Piece {
    const ALL: [Self; PIECES] =
        [Self::CallId, Self::LocalTag, Self::RemoteTag, Self::Local, Self::Remote, Self::Target, Self::Routes];
}

/// Texts in sequence: one allocation per dialog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: [u32; PIECES],
}

/// Serialized texts before their check.
#[derive(Deserialize)]
struct Unchecked {
    bytes: Vec<u8>,
    ends: [u32; PIECES],
}

impl TryFrom<Unchecked> for Texts {
    type Error = &'static str;

    fn try_from(Unchecked { bytes, ends }: Unchecked) -> Result<Self, Self::Error> {
        let is_whole = ends.is_sorted() && ends[PIECES - 1] as usize == bytes.len();
        is_whole.then_some(Self { bytes, ends }).ok_or("the texts of a dialog do not lie one behind the other")
    }
}

impl Texts {
    /// Creates the buffer; `write` writes each piece in turn.
    pub(super) fn new(capacity: usize, mut write: impl FnMut(Piece, &mut Vec<u8>)) -> Self {
        let mut texts = Self { bytes: Vec::with_capacity(capacity), ends: [0; PIECES] };
        for (piece, end) in Piece::ALL.into_iter().zip(&mut texts.ends) {
            write(piece, &mut texts.bytes);
            *end = texts.bytes.len() as u32;
        }
        texts
    }

    fn range(&self, piece: Piece) -> Range<usize> {
        let n = piece as usize;
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        start as usize..self.ends[n] as usize
    }

    pub(super) fn of(&self, piece: Piece) -> &[u8] {
        &self.bytes[self.range(piece)]
    }

    /// Replaces the text of a piece.
    pub(super) fn set(&mut self, piece: Piece, text: &[u8]) {
        if self.of(piece) == text {
            return;
        }
        let range = self.range(piece);
        let (old, new) = (range.len() as u32, text.len() as u32);
        self.bytes.splice(range, text.iter().copied());
        for end in &mut self.ends[piece as usize..] {
            *end = *end - old + new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_set_written_and_read() {
        let first: [&[u8]; 7] = [b"call", b"a", b"", b"<sip:a>", b"<sip:b>", b"sip:b@1", b""];
        let mut texts = Texts::new(0, |piece, out| out.extend_from_slice(first[piece as usize]));
        texts.set(Piece::RemoteTag, b"tag-b");
        texts.set(Piece::Target, b"sip:b@2.3.4.5");
        texts.set(Piece::Routes, b"<sip:p;lr>");
        let written = postcard::to_extend(&texts, Vec::new()).unwrap();
        let texts: Texts = postcard::from_bytes(&written).unwrap();
        for (piece, text) in [
            (Piece::CallId, &b"call"[..]),
            (Piece::LocalTag, b"a"),
            (Piece::RemoteTag, b"tag-b"),
            (Piece::Local, b"<sip:a>"),
            (Piece::Remote, b"<sip:b>"),
            (Piece::Target, b"sip:b@2.3.4.5"),
            (Piece::Routes, b"<sip:p;lr>"),
        ] {
            assert_eq!(texts.of(piece), text);
        }
        let with = |ends| Texts::try_from(Unchecked { bytes: b"bytes".to_vec(), ends });
        assert!(with([0, 1, 1, 2, 3, 4, 5]).is_ok());
        assert!(with([0, 1, 1, 2, 3, 4, 4]).is_err() && with([0, 2, 1, 2, 3, 4, 5]).is_err());
    }
}
