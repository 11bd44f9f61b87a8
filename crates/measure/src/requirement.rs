//! Requirements: `srd.p95<200ms`, `ser>=99.9%`, `calls.failed==0`.

use super::catalogue::{Better, Measure, MeasureError};
use super::unit::Unit;
use super::{Counter, Page, Run};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

// Longer signs first: `<=` begins as `<` does.
const SIGNS: &[(&str, Comparison)] = &[
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("≤", Comparison::LessOrEqual),
    ("≥", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("=", Comparison::Equal),
];

/// Prefix of a measure of the answering side.
const ANSWERING: &str = "answering.";

/// Requirement of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    text: String,
    /// True if the requirement concerns the answering side, in a run with callers and answerers.
    answering: bool,
    measure: Measure,
    comparison: Comparison,
    /// Bound in the unit of the measure.
    bound: f64,
}

/// Error of a requirement, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("'{0}' compares nothing: write a measure, one of < <= > >= == !=, and a value, as in 'srd.p95<200ms'")]
    NoComparison(String),
    #[error("in '{text}': {error}")]
    Measure { text: String, error: MeasureError },
    #[error("in '{text}': '{value}' is no number{}", example(.unit))]
    NoNumber { text: String, value: String, unit: &'static str },
    #[error("in '{text}': {value} of what? Write {value}ms, {value}us or {value}s")]
    NoUnit { text: String, value: String },
    #[error("in '{text}': {value} of what? Write {value}%{}", share(.value))]
    NoPercent { text: String, value: String },
    #[error("in '{text}': {name} is no time, percentage or size in '{unit}'{}", example(.expected))]
    WrongUnit { text: String, name: String, unit: String, expected: &'static str },
    #[error("in '{text}': a percentage lies between 0 and 100")]
    NoPercentage { text: String },
}

/// Returns a hint for a share below one, which may mean a fraction.
fn share(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => {
            format!(", or {}% for a share of {value}", (share * 1e10).round() / 1e8)
        }
        _ => String::new(),
    }
}

fn example(unit: &str) -> &'static str {
    match unit {
        "us" => "; write a time as 200ms, 1.5s or 800us",
        "%" => "; write a percentage as 99.9%",
        "1/s" => "; write a rate as 1000 or 1000/s",
        "B" | "B/s" => "; write a size as 500kB or 2MB",
        "s" => "; write a duration as 60s or 5min",
        _ => "; write a number",
    }
}

