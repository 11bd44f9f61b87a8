//! Date (RFC 3261 section 20.17): the form of RFC 1123 alone, always GMT.

use super::view;
use crate::reader::{ALPHA, DIGIT, Field, Reader, number};
use std::marker::PhantomData;

/// A moment by the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date<'a> {
    /// Seconds since 1970-01-01 00:00:00 GMT; years 1 to 9999.
    pub unix: i64,
    of: PhantomData<&'a ()>,
}

view!(Date);

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
        let (days, second) = (self.unix.div_euclid(86_400), self.unix.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        // 1970-01-01 was a Thursday.
        let weekday = (days + 3).rem_euclid(7);
        out.extend_from_slice(DAYS[weekday as usize]);
        out.extend_from_slice(b", ");
        let mut digits = |n: i64, width: u32, after: &[u8]| {
            for place in (0..width).rev() {
                out.push(b'0' + (n / 10i64.pow(place) % 10) as u8);
            }
            out.extend_from_slice(after);
        };
        digits(day, 2, b" ");
        digits(0, 0, MONTHS[month as usize - 1]);
        digits(0, 0, b" ");
        digits(year.clamp(0, 9999), 4, b" ");
        digits(second / 3600, 2, b":");
        digits(second / 60 % 60, 2, b":");
        digits(second % 60, 2, b" GMT");
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
        let day = number(scan.some(DIGIT)?) as i64;
        scan.ws();
        let month = name(scan.some(ALPHA)?, &MONTHS)? as i64 + 1;
        scan.ws();
        let year = number(scan.some(DIGIT)?) as i64;
        scan.ws();
        let hour = number(scan.some(DIGIT)?) as i64;
        if !scan.take(b':') {
            return None;
        }
        let minute = number(scan.some(DIGIT)?) as i64;
        if !scan.take(b':') {
            return None;
        }
        let second = number(scan.some(DIGIT)?) as i64;
        scan.ws();
        // A leap second, 60, counts as second 59.
        let zone = scan.at();
        let exists = (1..=9999).contains(&year)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60
            && civil(days(year, month, day)) == (year, month, day);
        if !exists || !scan.some(ALPHA)?.eq_ignore_ascii_case(b"GMT") {
            scan.go(zone);
            return None;
        }
        Some(Self::new(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second.min(59)))
    }
}

/// Days from 1970-01-01 to this day. Years are counted from March, so that a leap day ends one; an era is the 400
/// years, 146,097 days, after which the calendar repeats.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (year + era * 400 + (month <= 2) as i64, month, day)
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
