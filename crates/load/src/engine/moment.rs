//! Times as text.

use jiff::Timestamp;
use jiff::tz::Offset;
use std::fmt;
use strowger_net::clock;

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
        let moment = Timestamp::from_microsecond(self.0.cast_signed()).unwrap_or(Timestamp::MAX);
        let moment = Offset::UTC.to_datetime(moment);
        let (year, month, day) = (moment.year(), moment.month(), moment.day());
        let (h, m, s) = (moment.hour(), moment.minute(), moment.second());
        write!(f, "{year:04}-{month:02}-{day:02}\t{h:02}:{m:02}:{s:02}.{:06}", self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments() {
        assert_eq!(super::Utc(0).to_string(), "1970-01-01\t00:00:00.000000");
        assert_eq!(super::Utc(951_782_400_000_001).to_string(), "2000-02-29\t00:00:00.000001");
        assert_eq!(super::Utc(1_289_690_940_250_000).to_string(), "2010-11-13\t23:29:00.250000");
    }
}
