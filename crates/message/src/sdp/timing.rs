//! `t=`, `r=` and `z=`: time of a session (RFC 8866 section 5.9 to 5.11).

use super::{fields, number, write_number};
use crate::write::Write;

/// Start and stop in seconds since 1900; 0 for unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timing {
    /// Start; 0: it has begun already.
    pub start: u64,
    /// Stop; 0: it does not end.
    pub stop: u64,
}

impl Timing {
    /// Reads the value of the line.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut fields = fields(value);
        let timing = Self { start: number(fields.next()?)?, stop: number(fields.next()?)? };
        fields.next().is_none().then_some(timing)
    }
}

impl Write for Timing {
    fn write(&self, out: &mut Vec<u8>) {
        write_number(self.start, out);
        out.push(b' ');
        write_number(self.stop, out);
    }
}

/// A repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat<'a> {
    /// Seconds from one start to the next.
    pub interval: u64,
    /// Duration of each, in seconds.
    pub duration: u64,
    offsets: &'a [u8],
}

impl<'a> Repeat<'a> {
    /// Reads the value of the line; at least one offset is mandatory.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let unsigned = |field: Option<&[u8]>| seconds(field?).and_then(|seconds| u64::try_from(seconds).ok());
        let mut rest = fields(value);
        let (interval, duration) = (unsigned(rest.next())?, unsigned(rest.next())?);
        let first = rest.next()?;
        // Every field is a slice of the value, so pointers give its offset.
        let start = first.as_ptr().addr() - value.as_ptr().addr();
        let repeat = Self { interval, duration, offsets: &value[start..] };
        fields(repeat.offsets).all(|field| seconds(field).is_some()).then_some(repeat)
    }

    /// Offsets in seconds from the start of the `t=` line.
    pub fn offsets(&self) -> impl Iterator<Item = i64> + 'a {
        fields(self.offsets).filter_map(seconds)
    }
}

impl Write for Repeat<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        write_number(self.interval, out);
        out.push(b' ');
        write_number(self.duration, out);
        for offset in fields(self.offsets) {
            out.push(b' ');
            out.extend_from_slice(offset);
        }
    }
}

/// One change of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneAdjustment {
    /// Time of the change in seconds since 1900.
    pub time: u64,
    /// Offset in seconds, negative for backwards.
    pub offset: i64,
}

/// Reads the value of a `z=` line; `None` if any pair cannot be read.
pub fn zones(value: &[u8]) -> Option<Vec<ZoneAdjustment>> {
    let mut fields = fields(value);
    let mut all = Vec::new();
    while let Some(time) = fields.next() {
        all.push(ZoneAdjustment { time: number(time)?, offset: seconds(fields.next()?)? });
    }
    (!all.is_empty()).then_some(all)
}

/// Parses a typed time in seconds: a number, optionally followed by d, h, m or s (RFC 8866 section 5.10).
pub fn seconds(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let (digits, unit) = match text {
        [digits @ .., b'd'] => (digits, 86_400),
        [digits @ .., b'h'] => (digits, 3_600),
        [digits @ .., b'm'] => (digits, 60),
        [digits @ .., b's'] => (digits, 1),
        _ => (text, 1),
    };
    let value = i64::try_from(number(digits)?).ok()?.checked_mul(unit)?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_8866() {
        let timing = Timing::parse(b"3724394400 3724398000").expect("valid");
        assert_eq!(timing.stop - timing.start, 3_600);
        // Section 5.10: both lines are equivalent.
        let plain = Repeat::parse(b"604800 3600 0 90000").expect("valid");
        let typed = Repeat::parse(b"7d 1h 0 25h").expect("valid");
        assert_eq!((plain.interval, plain.duration), (typed.interval, typed.duration));
        assert!(plain.offsets().eq(typed.offsets()) && plain.offsets().eq([0, 90_000]));
        let zones = zones(b"3730928400 -1h 3749680800 0").expect("valid");
        assert_eq!(zones[0], ZoneAdjustment { time: 3_730_928_400, offset: -3_600 });
        assert_eq!(zones.len(), 2);
    }

    #[test]
    fn refused() {
        assert!(Timing::parse(b"0").is_none() && Timing::parse(b"0 0 0").is_none() && Timing::parse(b"-1 0").is_none());
        assert!(Repeat::parse(b"7d 1h").is_none() && Repeat::parse(b"7d 1h x").is_none());
        assert!(Repeat::parse(b"-7d 1h 0").is_none());
        assert!(zones(b"").is_none() && zones(b"1").is_none() && zones(b"1 x").is_none());
        assert!(seconds(b"d").is_none() && seconds(b"-").is_none() && seconds(b"9223372036854775807d").is_none());
    }
}
