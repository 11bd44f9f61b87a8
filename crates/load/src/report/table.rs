//! Final table for a terminal: first the validity of the figures and the outcome of the calls, then the requirements,
//! then the figures.

use super::json::method_name;
use super::verdict::{INVALID, failures};
use super::{Report, documents, ladder, rfc3339};
use std::fmt::Write;
use strowger_measure::{
    Codes, Counter, Delay, Delays, GeneratorRole, Judged, Page, Rate, Run, Share, Statistic, Unit,
    concluded_registrations, concluded_sessions, grouped, several,
};
use strowger_report::{Ink, Table, Terminal};

/// Source of the measures of the generator itself, see [`Delay::source`].
const GENERATOR: &str = "generator health";

/// Figures of delays and timers.
const OF_TIMES: [Statistic; 9] = [
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

/// Figures of scores: the worst streams are at the low end.
const OF_SCORES: [Statistic; 6] = [
    Statistic::Count,
    Statistic::Mean,
    Statistic::Percentile(50.0),
    Statistic::Percentile(10.0),
    Statistic::Percentile(1.0),
    Statistic::Least,
];

/// Values of a delay, score or timer, with its name. A timer has no [`Delay`].
type Measured<'a> = (String, Option<Delay>, &'a Delays);

/// Writes the table. `width`: columns of the terminal, at most [`strowger_report::WIDTH`] are used.
pub(super) fn table(report: &Report<'_>, colour: bool, width: usize) -> String {
    let mut out = Out(Terminal::new(colour, width));
    let run = report.run;
    out.verdict(report);
    out.requirements(report);
    out.about(report);
    out.documents(run);
    for run in std::iter::once(run).chain(run.answering.as_deref()) {
        if run.heading().role == GeneratorRole::Answerer && report.run.answering.is_some() {
            out.0.blank();
            out.0.entry(
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
        out.media(&run.totals);
    }
    out.generators(report);
    out.failed_calls(report);
    out.0.text()
}

/// Parts of the table, in the order of output.
struct Out(Terminal);

impl Out {
    /// Writes the requirements, without marks if a generator was the limit: the server was not measured.
    fn requirements(&mut self, report: &Report<'_>) {
        if report.judgements.is_empty() {
            return;
        }
        let width = report.judgements.iter().map(|judgement| judgement.requirement.chars().count()).max().unwrap_or(0);
        for judgement in &report.judgements {
            let mark = report.mark(judgement);
            let mark = self.0.inked(mark.into(), mark.sign());
            self.0.line(&format!("{mark} {:width$}   {}", judgement.requirement, judgement.shown));
        }
        self.0.blank();
    }

    fn verdict(&mut self, report: &Report<'_>) {
        for line in report.verdict() {
            self.0.entry(line.tone.into(), line.title, &line.text);
            if line.title == INVALID {
                for reason in report.reasons() {
                    self.0.entry(Ink::Plain, "", &format!("- {reason}"));
                }
            }
        }
        for warning in report.warnings() {
            self.0.entry(Ink::Doubtful, "warning", &warning);
        }
        self.0.blank();
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
        self.0.entry(Ink::Title, "Run", &text);
        if let Some(text) = report.warm_up() {
            self.0.entry(Ink::Title, "Warm-up", &text);
        }
    }

    fn documents(&mut self, run: &Run) {
        let lines = documents::lines(run);
        if let Some((heads, rows)) = lines.split_first() {
            self.0.blank();
            let heads = self.0.inked(Ink::Title, heads);
            self.0.line(&heads);
            rows.iter().for_each(|row| self.0.line(row));
            self.0.blank();
        }
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
        self.0.list("Calls", &entries);
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
        self.0.list("Rate", &rates.collect::<Vec<_>>());
        let connections = [
            (Counter::ConnectionsAhead, "before the schedule"),
            (Counter::ConnectionsMade, "made"),
            (Counter::ConnectionsLost, "lost"),
            (Counter::ConnectionsHeld, "held at the end"),
        ];
        let connections = connections.iter().filter(|(counter, _)| totals.counter(*counter) > 0);
        let connections = connections.map(|(counter, name)| format!("{} {name}", count(totals.counter(*counter))));
        self.0.list("Connections", &connections.collect::<Vec<_>>());
        self.0.list("Failures", &failures(totals));
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
            self.0.list("Registration", &entries);
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
            self.0.list("Sessions", &entries);
        }
    }

    fn delays(&mut self, run: &Run, good: Option<&Page>) {
        let mut some = self.delays_of(&run.totals, &run.timers, ["Delay", "Score"]);
        if let Some(good) = good {
            some |= self.delays_of(good, &run.timers, ["Good windows", "Scores in good windows"]);
        }
        if some {
            self.0.sentence("From the first bit sent; .intended: from the time at which the schedule wanted it sent.");
            self.0.blank();
        }
    }

    /// Writes the delays, then the scores, under these titles. Returns false if there are no delays.
    fn delays_of(&mut self, totals: &Page, timers: &[String], titles: [&str; 2]) -> bool {
        let shown = Delay::ALL.iter().filter(|delay| delay.source() != GENERATOR);
        let mut rows: Vec<Measured<'_>> =
            shown.map(|delay| (delay.key().to_string(), Some(*delay), totals.delays(*delay))).collect();
        let timers = timers.iter().zip(totals.timers());
        rows.extend(timers.map(|(name, delays)| (format!("timer.{name}"), None, delays)));
        rows.retain(|(_, _, delays)| !delays.is_empty());
        let is_score = |delay: Option<Delay>| delay.is_some_and(|delay| delay.unit() == Unit::Score);
        let (scores, times): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, delay, _)| is_score(*delay));
        self.figures(titles[0], &OF_TIMES, &times);
        self.figures(titles[1], &OF_SCORES, &scores);
        !times.is_empty()
    }

    /// Writes a table of these figures, a row for each measure, if there is any.
    fn figures(&mut self, title: &str, statistics: &[Statistic], rows: &[Measured<'_>]) {
        if rows.is_empty() {
            return;
        }
        self.0.blank();
        let heads = statistics.iter().map(|statistic| statistic.key().into_owned());
        let mut table = Table::new([title.to_owned()].into_iter().chain(heads));
        for (name, delay, delays) in rows {
            let figures = statistics.iter().map(|statistic| {
                let value = delay.map_or_else(|| statistic.of(delays), |delay| delay.figure(*statistic, delays));
                let unit = match statistic {
                    Statistic::Count => Unit::Count,
                    _ => delay.map_or(Unit::Microseconds, Delay::unit),
                };
                value.map(|value| unit.show(value)).unwrap_or_default()
            });
            table.row([name.clone()].into_iter().chain(figures));
        }
        self.0.table(&table);
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
        self.0.list("Messages", &entries);
        self.0.list("Received", &codes(totals.responses_received()));
        self.0.list("Sent", &codes(totals.responses_sent()));
    }

    /// Writes the received media of ended calls.
    fn media(&mut self, totals: &Page) {
        let streams = totals.counter(Counter::MediaStreams);
        let silent = totals.counter(Counter::MediaSilent);
        if streams + silent == 0 {
            return;
        }
        let mut entries = vec![
            format!("{} received", several(streams, "stream")),
            format!("{} packets", count(totals.counter(Counter::MediaHeard))),
        ];
        let loss =
            Share::MediaLoss.of(totals).map_or_else(String::new, |loss| format!(" ({})", Unit::Percent.show(loss)));
        entries.push(format!("{} lost{loss}", count(totals.counter(Counter::MediaLost))));
        entries.push(format!("{} reordered", count(totals.counter(Counter::MediaReordered))));
        entries.push(format!("{} doubled", count(totals.counter(Counter::MediaDoubled))));
        let scores = totals.delays(Delay::MediaScore);
        let mos = |statistic| Delay::MediaScore.figure(statistic, scores).map(|score| Unit::Score.show(score));
        if let (Some(p10), Some(p1), Some(least)) =
            (mos(Statistic::Percentile(10.0)), mos(Statistic::Percentile(1.0)), mos(Statistic::Least))
        {
            entries.push(format!("MOS p10 {p10}, p1 {p1}, at least {least}"));
        }
        if silent > 0 {
            entries.push(format!("{} without media from the peer", several(silent, "call")));
        }
        self.0.list("Media", &entries);
    }

    fn failed_calls(&mut self, report: &Report<'_>) {
        for (text, lines) in ladder::lines(report.run, self.0.width()) {
            self.0.blank();
            self.0.entry(Ink::Bad, "Failed call", &text);
            lines.iter().for_each(|line| self.0.line(&crate::printable(line)));
        }
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
            self.0.list("Generator", &entries);
            self.0.list("Bad windows", &bad_windows(&health.windows, generator.heading.started));
        }
    }
}

/// Limit of listed windows.
const WINDOWS: usize = 12;

/// Returns `70 s to 80 s: stall`, one entry for each bad window, from the start of the run.
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

/// Returns the load of the machine's cores by all programs.
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

/// Returns `INVITE 100 × 60,000`, one entry for each method and code.
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
