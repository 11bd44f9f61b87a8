//! Verdict in words: one line on the generator and one on the outcome of the calls. There are two lines because a
//! generator may keep up with its schedule while the server answers nothing.

use super::Report;
use super::json::method_name;
use serde::Serialize;
use std::collections::BTreeMap;
use strowger_measure::{Counter, Delay, Failure, LOG, Page, Run, Unit, grouped, several};
use strowger_message::status;
use strowger_report::Tone;

/// Line of the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    /// One word: INVALID, Generator, Server, Calls.
    pub title: &'static str,
    pub text: String,
}

/// Title of the line of a generator that was the limit.
pub(super) const INVALID: &str = "INVALID";

/// Outcome of the calls of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// No call began.
    Nothing,
    /// No message came back.
    Silent,
    /// No call succeeded, and at least one failed.
    AllFailed,
    SomeFailed,
    /// No call failed, but none finished before the end of the run.
    Unfinished,
    Succeeded,
}

impl RunOutcome {
    pub fn of(page: &Page) -> Self {
        let count = |counter| page.counter(counter);
        let begun = count(Counter::CallsOutgoing) + count(Counter::CallsIncoming);
        match (count(Counter::CallsSuccessful), count(Counter::CallsFailed)) {
            _ if begun == 0 => Self::Nothing,
            (0, _) if count(Counter::MessagesReceived) == 0 => Self::Silent,
            (0, 0) => Self::Unfinished,
            (0, _) => Self::AllFailed,
            (_, 0) => Self::Succeeded,
            _ => Self::SomeFailed,
        }
    }
}

impl Report<'_> {
    /// Returns the verdict: of the generator, then of the calls on each side.
    pub fn verdict(&self) -> Vec<Line> {
        let mut lines = vec![self.of_generator()];
        lines.push(of_calls(self.run, if answers(self.run) { "Calls" } else { "Server" }));
        lines.extend(self.run.answering.as_deref().map(|run| of_calls(run, "Answerer")));
        lines
    }

    fn of_generator(&self) -> Line {
        if !self.valid() {
            return Line { tone: Tone::Bad, title: INVALID, text: self.why_invalid() };
        }
        if let Some((good, all)) = self.good_windows() {
            let text = format!("kept up in {good} of {all} windows: the figures of those are the server's, see below.");
            return Line { tone: Tone::Doubtful, title: "Generator", text };
        }
        let measured = !matches!(RunOutcome::of(&self.run.totals), RunOutcome::Nothing);
        let text = if measured {
            "kept up with its schedule: the figures are the server's."
        } else {
            "did what it was asked to."
        };
        Line { tone: Tone::Good, title: "Generator", text: text.into() }
    }
}

impl Report<'_> {
    /// Returns the first sentence of an INVALID, for a reader who does not know the thresholds.
    fn why_invalid(&self) -> String {
        let thresholds: Vec<&str> =
            self.health.iter().flat_map(|h| h.verdict.reasons()).map(|reason| reason.threshold.as_str()).collect();
        if !self.has_whole_logs() && thresholds.iter().all(|threshold| *threshold == LOG) {
            return "A log is not whole: the figures are not those of the whole run.".into();
        }
        let mut text = "The generator was the limit: the figures do not show what the server can do.".to_owned();
        let only_late = thresholds.iter().all(|threshold| ["lag_p99", "receive_lag", "run_queue"].contains(threshold));
        let lags = [Delay::Lag, Delay::TimerLag, Delay::SendLag, Delay::ReceiveLag];
        let worst = lags.iter().filter_map(|lag| self.run.totals.delays(*lag).percentile(99.0)).max().unwrap_or(0);
        let enough = [5, 10, 20, 50, 100, 200, 500, 1_000].into_iter().find(|ms| worst <= ms * 1_000);
        if let Some(ms) = enough.filter(|_| only_late) {
            text.push_str(&format!(
                " This computer was busy with other programs and came late to its calls, by more than the server needs to answer. \
                 Close other programs, or run the server on another machine. If {ms} ms do not matter to you: --max-lag {ms}ms."
            ));
        }
        text
    }
}

/// Returns whether the run makes no calls.
fn answers(run: &Run) -> bool {
    run.totals.counter(Counter::CallsOutgoing) == 0 && run.totals.counter(Counter::CallsIncoming) > 0
}

