//! Tokens with a preference: Accept-Encoding, Accept-Language (RFC 3261 sections 20.2, 20.3), and tokens
//! with parameters: Content-Disposition (20.11), Accept-Contact and Reject-Contact (RFC 3841).

use super::contact::read_q;
use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader, is};

/// A token with parameters: `gzip;q=0.5`, `da`, `*`, `session;handling=optional`.
#[derive(Clone, Copy, Debug)]
pub struct Weighted<'a> {
    /// Token; compares in any case.
    pub token: &'a [u8],
    /// All parameters, `q` included: only they are written; the field `q` is not.
    pub params: Params<'a>,
    /// Preference in thousandths.
    pub q: Option<u16>,
}

view!(Weighted);

impl<'a> Weighted<'a> {
    /// Creates a token without parameters.
    pub fn new(token: &'a [u8]) -> Self {
        Self { token, params: Params::default(), q: None }
    }

    /// Tells whether a body that is not understood may be ignored: Content-Disposition's `handling=optional` (RFC 3261
    /// section 20.11).
    pub fn is_optional(&self) -> bool {
        self.params.value(b"handling").is_some_and(|v| v.eq_ignore_ascii_case(b"optional"))
    }

    /// Writes the token and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.token);
        self.params.write(out);
    }
}

impl<'a> Field<'a> for Weighted<'a> {
    #[inline]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let token = scan.token()?;
        let mut q = None;
        let params = Params::read(scan, |name, value| {
            if is(name, b"q") {
                q = read_q(value.unwrap_or_default());
            }
            true
        })?;
        Some(Self { token, params, q })
    }
}

impl PartialEq for Weighted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.token.eq_ignore_ascii_case(other.token) && self.params == other.params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_and_handling() {
        assert_eq!(Weighted::parse(b"en-gb;q=0.8").unwrap().q, Some(800));
        assert!(Weighted::parse(b"icon;handling=OPTIONAL").unwrap().is_optional());
        assert!(!Weighted::parse(b"session").unwrap().is_optional());
        assert_eq!(Weighted::parse(b"*;+sip.foo=\"<x>\";require").unwrap().params.iter().count(), 2);
        assert!(Weighted::parse(b"a b").is_err());
    }
}
