//! Authentication-Info (RFC 3261 section 20.6, RFC 7616 section 3.5): the server's addition to its answer to valid
//! credentials.

use super::view;
use crate::params::unquote;
use crate::reader::{Field, Reader};
use crate::write;
use std::borrow::Cow;

/// One parameter: `nextnonce="47364c23432d2e131a5fb210812c"`, `qop=auth`, `rspauth="..."`, `cnonce="..."`,
/// `nc=00000001`. Commas separate the parameters of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationInfo<'a> {
    /// Name; compares in any case.
    pub name: &'a [u8],
    /// Raw value, with its quotes if it has any.
    pub value: &'a [u8],
}

view!(AuthenticationInfo);

impl<'a> AuthenticationInfo<'a> {
    /// Returns the value without quotes.
    pub fn unquoted(&self) -> Cow<'a, [u8]> {
        unquote(self.value)
    }

    /// Writes `name=value`, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name);
        out.push(b'=');
        write::unfolded(self.value, out);
    }
}

impl<'a> Field<'a> for AuthenticationInfo<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let name = scan.token()?;
        scan.ws();
        if !scan.take(b'=') {
            return None;
        }
        scan.ws();
        let value = if scan.peek() == Some(b'"') { scan.quoted()? } else { scan.token()? };
        Some(Self { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let text = b"nextnonce=\"a,\\\"b\", qop = auth,\r\n rspauth=\"6629\", nc=00000001";
        let mut reader = Reader::new(text);
        let mut all = Vec::new();
        loop {
            all.push(AuthenticationInfo::read(&mut reader).unwrap());
            reader.ws();
            if !reader.take(b',') {
                break;
            }
            reader.ws();
        }
        assert!(reader.is_done());
        let names: Vec<_> = all.iter().map(|info| info.name).collect();
        assert_eq!(names, [&b"nextnonce"[..], b"qop", b"rspauth", b"nc"]);
        assert_eq!((all[0].value, &*all[0].unquoted()), (&b"\"a,\\\"b\""[..], &b"a,\"b"[..]));
        let mut out = Vec::new();
        all[1].write(&mut out);
        assert_eq!(out, b"qop=auth");
        for wrong in [&b""[..], b"qop", b"qop=", b"=auth", b"nextnonce=\"a", b"qop=auth nc=1"] {
            assert!(AuthenticationInfo::parse(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
