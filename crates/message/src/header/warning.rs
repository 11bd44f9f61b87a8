//! Warning (RFC 3261 section 20.43).

use super::view;
use crate::params::{unquote, write_quoted};
use crate::reader::{DIGIT, Field, Reader, VALUE, number};
use crate::write;
use std::borrow::Cow;

/// A warning: `307 host.example "text"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning<'a> {
    /// Three digits.
    pub code: u16,
    /// Host and port, or a pseudonym.
    pub agent: &'a [u8],
    /// Raw text with its quotes; a text without quotes is quoted when written.
    pub text: &'a [u8],
}

view!(Warning);

impl<'a> Warning<'a> {
    /// Returns the text without quotes.
    pub fn unquoted(&self) -> Cow<'a, [u8]> {
        unquote(self.text)
    }

    /// Writes code, agent and quoted text, separated by single spaces.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend([100, 10, 1].map(|unit| b'0' + (self.code / unit % 10) as u8));
        out.push(b' ');
        out.extend_from_slice(self.agent);
        out.push(b' ');
        if self.text.len() > 1 && self.text.starts_with(b"\"") {
            write::unfolded(self.text, out);
        } else {
            write_quoted(self.text, out);
        }
    }
}

impl<'a> Field<'a> for Warning<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        let digits = scan.some(DIGIT)?;
        if digits.len() != 3 {
            scan.go(start);
            return None;
        }
        let after_space = |scan: &mut Reader<'a>| {
            let end = scan.at();
            scan.ws();
            scan.at() > end
        };
        if !after_space(scan) {
            return None;
        }
        let agent = scan.some(VALUE)?;
        if !after_space(scan) || scan.peek() != Some(b'"') {
            return None;
        }
        Some(Self { code: number(digits) as u16, agent, text: scan.quoted()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_parts() {
        let warning = Warning::parse(b"301 [2001:db8::1]:5060 \"Incompatible, \\\"x\\\"\"").unwrap();
        assert_eq!((warning.code, warning.agent), (301, &b"[2001:db8::1]:5060"[..]));
        assert_eq!(warning.unquoted().as_ref(), b"Incompatible, \"x\"");
        // The code keeps three digits.
        let mut written = Vec::new();
        Warning::parse(b"070 a \"x\"").unwrap().write(&mut written);
        assert_eq!(written, b"070 a \"x\"");
        for text in [&b"1812 overture \"In Progress\""[..], b"30 a \"x\"", b"301 \"x\"", b"301 a x", b"301 a\"x\""] {
            assert!(Warning::parse(text).is_err());
        }
    }
}
