//! Identity (RFC 8224 section 4; the quoted form of RFC 4474).

use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader, VALUE, is};

/// A signed identity: `signature;info=<uri>;alg=ES256;ppt=shaken`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Identity<'a> {
    /// The signature, base64 in one to three parts; quoted in the old form.
    pub digest: &'a [u8],
    /// URI of the certificate, without the brackets.
    pub info: Option<&'a [u8]>,
    /// Signature algorithm; `ES256` if none is named (RFC 8224 section 4).
    pub alg: Option<&'a [u8]>,
    /// Signed PASSporT extension, like `shaken`; `None` for the plain form (RFC 8224 section 4).
    pub ppt: Option<&'a [u8]>,
    /// All parameters, those above included: only they are written.
    pub params: Params<'a>,
}

view!(Identity);

impl Identity<'_> {
    /// Writes the signature and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        crate::write::unfolded(self.digest, out);
        self.params.write(out);
    }
}

impl<'a> Field<'a> for Identity<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let digest = if scan.peek() == Some(b'"') { scan.quoted()? } else { scan.some(VALUE)? };
        let (mut info, mut alg, mut ppt) = (None, None, None);
        let params = Params::read(scan, |name, value| {
            if is(name, b"info") {
                info = value.and_then(|v| v.strip_prefix(b"<")).and_then(|v| v.strip_suffix(b">"));
                return info.is_some();
            }
            if is(name, b"alg") {
                alg = value;
            } else if is(name, b"ppt") {
                ppt = value;
            }
            true
        })?;
        Some(Self { digest, info, alg, ppt, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let new =
            Identity::parse(b"eyJ.eyK+/=.sig==;info=<https://biloxi.example.org/biloxi.cer>;alg=ES256;ppt=\"shaken\"")
                .unwrap();
        assert_eq!(new.info, Some(&b"https://biloxi.example.org/biloxi.cer"[..]));
        assert_eq!((new.alg, new.ppt), (Some(&b"ES256"[..]), Some(&b"\"shaken\""[..])));
        assert_eq!(Identity::parse(b"\"ZYNBb\"").unwrap().digest, b"\"ZYNBb\"");
        assert!(Identity::parse(b"x;info=y").is_err());
    }
}
