//! The final table for a terminal: first whether the figures may be believed and what came of the calls, then what was required,
//! then the figures.

use super::json::method_name;
use super::verdict::{INVALID, Tone, failures};
use super::{Report, rfc3339};
use crate::measure::{
    Codes, Counter, Delay, Delays, GeneratorRole, Judged, Page, Rate, Run, Share, Statistic, Unit,
    concluded_registrations, concluded_sessions, grouped,
};
use std::fmt::Write;

/// The source of measures that say how the generator fared, see [`Delay::source`].
const GENERATOR: &str = "generator health";
/// Lines are broken here.
pub(super) const WIDTH: usize = 118;
/// A terminal with less columns breaks them itself.
const NARROWEST: usize = 60;
/// Columns of a figure of the delays, with the space before it.
const CELL: usize = 11;
/// Where the second column begins.
const INDENT: usize = 13;

/// `width`: columns of the terminal; more than [`WIDTH`] are not used.
pub(super) fn table(report: &Report<'_>, colour: bool, width: usize) -> String {
    let mut out = Out { text: String::new(), colour, width: width.clamp(NARROWEST, WIDTH) };
    let run = report.run;
    out.verdict(report);
    out.requirements(report);
    out.about(report);
    for run in std::iter::once(run).chain(run.answering.as_deref()) {
        if run.heading().role == GeneratorRole::Answerer && report.run.answering.is_some() {
            out.blank();
            out.entry(
                Ink::Title,
                "Answerers",
                &format!("{} generators, the other ends of these calls", run.generators.len()),
            );
        }
        out.calls(&run.totals);
        out.sessions(&run.totals);
        let good = report.good().filter(|_| std::ptr::eq(run, report.run));
        out.delays(run, good.as_ref());
        out.messages(&run.totals);
    }
    out.generators(report);
    out.text
}

#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Good,
    Bad,
    Doubtful,
    Title,
}

struct Out {
    text: String,
    colour: bool,
    width: usize,
}

