//! Rate profiles: steps, ramps and bursts, on the command line or in a file.

use super::period;
use crate::engine::pace::Part;
use std::path::Path;

/// Syntax of profiles, for errors and help.
pub const SYNTAX: &str = "100:30s (a step), 100-500:1m (a ramp), burst:1000, one after the other with commas, or a CSV file with \
                          lines of seconds,rate";

/// Parses a profile: comma-separated parts, or the name of a CSV file.
///
/// # Errors
/// Fault and cure, with the line of a file.
pub fn parse(text: &str) -> Result<Vec<Part>, String> {
    let text = text.trim();
    let path = Path::new(text);
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv")) || path.is_file() {
        let content = std::fs::read_to_string(path)
            .map_err(|error| format!("the rate profile {text} cannot be read: {error}"))?;
        return table(&content, text);
    }
    let parts: Result<Vec<Part>, String> = text.split(',').map(|part| one(part.trim())).collect();
    parts.map_err(|error| format!("{error} in the rate profile '{text}'; write {SYNTAX}"))
}

fn one(text: &str) -> Result<Part, String> {
    let (rate, length) = text.split_once([':', '@', 'x']).ok_or_else(|| format!("'{text}' lacks its length"))?;
    if rate.trim() == "burst" {
        return Ok(Part::Burst { calls: period::count(length)? });
    }
    let micros = period::duration(length)?.as_micros() as u64;
    let (from, to) = rate.split_once("..").or_else(|| rate.split_once('-')).unwrap_or((rate, rate));
    Ok(Part::Ramp { from: period::rate(from)?, to: period::rate(to)?, micros })
}

/// Parses lines `seconds,rate[,ramp]`: each rate holds from its time to that of the next line; with `ramp` it changes
/// linearly to the next rate. The last line is the end. Empty lines, `#` comments and a heading are skipped.
fn table(content: &str, name: &str) -> Result<Vec<Part>, String> {
    let mut rows: Vec<(f64, f64, bool)> = Vec::new();
    for (number, line) in content.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        // If a semicolon or a tab separates the fields, a comma belongs to a number.
        let sign = [';', '\t'].into_iter().find(|sign| line.contains(*sign)).unwrap_or(',');
        let mut fields = line.split(sign).map(str::trim);
        let mut field = || fields.next().unwrap_or_default();
        let (time, rate, shape) = (field(), field(), field().to_ascii_lowercase());
        let parsed = period::duration(time).and_then(|time| Ok((time.as_secs_f64(), period::rate(rate)?)));
        match parsed {
            Ok((time, rate)) => {
                if !["", "step", "ramp"].contains(&&*shape) {
                    return Err(format!("{name}:{}: '{shape}' is neither 'step' nor 'ramp'", number + 1));
                }
                if rows.last().is_some_and(|last| time <= last.0) {
                    return Err(format!(
                        "{name}:{}: the time {time} s is not behind that of the line before",
                        number + 1
                    ));
                }
                rows.push((time, rate, shape == "ramp"));
            }
            // A heading.
            Err(_) if rows.is_empty() && ![time, rate].iter().any(|field| begins_as_number(field)) => (),
            Err(error) => return Err(format!("{name}:{}: {error}; a line is seconds,rate", number + 1)),
        }
    }
    if rows.len() < 2 {
        return Err(format!(
            "{name}: a rate profile has at least two lines of seconds,rate: the last says when it ends"
        ));
    }
    let mut parts = Vec::new();
    if rows[0].0 > 0.0 {
        parts.push(Part::Ramp { from: 0.0, to: 0.0, micros: (rows[0].0 * 1e6) as u64 });
    }
    for pair in rows.windows(2) {
        let ((begin, from, ramp), (end, next, _)) = (pair[0], pair[1]);
        let micros = ((end - begin) * 1e6).round() as u64;
        parts.push(Part::Ramp { from, to: if ramp { next } else { from }, micros });
    }
    Ok(parts)
}

fn begins_as_number(field: &str) -> bool {
    field.trim_start_matches(['"', '-', '+', '.']).starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the profile of generator `index` of `count` that share it. Each generator begins a little later than the
/// previous one, so that the arrivals of all generators together are even.
pub fn share(parts: &[Part], index: usize, count: usize) -> Vec<Part> {
    let n = count.max(1) as f64;
    let mut shared = Vec::with_capacity(parts.len() + 1);
    let first = parts.iter().find_map(|part| match *part {
        Part::Hold { rate } => Some(rate),
        Part::Ramp { from, .. } => Some(from),
        Part::Burst { .. } => None,
    });
    if let Some(rate) = first.filter(|rate| *rate > 0.0 && index > 0) {
        shared.push(Part::Ramp { from: 0.0, to: 0.0, micros: (index as f64 * 1e6 / rate).min(1e6) as u64 });
    }
    shared.extend(parts.iter().map(|part| match *part {
        Part::Hold { rate } => Part::Hold { rate: rate / n },
        Part::Ramp { from, to, micros } => Part::Ramp { from: from / n, to: to / n, micros },
        Part::Burst { calls } => Part::Burst { calls: portion(calls, index, count) },
    }));
    shared
}

/// Returns the share of `all` for place `index` of `count`; the first places take the remainder.
pub const fn portion(all: u64, index: usize, count: usize) -> u64 {
    let count = if count == 0 { 1 } else { count as u64 };
    all / count + ((index as u64) < all % count) as u64
}

/// Returns the length of a profile, µs, or `None` if it has no end.
pub fn length(parts: &[Part]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| match part {
        Part::Hold { .. } => None,
        Part::Ramp { micros, .. } => Some(sum.saturating_add(*micros)),
        Part::Burst { .. } => Some(sum),
    })
}

