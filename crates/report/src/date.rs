//! Dates of reports: RFC 3339, UTC.

use jiff::Timestamp;

/// Formats microseconds since 1970-01-01 UTC as `2026-11-20T13:06:46Z`.
pub fn rfc3339(us: u64) -> String {
    let second = i64::try_from(us / 1_000_000).ok().and_then(|second| Timestamp::from_second(second).ok());
    second.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_183_606, "2026-11-20T14:06:46Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000 + 7), date);
        }
    }
}
