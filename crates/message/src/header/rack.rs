//! RAck (RFC 3262 section 7.2).

use super::{CSeq, view};
use crate::reader::{DIGIT, Field, Reader, strict_number};
use crate::write::Write;

/// An RAck: `RSeq CSeq method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RAck<'a> {
    /// RSeq of the acknowledged response.
    pub rseq: u32,
    /// CSeq of the acknowledged response.
    pub cseq: CSeq<'a>,
}

view!(RAck);

impl RAck<'_> {
    /// Writes RSeq, CSeq number and method, separated by single spaces.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.rseq.write(out);
        out.push(b' ');
        self.cseq.write(out);
    }
}

impl<'a> Field<'a> for RAck<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let rseq = strict_number(scan.some(DIGIT)?)?;
        let end = scan.at();
        scan.ws();
        if scan.at() == end {
            return None;
        }
        Some(Self { rseq, cseq: CSeq::read(scan)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;

    #[test]
    fn three_parts() {
        assert_eq!(
            RAck::parse(b"776656 1 INVITE").unwrap(),
            RAck { rseq: 776_656, cseq: CSeq::new(1, Method::Invite) }
        );
        for text in [&b"1 INVITE"[..], b"1 1", b"4294967296 1 INVITE", b""] {
            assert!(RAck::parse(text).is_err());
        }
    }
}
