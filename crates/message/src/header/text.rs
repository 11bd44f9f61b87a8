//! Free text: Subject, Organization, Server, User-Agent, and every header field without a view of its own (RFC 3261
//! sections 20.25, 20.35, 20.36, 20.41).

use crate::Error;
use crate::write::{self, Write};

/// Raw value, maybe folded, maybe empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// Unparsed bytes of any encoding.
    pub text: &'a [u8],
}

impl<'a> Text<'a> {
    /// Accepts any value.
    ///
    /// # Errors
    /// Never; all views have this signature.
    #[inline]
    pub const fn parse(text: &'a [u8]) -> Result<Self, Error> {
        Ok(Self { text })
    }

    /// Writes the text, each fold as one space.
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
