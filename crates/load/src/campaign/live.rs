//! Progress of a campaign, for a screen.

use super::{Campaign, Stage};
use std::time::Duration;
use strowger_measure::{Counter, Delay, Run, columns};

/// Current figures: of the whole run so far, and of the last complete second.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    pub stage: Stage,
    pub elapsed: Duration,
    /// Time until calls begin.
    pub begins_in: Duration,
    /// Remaining warm-up. Until the warm-up is over, the figures are those of the warm-up.
    pub warm_up: Option<Duration>,
    /// True if paused by a key.
    pub paused: bool,
    /// Length of the schedule; `None`: without end.
    pub planned: Option<Duration>,
    /// Total of calls to begin, if given.
    pub calls: Option<u64>,
    pub started: u64,
    pub successful: u64,
    pub failed: u64,
    pub open: u64,
    /// Rates of the last complete second, calls per second; `None` before the first complete second.
    pub intended_rate: Option<f64>,
    pub rate: Option<f64>,
    /// Rates of the last seconds, the newest last.
    pub rates: Vec<f64>,
    /// Name of the delay from the request to the first sign of an answer: SRD if there are sessions, RRD, or the delay
    /// of other requests.
    pub delay_name: &'static str,
    /// Median, 95th and 99th percentile, µs, of the last second with a value.
    pub delay: Option<(f64, f64, f64)>,
    /// Scheduling lag of the last second, 99th percentile, µs.
    pub lag: Option<f64>,
    pub retransmissions: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// Final responses received, by code, with their counts.
    pub codes: Vec<(u16, u64)>,
}

impl Live {
    pub(super) fn of(campaign: &Campaign) -> Self {
        let run = campaign.run();
        let mut live = Self::of_run(run);
        let warm_up = campaign.plan.warm_up.saturating_sub(campaign.elapsed());
        live.warm_up = Some(warm_up).filter(|left| !left.is_zero());
        live.stage = campaign.stage;
        live.elapsed = campaign.elapsed();
        live.begins_in = campaign.begins_in();
        live.paused = campaign.pressed.paused;
        live.planned = super::profile::length(&campaign.plan.profile).map(Duration::from_micros);
        live.calls = campaign.plan.calls;
        live
    }

    fn of_run(run: &Run) -> Self {
        let totals = run.warm_up.as_deref().filter(|_| run.totals.covered == 0).unwrap_or(&run.totals);
        let names = columns(&run.timers);
        let place = |name: &str| names.iter().position(|n| n == name);
        let seconds = run.recent();
        let value = |row: usize, name: &str| place(name).and_then(|p| seconds.get(row)?.values.get(p).copied());
        let last = seconds.len().wrapping_sub(1);
        let rate_name = if totals.counter(Counter::CallsOutgoing) == 0 { "rate.incoming" } else { "rate.achieved" };
        let delay =
            [Delay::Setup, Delay::Registration, Delay::Request].into_iter().find(|d| !totals.delays(*d).is_empty());
        let delay = delay.unwrap_or(Delay::Setup);
        let figures = (0..seconds.len()).rev().find_map(|row| {
            let of = |statistic: &str| value(row, &format!("{}.{statistic}", delay.key())).filter(|v| v.is_finite());
            Some((of("p50")?, of("p95")?, of("p99")?))
        });
        let mut codes: Vec<(u16, u64)> = Vec::new();
        for (_, code, count) in totals.responses_received().iter().filter(|(_, code, _)| *code >= 200) {
            match codes.iter_mut().find(|(known, _)| *known == code) {
                Some((_, sum)) => *sum += count,
                None => codes.push((code, count)),
            }
        }
        codes.sort_unstable();
        Self {
            stage: Stage::Running,
            elapsed: Duration::ZERO,
            begins_in: Duration::ZERO,
            warm_up: None,
            paused: false,
            planned: None,
            calls: None,
            started: totals.counter(Counter::CallsOutgoing) + totals.counter(Counter::CallsIncoming),
            successful: totals.counter(Counter::CallsSuccessful),
            failed: totals.counter(Counter::CallsFailed),
            open: value(last, "concurrency").filter(|v| v.is_finite()).unwrap_or(0.0) as u64,
            intended_rate: value(last, "rate.intended").filter(|v| v.is_finite()),
            rate: value(last, rate_name).filter(|v| v.is_finite()),
            rates: (0..seconds.len())
                .filter_map(|row| value(row, rate_name))
                .map(|v| if v.is_finite() { v } else { 0.0 })
                .collect(),
            delay_name: delay.title(),
            delay: figures,
            lag: value(last, "lag.p99").filter(|v| v.is_finite()),
            retransmissions: totals.counter(Counter::RetransmissionsSent),
            messages_sent: totals.counter(Counter::MessagesSent),
            messages_received: totals.counter(Counter::MessagesReceived),
            codes,
        }
    }
}
