//! Times as text.

use std::fmt;
use strowger_net::clock;

/// Returns year, month 1-12 and day 1-31 of a day counted from 1970-01-01 (proleptic Gregorian calendar).
fn civil(day: i64) -> (i64, u32, u32) {
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds since 1970, written as `Sat, 13 Nov 2010 23:29:00 GMT` (RFC 3261 section 20.17).
pub(crate) struct Rfc1123(pub u64);

impl fmt::Display for Rfc1123 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let day = (self.0 / 86_400) as i64;
        let (year, month, of_month) = civil(day);
        let (h, m, s) = (self.0 / 3_600 % 24, self.0 / 60 % 60, self.0 % 60);
        let weekday = DAYS[(day % 7) as usize];
        write!(f, "{weekday}, {of_month:02} {} {year} {h:02}:{m:02}:{s:02} GMT", MONTHS[month as usize - 1])
    }
}

/// Microseconds since 1970, written as `2010-11-13<TAB>23:29:00.000000` in the machine's local time (`TZ`).
pub(crate) struct Local(pub u64);

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = (self.0 / 1_000_000).saturating_add_signed(clock::zone(self.0 / 1_000_000));
        Utc(local * 1_000_000 + self.0 % 1_000_000).fmt(f)
    }
}

/// Microseconds since 1970, written as [`Local`] in UTC.
pub(crate) struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (year, month, day) = civil((seconds / 86_400) as i64);
        let (h, m, s) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}\t{h:02}:{m:02}:{s:02}.{:06}", self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments() {
        assert_eq!(super::Rfc1123(1_289_690_940).to_string(), "Sat, 13 Nov 2010 23:29:00 GMT");
        assert_eq!(super::Utc(951_782_400_000_001).to_string(), "2000-02-29\t00:00:00.000001");
    }
}