impl Out {
    fn inked(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Good => "32;1",
            Ink::Bad => "31;1",
            Ink::Doubtful => "33",
            Ink::Title => "1",
            Ink::Plain => return text.into(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// A title in the first column, text in the second, broken between words.
    fn entry(&mut self, ink: Ink, title: &str, text: &str) {
        let pad = " ".repeat(INDENT.saturating_sub(title.chars().count()));
        let head = self.inked(ink, title);
        let _ = write!(self.text, "{head}{pad}");
        let mut column = INDENT;
        let text = &*crate::printable(text);
        for (place, word) in text.split(' ').enumerate() {
            let length = word.chars().count();
            if place > 0 && column + 1 + length > self.width {
                let _ = write!(self.text, "\n{}", " ".repeat(INDENT));
                column = INDENT;
            } else if place > 0 {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += length;
        }
        self.text.push('\n');
    }

    /// Entries that are not to be broken within: no-break spaces become spaces after the lines are made.
    fn list(&mut self, title: &str, entries: &[String]) {
        if !entries.is_empty() {
            let glued: Vec<String> = entries.iter().map(|entry| entry.replace(' ', "\u{a0}")).collect();
            let start = self.text.len();
            self.entry(Ink::Title, title, &glued.join("  "));
            let lines = self.text.split_off(start).replace('\u{a0}', " ");
            for line in lines.lines() {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
            }
        }
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Below a generator that was the limit a requirement has no mark: it was not the server that was measured.
    fn requirements(&mut self, report: &Report<'_>) {
        if report.judgements.is_empty() {
            return;
        }
        let width = report.judgements.iter().map(|judgement| judgement.requirement.chars().count()).max().unwrap_or(0);
        for judgement in &report.judgements {
            let mark = match (report.valid(), judgement.met) {
                (false, _) => "?".into(),
                (true, true) => self.inked(Ink::Good, "✓"),
                (true, false) => self.inked(Ink::Bad, "✗"),
            };
            let pad = " ".repeat(width - judgement.requirement.chars().count());
            let _ = writeln!(self.text, "{mark} {}{pad}   {}", judgement.requirement, judgement.shown);
        }
        self.blank();
    }

    fn verdict(&mut self, report: &Report<'_>) {
        for line in report.verdict() {
            let ink = match line.tone {
                Tone::Good => Ink::Good,
                Tone::Doubtful => Ink::Doubtful,
                Tone::Bad => Ink::Bad,
            };
            self.entry(ink, line.title, &line.text);
            if line.title == INVALID {
                for reason in report.reasons() {
                    self.entry(Ink::Plain, "", &format!("- {reason}"));
                }
            }
        }
        for warning in report.warnings() {
            self.entry(Ink::Doubtful, "warning", &warning);
        }
        self.blank();
    }

    fn about(&mut self, report: &Report<'_>) {
        let run = report.run;
        let heading = run.heading();
        let mut text = heading.title.clone();
        if !heading.target.is_empty() {
            let _ = write!(text, " to {}", heading.target);
        }
        if !heading.transport.is_empty() {
            let _ = write!(text, " over {}", heading.transport);
        }
        let started = if heading.started == 0 { run.totals.second * 1_000_000 } else { heading.started };
        let _ = write!(text, ", {:.1} s from {}", run.totals.covered as f64 / 1e6, rfc3339(started));
        if let Some(ending) = &run.generators[0].ending {
            let _ = write!(text, ", ended: {}", ending.reason);
        }
        let generators = run.everyone().count();
        if generators > 1 {
            let _ = write!(text, "; {generators} generators");
        }
        self.entry(Ink::Title, "Run", &text);
    }

    fn calls(&mut self, totals: &Page) {
        let counters = [
            (Counter::CallsIntended, "intended"),
            (Counter::CallsOutgoing, "started"),
            (Counter::CallsIncoming, "incoming"),
            (Counter::CallsSuccessful, "successful"),
            (Counter::CallsFailed, "failed"),
            (Counter::CallsStopped, "cut off by the end"),
            (Counter::CallsLimited, "held back by the limit"),
        ];
        let always = [Counter::CallsSuccessful, Counter::CallsFailed];
        let mut entries: Vec<String> = counters
            .iter()
            .filter(|(counter, _)| always.contains(counter) || totals.counter(*counter) > 0)
            .map(|(counter, name)| format!("{} {name}", count(totals.counter(*counter))))
            .collect();
        entries.push(format!("{} at most at once", count(totals.peak)));
        self.list("Calls", &entries);
        let rates = [
            (Rate::Intended, "intended"),
            (Rate::Achieved, "achieved"),
            (Rate::Incoming, "incoming"),
            (Rate::Successful, "successful"),
        ];
        let rates = rates.iter().filter_map(|(rate, name)| {
            let value = rate.of(totals).filter(|value| *value > 0.0)?;
            Some(format!("{} {name}", Unit::PerSecond.show(value)))
        });
        self.list("Rate", &rates.collect::<Vec<_>>());
        self.list("Failures", &failures(totals));
    }

    fn sessions(&mut self, totals: &Page) {
        let shares = |shares: &[(Share, &str)]| -> Vec<String> {
            let with_value = shares.iter().filter_map(|(share, name)| Some((share.of(totals)?, name)));
            with_value.map(|(value, name)| format!("{name} {}", Unit::Percent.show(value))).collect()
        };
        let registrations = concluded_registrations(totals);
        if registrations > 0 {
            let mut entries = vec![format!("{} concluded", count(registrations))];
            entries.extend(shares(&[
                (Share::IneffectiveRegistrations, "IRA"),
                (Share::UnregisteredAnyReason, "failed for any reason"),
            ]));
            self.list("Registration", &entries);
        }
        let sessions = concluded_sessions(totals);
        if sessions > 0 {
            let mut entries = vec![format!("{} concluded", count(sessions))];
            entries.extend(shares(&[
                (Share::Establishment, "SER"),
                (Share::EffectiveEstablishment, "SEER"),
                (Share::IneffectiveAttempts, "ISA"),
                (Share::Completion, "SCR"),
                (Share::UnansweredAnyReason, "failed for any reason"),
            ]));
            self.list("Sessions", &entries);
        }
    }

    fn delays(&mut self, run: &Run, good: Option<&Page>) {
        let before = self.text.len();
        self.delays_of(&run.totals, &run.timers, "Delay");
        if let Some(good) = good {
            self.delays_of(good, &run.timers, "Good windows");
        }
        if self.text.len() > before {
            let about = "From the first bit sent; .intended: from the time at which the schedule wanted it sent.";
            if about.len() <= self.width {
                let _ = writeln!(self.text, "{about}\n");
            } else {
                let _ = writeln!(self.text, "{}\n", about.replacen("; ", ";\n", 1));
            }
        }
    }

    fn delays_of(&mut self, totals: &Page, timers: &[String], title: &str) {
        let shown = Delay::ALL.iter().filter(|delay| delay.source() != GENERATOR);
        let mut rows: Vec<(String, &Delays)> =
            shown.map(|delay| (delay.key().to_string(), totals.delays(*delay))).collect();
        let timers = timers.iter().zip(totals.timers());
        rows.extend(timers.map(|(name, delays)| (format!("timer.{}", crate::printable(name)), delays)));
        rows.retain(|(_, delays)| !delays.is_empty());
        if rows.is_empty() {
            return;
        }
        self.blank();
        let statistics = [
            Statistic::Count,
            Statistic::Mean,
            Statistic::Percentile(50.0),
            Statistic::Percentile(90.0),
            Statistic::Percentile(95.0),
            Statistic::Percentile(99.0),
            Statistic::Percentile(99.9),
            Statistic::Percentile(99.99),
            Statistic::Most,
        ];
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(INDENT - 1);
        // As many figures side by side as the terminal has room for, the others below.
        let beside =
            if self.width == WIDTH { statistics.len() } else { (self.width.saturating_sub(width) / CELL).max(1) };
        for statistics in statistics.chunks(beside) {
            let head: String = statistics.iter().map(|statistic| format!(" {:>10}", statistic.key())).collect();
            let line = self.inked(Ink::Title, &format!("{title:width$}{head}"));
            let _ = writeln!(self.text, "{line}");
            for (name, delays) in &rows {
                let cells = statistics.iter().map(|statistic| {
                    let unit = if *statistic == Statistic::Count { Unit::Count } else { Unit::Microseconds };
                    format!(" {:>10}", statistic.of(delays).map(|value| unit.show(value)).unwrap_or_default())
                });
                let _ = writeln!(self.text, "{name:width$}{}", cells.collect::<String>());
            }
        }
    }

    fn messages(&mut self, totals: &Page) {
        let way = |messages, bytes| {
            format!("{} ({})", count(totals.counter(messages)), Unit::Bytes.show(totals.counter(bytes) as f64))
        };
        let mut entries = vec![
            format!("{} sent", way(Counter::MessagesSent, Counter::BytesSent)),
            format!("{} received", way(Counter::MessagesReceived, Counter::BytesReceived)),
            format!("{} retransmissions", count(totals.counter(Counter::RetransmissionsSent))),
        ];
        for (counter, name) in [
            (Counter::RetransmissionsReceived, "received again"),
            (Counter::Unexpected, "unexpected"),
            (Counter::OutOfCall, "of no call"),
            (Counter::DeadCall, "of ended calls"),
            (Counter::AutoAnswered, "answered automatically"),
            (Counter::SendFailuresRemote, "refused by the target"),
        ] {
            if totals.counter(counter) > 0 {
                entries.push(format!("{} {name}", count(totals.counter(counter))));
            }
        }
        self.list("Messages", &entries);
        self.list("Received", &codes(totals.responses_received()));
        self.list("Sent", &codes(totals.responses_sent()));
    }

    fn generators(&mut self, report: &Report<'_>) {
        let several = report.run.everyone().count() > 1;
        for (generator, health) in report.run.everyone().zip(&report.health) {
            let totals = &generator.totals;
            let mut entries = Vec::new();
            if several {
                entries.push(format!("{}:", generator.heading.generator));
            }
            let lag = totals.delays(Delay::Lag);
            if let (Some(p99), Some(most)) = (lag.percentile(99.0), lag.most()) {
                let show = |us: u64| Unit::Microseconds.show(us as f64);
                entries.push(format!("lag p99 {}, at most {}", show(p99), show(most)));
            }
            if let Some(p99) = totals.delays(Delay::ReceiveLag).percentile(99.0) {
                entries.push(format!("read after {} (p99)", Unit::Microseconds.show(p99 as f64)));
            }
            let bad = health.windows.iter().filter(|window| !window.is_good()).count();
            if bad > 0 {
                entries.push(format!("{bad} of {} windows bad", health.windows.len()));
            }
            entries.push(format!("{} socket drops", count(totals.counter(Counter::SocketDrops))));
            entries.push(format!("{} send failures", count(totals.counter(Counter::SendFailuresLocal))));
            entries.push(format!("{} stalls", count(totals.counter(Counter::Stalls))));
            let lost = [Counter::MediaFailures, Counter::MediaMissed, Counter::MediaRefused];
            let lost: u64 = lost.iter().map(|counter| totals.counter(*counter)).sum();
            if lost + totals.counter(Counter::MediaSent) > 0 {
                entries.push(format!("{} media losses", count(lost)));
            }
            for thread in health.threads.iter().take(4).filter(|thread| thread.mean >= 1.0) {
                entries.push(format!("{} {:.0} % of a core (at most {:.0} %)", thread.name, thread.mean, thread.most));
                if thread.waited >= 5.0 {
                    entries.push(format!("{} waited for one {:.0} % of the time", thread.name, thread.waited));
                }
            }
            if health.stolen >= 1.0 {
                entries.push(format!("{:.0} % of the cores taken by the host", health.stolen));
            }
            entries.extend(cores(&health.cores));
            if health.resident > 0 {
                entries.push(format!("{} of memory", Unit::Bytes.show(health.resident as f64)));
            }
            self.list("Generator", &entries);
            self.list("Bad windows", &bad_windows(&health.windows, generator.heading.started));
        }
    }
}

/// So many are named.
const WINDOWS: usize = 12;

/// `70 s to 80 s: stall`, one entry for each window that is bad, seen from the start of the run.
fn bad_windows(windows: &[Judged], started: u64) -> Vec<String> {
    let bad: Vec<&Judged> = windows.iter().filter(|window| !window.is_good()).collect();
    if windows.len() == 1 {
        return Vec::new();
    }
    let after = |second: u64| second.saturating_sub(started / 1_000_000);
    let entry = |window: &&Judged| {
        let reasons: Vec<&str> = window.reasons.iter().map(|reason| reason.threshold.as_str()).collect();
        format!("{} s to {} s: {}", after(window.from), after(window.until), reasons.join(", "))
    };
    let mut entries: Vec<String> = bad.iter().take(WINDOWS).map(entry).collect();
    if bad.len() > WINDOWS {
        entries.push(format!("and {} more", bad.len() - WINDOWS));
    }
    entries
}

/// How busy the cores of the machine were, by all programs.
fn cores(shares: &[f64]) -> Option<String> {
    let all = shares.len() as f64;
    match shares {
        [] => None,
        [_, ..] if shares.len() <= 8 => {
            let shares: Vec<String> = shares.iter().map(|share| format!("{share:.0}")).collect();
            Some(format!("the machine's cores {} %", shares.join(" / ")))
        }
        _ => {
            let most = shares.iter().copied().fold(0.0, f64::max);
            Some(format!("{all} cores {:.0} % on average, at most {most:.0} %", shares.iter().sum::<f64>() / all))
        }
    }
}

fn count(count: u64) -> String {
    grouped(count as f64)
}

/// `INVITE 100 × 60,000`, one entry for each method and code.
fn codes(codes: &Codes) -> Vec<String> {
    codes.iter().map(|(method, code, times)| format!("{} {code} × {}", method_name(method), count(times))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_are_named_and_many_summed_up() {
        assert_eq!(cores(&[]), None);
        assert_eq!(cores(&[3.2, 97.6]).unwrap(), "the machine's cores 3 / 98 %");
        let many: Vec<f64> = (0..64).map(f64::from).collect();
        assert_eq!(cores(&many).unwrap(), "64 cores 32 % on average, at most 63 %");
    }
}
