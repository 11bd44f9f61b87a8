//! MIME-Version (RFC 3261 section 20.24).

use super::view;
use crate::reader::{DIGIT, Field, Reader};

/// A MIME version: `1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MimeVersion<'a> {
    /// Digits before the point.
    pub major: &'a [u8],
    /// Digits behind the point.
    pub minor: &'a [u8],
}

view!(MimeVersion);

impl MimeVersion<'_> {
    /// Writes both numbers with the point between them.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.major);
        out.push(b'.');
        out.extend_from_slice(self.minor);
    }
}

impl<'a> Field<'a> for MimeVersion<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let major = scan.some(DIGIT)?;
        if !scan.take(b'.') {
            return None;
        }
        Some(Self { major, minor: scan.some(DIGIT)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers() {
        assert_eq!(MimeVersion::parse(b"1.0").unwrap(), MimeVersion { major: b"1", minor: b"0" });
        assert!(MimeVersion::parse(b"1").is_err() && MimeVersion::parse(b"1.0.0").is_err());
    }
}
