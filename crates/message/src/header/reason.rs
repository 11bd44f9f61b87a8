//! Reason (RFC 3326).

use super::view;
use crate::params::{Params, unquote};
use crate::reader::{Field, Reader, is, strict_number};
use std::borrow::Cow;

/// A reason: `SIP;cause=200;text="Call completed elsewhere"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReasonValue<'a> {
    /// `SIP`, `Q.850` or another.
    pub protocol: &'a [u8],
    /// Status code for `SIP`, ISUP cause for `Q.850`.
    pub cause: Option<u32>,
    /// Raw text, with its quotes.
    pub text: Option<&'a [u8]>,
    /// All parameters, those of the other fields included: only they are written.
    pub params: Params<'a>,
}

view!(ReasonValue);

impl<'a> ReasonValue<'a> {
    /// Returns the text without quotes.
    pub fn unquoted(&self) -> Cow<'a, [u8]> {
        unquote(self.text.unwrap_or_default())
    }

    /// Writes the protocol and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.protocol);
        self.params.write(out);
    }
}

impl<'a> Field<'a> for ReasonValue<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let protocol = scan.token()?;
        let (mut cause, mut text) = (None, None);
        let params = Params::read(scan, |name, value| {
            if is(name, b"cause") {
                cause = value.and_then(strict_number);
                return cause.is_some();
            }
            if is(name, b"text") {
                text = value;
            }
            true
        })?;
        Some(Self { protocol, cause, text, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes() {
        let reason = ReasonValue::parse(b"Q.850 ;cause=16 ;text=\"Terminated; \\\"ok\\\"\"").unwrap();
        assert_eq!((reason.protocol, reason.cause), (&b"Q.850"[..], Some(16)));
        assert_eq!(reason.unquoted().as_ref(), b"Terminated; \"ok\"");
        assert!(ReasonValue::parse(b"SIP;cause=x").is_err());
    }
}