impl Requirement {
    /// Parses a requirement; `timers`: the names of the scenario's timers.
    pub fn parse(text: &str, timers: &[String]) -> Result<Self, RequirementError> {
        let text = text.trim();
        let found = SIGNS.iter().filter_map(|(sign, comparison)| Some((text.find(sign)?, sign.len(), *comparison)));
        // The first sign in the text is used, and if several begin at its place, the longest.
        let (place, length, comparison) = found
            .min_by_key(|(place, length, _)| (*place, std::cmp::Reverse(*length)))
            .ok_or_else(|| RequirementError::NoComparison(text.into()))?;
        let (name, value) = (text[..place].trim(), text[place + length..].trim());
        if name.is_empty() || value.is_empty() {
            return Err(RequirementError::NoComparison(text.into()));
        }
        let beside = name.get(..ANSWERING.len()).filter(|start| start.eq_ignore_ascii_case(ANSWERING));
        let name = &name[beside.map_or(0, str::len)..];
        let measure =
            Measure::parse(name, timers).map_err(|error| RequirementError::Measure { text: text.into(), error })?;
        let bound = bound(text, &measure, value)?;
        Ok(Self { text: text.into(), answering: beside.is_some(), measure, comparison, bound })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn measure(&self) -> &Measure {
        &self.measure
    }

    /// Returns whether the requirement concerns the answering side, in a run with callers and answerers.
    pub const fn is_of_answerers(&self) -> bool {
        self.answering
    }

    /// Returns the page that it concerns.
    fn page<'a>(&self, run: &'a Run) -> Option<&'a Page> {
        match self.answering {
            true => run.answering.as_ref().map(|run| &run.totals),
            false => Some(&run.totals),
        }
    }

    /// Returns whether the requirement limits the failed calls and counts every one of them, so that the failures it
    /// allows do not make the run fail. This is false for a requirement that counts only some failures (of one cause,
    /// or of registrations outside calls), and for one that every value meets.
    pub fn bounds_all_failures(&self, run: &Run) -> bool {
        let Some(page) = self.page(run) else { return false };
        let Some((better, counted)) = self.measure.failed_calls(page) else { return false };
        let percent = self.measure.unit() == Unit::Percent;
        let bounds = match (better, self.comparison) {
            (_, Comparison::Equal) => true,
            (Better::Less, Comparison::Less | Comparison::LessOrEqual) => !percent || self.bound < 100.0,
            (Better::More, Comparison::Greater | Comparison::GreaterOrEqual) => !percent || self.bound > 0.0,
            _ => false,
        };
        bounds && counted >= page.counter(Counter::CallsFailed)
    }

    fn is_met(&self, measured: Option<f64>) -> bool {
        measured.is_some_and(|value| match self.comparison {
            Comparison::Less => value < self.bound,
            Comparison::LessOrEqual => value <= self.bound,
            Comparison::Greater => value > self.bound,
            Comparison::GreaterOrEqual => value >= self.bound,
            Comparison::Equal => value == self.bound,
            Comparison::NotEqual => value != self.bound,
        })
    }

    /// Judges a run in progress, and returns the judgement if the requirement is no longer met. `totals`: sum so far,
    /// for counts, which only grow; `recent`: sum of the last seconds, for other measures.
    pub(super) fn lost(&self, totals: &Page, recent: Option<&Page>) -> Option<Judgement> {
        let unit = self.measure.unit();
        let counts = matches!(unit, Unit::Count | Unit::Seconds | Unit::Bytes);
        let measured = self.measure.of(if counts { totals } else { recent? })?;
        let lost = match self.comparison {
            Comparison::Greater | Comparison::GreaterOrEqual | Comparison::NotEqual if counts => false,
            Comparison::Equal if counts => measured > self.bound,
            _ => !self.is_met(Some(measured)),
        };
        let span = if counts { String::new() } else { format!(" in the last {} s", super::guard::SPAN) };
        lost.then(|| self.judgement(false, Some(measured), unit.show(measured) + &span))
    }

    /// Judges the run. A measure without a value meets no requirement. `good`: sums of the good windows of callers and
    /// answerers, if some windows are bad. Delays, shares and rates are judged by the good windows alone, because the
    /// generator spoiled the other windows. A count (calls, seconds, bytes) is met if the whole run or the good windows
    /// meet it.
    pub fn judge(&self, run: &Run, good: [Option<&Page>; 2]) -> Judgement {
        let unit = self.measure.unit();
        let of_run = self.page(run).and_then(|page| self.measure.of(page));
        let of_good = good[usize::from(self.answering)].map(|page| self.measure.of(page));
        let counts = matches!(unit, Unit::Count | Unit::Seconds | Unit::Bytes);
        let (measured, other) = match of_good {
            Some(of_good) if !(counts && self.is_met(of_run)) => (of_good, Some(of_run)),
            _ => (of_run, None),
        };
        let met = self.is_met(measured);
        let show = |value: Option<f64>| value.map_or_else(|| "nothing was measured".into(), |value| unit.show(value));
        let beside = match other.filter(|other| *other != measured) {
            Some(other) => format!(" in the good windows ({} over the whole run)", show(other)),
            None => String::new(),
        };
        self.judgement(met, measured, show(measured) + &beside)
    }

    fn judgement(&self, met: bool, measured: Option<f64>, shown: String) -> Judgement {
        let side = if self.answering { ANSWERING } else { "" };
        Judgement {
            requirement: self.text.clone(),
            measure: format!("{side}{}", self.measure.name()),
            met,
            measured,
            bound: self.bound,
            unit: self.measure.unit().key().into(),
            shown,
        }
    }
}

