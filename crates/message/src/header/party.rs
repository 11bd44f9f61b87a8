//! From and To: an address with a tag (RFC 3261 sections 20.20, 20.39).

use super::view;
use crate::name_addr::NameAddr;
use crate::reader::{CLASS, Field, Reader, TOKEN, is};
use std::ops::Deref;

/// One end of a dialog, as From or To names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Party<'a> {
    pub addr: NameAddr<'a>,
    /// The tag, if it has one already (RFC 3261 section 19.3). If set on a party that was made, it is
    /// written behind the parameters, which must not name one themselves.
    pub tag: Option<&'a [u8]>,
}

view!(Party);

impl<'a> Party<'a> {
    pub const fn new(addr: NameAddr<'a>, tag: Option<&'a [u8]>) -> Self {
        Self { addr, tag }
    }

    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.addr.write(out);
        if let Some(tag) = self.tag
            && !within(tag, self.addr.params.text())
        {
            out.extend_from_slice(b";tag=");
            out.extend_from_slice(tag);
        }
    }
}

/// Is this the very part of that text, not only equal to one?
#[inline]
fn within(part: &[u8], text: &[u8]) -> bool {
    text.as_ptr_range().contains(&part.as_ptr())
}

impl<'a> Deref for Party<'a> {
    type Target = NameAddr<'a>;

    fn deref(&self) -> &NameAddr<'a> {
        &self.addr
    }
}

impl<'a> Field<'a> for Party<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let mut tag = None;
        let addr = NameAddr::read_with(scan, |name, value, token| {
            if !is(name, b"tag") {
                return true;
            }
            // A second tag would let one element see another dialog than the next one sees.
            let first = tag.is_none();
            tag = value.filter(|v| {
                token || v.iter().all(|&b| CLASS[b as usize] & TOKEN != 0 || matches!(b, b'=' | b'/' | b':' | b'@'))
            });
            first && tag.is_some()
        })?;
        Some(Self { addr, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        assert_eq!(Party::parse(b"sip:a@b ;   TAG    = 1918181833n").unwrap().tag, Some(&b"1918181833n"[..]));
        assert_eq!(Party::parse(b"<sip:a@b;tag=x>").unwrap().tag, None);
        for text in [&b"sip:a@b;tag"[..], b"sip:a@b;tag=1;tag=2", b"sip:a@b;tag=\"x\"", b"sip:a@b, sip:c@d"] {
            assert!(Party::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_tag_is_written_once() {
        let mut read = Party::parse(b"<sip:a@b>;x=1;tag=t").unwrap();
        let mut out = Vec::new();
        read.write(&mut out);
        assert_eq!(out, b"<sip:a@b>;x=1;tag=t");
        read = Party::parse(b"<sip:a@b>;x=1").unwrap();
        read.tag = Some(b"new");
        out.clear();
        read.write(&mut out);
        assert_eq!(out, b"<sip:a@b>;x=1;tag=new");
    }
}
