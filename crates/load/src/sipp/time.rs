//! Durations of the command line, as SIPp parses them.

/// Parses `10`, `1.5`, `20s`, `100ms`, `2m`, `1h`, `01:30` or `1:00:00` to milliseconds; `unit`: milliseconds of a bare
/// number.
///
/// # Errors
/// The fault of the text.
pub fn milliseconds(text: &str, unit: f64) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time; write a number, alone or with ms, s, m or h, or HH:MM:SS");
    let text = text.trim();
    let (factor, number) = if let Some(n) = text.strip_suffix("ms") {
        (1.0, n)
    } else if let Some(n) = text.strip_suffix('s') {
        (1_000.0, n)
    } else if let Some(n) = text.strip_suffix('m') {
        (60_000.0, n)
    } else if let Some(n) = text.strip_suffix('h') {
        (3_600_000.0, n)
    } else if text.contains(':') {
        let mut seconds = 0.0;
        for part in text.split(':') {
            seconds = seconds * 60.0 + part.parse::<f64>().map_err(|_| wrong())?;
        }
        return Ok((seconds * 1_000.0) as u64);
    } else {
        (unit, text)
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    if value.is_finite() && value >= 0.0 { Ok((value * factor).round() as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn durations() {
        for (text, unit, want) in [
            ("10", 1.0, 10),
            ("10", 1_000.0, 10_000),
            ("1.5", 1_000.0, 1_500),
            ("20s", 1.0, 20_000),
            ("100ms", 1_000.0, 100),
            ("2m", 1.0, 120_000),
            ("1h", 1.0, 3_600_000),
            ("01:30", 1.0, 90_000),
            ("1:00:00", 1.0, 3_600_000),
        ] {
            assert_eq!(milliseconds(text, unit), Ok(want), "{text}");
        }
        assert!(milliseconds("soon", 1.0).is_err() && milliseconds("-1", 1.0).is_err());
    }
}
