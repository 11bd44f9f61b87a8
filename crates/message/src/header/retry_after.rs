//! Retry-After (RFC 3261 section 20.33).

use super::view;
use crate::params::Params;
use crate::reader::{DIGIT, Field, Reader, is, strict_number};
use crate::write::{self, Write};

/// A time to wait: `18000 (in a meeting);duration=3600`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryAfter<'a> {
    /// Seconds to wait; a value above 32 bits counts as the maximum.
    pub seconds: u32,
    /// Comment without its outer parentheses.
    pub comment: Option<&'a [u8]>,
    /// Seconds for which the callee can then be reached.
    pub duration: Option<u32>,
    /// All parameters, `duration` included. If there are none, `duration` is written from the field.
    pub params: Params<'a>,
}

view!(RetryAfter);

impl RetryAfter<'_> {
    /// Creates a value of only seconds, without comment and duration.
    pub fn new(seconds: u32) -> Self {
        Self { seconds, comment: None, duration: None, params: Params::default() }
    }

    /// Writes `seconds (comment);duration=seconds`, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.seconds.write(out);
        if let Some(comment) = self.comment {
            out.extend_from_slice(b" (");
            write::unfolded(comment, out);
            out.push(b')');
        }
        if let Some(duration) = self.duration
            && self.params.is_empty()
        {
            out.extend_from_slice(b";duration=");
            duration.write(out);
        }
        self.params.write(out);
    }
}

impl<'a> Field<'a> for RetryAfter<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let seconds = crate::reader::number(scan.some(DIGIT)?);
        scan.ws();
        let comment = if scan.peek() == Some(b'(') { Some(scan.comment()?) } else { None };
        let mut duration = None;
        let params = Params::read(scan, |name, value| {
            if is(name, b"duration") {
                duration = value.and_then(strict_number);
                return duration.is_some();
            }
            true
        })?;
        Some(Self { seconds, comment, duration, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_durations() {
        let all = RetryAfter::parse(b"120 (I'm (still) in a \\( meeting);duration=60").unwrap();
        assert_eq!(
            (all.seconds, all.comment, all.duration),
            (120, Some(&b"I'm (still) in a \\( meeting"[..]), Some(60))
        );
        assert_eq!(RetryAfter::parse(b"949302838503028349304023988").unwrap().seconds, u32::MAX);
        for text in [&b"x"[..], b"1 (x", b"1 x", b"1;duration"] {
            assert!(RetryAfter::parse(text).is_err());
        }
    }
}
