//! Comparison of a generator's work in a window with the thresholds.

use super::heading::ReceiveBuffer;
use super::health::{starved, thread_loads};
use super::unit::{Unit, grouped};
use super::{Counter, Delay, Delays, Page, Sample, Thresholds};
use serde::{Deserialize, Serialize};

/// Reason why a window, or a run, is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Name of the exceeded setting.
    pub threshold: String,
    /// Event and cure, for people.
    pub sentence: String,
    /// Ratio to the threshold: of several windows the worst is reported.
    #[serde(skip)]
    pub(super) excess: f64,
}

/// Facts about a window.
pub(super) struct Case<'a> {
    pub(super) page: &'a Page,
    /// Calls that were due but not started at the end of the window, though there was a place for them.
    pub(super) behind: u64,
    /// Samples of the process in it.
    pub(super) samples: &'a [Sample],
    pub(super) receive_buffers: &'a [ReceiveBuffer],
}

/// Delays of the server, to which our lag is compared.
const WIRE: [Delay; 5] = [Delay::Registration, Delay::Setup, Delay::SetupFailed, Delay::Request, Delay::Disconnect];

/// Returns whether a thread of this name carries the load.
pub(super) fn carries(name: &str) -> bool {
    name.starts_with("shard-") || name.starts_with("media")
}

impl Case<'_> {
    /// Returns the exceeded thresholds. `cause`: a sentence about the probable cause, or nothing.
    pub(super) fn reasons(&self, thresholds: &Thresholds, cause: &str) -> Vec<Reason> {
        let mut findings = Findings { case: self, thresholds, cause, p95: self.p95(), reasons: Vec::new() };
        findings.rate();
        findings.lags();
        findings.run_queue();
        findings.held_back();
        findings.losses();
        findings.stalls();
        findings.media();
        findings.cpu();
        findings.reasons
    }

    /// Returns the 95th percentile of the server's delays, µs.
    fn p95(&self) -> Option<u64> {
        let mut sum = Delays::new();
        WIRE.iter().for_each(|delay| sum.add(self.page.delays(*delay)));
        sum.percentile(95.0)
    }
}

fn time(us: f64) -> String {
    Unit::Microseconds.show(us)
}

struct Findings<'a> {
    case: &'a Case<'a>,
    thresholds: &'a Thresholds,
    cause: &'a str,
    p95: Option<u64>,
    reasons: Vec<Reason>,
}

