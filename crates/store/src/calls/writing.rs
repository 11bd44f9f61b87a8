//! What the thread does: groups of what is still to be written, again where that failed, and the end of what was closed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::engine::{Change, Engine, Failure};
use super::{CallStore, Counts, Settings};
use crate::group::{Commit, GroupFigures, Numbered, Row};
use crate::queue::RESERVE;

/// Bytes that a group has, about, and most changes: so long an engine may take for one.
const GROUP: u64 = 1 << 20;
const ROWS: usize = 2_000;
/// Bytes of a record in a folder beside the state: head and number.
pub(super) const BESIDE: u64 = 21;
/// A trouble that lasts is logged so often.
const AGAIN: Duration = Duration::from_secs(60);

/// A change of a number. One that waits takes the place of the one before it.
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
    engine: Box<dyn Engine>,
    unwritten: Changes,
    /// Numbers that were closed, and when they are to be removed. One that has begun again meanwhile is in the queue alone.
    closed: HashMap<u64, Instant>,
    removals: VecDeque<(Instant, u64)>,
    /// The engine has more to do beside.
    is_untidy: bool,
    trouble: Trouble,
    counts: Arc<Counts>,
}

/// Since when nothing can be written.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
    next_try: Option<Instant>,
}

impl Commit for Writing {
    type Row = Put;

    /// Takes the changes. [`Commit::settle`] writes them, also where that failed before.
    fn write(&mut self, group: &mut Vec<Numbered<Put>>, _: &GroupFigures) -> Duration {
        self.unwritten.extend(group.drain(..).map(|Numbered { row, .. }| (row.number, row.change)));
        if group.capacity() > RESERVE {
            // A burst does not keep its memory.
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

    /// Writes for the last time: as often as it takes, until the time for that is over.
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
    /// `closed`: the numbers that were closed by an earlier process.
    pub(super) fn new(settings: Settings, engine: Box<dyn Engine>, closed: &[u64], counts: Arc<Counts>) -> Self {
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

    /// After which time there is work without a change; none: there is none. `interval`: between two steps of what the engine does beside.
    fn pause(&self, interval: Duration) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        if let Some(next_try) = self.trouble.next_try {
            return Some(until(next_try));
        }
        let removal = self.removals.front().map(|(at, _)| until(*at).max(interval));
        let tidying = self.is_untidy.then_some(interval);
        removal.into_iter().chain(tidying).min()
    }

    /// Whether there is anything to write, or to try again.
    fn is_due(&self, now: Instant) -> bool {
        let is_over = |(at, _): &(Instant, u64)| *at <= now;
        !self.unwritten.is_empty()
            || self.is_untidy
            || self.trouble.next_try.is_some()
            || self.removals.front().is_some_and(is_over)
    }

    /// Writes what is to be written, as far as it can be.
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

    /// Returns the bytes of what was written.
    fn write_all(&mut self, now: Instant, end: Option<Instant>) -> Result<u64, Failure> {
        self.remove_closed(now);
        self.drop_too_long();
        let mut bytes = 0;
        while !self.unwritten.is_empty() {
            // The first group goes in any case.
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

    /// Those that were closed long enough ago.
    fn remove_closed(&mut self, now: Instant) {
        while let Some((at, number)) = self.removals.pop_front_if(|(at, _)| *at <= now) {
            // Another call may have this number by now.
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

    /// One group: its changes are done with, or stay as they are. Returns its bytes.
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

    /// What came of an attempt.
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
        // After an attempt that took long, too.
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
