//! Calls in number: how many and when, what they showed, and how far they are.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use super::phones::News;

/// Calls to be made. Times in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub calls: u64,
    /// Calls a second.
    pub rate: u64,
    /// From the 180 to the 200.
    pub ring: u64,
    /// From the 200 to the BYE.
    pub hold: u64,
    /// Every message is kept.
    pub recorded: bool,
    made: u64,
    started: u64,
}

/// How long after its last INVITE a plan waits for its calls: an INVITE and a BYE that nobody answers take 32 s each
/// (64 times T1, RFC 3261 section 17.1).
const PATIENCE: u64 = 66_000;

impl Plan {
    pub(super) const fn new(calls: u64, rate: u64) -> Self {
        Self { calls, rate, ring: 0, hold: 200, recorded: false, made: 0, started: 0 }
    }

    /// One call, its messages kept.
    pub(super) const fn one(ring: u64, hold: u64) -> Self {
        Self { ring, hold, recorded: true, ..Self::new(1, 1) }
    }

    pub(super) const fn start(&mut self, now: u64) {
        self.started = now;
    }

    /// When the next call is due.
    const fn next(&self) -> u64 {
        self.started + self.made * 1_000 / self.rate
    }

    /// Takes one call if it is due.
    pub(super) const fn is_due(&mut self, now: u64) -> bool {
        let due = self.made < self.calls && self.next() <= now;
        self.made += due as u64;
        due
    }

    pub(super) const fn deadline(&self) -> u64 {
        if self.made < self.calls { self.next() } else { self.end() }
    }

    const fn end(&self) -> u64 {
        self.next() + self.ring + self.hold + PATIENCE
    }

    pub(super) const fn is_over(&self, now: u64, idle: bool) -> bool {
        self.made == self.calls && (idle || self.end() <= now)
    }
}

/// What the calls of a plan came to.
#[derive(Debug)]
pub(super) struct Tally {
    pub calls: u64,
    pub answered: u64,
    /// Calls whose ACK reached the callee.
    pub confirmed: u64,
    /// Calls whose BYE got an answer.
    pub ended: u64,
    /// Calls whose BYE reached the callee.
    pub taken_down: u64,
    /// Calls by the status that refused them; 408: no answer came.
    pub refused: BTreeMap<u16, u64>,
    /// From INVITE to 200 as the caller saw it, in microseconds.
    pub delays: Histogram<u64>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            calls: 0,
            answered: 0,
            confirmed: 0,
            ended: 0,
            taken_down: 0,
            refused: BTreeMap::new(),
            delays: Histogram::new(3).expect("three digits are allowed"),
            first: None,
            last: None,
        }
    }
}

impl Tally {
    pub(super) fn start(&mut self) {
        self.calls += 1;
        self.first.get_or_insert_with(Instant::now);
    }

    pub(super) fn answer(&mut self, delay: Duration) {
        self.answered += 1;
        self.last = Some(Instant::now());
        self.delays.record(delay.as_micros() as u64).expect("a histogram without bounds grows");
    }

    /// Calls that did not go through each of their stations: answered, acknowledged, ended by the caller, seen to end by
    /// the callee.
    pub(super) fn failures(&self) -> u64 {
        let least = self.answered.min(self.confirmed).min(self.ended).min(self.taken_down);
        self.calls.saturating_sub(least)
    }

    /// Calls answered a second, from the first INVITE to the last 200.
    pub(super) fn per_second(&self) -> f64 {
        match self.first.zip(self.last).map(|(first, last)| (last - first).as_secs_f64()) {
            Some(seconds) if seconds > 0.0 => self.answered as f64 / seconds,
            _ => 0.0,
        }
    }

    /// Milliseconds within which this share of the calls was answered.
    pub(super) fn delay(&self, percentile: f64) -> f64 {
        self.delays.value_at_percentile(percentile) as f64 / 1_000.0
    }
}

/// A number that the phones raise and the terminal shows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How far the calls are.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub started: Count,
    pub ended: Count,
    pub failed: Count,
}

/// Waits for news; on the way it shows how many of `calls` are over, on standard error: as a bar on a terminal, elsewhere as
/// a line a second. With `quiet` it shows nothing.
pub(super) fn watch(news: &Receiver<News>, progress: &Progress, calls: u64, quiet: bool) -> anyhow::Result<News> {
    let bar = match (quiet, std::io::stderr().is_terminal()) {
        (false, true) => ProgressBar::new(calls).with_style(
            ProgressStyle::with_template("  {wide_bar:.cyan/dim} {pos}/{len} calls {msg}")
                .expect("the template is right"),
        ),
        _ => ProgressBar::hidden(),
    };
    let (start, before) = (Instant::now(), progress.ended.read() + progress.failed.read());
    let mut said = 0;
    loop {
        match news.recv_timeout(Duration::from_millis(100)) {
            Ok(news) => {
                bar.finish_and_clear();
                return Ok(news);
            }
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the phones ended"),
            Err(RecvTimeoutError::Timeout) => {
                let (over, failed) = (progress.ended.read() + progress.failed.read() - before, progress.failed.read());
                bar.set_position(over);
                if failed > 0 {
                    bar.set_message(format!("({failed} failed)"));
                }
                let seconds = start.elapsed().as_secs();
                if bar.is_hidden() && !quiet && seconds > said {
                    said = seconds;
                    eprintln!("  {seconds:>3} s  {over} of {calls} calls over, {failed} failed");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_spread_evenly() {
        let mut plan = Plan::new(10, 4);
        plan.start(1_000);
        let mut at = Vec::new();
        for now in 1_000..10_000 {
            while plan.is_due(now) {
                at.push(now);
            }
        }
        assert_eq!(at, [1_000, 1_250, 1_500, 1_750, 2_000, 2_250, 2_500, 2_750, 3_000, 3_250]);
        assert!(plan.is_over(10_000, true) && !plan.is_over(10_000, false) && plan.is_over(100_000, false));
    }

    #[test]
    fn a_call_that_misses_a_station_failed() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.start();
            tally.answer(Duration::from_millis(2));
        }
        (tally.confirmed, tally.ended, tally.taken_down) = (3, 3, 3);
        assert_eq!(tally.failures(), 0);
        tally.taken_down = 2;
        assert_eq!(tally.failures(), 1);
        assert!((1.99..2.01).contains(&tally.delay(50.0)), "{}", tally.delay(50.0));
        tally.answer(Duration::from_secs(30));
        assert!((29_900.0..30_100.0).contains(&tally.delay(100.0)), "{}", tally.delay(100.0));
    }
}
