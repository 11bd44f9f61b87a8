//! Date (RFC 3261 section 20.17): only the form of RFC 1123, always GMT.

use super::view;
use crate::reader::{ALPHA, DIGIT, Field, Reader, number};
use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};
use std::marker::PhantomData;

/// A moment by the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date<'a> {
    /// Seconds since 1970-01-01 00:00:00 GMT; years 1 to 9999.
    pub unix: i64,
    of: PhantomData<&'a ()>,
}

view!(Date);

const EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);

const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl Date<'_> {
    /// Creates a date; `unix` as in [`Date::unix`].
    pub const fn new(unix: i64) -> Self {
        Self { unix, of: PhantomData }
    }

    /// Writes `Sat, 13 Nov 2010 23:29:00 GMT`.
    pub fn write(&self, out: &mut Vec<u8>) {
        // A year that the header field cannot have is replaced by the nearest year that it can have.
        let last = if self.unix < 0 { DateTime::MIN } else { DateTime::MAX };
        let moment = EPOCH.checked_add(SignedDuration::from_secs(self.unix)).unwrap_or(last);
        out.extend_from_slice(DAYS[moment.weekday().to_monday_zero_offset() as usize]);
        out.extend_from_slice(b", ");
        let mut digits = |n: i16, width: u32, after: &[u8]| {
            for place in (0..width).rev() {
                out.push(b'0' + (n / 10i16.pow(place) % 10) as u8);
            }
            out.extend_from_slice(after);
        };
        digits(moment.day().into(), 2, b" ");
        digits(0, 0, MONTHS[moment.month() as usize - 1]);
        digits(0, 0, b" ");
        digits(moment.year().max(0), 4, b" ");
        digits(moment.hour().into(), 2, b":");
        digits(moment.minute().into(), 2, b":");
        digits(moment.second().into(), 2, b" GMT");
    }
}

impl<'a> Field<'a> for Date<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let name = |text: &[u8], names: &[&[u8; 3]]| names.iter().position(|n| text.eq_ignore_ascii_case(*n));
        name(scan.some(ALPHA)?, &DAYS)?;
        if !scan.take(b',') {
            return None;
        }
        scan.ws();
        let day = number(scan.some(DIGIT)?);
        scan.ws();
        let month = name(scan.some(ALPHA)?, &MONTHS)? as i8 + 1;
        scan.ws();
        let year = number(scan.some(DIGIT)?);
        scan.ws();
        let hour = number(scan.some(DIGIT)?);
        if !scan.take(b':') {
            return None;
        }
        let minute = number(scan.some(DIGIT)?);
        if !scan.take(b':') {
            return None;
        }
        let second = number(scan.some(DIGIT)?);
        scan.ws();
        let zone = scan.at();
        let moment = || {
            let year = i16::try_from(year).ok().filter(|year| *year > 0)?;
            let small = |n| i8::try_from(n).ok();
            // A leap second, 60, counts as the second before it.
            let second = if second == 60 { 59 } else { small(second)? };
            DateTime::new(year, month, small(day)?, small(hour)?, small(minute)?, second, 0).ok()
        };
        let Some(moment) = moment().filter(|_| scan.some(ALPHA).is_some_and(|zone| zone.eq_ignore_ascii_case(b"GMT")))
        else {
            scan.go(zone);
            return None;
        };
        Some(Self::new(moment.duration_since(EPOCH).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (text, unix) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sat, 13 Nov 2010 23:29:00 GMT", 1_289_690_940),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(Date::parse(text.as_bytes()).unwrap().unix, unix);
            let mut out = Vec::new();
            Date::new(unix).write(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn refused() {
        for text in [
            "Fri, 01 Jan 2010 16:00:00 EST",
            "Fri, 30 Feb 2010 16:00:00 GMT",
            "Xxx, 01 Jan 2010 16:00:00 GMT",
            "Fri, 01 Jan 2010 24:00:00 GMT",
            "Fri, 01 Jan 2010",
            "",
            "Fri 01 Jan 2010 16:00:00 GMT",
            "Fri, 01 Jan 10000 16:00:00 GMT",
        ] {
            assert!(Date::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
