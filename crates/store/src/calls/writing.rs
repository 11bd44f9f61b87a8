//! Work of the thread: writes groups of pending changes, repeats failed ones, and removes closed numbers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::engine::{CallEngine, Change, Failure};
use super::{CallStore, Counts, Settings};
use crate::group::{Commit, GroupFigures, Numbered, Row};
use crate::queue::RESERVE;

/// Approximate bytes and most changes of a group: they limit the time of an engine for one.
const GROUP: u64 = 1 << 20;
const ROWS: usize = 2_000;
/// Bytes of a record in a folder in addition to the state: head and number.
pub(super) const BESIDE: u64 = 21;
/// Interval of log lines about a lasting failure.
const AGAIN: Duration = Duration::from_secs(60);

/// Change of a number. It replaces a queued change of the same number.
pub(super) struct Put {
    pub(super) number: u64,
    pub(super) change: Change,
}

impl Row for Put {
    fn key(&self) -> Option<u64> {
        Some(self.number)
    }
}

type Changes = HashMap<u64, Change>;

pub(super) struct Writing {
    settings: Settings,
    engine: Box<dyn CallEngine>,
    unwritten: Changes,
    /// Closed numbers, with the time of their removal. A number that was closed and then put again stays only in `removals`.
    closed: HashMap<u64, Instant>,
    removals: VecDeque<(Instant, u64)>,
    /// Set while the engine has background work.
    is_untidy: bool,
    trouble: Trouble,
    counts: Arc<Counts>,
}

/// State of a lasting failure to write.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
    next_try: Option<Instant>,
}

impl Commit for Writing {
    type Row = Put;

    /// Takes the changes of a group. [`Commit::settle`] writes them, also after a failure.
    fn write(&mut self, group: &mut Vec<Numbered<Put>>, _: &GroupFigures) -> Duration {
        self.unwritten.extend(group.drain(..).map(|Numbered { row, .. }| (row.number, row.change)));
        if group.capacity() > RESERVE {
            // Frees the memory of a burst.
            *group = Vec::new();
        }
        self.show();
        Duration::ZERO
    }

    fn settle(&mut self) -> Option<Duration> {
        if self.counts.is_ending.load(Relaxed) {
            return None;
        }
        let now = Instant::now();
        if self.is_due(now) {
            self.work(now);
        }
        self.pause(self.settings.interval)
    }

    /// Writes for the last time: repeats failed attempts until the time limit.
    fn finish(&mut self) {
        let end = Instant::now() + self.settings.end;
        loop {
            let now = Instant::now();
            let done = self.write_all(now, Some(end)).map(drop);
            self.says(now, done);
            if self.unwritten.is_empty() || Instant::now() + self.settings.retry >= end {
                break;
            }
            std::thread::sleep(self.settings.retry);
        }
        if !self.unwritten.is_empty() {
            let (numbers, place) = (self.unwritten.len(), self.engine.name());
            tracing::error!(numbers, place, "state lost: it could not be written at the end");
        }
    }
}

impl Writing {
    /// Creates the writer. `closed`: numbers that an earlier process closed.
    pub(super) fn new(settings: Settings, engine: Box<dyn CallEngine>, closed: &[u64], counts: Arc<Counts>) -> Self {
        let (unwritten, trouble) = Default::default();
        let (closed_at, removals, is_untidy) = Default::default();
        let mut this = Self { settings, engine, unwritten, closed: closed_at, removals, is_untidy, trouble, counts };
        let now = Instant::now();
        closed.iter().for_each(|number| this.is_closed(*number, now));
        this.show();
        this
    }

    fn is_closed(&mut self, number: u64, now: Instant) {
        let at = now + self.settings.grace;
        self.closed.insert(number, at);
        self.removals.push_back((at, number));
    }

