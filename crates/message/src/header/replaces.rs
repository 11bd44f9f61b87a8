//! Replaces (RFC 3891 section 6.1).

use super::{CallId, view};
use crate::params::Params;
use crate::reader::{Field, Reader, WORD, is};

/// A dialog to replace: `call-id;to-tag=...;from-tag=...;early-only`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replaces<'a> {
    /// Call-ID of the dialog to replace.
    pub call_id: CallId<'a>,
    /// Tag of the side that receives this request (RFC 3891 section 3: its local tag).
    pub to_tag: &'a [u8],
    /// The tag of that side's peer (RFC 3891 section 3: the remote tag).
    pub from_tag: &'a [u8],
    /// Only a dialog that is not confirmed may be replaced.
    pub early_only: bool,
    /// All parameters, the tags included. If there are none, the fields are written instead.
    pub params: Params<'a>,
}

view!(Replaces);

impl<'a> Replaces<'a> {
    /// Creates a value to write, for a dialog in any state.
    pub fn new(call_id: &'a [u8], to_tag: &'a [u8], from_tag: &'a [u8]) -> Self {
        Self { call_id: CallId { text: call_id }, to_tag, from_tag, early_only: false, params: Params::default() }
    }

    /// Writes the Call-ID and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.call_id.write(out);
        if self.params.is_empty() {
            out.extend_from_slice(b";to-tag=");
            out.extend_from_slice(self.to_tag);
            out.extend_from_slice(b";from-tag=");
            out.extend_from_slice(self.from_tag);
            if self.early_only {
                out.extend_from_slice(b";early-only");
            }
        }
        self.params.write(out);
    }
}

impl<'a> Field<'a> for Replaces<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let call_id = CallId { text: scan.some(WORD)? };
        let (mut to_tag, mut from_tag, mut early_only) = (None, None, false);
        let params = Params::read(scan, |name, value| {
            // Each tag once (RFC 3891 section 3).
            if is(name, b"to-tag") {
                return std::mem::replace(&mut to_tag, value).is_none();
            }
            if is(name, b"from-tag") {
                return std::mem::replace(&mut from_tag, value).is_none();
            }
            early_only |= is(name, b"early-only");
            true
        })?;
        Some(Self { call_id, to_tag: to_tag?, from_tag: from_tag?, early_only, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_is_named_whole() {
        let replaces =
            Replaces::parse(b"98732@sip.example.com\r\n ;from-tag=r33th4x0r\r\n ;to-tag=ff87ff;early-only").unwrap();
        assert_eq!(
            (replaces.to_tag, replaces.from_tag, replaces.early_only),
            (&b"ff87ff"[..], &b"r33th4x0r"[..], true)
        );
        for text in [&b"x;to-tag=1"[..], b"x;from-tag=1", b"x;to-tag=1;from-tag=2;to-tag=3", b"x;to-tag;from-tag=1"] {
            assert!(Replaces::parse(text).is_err());
        }
    }
}
