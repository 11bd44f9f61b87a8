//! Durations and rates as people write them.

use std::time::Duration;
use strowger_measure::ungrouped;

/// Parses `10` (seconds), `10s`, `500ms`, `2m`, `1h`, `1.5s`, `1:30` (minutes and seconds), `1h30m`.
///
/// # Errors
/// The cure, as a sentence.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no length of time; write 10s, 500ms, 2m, 1h30m or 1:30");
    let text = text.trim();
    let seconds = if text.contains(':') {
        let mut seconds = 0.0;
        for part in text.split(':') {
            seconds = seconds * 60.0 + number(part).ok_or_else(wrong)?;
        }
        seconds
    } else if let Some(seconds) = number(text) {
        seconds
    } else {
        let (mut seconds, mut rest) = (0.0, text);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
            let value = number(&rest[..digits]).ok_or_else(wrong)?;
            let tail = rest[digits..].trim_start();
            let unit = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            seconds += value
                * match &tail[..unit] {
                    "ms" => 1e-3,
                    "s" | "sec" => 1.0,
                    "m" | "min" => 60.0,
                    "h" => 3_600.0,
                    "d" => 86_400.0,
                    _ => return Err(wrong()),
                };
            rest = tail[unit..].trim_start();
        }
        seconds
    };
    if text.is_empty() || !(0.0..=1e9).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses calls per second: `100`, `100/s`, `1k`, `6000/m`, `3600/h`, `0.5`.
///
/// # Errors
/// The cure, as a sentence.
pub fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no rate; write calls a second such as 100, 2.5, 1k, or 6000/m");
    let (value, unit) = text.trim().split_once('/').unwrap_or_else(|| (text.trim(), "s"));
    let (value, factor) = match value.strip_suffix(['k', 'K']) {
        Some(value) => (value, 1e3),
        None => (value.strip_suffix("cps").unwrap_or(value), 1.0),
    };
    let each = match unit.trim() {
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let rate = number(value).ok_or_else(wrong)? * factor / each;
    if (0.0..=1e7).contains(&rate) { Ok(rate) } else { Err(wrong()) }
}

/// Parses a count: `1000`, `10k`, `1M`, `1,000`.
///
/// # Errors
/// The cure, as a sentence.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no count; write a whole number such as 1000 or 10k");
    let text = text.trim();
    let (value, factor) = match text.strip_suffix(['k', 'K']) {
        Some(value) => (value, 1e3),
        None => match text.strip_suffix(['M', 'm']) {
            Some(value) => (value, 1e6),
            None => (text, 1.0),
        },
    };
    let count = ungrouped(value.trim_end()).as_deref().and_then(number).ok_or_else(wrong)? * factor;
    if count.fract() == 0.0 && count < 1e18 { Ok(count as u64) } else { Err(wrong()) }
}

fn number(text: &str) -> Option<f64> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let text = text.trim();
    (!text.is_empty() && text.chars().all(digits)).then(|| text.parse().ok()).flatten()
}

/// Formats a duration for people: `10 s`, `1 min 30 s`, `500 ms`.
pub fn show(length: Duration) -> String {
    let ms = length.as_millis();
    let seconds = ms / 1_000;
    if ms < 1_000 {
        format!("{ms} ms")
    } else if ms < 60_000 {
        if ms.is_multiple_of(1_000) { format!("{seconds} s") } else { format!("{:.1} s", ms as f64 / 1e3) }
    } else if seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (text, ms) in [
            ("10", 10_000),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("500 ms", 500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1:30", 90_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text).map(|d| d.as_millis()), Ok(ms), "{text}");
        }
        for text in ["", "s", "10x", "-1", "1:x", "1e3", "nan", "."] {
            assert!(duration(text).is_err_and(|e| e.contains("write 10s")), "{text}");
        }
        assert_eq!(show(Duration::from_millis(1_500)), "1.5 s");
        assert_eq!(show(Duration::from_secs(90)), "1 min 30 s");
    }

    #[test]
    fn rates_and_counts() {
        for (text, want) in [("100", 100.0), ("100/s", 100.0), ("1k", 1_000.0), ("6000/m", 100.0), ("0.5", 0.5)] {
            assert_eq!(rate(text), Ok(want), "{text}");
        }
        for text in ["", "fast", "-1", "1/x", "1e9k"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!((count("10k"), count("1,000"), count("1M")), (Ok(10_000), Ok(1_000), Ok(1_000_000)));
        assert_eq!((count("1.5k"), count("1_000")), (Ok(1_500), Ok(1_000)));
        assert!(count("1.5").is_err() && count("1,5").is_err() && count("x").is_err());
    }
}