fn of_calls(run: &Run, title: &'static str) -> Line {
    let page = &run.totals;
    let count = |counter| grouped(page.counter(counter) as f64);
    let (successful, failed) = (page.counter(Counter::CallsSuccessful), page.counter(Counter::CallsFailed));
    let begun = page.counter(Counter::CallsOutgoing) + page.counter(Counter::CallsIncoming);
    let causes = || match failures(page).first() {
        Some(first) => format!(", most often by: {first}"),
        None => String::new(),
    };
    let (tone, text) = match RunOutcome::of(page) {
        RunOutcome::Nothing => (Tone::Doubtful, "No call was begun: there are no figures.".into()),
        RunOutcome::Silent => (
            Tone::Bad,
            format!(
                "answered nothing: {}, {} sent, none received.",
                several(begun, "call"),
                several(page.counter(Counter::MessagesSent), "message")
            ),
        ),
        RunOutcome::AllFailed => {
            (Tone::Bad, format!("Every call failed: 0 of {} succeeded{}.", grouped(failed as f64), causes()))
        }
        RunOutcome::SomeFailed => {
            let share = Unit::Percent.show(failed as f64 / (failed + successful) as f64 * 100.0);
            let of = grouped((failed + successful) as f64);
            (Tone::Bad, format!("{} of {of} calls failed ({share}){}.", grouped(failed as f64), causes()))
        }
        RunOutcome::Unfinished => {
            (Tone::Doubtful, format!("No call came to its end: {} cut off.", count(Counter::CallsStopped)))
        }
        RunOutcome::Succeeded if successful == 1 => (Tone::Good, "1 call succeeded.".into()),
        RunOutcome::Succeeded => (Tone::Good, format!("All {} succeeded.", several(successful, "call"))),
    };
    Line { tone, title, text }
}

/// Returns the causes of failed calls with their numbers, the most frequent first. If a response ended a call, the
/// response is the cause.
pub fn failures(page: &Page) -> Vec<String> {
    let mut refused: BTreeMap<(u16, String), u64> = BTreeMap::new();
    for (method, code, count) in page.refusals().iter() {
        *refused.entry((code, method_name(method))).or_default() += count;
    }
    let answered: u64 = refused.values().sum();
    let named = refused.into_iter().map(|((code, method), count)| {
        let reason = status::reason(code);
        (count, format!("{code} {reason} ({method})"))
    });
    // These calls have one of two causes; no response explains the other calls.
    let mut explained = answered;
    let others = [Failure::Authentication, Failure::UnexpectedMessage].into_iter().map(|failure| {
        let count = page.failures(failure);
        let left = count.saturating_sub(explained);
        explained = explained.saturating_sub(count);
        (left, failure)
    });
    let others: Vec<(u64, Failure)> = others.collect();
    let rest = Failure::ALL.iter().filter(|f| !matches!(f, Failure::Authentication | Failure::UnexpectedMessage));
    let rest = rest.map(|failure| (page.failures(*failure), *failure));
    let titled = others.into_iter().chain(rest).map(|(count, failure)| (count, failure.title().to_owned()));
    let mut all: Vec<(u64, String)> = named.chain(titled).filter(|(count, _)| *count > 0).collect();
    all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    all.into_iter().map(|(count, text)| format!("{} × {text}", grouped(count as f64))).collect()
}

