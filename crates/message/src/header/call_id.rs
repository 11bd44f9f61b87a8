//! Call-ID (RFC 3261 section 20.8).

use super::view;
use crate::reader::{Field, Reader, WORD};

/// A Call-ID: `word` or `word@word`; compared byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId<'a> {
    /// Raw text; never empty.
    pub text: &'a [u8],
}

view!(CallId);

impl<'a> Field<'a> for CallId<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        Some(Self { text: scan.some(WORD)? })
    }
}

impl CallId<'_> {
    /// Writes the text unchanged.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let odd = b"intmeth.word%ZK-!.*_+'@word`~)(><:\\/\"][?}{";
        assert_eq!(CallId::parse(odd).unwrap().text, odd);
        for text in [&b""[..], b"a b", b"a,b", b"a;b", b"\x00", b"a\xff"] {
            assert!(CallId::parse(text).is_err());
        }
    }
}
