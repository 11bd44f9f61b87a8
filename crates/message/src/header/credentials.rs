//! Authorization, Proxy-Authorization, WWW-Authenticate, Proxy-Authenticate: the scheme and the raw rest (RFC 3261
//! sections 20.7, 20.27, 20.28, 20.44). The rest may contain commas, so a line has one value.

use super::view;
use crate::reader::{Field, Reader};
use crate::write;

/// Credentials or a challenge: `Digest username="bob", realm="..."`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// `Digest`, `Bearer`, ...; compares in any case.
    pub scheme: &'a [u8],
    /// Raw text after the scheme.
    pub rest: &'a [u8],
}

view!(Credentials);

impl Credentials<'_> {
    /// Writes scheme, one space, and the unfolded rest.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme);
        out.push(b' ');
        write::unfolded(self.rest, out);
    }
}

impl<'a> Field<'a> for Credentials<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let scheme = scan.token()?;
        let end = scan.at();
        scan.ws();
        let rest = scan.rest();
        if scan.at() == end || rest.is_empty() {
            return None;
        }
        scan.skip(rest.len());
        // `trim_ascii_end` cannot be used: a form feed is no white space here, and the remaining text must not become
        // empty.
        let rest = &rest[crate::scan::trim(rest, 0..rest.len())];
        Some(Self { scheme, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        let digest = Credentials::parse(b"Digest realm=\"a\",\r\n nonce=\"b\"").unwrap();
        assert_eq!((digest.scheme, digest.rest), (&b"Digest"[..], &b"realm=\"a\",\r\n nonce=\"b\""[..]));
        assert!(Credentials::parse(b"Digest").is_err());
    }
}
