//! Timestamp (RFC 3261 section 20.38).

use super::view;
use crate::reader::{DIGIT, Field, Reader};

/// Time of sending of the request, and the delay of the server's response: raw seconds with decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp<'a> {
    /// Time by the client's clock, from an origin that only the client knows.
    pub sent: &'a [u8],
    /// Delay from the arrival of the request to the sending of the response (RFC 3261 section 8.2.6.1).
    pub delay: Option<&'a [u8]>,
}

view!(Timestamp);

impl Timestamp<'_> {
    /// Writes the time, and the delay after one space if there is one.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.sent);
        if let Some(delay) = self.delay {
            out.push(b' ');
            out.extend_from_slice(delay);
        }
    }
}

impl<'a> Field<'a> for Timestamp<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let decimal = |scan: &mut Reader<'a>| {
            let start = scan.at();
            scan.span(DIGIT);
            if scan.take(b'.') {
                scan.span(DIGIT);
            }
            scan.since(start)
        };
        let sent = decimal(scan);
        if !sent.first()?.is_ascii_digit() {
            return None;
        }
        let end = scan.at();
        scan.ws();
        let delay = decimal(scan);
        if !delay.is_empty() && scan.at() - delay.len() == end {
            return None;
        }
        Some(Self { sent, delay: (!delay.is_empty()).then_some(delay) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_delay() {
        assert_eq!(Timestamp::parse(b"54").unwrap(), Timestamp { sent: b"54", delay: None });
        assert_eq!(Timestamp::parse(b"54.3  .5").unwrap(), Timestamp { sent: b"54.3", delay: Some(b".5") });
        for text in [&b""[..], b".5", b"x", b"1.2.3", b"1 x"] {
            assert!(Timestamp::parse(text).is_err());
        }
    }
}