impl Findings<'_> {
    /// Adds a reason if `figure` is above `bound`. A setting gives only one reason, for its worst figure.
    fn exceeded(&mut self, threshold: &str, figure: f64, bound: f64, sentence: String) {
        let reason =
            Reason { threshold: threshold.into(), sentence: sentence + self.cause, excess: figure / bound.max(1e-9) };
        match self.reasons.iter_mut().find(|known| known.threshold == threshold) {
            Some(known) if known.excess >= reason.excess => (),
            Some(known) => *known = reason,
            None => self.reasons.push(reason),
        }
    }

    fn rate(&mut self) {
        let (page, behind) = (self.case.page, self.case.behind);
        let due = page.counter(Counter::CallsIntended);
        let error = if due == 0 { 0.0 } else { behind as f64 / due as f64 * 100.0 };
        // One call may fall due just when the window ends.
        if error <= self.thresholds.rate_error || behind <= 1 {
            return;
        }
        let seconds = (page.covered as f64 / 1e6).max(1e-6);
        let sentence = format!(
            "The generator did not keep its rate: {} of {} calls were not started in time: {:.1} calls a second instead of {:.1} \
             ({error:.1} %, allowed are {} %).",
            grouped(behind as f64),
            grouped(due as f64),
            page.counter(Counter::CallsOutgoing) as f64 / seconds,
            due as f64 / seconds,
            self.thresholds.rate_error,
        );
        self.exceeded("rate_error", error, self.thresholds.rate_error, sentence);
    }

    /// Returns the allowed lag, and its description.
    fn allowed(&self, set: Option<f64>) -> (f64, String) {
        let bound = self.thresholds.lag(set, self.p95);
        let beside = match self.p95.filter(|_| set.is_none()) {
            Some(p95) => format!(" beside delays whose 95th percentile is {}", time(p95 as f64)),
            None => String::new(),
        };
        (bound, format!("allowed are {}{beside}", time(bound)))
    }

    fn lags(&mut self) {
        let of = self.thresholds;
        for (delay, set, threshold, what) in [
            (Delay::Lag, of.lag_p99, "lag_p99", "started calls late"),
            (Delay::TimerLag, of.lag_p99, "lag_p99", "came late to timers within calls"),
            (Delay::SendLag, of.lag_p99, "lag_p99", "was slow to send"),
            (Delay::ReceiveLag, of.receive_lag.or(of.lag_p99), "receive_lag", "was slow to read"),
        ] {
            let (bound, allowed) = self.allowed(set);
            let delays = self.case.page.delays(delay);
            let Some(p99) = delays.percentile(99.0).filter(|lag| *lag as f64 > bound) else { continue };
            // Among fewer than a hundred delays, a single one is the 99th percentile. It counts only if it is severe.
            let one = delays.count() - delays.below(bound as u64 + 1) < 2;
            if set.is_none() && one && (p99 as f64) < of.lag_most.max(of.lag_floor) * 1e3 {
                continue;
            }
            let name = delay.title().to_lowercase();
            let p99 = p99 as f64;
            let sentence =
                format!("The generator {what}: the 99th percentile of the {name} is {}, {allowed}.", time(p99));
            self.exceeded(threshold, p99, bound, sentence);
        }
    }

    fn run_queue(&mut self) {
        let (bound, allowed) = self.allowed(self.thresholds.run_queue.or(self.thresholds.lag_p99));
        let threads = thread_loads(self.case.samples, self.thresholds);
        let Some(thread) = starved(&threads).filter(|thread| thread.wait > bound) else { return };
        let sentence = format!(
            "The generator did not get the processor: its thread {} waited {} for a core each time that it could run, {allowed}; \
             {:.0} % of the time in all. Other programs use its cores.",
            thread.name,
            time(thread.wait),
            thread.waited,
        );
        self.exceeded("run_queue", thread.wait, bound, sentence);
    }

    /// Judges whether the generator got the processor, if calls wait because of the limit of concurrent calls. In this
    /// case the schedule shows no lag: time that other programs take from the generator makes each call longer, by
    /// slices that no other bound detects.
    fn held_back(&mut self) {
        let page = self.case.page;
        if page.counter(Counter::CallsLimited) == 0 && page.waiting == 0 {
            return;
        }
        let threads = thread_loads(self.case.samples, self.thresholds);
        let carriers = || threads.iter().filter(|thread| carries(&thread.name));
        let bound = self.thresholds.core_wait;
        if let Some(thread) = carriers().max_by(|a, b| a.waited.total_cmp(&b.waited)).filter(|t| t.waited > bound) {
            let sentence = format!(
                "The generator did not get the processor while calls waited for the limit of concurrent calls: its thread {} waited \
                 for a core in {:.0} % of the time, allowed are {bound:.0} %. Other programs use its cores.",
                thread.name, thread.waited,
            );
            self.exceeded("core_wait", thread.waited, bound, sentence);
        }
        let bound = self.thresholds.saturated;
        if let Some(thread) = carriers().max_by(|a, b| a.mean.total_cmp(&b.mean)).filter(|t| t.mean >= bound) {
            let sentence = format!(
                "The generator had nothing left while calls waited for the limit of concurrent calls: its thread {} used {:.0} % of a \
                 core. A higher limit, more generator threads or machines help.",
                thread.name, thread.mean,
            );
            self.exceeded("saturated", thread.mean, bound, sentence);
        }
    }

    fn losses(&mut self) {
        let drops = self.case.page.counter(Counter::SocketDrops);
        if drops > self.thresholds.socket_drops {
            let small = self.case.receive_buffers.iter().find(|buffer| buffer.got < buffer.asked);
            let help = small.map_or_else(String::new, |buffer| {
                format!(
                    " Its receive buffers have {} instead of {}: sysctl net.core.rmem_max={} allows them.",
                    Unit::Bytes.show(buffer.got as f64),
                    Unit::Bytes.show(buffer.asked as f64),
                    buffer.asked
                )
            });
            let sentence = format!(
                "The generator was too slow to read: its kernel dropped {} datagrams that the server had sent.{help}",
                grouped(drops as f64)
            );
            self.exceeded("socket_drops", drops as f64, self.thresholds.socket_drops as f64, sentence);
        }
        let failures = self.case.page.counter(Counter::SendFailuresLocal);
        if failures > self.thresholds.send_failures {
            let sentence = format!(
                "The generator could not send {} messages (send buffers full, no port left, or no route).",
                grouped(failures as f64)
            );
            self.exceeded("send_failures", failures as f64, self.thresholds.send_failures as f64, sentence);
        }
    }

    fn stalls(&mut self) {
        let bound = self.thresholds.stall * 1e3;
        let page = self.case.page;
        let Some(stall) = page.delays(Delay::Stall).most().map(|us| us as f64).filter(|us| *us > bound) else { return };
        let sentence = format!(
            "The generator stood still: {} times, for at most {}, allowed are {}. The machine was suspended, swapping, or busy with \
             something else.",
            grouped(page.counter(Counter::Stalls) as f64),
            time(stall),
            time(bound),
        );
        self.exceeded("stall", stall, bound, sentence);
    }

    fn media(&mut self) {
        let page = self.case.page;
        let lost: u64 = [Counter::MediaFailures, Counter::MediaMissed, Counter::MediaRefused]
            .iter()
            .map(|counter| page.counter(*counter))
            .sum();
        if lost > self.thresholds.media_losses {
            let sentence = format!(
                "The generator's media are not complete: {} packets or actions were left out or could not be sent, beside {} \
                 packets sent. Fewer streams at once, or more machines, help.",
                grouped(lost as f64),
                grouped(page.counter(Counter::MediaSent) as f64),
            );
            self.exceeded("media_losses", lost as f64, self.thresholds.media_losses as f64, sentence);
        }
    }

    fn cpu(&mut self) {
        // A mean above a whole core is an artefact of the kernel's counting, and no load.
        let bound = self.thresholds.cpu;
        let loads = thread_loads(self.case.samples, self.thresholds);
        let Some(thread) = loads.first().filter(|thread| bound < 100.0 && thread.mean > bound) else { return };
        let sentence = format!(
            "The generator's thread {} used {:.0} % of a core, allowed are {bound:.0} %: more generator threads or machines, or a \
             lower rate, help.",
            thread.name, thread.mean
        );
        self.exceeded("cpu", thread.mean, bound, sentence);
    }
}
