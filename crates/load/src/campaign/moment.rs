//! Start time of a schedule, so that several generators begin together.

use super::period;
use jiff::Timestamp;
use jiff::civil::DateTime;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_measure::Clock;

/// Maximum delay of a start time that has passed: within this limit the schedule begins at once.
const LATE: Duration = Duration::from_secs(1);

/// Parses a time: an RFC 3339 date and time with its offset from UTC, or `+5s` for a time from `now` on.
///
/// # Errors
/// The expected form, or that the time has passed.
pub fn parse(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let text = text.trim();
    if let Some(length) = text.strip_prefix('+') {
        return Ok(now + period::duration(length)?);
    }
    let moment = date_time(text)?;
    is_to_come(moment, now).map(|_| moment)
}

/// Returns the time until `moment`, or zero if the moment has passed less than a second ago.
///
/// # Errors
/// The moment passed a second ago or earlier.
pub(super) fn is_to_come(moment: SystemTime, now: SystemTime) -> Result<Duration, String> {
    match moment.duration_since(now) {
        Ok(left) => Ok(left),
        Err(past) if past.duration() < LATE => Ok(Duration::ZERO),
        Err(past) => {
            let past = match past.duration().as_secs() / 86_400 {
                0 | 1 => period::show(past.duration()),
                days => format!("{days} days"),
            };
            Err(format!("the moment was {past} ago; name a later one, or a time from now such as +5s"))
        }
    }
}

/// Returns the start by the engine's clock (µs), if `start_at` sets it, and the time until then.
///
/// # Errors
/// The time passed while the campaign was prepared.
pub(super) fn opening(
    start_at: Option<SystemTime>,
    clock: Clock,
    now: SystemTime,
) -> Result<(Option<u64>, Duration), String> {
    let Some(moment) = start_at else { return Ok((None, Duration::ZERO)) };
    let left = is_to_come(moment, now).map_err(|error| {
        format!("the calls cannot begin when --start-at says, preparing them took too long: {error}")
    })?;
    Ok((Some(clock.mono(microseconds(moment))).filter(|_| !left.is_zero()), left))
}

/// Returns the microseconds since 1970-01-01 UTC.
pub(super) fn microseconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn date_time(text: &str) -> Result<SystemTime, String> {
    let wrong = || {
        format!(
            "'{text}' is no moment; write a date and time with its zone as 2026-12-01T09:30:00Z, or +5s for five seconds from now"
        )
    };
    match text.parse::<Timestamp>() {
        Ok(moment) if moment >= Timestamp::UNIX_EPOCH => {
            Ok(UNIX_EPOCH + moment.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs())
        }
        Ok(_) => Err(wrong()),
        Err(_) if text.contains(':') && text.parse::<DateTime>().is_ok() => {
            Err(format!("'{text}' has no zone; write Z behind it for UTC, or an offset such as +02:00"))
        }
        Err(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn moments_of_rfc_3339_and_from_now_on() {
        let now = at(951_000_000);
        for (text, seconds) in [
            ("2000-02-28T23:59:59Z", 951_782_399),
            ("2000-02-29t00:00:00z", 951_782_400),
            ("2000-03-01 02:00:00+02:00", 951_868_800),
            ("2000-02-29T18:30:00-05:30", 951_868_800),
            ("2026-11-20T14:06:46Z", 1_795_183_606),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("+5s", 951_000_005),
            ("+2m", 951_000_120),
        ] {
            assert_eq!(parse(text, now), Ok(at(seconds)), "{text}");
        }
        assert_eq!(parse("2000-02-28T23:59:59.25Z", now), Ok(at(951_782_399) + Duration::from_millis(250)));
    }

    #[test]
    fn wrong_and_past_times_are_explained() {
        let now = at(951_782_400);
        for (text, part) in [
            ("tomorrow", "2026-12-01T09:30:00Z"),
            ("1969-12-31T23:59:59Z", "no moment"),
            ("2000-03-01", "no moment"),
            ("2000-03-01T00:00:00", "no zone"),
            ("2001-02-29T00:00:00Z", "no moment"),
            ("2000-03-01T24:00:00Z", "no moment"),
            ("2000-03-01T00:00:00+2", "no moment"),
            ("2000-03-01T00:00:00.xZ", "no moment"),
            ("+soon", "no length of time"),
            ("2000-02-28T23:59:58Z", "2 s ago; name a later one"),
            ("1999-02-28T00:00:00Z", "366 days ago"),
        ] {
            assert!(parse(text, now).is_err_and(|error| error.contains(part)), "{text}: {:?}", parse(text, now));
        }
        // A time that has just passed begins at once.
        let just = now - Duration::from_millis(999);
        assert_eq!(is_to_come(just, now), Ok(Duration::ZERO));
        assert_eq!(parse("2000-02-28T23:59:59.5Z", now), Ok(now - Duration::from_millis(500)));
    }
}
