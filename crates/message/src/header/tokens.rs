//! Lists of tokens: Supported, Require, Proxy-Require, Unsupported, Allow, Allow-Events, Content-Encoding and the like
//! (RFC 3261 sections 20.5, 20.12, 20.29, 20.32, 20.37, 20.40).

use super::view;
use crate::Method;
use crate::reader::{Field, Reader};

/// One option tag, method, event package or coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Text; never empty. A method compares with case, the others in any (see [`Token::is`]).
    pub text: &'a [u8],
}

view!(Token);

impl<'a> Field<'a> for Token<'a> {
    #[inline]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        Some(Self { text: scan.token()? })
    }
}

impl Token<'_> {
    /// Tells whether both are the same token in any case (RFC 3261 section 7.3.1).
    pub fn is(&self, text: &[u8]) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }

    /// Returns the method that an Allow names.
    pub fn method(&self) -> Method {
        Method::of(self.text)
    }

    /// Writes the text unchanged.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text);
    }
}
