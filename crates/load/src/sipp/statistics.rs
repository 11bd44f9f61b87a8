//! `-trace_stat`: SIPp's columns, a line for each period.

use super::trace::Stamp;
use crate::engine::sipp_stats::{Lengths, SippStats};
use std::fs::File;
use std::io::{BufWriter, Write};
use strowger_measure::Failure;
use strowger_scenario::Scenario;

/// Columns of failure causes, in SIPp's order. Some count causes of SIPp alone, and are always 0 here.
const CAUSES: &[&str] = &[
    "FailedCannotSendMessage",
    "FailedMaxUDPRetrans",
    "FailedTcpConnect",
    "FailedTcpClosed",
    "FailedUnexpectedMessage",
    "FailedCallRejected",
    "FailedCmdNotSent",
    "FailedRegexpDoesntMatch",
    "FailedRegexpShouldntMatch",
    "FailedRegexpHdrNotFound",
    "FailedOutboundCongestion",
    "FailedTimeoutOnRecv",
    "FailedTimeoutOnSend",
    "FailedTestDoesntMatch",
    "FailedTestShouldntMatch",
    "FailedStrcmpDoesntMatch",
    "FailedStrcmpShouldntMatch",
];

/// Returns the failed calls of a column.
fn failures(stats: &SippStats, column: &str) -> u64 {
    let all = Failure::ALL.iter().zip(&stats.failures);
    all.filter(|(failure, _)| failure.column() == column).map(|(_, count)| count).sum()
}

/// Writer of the statistics file.
pub(super) struct Statistics {
    file: BufWriter<File>,
    delimiter: String,
    timers: Vec<String>,
    counters: Vec<String>,
    start: Stamp,
    reset: Stamp,
    before: SippStats,
    /// `-periodic_rtd`: the tables cover the period only.
    periodic: bool,
}

impl Statistics {
    /// Writes the header.
    pub(super) fn new(file: File, delimiter: &str, scenario: &Scenario, periodic: bool) -> std::io::Result<Self> {
        let mut statistics = Self {
            file: BufWriter::new(file),
            delimiter: delimiter.to_owned(),
            timers: scenario.timers.clone(),
            counters: scenario.counters.clone(),
            start: Stamp::now(),
            reset: Stamp::now(),
            before: SippStats::new(scenario),
            periodic,
        };
        let both = |name: &str| [format!("{name}(P)"), format!("{name}(C)")];
        let mut columns: Vec<String> = ["StartTime", "LastResetTime", "CurrentTime"].map(String::from).into();
        columns.extend(both("ElapsedTime"));
        columns.push("TargetRate".into());
        for name in ["CallRate", "IncomingCall", "OutgoingCall"] {
            columns.extend(both(name));
        }
        columns.extend(["TotalCallCreated".into(), "CurrentCall".into()]);
        for name in ["SuccessfulCall", "FailedCall"] {
            columns.extend(both(name));
        }
        for name in CAUSES {
            columns.extend(both(name));
        }
        for name in [
            "OutOfCallMsgs",
            "DeadCallMsgs",
            "Retransmissions",
            "AutoAnswered",
            "Warnings",
            "FatalErrors",
            "WatchdogMajor",
            "WatchdogMinor",
        ] {
            columns.extend(both(name));
        }
        for timer in &statistics.timers {
            columns.extend(both(&format!("ResponseTime{timer}")));
            columns.extend(both(&format!("ResponseTime{timer}StDev")));
        }
        columns.extend(both("CallLength"));
        columns.extend(both("CallLengthStDev"));
        for counter in &statistics.counters {
            // A counter named by a number has a column name of its own.
            let plain = counter.bytes().all(|b| b.is_ascii_digit());
            columns.extend(both(&if plain { format!("GenericCounter{counter}") } else { counter.clone() }));
        }
        for timer in &statistics.timers {
            repartition(&format!("ResponseTimeRepartition{timer}"), &scenario.response_time_repartition, &mut columns);
        }
        repartition("CallLengthRepartition", &scenario.call_length_repartition, &mut columns);
        statistics.line(&columns)?;
        Ok(statistics)
    }

    fn line(&mut self, columns: &[String]) -> std::io::Result<()> {
        for column in columns {
            write!(self.file, "{column}{}", self.delimiter)?;
        }
        writeln!(self.file)?;
        self.file.flush()
    }