    /// Returns the time until there is work without a new change; `None` if there is none. `interval`: time between two
    /// steps of the engine's background work.
    fn pause(&self, interval: Duration) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        if let Some(next_try) = self.trouble.next_try {
            return Some(until(next_try));
        }
        let removal = self.removals.front().map(|(at, _)| until(*at).max(interval));
        let tidying = self.is_untidy.then_some(interval);
        removal.into_iter().chain(tidying).min()
    }

    /// Tells whether there is a change to write, or a failed attempt to repeat.
    fn is_due(&self, now: Instant) -> bool {
        let is_over = |(at, _): &(Instant, u64)| *at <= now;
        !self.unwritten.is_empty()
            || self.is_untidy
            || self.trouble.next_try.is_some()
            || self.removals.front().is_some_and(is_over)
    }

    /// Writes the pending changes as far as possible.
    fn work(&mut self, now: Instant) {
        if self.trouble.next_try.is_some_and(|next_try| now < next_try) {
            return;
        }
        let done = self.write_all(now, None).and_then(|bytes| {
            self.is_untidy = self.engine.tidy(bytes)?;
            Ok(())
        });
        self.says(now, done);
    }

    /// Writes the pending changes. Returns the number of bytes written.
    fn write_all(&mut self, now: Instant, end: Option<Instant>) -> Result<u64, Failure> {
        self.remove_closed(now);
        self.drop_too_long();
        let mut bytes = 0;
        while !self.unwritten.is_empty() {
            // The first group is written in any case.
            if bytes > 0 && end.is_some_and(|end| Instant::now() >= end) {
                return Err("the time for the end is over".into());
            }
            bytes += self.write_some(now)?;
        }
        if self.unwritten.capacity() > 1 << 16 {
            self.unwritten = Changes::new();
        }
        Ok(bytes)
    }

    /// Adds the removals of numbers that were closed long enough ago to the pending changes.
    fn remove_closed(&mut self, now: Instant) {
        while let Some((at, number)) = self.removals.pop_front_if(|(at, _)| *at <= now) {
            // The number may have been put again since.
            if self.closed.get(&number) == Some(&at) {
                self.closed.remove(&number);
                self.unwritten.entry(number).or_insert(Change::Removed);
            }
        }
    }

    fn drop_too_long(&mut self) {
        let before = self.unwritten.len();
        self.unwritten.retain(|_, change| change.said().len() <= CallStore::LONGEST);
        let numbers = before - self.unwritten.len();
        if numbers > 0 {
            tracing::error!(numbers, most = CallStore::LONGEST, "state not kept: it is too long");
        }
    }

    /// Writes one group and removes its changes from the queue; after an error the changes stay. Returns the number of
    /// bytes written.
    fn write_some(&mut self, now: Instant) -> Result<u64, Failure> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        for (number, change) in &self.unwritten {
            if bytes >= GROUP || group.len() >= ROWS {
                break;
            }
            group.push((*number, change));
            bytes += BESIDE + change.said().len() as u64;
        }
        self.engine.write(&group)?;
        let done: Vec<(u64, bool)> =
            group.into_iter().map(|(number, change)| (number, matches!(change, Change::Closed(_)))).collect();
        for (number, is_closed) in done {
            self.unwritten.remove(&number);
            self.closed.remove(&number);
            if is_closed {
                self.is_closed(number, now);
            }
        }
        Ok(bytes)
    }

    /// Records the result of an attempt.
    fn says(&mut self, now: Instant, done: Result<(), Failure>) {
        match done {
            Ok(()) => self.works(),
            Err(error) => self.fails(now, &error),
        }
        self.show();
    }

    fn works(&mut self) {
        if let Some(since) = self.trouble.since.take() {
            self.trouble = Trouble::default();
            tracing::info!(after = ?since.elapsed(), place = self.engine.name(), "state is kept again");
        }
    }

    fn fails(&mut self, now: Instant, error: &Failure) {
        self.is_untidy = false;
        self.trouble.since.get_or_insert(now);
        // Measured from now, since the attempt may have taken long.
        self.trouble.next_try = Some(Instant::now() + self.settings.retry);
        self.counts.failures.fetch_add(1, Relaxed);
        if self.trouble.said.is_none_or(|said| now.duration_since(said) >= AGAIN) {
            self.trouble.said = Some(now);
            let (place, numbers) = (self.engine.name(), self.unwritten.len());
            tracing::error!(%error, place, numbers, "state not kept: it waits in memory");
        }
    }

    fn show(&self) {
        let (counts, held) = (&self.counts, self.engine.held());
        counts.kept.store(held.kept, Relaxed);
        counts.bytes.store(held.bytes, Relaxed);
        counts.written.store(held.written, Relaxed);
        counts.unwritten.store(self.unwritten.len() as u64, Relaxed);
        counts.is_down.store(self.trouble.since.is_some(), Relaxed);
    }
}