/// Judgement of a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Requirement as the user wrote it.
    pub requirement: String,
    pub measure: String,
    pub met: bool,
    /// Value in `unit`; `None`: nothing was measured.
    pub measured: Option<f64>,
    pub bound: f64,
    pub unit: String,
    /// Measured value for people.
    pub shown: String,
}

/// Returns a number without the signs between its digits. Returns `None` if a comma separates no thousands, because
/// `1,5` may mean one and a half.
pub fn ungrouped(number: &str) -> Option<String> {
    let plain = number.replace('_', "");
    let whole = plain.split('.').next().unwrap_or_default();
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default().trim_start_matches(['+', '-']);
    let grouped = groups.clone().next().is_none() || (1..=3).contains(&first.len());
    let right = grouped && groups.all(|group| group.len() == 3) && !plain[whole.len()..].contains(',');
    right.then(|| plain.replace(',', ""))
}

/// Parses the value in the unit of the measure.
fn bound(text: &str, measure: &Measure, value: &str) -> Result<f64, RequirementError> {
    let unit = measure.unit();
    let digits = value.find(|c: char| !(c.is_ascii_digit() || "+-.,_".contains(c))).unwrap_or(value.len());
    let (number, suffix) = (value[..digits].trim(), value[digits..].trim());
    let parsed = ungrouped(number).and_then(|plain| plain.parse::<f64>().ok()).filter(|number| number.is_finite());
    let number = parsed.ok_or_else(|| RequirementError::NoNumber {
        text: text.into(),
        value: value.into(),
        unit: unit.key(),
    })?;
    let factor = match (unit, suffix.to_ascii_lowercase().as_str()) {
        (Unit::Microseconds, "us" | "µs" | "μs") => 1.0,
        (Unit::Microseconds, "ms") => 1e3,
        (Unit::Microseconds, "s" | "sec") => 1e6,
        (Unit::Microseconds, "m" | "min") => 60e6,
        (Unit::Microseconds, "h") => 3_600e6,
        // 0 needs no unit.
        (Unit::Microseconds, "") if number == 0.0 => 1.0,
        (Unit::Microseconds, "") => return Err(RequirementError::NoUnit { text: text.into(), value: value.into() }),
        (Unit::Seconds, "" | "s" | "sec") => 1.0,
        (Unit::Seconds, "ms") => 1e-3,
        (Unit::Seconds, "m" | "min") => 60.0,
        (Unit::Seconds, "h") => 3_600.0,
        (Unit::Percent, "%") => 1.0,
        (Unit::Percent, "") if number == 0.0 => 1.0,
        (Unit::Percent, "") => return Err(RequirementError::NoPercent { text: text.into(), value: value.into() }),
        (Unit::Count | Unit::Score, "") | (Unit::PerSecond, "" | "/s" | "cps") => 1.0,
        (Unit::Count, "k") | (Unit::PerSecond, "k" | "k/s") => 1e3,
        (Unit::Count, "m") | (Unit::PerSecond, "m" | "m/s") => 1e6,
        (Unit::Bytes, "" | "b") | (Unit::BytesPerSecond, "" | "b" | "b/s") => 1.0,
        (Unit::Bytes, "kb" | "k") | (Unit::BytesPerSecond, "kb" | "kb/s" | "k") => 1e3,
        (Unit::Bytes, "mb" | "m") | (Unit::BytesPerSecond, "mb" | "mb/s" | "m") => 1e6,
        (Unit::Bytes, "gb" | "g") | (Unit::BytesPerSecond, "gb" | "gb/s" | "g") => 1e9,
        _ => {
            return Err(RequirementError::WrongUnit {
                text: text.into(),
                name: measure.name().into(),
                unit: suffix.into(),
                expected: unit.key(),
            });
        }
    };
    if unit == Unit::Percent && !(0.0..=100.0).contains(&number) {
        return Err(RequirementError::NoPercentage { text: text.into() });
    }
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delay, Heading};

    fn judge(text: &str, run: &Run) -> Judgement {
        Requirement::parse(text, &[]).unwrap_or_else(|error| panic!("{error}")).judge(run, [None; 2])
    }

    #[test]
    fn bad_windows_are_not_judged() {
        let mut whole = run();
        whole.totals.delays[Delay::Setup as usize].record(2_000_000);
        let good = run().totals;
        let judged = |text: &str| {
            let requirement = Requirement::parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
            (requirement.judge(&whole, [None; 2]).met, requirement.judge(&whole, [Some(&good), None]))
        };
        let (before, judgement) = judged("srd.max<=200ms");
        assert!(!before && judgement.met, "{judgement:?}");
        assert_eq!(judgement.shown, "200.0 ms in the good windows (2.00 s over the whole run)");
        // The good windows miss the requirement, and so does the run.
        assert!(!judged("srd.max<200ms").1.met);
        whole_and_good_counts();
    }

    /// Checks that a count is met by the whole run or by its good windows.
    fn whole_and_good_counts() {
        let (mut whole, good) = (run(), run().totals);
        whole.totals.count(Counter::CallsFailed, 4);
        whole.totals.count(Counter::CallsOutgoing, 100);
        for (text, met) in [("calls.failed<=1", true), ("calls.outgoing>=100,100", true), ("calls.failed==0", false)] {
            let requirement = Requirement::parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(requirement.judge(&whole, [Some(&good), None]).met, met, "{text}");
        }
    }

    fn run() -> Run {
        let mut run = Run::new(Heading::default());
        let page = &mut run.totals;
        page.covered = 10_000_000;
        page.count(Counter::SessionAnswered, 999);
        page.count(Counter::SessionFailed, 1);
        page.count(Counter::CallsFailed, 1);
        page.count(Counter::CallsOutgoing, 100_000);
        page.count(Counter::BytesSent, 3_000_000);
        for ms in 1..=200 {
            page.delays[Delay::Setup as usize].record(ms * 1_000);
            let score = if ms <= 4 { 2.5 } else { 4.4 };
            page.record(Delay::MediaScore, Delay::MediaScore.recorded(score));
        }
        run
    }

    #[test]
    fn met_and_missed_requirements() {
        for (text, met) in [
            ("srd.p95<200ms", true),
            ("srd.p95 < 0.19s", false),
            ("srd.p95<=191ms", true),
            ("srd.max<=200000us", true),
            ("srd.max<200ms", false),
            ("srd.min≥1ms", true),
            ("ser>=99.9%", true),
            ("ser>99.9%", false),
            ("ser>=0", true),
            ("calls.failed==0", false),
            ("calls.failed=1", true),
            ("calls.failed!=0", true),
            ("calls.outgoing>=100k", true),
            ("calls.outgoing>=100,000", true),
            ("calls.outgoing>=99,999.5", true),
            ("calls.outgoing<1_000_000", true),
            ("rate.achieved>=10000/s", true),
            ("bytes.sent<4MB", true),
            ("duration>=10s", true),
            ("lag.p99<0", false),
            ("media.mos.p1>4.0", false),
            ("media.mos.p10>4.0", true),
            ("media.mos.min>=2.5", true),
            ("media.rating.p1>4", false),
        ] {
            let judgement = judge(text, &run());
            assert_eq!(judgement.met, met, "{judgement:?}");
        }
        let judgement = judge("srd.p95<200ms", &run());
        assert_eq!((judgement.shown.as_str(), judgement.bound), ("190.1 ms", 200_000.0));
        assert_eq!(judge("media.mos.p1>4", &run()).shown, "2.50");
        let nothing = judge("sdd.p95<200ms", &run());
        assert!(!nothing.met && nothing.measured.is_none() && nothing.shown == "nothing was measured");
    }

    #[test]
    fn failed_calls_are_allowed_by_measures_that_count_all() {
        let mut run = Run::new(Heading::default());
        for (counter, by) in [
            (Counter::CallsFailed, 10),
            (Counter::CallsSuccessful, 90),
            (Counter::SessionAnswered, 90),
            (Counter::SessionFailed, 10),
            (Counter::SessionEffective, 10),
        ] {
            run.totals.count(counter, by);
        }
        let bounds = |run: &Run, text: &str| Requirement::parse(text, &[]).expect(text).bounds_all_failures(run);
        for text in
            ["calls.failed<=10", "calls.failed==10", "calls.success>=90%", "rate.failed<5", "ser>89%", "isa.any<=10%"]
        {
            assert!(bounds(&run, text), "{text}");
        }
        for text in [
            // Reversed signs, or bounds that no run can miss.
            "calls.failed>=1",
            "calls.failed!=7",
            "calls.success<99%",
            "calls.success>=0%",
            "isa.any<=100%",
            // Measures of some failures only, or of none.
            "calls.failed.tls==0",
            "seer>=99%",
            "isa<1%",
            "ira<1%",
            "ira.any<1%",
            "session.failed<=10",
            "calls.successful>=90",
            "srd.p95<200ms",
            "answering.calls.failed<=10",
        ] {
            assert!(!bounds(&run, text), "{text}");
        }
        // One more call failed by its BYE, which the sessions do not count.
        run.totals.count(Counter::CallsFailed, 1);
        assert!(!bounds(&run, "ser>=80%") && bounds(&run, "calls.failed<=11"));
    }

    #[test]
    fn the_answering_side_is_asked_for_by_name() {
        let mut both = run();
        let requirement = Requirement::parse("Answering.calls.failed<=3", &[]).expect("it is read");
        assert_eq!(requirement.judge(&both, [None; 2]).shown, "nothing was measured");
        let mut answering = run();
        answering.totals.count(Counter::CallsFailed, 2);
        both.answering = Some(Box::new(answering));
        let judgement = requirement.judge(&both, [None; 2]);
        assert_eq!(
            (judgement.met, judgement.measure.as_str(), judgement.measured),
            (true, "answering.calls.failed", Some(3.0))
        );
    }

    #[test]
    fn errors_name_the_cure() {
        for (text, part) in [
            ("srd.p95", "compares nothing"),
            ("<200ms", "compares nothing"),
            ("srd.p95<", "compares nothing"),
            ("srd<200ms", "srd.p95"),
            ("sdr.p95<200ms", "nearest: sdd.p95, srd.p95"),
            ("srd.p95<200", "Write 200ms"),
            ("srd.p95<fast", "200ms, 1.5s"),
            // Not 0.99 %, which half of the calls may miss.
            ("ser>=0.99", "0.99 of what? Write 0.99%, or 99% for a share of 0.99"),
            ("ser>=1", "Write 1%, or 100% for"),
            ("ser>=99.9", "99.9 of what? Write 99.9%"),
            // Not 15 s.
            ("srd.p95<1,5s", "200ms, 1.5s"),
            ("calls.failed<1000,5", "write a number"),
            ("calls.failed<1.000,5", "write a number"),
            ("calls.failed<1,000,5", "write a number"),
            ("srd.p95<200%", "200ms, 1.5s"),
            ("ser>=99.9ms", "99.9%"),
            ("ser>=101%", "between 0 and 100"),
            ("calls.failed==none", "write a number"),
            ("calls.failed==0ms", "write a number"),
            ("media.mos>4", "media.mos.p1"),
            ("media.mos.p1>4ms", "write a number"),
            ("nothing==0", "lists all"),
        ] {
            let error = Requirement::parse(text, &[]).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
