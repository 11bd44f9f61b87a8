//! CSeq (RFC 3261 section 20.16).

use super::view;
use crate::Method;
use crate::reader::{Field, Reader};
use crate::write::Write;

/// A CSeq: `4711 INVITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// Below 2^31 (RFC 3261 section 8.1.1.5).
    pub number: u32,
    /// Method; [`Method::Other`] if the table does not list `method_text`.
    pub method: Method,
    /// Raw method text; compares with case (RFC 3261 section 7.1).
    pub method_text: &'a [u8],
}

view!(CSeq);

impl<'a> Field<'a> for CSeq<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        let Some(number) = u32::try_from(scan.decimal()?).ok().filter(|&n| n < 1 << 31) else {
            scan.go(start);
            return None;
        };
        let end = scan.at();
        scan.ws();
        if scan.at() == end {
            return None;
        }
        let method_text = scan.token()?;
        Some(Self { number, method: Method::of(method_text), method_text })
    }
}

impl CSeq<'_> {
    /// Creates a CSeq of a listed method.
    pub const fn new(number: u32, method: Method) -> Self {
        Self { number, method, method_text: method.text() }
    }

    /// Writes number, one space, and the text of the method.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.number.write(out);
        out.push(b' ');
        out.extend_from_slice(self.method_text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_methods() {
        assert_eq!(CSeq::parse(b"0009\r\n  INVITE").unwrap(), CSeq::new(9, Method::Invite));
        assert_eq!(CSeq::parse(b"2147483647 ACK").unwrap().number, 2_147_483_647);
        let odd = CSeq::parse(b"1 RE%47IST%45R").unwrap();
        assert_eq!((odd.method, odd.method_text), (Method::Other, &b"RE%47IST%45R"[..]));
        for text in [
            &b""[..],
            b"1",
            b"1 ",
            b"1INVITE",
            b"INVITE",
            b"2147483648 INVITE",
            b"36893488147419103232 REGISTER",
            b"1 A B",
            b"-1 A",
        ] {
            assert!(CSeq::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
