//! Content of a message of a call, given by the owner.

/// Header lines and a session description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content<'a> {
    /// Further header lines, each with its CRLF.
    pub headers: &'a [u8],
    /// Session description. Empty: none.
    pub body: &'a [u8],
}

impl<'a> From<&'a [u8]> for Content<'a> {
    fn from(body: &'a [u8]) -> Self {
        Self { headers: b"", body }
    }
}

impl<'a> From<&'a Vec<u8>> for Content<'a> {
    fn from(body: &'a Vec<u8>) -> Self {
        Self { headers: b"", body }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Content<'a> {
    fn from(body: &'a [u8; N]) -> Self {
        Self { headers: b"", body }
    }
}
