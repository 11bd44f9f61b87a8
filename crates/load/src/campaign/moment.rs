//! Start time of a schedule, so that several generators begin together.

use super::period;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_measure::Clock;

/// Limit of a time that has just passed: the schedule then begins at once.
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

/// Returns the time until `moment`; zero if it has just passed.
///
/// # Errors
/// It passed a second ago or earlier.
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
    let (date, rest) = text.split_once(['T', 't', ' ']).ok_or_else(wrong)?;
    let [year, month, day] = numbers(date, '-').ok_or_else(wrong)?;
    let (time, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => {
            return Err(format!("'{text}' has no zone; write Z behind it for UTC, or an offset such as +02:00"));
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(time, ':').ok_or_else(wrong)?;
    // 60 is a leap second.
    let right = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !right || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => match numbers(&zone[1..], ':') {
            Some([hours, minutes]) if hours < 24 && minutes < 60 => {
                (hours * 3_600 + minutes * 60) * if zone.starts_with('-') { -1 } else { 1 }
            }
            _ => return Err(wrong()),
        },
    };
    let seconds = day_number(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    let nanos = format!("{fraction:0<9.9}").parse().unwrap_or(0);
    let since = u64::try_from(seconds).map_err(|_| wrong())?;
    Ok(UNIX_EPOCH + Duration::new(since, nanos))
}

/// Parses `N` unsigned numbers between these signs.
fn numbers<const N: usize>(text: &str, sign: char) -> Option<[i64; N]> {
    let mut parts = text.split(sign);
    let mut numbers = [0; N];
    for number in &mut numbers {
        let part = parts.next().filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

const fn days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day is
/// the last of its year.
const fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
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
