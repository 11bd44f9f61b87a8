//! Units of figures, and figures as text for people.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Microseconds,
    Percent,
    Count,
    PerSecond,
    Bytes,
    BytesPerSecond,
    Seconds,
    /// Rating or score without a unit.
    Score,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 8] = [
        Self::Microseconds,
        Self::Seconds,
        Self::Percent,
        Self::Count,
        Self::PerSecond,
        Self::Bytes,
        Self::BytesPerSecond,
        Self::Score,
    ];

    /// Returns the name in JSON and CSV.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Percent => "%",
            Self::Count => "1",
            Self::PerSecond => "1/s",
            Self::Bytes => "B",
            Self::BytesPerSecond => "B/s",
            Self::Seconds => "s",
            Self::Score => "score",
        }
    }

    /// Formats a value for people: with its unit, and only significant digits.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Microseconds => duration(value),
            Self::Percent if value == 0.0 || value == 100.0 => format!("{value:.0} %"),
            // 99.996 must not become 100.00: a gate at 100 would seem to be met.
            Self::Percent if !(0.01..=99.99).contains(&value) => format!("{value:.4} %"),
            Self::Percent => format!("{value:.2} %"),
            Self::Count => grouped(value),
            Self::PerSecond => format!("{} /s", if value < 100.0 { format!("{value:.2}") } else { grouped(value) }),
            Self::Bytes => bytes(value),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
            Self::Seconds => format!("{value:.1} s"),
            Self::Score => format!("{value:.2}"),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = Cow::<str>::deserialize(deserializer)?;
        let unit = Self::ALL.into_iter().find(|unit| unit.key() == key);
        unit.ok_or_else(|| D::Error::custom(format!("unknown variant `{key}`: it is no unit")))
    }
}

fn duration(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} µs"),
        ..10_000.0 => format!("{:.2} ms", us / 1e3),
        ..1_000_000.0 => format!("{:.1} ms", us / 1e3),
        ..60_000_000.0 => format!("{:.2} s", us / 1e6),
        _ => format!("{:.1} s", us / 1e6),
    }
}

fn bytes(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.0} B"),
        ..1e6 => format!("{:.1} kB", value / 1e3),
        ..1e9 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// Formats a number with a comma at each thousand.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < -0.5 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats `1 call`, `2,000 calls`.
pub fn several(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number as f64), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(Unit::Microseconds.show(999.0), "999 µs");
        assert_eq!(Unit::Microseconds.show(1_500.0), "1.50 ms");
        assert_eq!(Unit::Microseconds.show(250_000.0), "250.0 ms");
        assert_eq!(Unit::Microseconds.show(32_000_000.0), "32.00 s");
        assert_eq!(Unit::Percent.show(99.996), "99.9960 %");
        assert_eq!(Unit::Percent.show(100.0), "100 %");
        assert_eq!(Unit::Count.show(1_234_567.0), "1,234,567");
        assert_eq!(Unit::PerSecond.show(12_000.4), "12,000 /s");
        assert_eq!(Unit::Bytes.show(1_250_000.0), "1.2 MB");
        assert_eq!(Unit::Score.show(4.409), "4.41");
    }
}