/// Returns the rate of a profile `at` µs after its start, calls per second.
pub fn rate(parts: &[Part], at: u64) -> f64 {
    let mut since = 0;
    for part in parts {
        match *part {
            Part::Hold { rate } => return rate,
            Part::Ramp { from, to, micros } if at < since + micros => {
                return from + (to - from) * (at - since) as f64 / micros as f64;
            }
            Part::Ramp { micros, .. } => since += micros,
            Part::Burst { .. } => (),
        }
    }
    0.0
}

/// Returns about how many calls a profile with an end begins. The first call is due at the start of the profile, if the
/// rate is above 0 there.
pub fn calls(parts: &[Part]) -> f64 {
    let calls = parts.iter().map(|part| match *part {
        Part::Hold { rate } if rate > 0.0 => f64::INFINITY,
        Part::Hold { .. } => 0.0,
        Part::Ramp { from, to, micros } if micros > 0 && from + to > 0.0 => {
            1.0 + (from + to) / 2.0 * micros as f64 / 1e6
        }
        Part::Ramp { .. } => 0.0,
        Part::Burst { calls } => calls as f64,
    });
    calls.sum()
}

/// Returns the highest rate of a profile, calls per second.
pub fn peak(parts: &[Part]) -> f64 {
    let rates = parts.iter().map(|part| match *part {
        Part::Hold { rate } => rate,
        Part::Ramp { from, to, .. } => from.max(to),
        Part::Burst { .. } => 0.0,
    });
    rates.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(from: f64, to: f64, seconds: u64) -> Part {
        Part::Ramp { from, to, micros: seconds * 1_000_000 }
    }

    #[test]
    fn on_the_command_line() {
        let want =
            vec![ramp(100.0, 100.0, 30), ramp(100.0, 500.0, 60), Part::Burst { calls: 1_000 }, ramp(0.0, 0.0, 5)];
        assert_eq!(parse("100:30s,100-500:1m,burst:1000,0:5s").unwrap(), want);
        assert_eq!(parse("100@30s, 100..500@1m, burst:1k, 0@5").unwrap(), want);
        assert_eq!(length(&want), Some(95_000_000));
        assert_eq!(peak(&want), 500.0);
        assert_eq!([0, 29_999_999, 60_000_000, 95_000_000].map(|at| rate(&want, at)), [100.0, 100.0, 300.0, 0.0]);
        assert_eq!(calls(&parse("100:30s,burst:5,0:9s").unwrap()), 3_006.0);
        assert_eq!(calls(&parse("0:30s,burst:0").unwrap()), 0.0);
        for text in ["", "100", "fast:3s", "100:x", "burst:x", "100:3s,,"] {
            assert!(parse(text).is_err_and(|e| e.contains("a ramp")), "{text}");
        }
        assert!(parse("/nowhere/profile.csv").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn in_a_file() {
        let parts = table("time,rate,shape\n0,100\n10,200,Ramp # up\n\n20;400\n30,0\n", "p.csv").unwrap();
        assert_eq!(parts, [ramp(100.0, 100.0, 10), ramp(200.0, 400.0, 10), ramp(400.0, 400.0, 10)]);
        assert_eq!(table("\u{feff}0,100\r\n1,0\r\n", "p.csv").unwrap(), [ramp(100.0, 100.0, 1)]);
        for (text, part) in [
            ("", "at least two"),
            ("-1,100\n5,1\n", "p.csv:1: '-1' is no length"),
            ("\"0\",\"100\"\n5,1\n", "p.csv:1"),
            ("0,100\n", "at least two"),
            ("0,100\n0,200\n", "p.csv:2"),
            ("0;10\n0,5;20\n", "p.csv:2: '0,5' is no length"),
            ("0,100\n5,x\n", "p.csv:2: 'x' is no rate"),
            ("0,100,up\n5,1\n", "neither"),
        ] {
            let error = table(text, "p.csv").unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn shares_add_up() {
        let parts = [Part::Burst { calls: 10 }, ramp(90.0, 90.0, 1)];
        let calls: u64 = (0..3)
            .flat_map(|i| share(&parts, i, 3))
            .map(|part| if let Part::Burst { calls } = part { calls } else { 0 })
            .sum();
        assert_eq!(calls, 10);
        assert_eq!(share(&parts, 0, 3)[1], ramp(30.0, 30.0, 1));
        assert_eq!(share(&parts, 2, 3)[0], Part::Ramp { from: 0.0, to: 0.0, micros: 22_222 });
    }
}