    /// Writes a line of the current counts and begins a period.
    pub(super) fn write(&mut self, stats: &SippStats, rate: f64) -> std::io::Result<()> {
        let now = Stamp::now();
        let period = now.micros().saturating_sub(self.reset.micros()) as f64 / 1e6;
        let whole = now.micros().saturating_sub(self.start.micros()) as f64 / 1e6;
        let before = &self.before;
        let mut columns =
            vec![self.start.long(), self.reset.long(), now.long(), clock(period), clock(whole), number(rate)];
        let both = |columns: &mut Vec<String>, new: u64, old: u64| {
            columns.extend([(new - old.min(new)).to_string(), new.to_string()]);
        };
        let calls = |l: &SippStats| l.incoming + l.outgoing;
        let per = |n: u64, seconds: f64| number(if seconds > 0.0 { n as f64 / seconds } else { 0.0 });
        columns.extend([per(calls(stats) - calls(before).min(calls(stats)), period), per(calls(stats), whole)]);
        both(&mut columns, stats.incoming, before.incoming);
        both(&mut columns, stats.outgoing, before.outgoing);
        columns.extend([calls(stats).to_string(), stats.open.to_string()]);
        both(&mut columns, stats.successful, before.successful);
        both(&mut columns, stats.failed, before.failed);
        for name in CAUSES {
            both(&mut columns, failures(stats, name), failures(before, name));
        }
        both(&mut columns, stats.out_of_call, before.out_of_call);
        both(&mut columns, stats.dead_call, before.dead_call);
        both(&mut columns, stats.retransmissions, before.retransmissions);
        both(&mut columns, stats.auto_answered, before.auto_answered);
        both(&mut columns, stats.warnings, before.warnings);
        both(&mut columns, stats.fatal_errors, before.fatal_errors);
        for _ in ["WatchdogMajor", "WatchdogMinor"] {
            both(&mut columns, 0, 0);
        }
        for (new, old) in stats.timers.iter().zip(&before.timers) {
            means(new, old, &mut columns);
        }
        means(&stats.call_length, &before.call_length, &mut columns);
        for (new, old) in stats.counters.iter().zip(&before.counters) {
            both(&mut columns, *new, *old);
        }
        let mut table = |new: &Lengths, old: Option<&Lengths>| {
            if new.bounds.is_empty() {
                return;
            }
            columns.push(String::new());
            let old = |i: usize| old.and_then(|old| old.counts.get(i)).copied().unwrap_or(0);
            columns.extend(new.counts.iter().enumerate().map(|(i, n)| (n - old(i).min(*n)).to_string()));
        };
        for (i, lengths) in stats.timers.iter().enumerate() {
            table(lengths, before.timers.get(i).filter(|_| self.periodic));
        }
        table(&stats.call_length, Some(&before.call_length).filter(|_| self.periodic));
        self.line(&columns)?;
        self.before = stats.clone();
        self.reset = now;
        Ok(())
    }
}

fn repartition(name: &str, bounds: &[u32], columns: &mut Vec<String>) {
    if bounds.is_empty() {
        return;
    }
    columns.push(name.to_owned());
    columns.extend(bounds.iter().map(|b| format!("{name}_<{b}")));
    columns.extend(bounds.last().map(|b| format!("{name}_>={b}")));
}

/// Adds mean and deviation, of the period and of the whole run.
fn means(new: &Lengths, old: &Lengths, columns: &mut Vec<String>) {
    let mean = |n: u64, sum: f64| if n > 0 { sum / n as f64 } else { 0.0 };
    let deviation = |n: u64, sum: f64, squares: f64| {
        let mean = mean(n, sum);
        if n > 0 { (squares / n as f64 - mean * mean).max(0.0).sqrt() } else { 0.0 }
    };
    // After a reset all counts belong to this period.
    let (n, sum, squares) = match new.number.checked_sub(old.number) {
        Some(n) => (n, new.sum - old.sum, new.squares - old.squares),
        None => (new.number, new.sum, new.squares),
    };
    columns.push(length(mean(n, sum)));
    columns.push(length(mean(new.number, new.sum)));
    columns.push(length(deviation(n, sum, squares)));
    columns.push(length(deviation(new.number, new.sum, new.squares)));
}

/// Formats milliseconds as `HH:MM:SS:µs`.
pub(super) fn length(ms: f64) -> String {
    let micros = (ms * 1_000.0).round() as u64;
    let seconds = micros / 1_000_000;
    format!("{:02}:{:02}:{:02}:{:06}", seconds / 3_600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}

/// Formats seconds as `HH:MM:SS`.
fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Formats a number as C++ does: six significant digits, no trailing zeros.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_column() {
        for failure in Failure::ALL {
            assert!(CAUSES.contains(&failure.column()), "{failure:?}");
        }
    }

    #[test]
    fn figures_as_they_are_written() {
        assert_eq!(
            [number(8.849_56), number(10.0), number(0.0), number(0.496_771)],
            ["8.84956", "10", "0", "0.496771"]
        );
        assert_eq!((length(4_016.0), clock(3_725.9)), ("00:00:04:016000".into(), "01:02:05".into()));
    }
}
