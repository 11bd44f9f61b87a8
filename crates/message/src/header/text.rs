//! Free text: Subject, Organization, Server, User-Agent, and everything that no other view reads (RFC 3261
//! sections 20.25, 20.35, 20.36, 20.41).

use crate::Error;
use crate::write::{self, Write};

/// A value as it stands, maybe folded, maybe empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// Not read further; bytes of any encoding.
    pub text: &'a [u8],
}

impl<'a> Text<'a> {
    /// Takes any value whole.
    ///
    /// # Errors
    /// Never; the signature is that of all views.
    #[inline]
    pub const fn parse(text: &'a [u8]) -> Result<Self, Error> {
        Ok(Self { text })
    }

    /// The text, each fold as one space.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        write::unfolded(self.text, out);
    }
}

impl Write for Text<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        Text::write(self, out);
    }
}
