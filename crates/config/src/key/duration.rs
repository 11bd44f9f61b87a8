//! Durations of the file: a number and its unit.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Key, Rule};
use crate::reader::Reader;

impl Key for Duration {
    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        let cure = format!("write {}", Self::allowed(rule));
        match value.get_ref() {
            DeValue::String(text) => match duration(text) {
                Some(found) if rule.admits(found) => return Some(found),
                Some(_) => reader.error(value.span(), format!("{path} is out of its range"), cure),
                None => reader.error(value.span(), format!("{path} is {text:?}, which is not a duration"), cure),
            },
            DeValue::Integer(number) => {
                let message = format!("{path} is a number without a unit");
                let is_good = |text: &String| duration(text).is_some_and(|found| rule.admits(found));
                let example = ["s", "ms", "m", "h"].map(|unit| format!("{number}{unit}")).into_iter().find(is_good);
                let example =
                    example.map_or_else(String::new, |text| format!("name the unit, for example \"{text}\"; "));
                reader.error(value.span(), message, format!("{example}{cure}"));
            }
            _ => reader.wrong_type(path, value, "a duration", cure),
        }
        None
    }

    fn write(&self, _: &Rule) -> String {
        format!("\"{}\"", duration_text(*self))
    }

    fn allowed(rule: &Rule) -> String {
        let bound = |bound: u64| duration_text(Self::from_millis(bound));
        let units = DURATION_UNITS.map(|(name, _)| name);
        let units: Vec<&str> = units.into_iter().rev().collect();
        let units = units.join(", ");
        format!("a duration from \"{}\" to \"{}\" (units {units})", bound(rule.low), bound(rule.high))
    }
}

/// Units of durations, in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration such as `500ms`, `4s`, `3m`, `1h` or `7d`.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|character: char| !character.is_ascii_digit())?;
    let (digits, unit) = text.split_at(split);
    let (_, scale) = DURATION_UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    Some(Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(*scale)?))
}

/// Writes a duration in the largest unit that divides it, as in the file.
pub(crate) fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis() as u64;
    if millis == 0 {
        return "0s".into();
    }
    DURATION_UNITS
        .iter()
        .find(|(_, scale)| millis.is_multiple_of(*scale))
        .map(|(name, scale)| format!("{}{name}", millis / scale))
        .expect("the last unit divides every number of milliseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0s", "1ms", "1500ms", "500ms", "4s", "90s", "3m", "1h", "36h", "7d"] {
            assert_eq!(duration_text(duration(text).expect(text)), text);
        }
        for text in ["", "5", "ms", "5 weeks", "200us", "-1s", "1.5s", "99999999999999999999s", "213503982335d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_have_bounds() {
        let rule = Rule::time(Duration::ZERO, Duration::from_secs(1));
        assert!(rule.admits(Duration::from_secs(1)) && !rule.admits(Duration::from_millis(1_001)));
        assert_eq!(Duration::allowed(&rule), "a duration from \"0s\" to \"1s\" (units ms, s, m, h, d)");
    }
}