/// Returns the command-line option of a threshold for the generator, by the threshold's name.
pub fn option(threshold: &str) -> Option<&'static str> {
    Some(match threshold {
        "rate_error" => "--max-rate-error",
        "lag_p99" => "--max-lag",
        "receive_lag" => "--max-receive-lag",
        "run_queue" => "--max-run-queue",
        "core_wait" => "--max-core-wait",
        "lag_share" => "--lag-share",
        "lag_floor" => "--lag-floor",
        "lag_most" => "--lag-most",
        "bad_windows" => "--max-bad-windows",
        "socket_drops" => "--max-drops",
        "send_failures" => "--max-send-failures",
        "stall" => "--max-stall",
        "media_losses" => "--max-media-losses",
        "cpu" => "--max-cpu",
        "saturated" => "--saturated",
        "saturated_seconds" => "--saturated-seconds",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_measure::{Heading, Thresholds};
    use strowger_message::Method;

    fn run(counts: &[(Counter, u64)]) -> Run {
        let mut run = Run::new(Heading::default());
        let mut page = Page::new(0);
        counts.iter().for_each(|(counter, by)| page.count(*counter, *by));
        run.totals.add_after(&page);
        run.generators[0].second(&page);
        run
    }

    fn lines(run: &Run) -> Vec<(Tone, String)> {
        let lines = Report::new(run, &[], &Thresholds::default()).verdict();
        lines.into_iter().map(|line| (line.tone, format!("{} {}", line.title, line.text))).collect()
    }

    #[test]
    fn the_state_of_the_generator_and_the_result_of_the_server_are_two_lines() {
        use Counter::*;
        let kept = (Tone::Good, "Generator kept up with its schedule: the figures are the server's.".to_owned());
        for (counts, tone, text) in [
            (
                &[(CallsOutgoing, 9), (CallsFailed, 9), (MessagesSent, 70)][..],
                Tone::Bad,
                "Server answered nothing: 9 calls, 70 messages",
            ),
            (
                &[(CallsOutgoing, 1), (CallsFailed, 1), (MessagesSent, 1)],
                Tone::Bad,
                "Server answered nothing: 1 call, 1 message sent",
            ),
            (
                &[(CallsOutgoing, 1), (CallsSuccessful, 1), (MessagesReceived, 4)],
                Tone::Good,
                "Server 1 call succeeded.",
            ),
            (
                &[(CallsOutgoing, 9), (CallsFailed, 9), (MessagesReceived, 1)],
                Tone::Bad,
                "Server Every call failed: 0 of 9",
            ),
            (
                &[(CallsOutgoing, 9), (CallsSuccessful, 6), (CallsFailed, 3), (MessagesReceived, 1)],
                Tone::Bad,
                "Server 3 of 9 calls failed (33.33 %)",
            ),
            (
                &[(CallsOutgoing, 9), (CallsStopped, 9), (MessagesReceived, 1)],
                Tone::Doubtful,
                "Server No call came to its end",
            ),
            (
                &[(CallsOutgoing, 9), (CallsSuccessful, 9), (MessagesReceived, 1)],
                Tone::Good,
                "Server All 9 calls succeeded.",
            ),
            (
                &[(CallsIncoming, 9), (CallsSuccessful, 9), (MessagesReceived, 1)],
                Tone::Good,
                "Calls All 9 calls succeeded.",
            ),
        ] {
            let lines = lines(&run(counts));
            assert_eq!(lines[0], kept, "{text}");
            assert!(lines.len() == 2 && lines[1].0 == tone && lines[1].1.starts_with(text), "{lines:?}");
        }
        let nothing = lines(&run(&[]));
        assert_eq!(nothing[0].1, "Generator did what it was asked to.");
        assert_eq!(nothing[1], (Tone::Doubtful, "Server No call was begun: there are no figures.".into()));
        let limit = lines(&run(&[(CallsOutgoing, 9), (CallsSuccessful, 9), (SocketDrops, 5), (MessagesReceived, 1)]));
        assert!(limit[0].0 == Tone::Bad && limit[0].1.starts_with("INVALID The generator was the limit"), "{limit:?}");
        let mut both = run(&[(CallsOutgoing, 9), (CallsSuccessful, 9), (MessagesReceived, 1)]);
        both.answering = Some(Box::new(run(&[(CallsIncoming, 9), (CallsFailed, 9), (MessagesReceived, 1)])));
        assert!(lines(&both)[2].1.starts_with("Answerer Every call failed"), "{:?}", lines(&both));
    }

    #[test]
    fn a_failure_is_named_by_the_response_that_ended_the_call() {
        let mut run = run(&[(Counter::CallsFailed, 20)]);
        run.totals.count_failures(Failure::UnexpectedMessage, 12);
        run.totals.count_failures(Failure::Authentication, 3);
        run.totals.count_failures(Failure::Refused, 5);
        run.totals.count_refusals(Method::Invite, 486, 10);
        run.totals.count_refusals(Method::Register, 401, 3);
        let want = [
            "10 × 486 Busy Here (INVITE)",
            "5 × the target's port is closed, or there is no way to it (ICMP)",
            "3 × 401 Unauthorized (REGISTER)",
            "2 × a message that the scenario does not expect",
        ];
        assert_eq!(failures(&run.totals), want);
    }
}
