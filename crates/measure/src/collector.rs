//! Collector: receives the pages of all shards, adds up each second, and keeps the sum.

use super::shard_recorder::Leaf;
use super::{Clock, Page, ShardRecorder};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Maximum number of a shard's pages in transit. At this number the shard keeps its page for longer.
const UNDER_WAY: usize = 16;
/// Seconds after the end of a second until it is added up, even if the page of a stuck shard is missing.
const PATIENCE: u64 = 5;

struct Shard {
    blanks: SyncSender<Box<Page>>,
    /// Last second that the shard sent, or `None` if the shard has ended.
    reached: Option<u64>,
    /// Sum of the shard, and the index of its document, in a run with several.
    own: Option<(usize, Box<Page>)>,
}

/// Collector of all shards' pages. It runs on a thread of its own, or on any thread that calls [`Collector::poll`] a
/// few times a second.
pub struct Collector {
    clock: Clock,
    timers: Vec<String>,
    leaves: SyncSender<Leaf>,
    received: Receiver<Leaf>,
    shards: Vec<Shard>,
    /// Pages by second; the page of the warm-up sorts before the other page of its second.
    pending: BTreeMap<(u64, bool), Page>,
    /// Last complete second.
    reached: Option<u64>,
    /// Time up to which all pages cover, µs since 1970-01-01 UTC.
    until: u64,
    totals: Page,
    /// Blank pages for later seconds.
    spare: Vec<Page>,
}

impl Collector {
    /// Creates a collector. `timers`: the names of the scenario's timers, in the order of their numbers. `shards`: the
    /// number of shards that write at once; with more shards, a page sometimes waits.
    pub fn new(clock: Clock, timers: Vec<String>, shards: usize) -> Self {
        let (leaves, received) = sync_channel(shards.max(1) * UNDER_WAY);
        let totals = Page::new(timers.len());
        Self {
            clock,
            timers,
            leaves,
            received,
            shards: Vec::new(),
            pending: BTreeMap::new(),
            reached: None,
            until: 0,
            totals,
            spare: Vec::new(),
        }
    }

    /// Creates the recorder of one more shard, open from `now` (µs).
    pub fn recorder(&mut self, now: u64) -> ShardRecorder {
        let (give, blanks) = sync_channel(UNDER_WAY);
        let timers = self.timers.len();
        // The first page turned finds a blank one ready.
        let _ = give.try_send(Box::new(Page::new(timers)));
        let shard = self.shards.len();
        self.shards.push(Shard { blanks: give, reached: Some(self.clock.second(now).saturating_sub(1)), own: None });
        ShardRecorder::new(shard, self.clock, timers, now, self.leaves.clone(), blanks)
    }

    /// Creates the recorder of one more shard, which runs this document and has a sum of its own. `timers`: names of its
    /// timers, a subset of all.
    pub fn recorder_of_document(&mut self, now: u64, document: usize, timers: &[String]) -> ShardRecorder {
        let mut recorder = self.recorder(now);
        let place = |name: &String| self.timers.iter().position(|known| known == name).unwrap_or(usize::MAX);
        recorder.place_timers(timers.iter().map(|name| place(name) as u16).collect());
        if let Some(shard) = self.shards.last_mut() {
            shard.own = Some((document, Box::new(Page::new(self.timers.len()))));
        }
        recorder
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the names of the timers.
    pub fn timers(&self) -> &[String] {
        &self.timers
    }

    /// Takes new pages, and calls `second` with each second that is complete by now (µs), in order. A second that has
    /// calls of the warm-up and other calls has two pages, of which that of the warm-up is the first
    /// ([`Page::warm_up`]).
    pub fn poll(&mut self, now: u64, mut second: impl FnMut(&Page)) {
        while let Ok(leaf) = self.received.try_recv() {
            self.take(leaf);
        }
        let current = self.clock.second(now);
        let complete = self.shards.iter().filter_map(|shard| shard.reached).min().unwrap_or(u64::MAX);
        let limit = complete.max(current.saturating_sub(PATIENCE)).min(current.saturating_sub(1));
        while self.pending.first_key_value().is_some_and(|((first, _), _)| *first <= limit) {
            self.complete_first(&mut second);
        }
    }

    fn complete_first(&mut self, second: &mut impl FnMut(&Page)) {
        if let Some(((number, _), mut page)) = self.pending.pop_first() {
            self.reached = Some(number);
            // A late page of a shard that slept covers time that pages of other shards have covered too.
            self.until = page.follow(self.until);
            if !page.warm_up {
                self.totals.add_after(&page);
            }
            second(&page);
            if self.spare.len() < UNDER_WAY {
                page.clear();
                self.spare.push(page);
            }
        }
    }

    fn take(&mut self, leaf: Leaf) {
        let Leaf { shard, mut page, last, part } = leaf;
        let place = &mut self.shards[shard];
        if !part {
            place.reached = (!last).then_some(page.second);
        }
        if let Some((_, sum)) = place.own.as_mut().filter(|_| !page.warm_up) {
            sum.add_after(&page);
        }
        // A page that arrives after its second was closed is added to the next second: no count is lost, and the order
        // is kept.
        let number = page.second.max(self.reached.map_or(0, |reached| reached + 1));
        let key = (number, !page.warm_up);
        match self.pending.get_mut(&key) {
            Some(sum) => sum.add_beside(&page),
            None => {
                let mut sum = self.spare.pop().unwrap_or_else(|| Page::new(self.timers.len()));
                sum.add_beside(&page);
                (sum.second, sum.warm_up) = (number, page.warm_up);
                self.pending.insert(key, sum);
            }
        }
        page.clear();
        let _ = place.blanks.try_send(page);
    }

    /// Returns the sum of all complete seconds, without the warm-up.
    pub fn totals(&self) -> &Page {
        &self.totals
    }

    /// Adds up the remaining pages after all shards have closed their recorders (or are given up), and returns the sum.
    pub fn finish(self, second: impl FnMut(&Page)) -> Page {
        self.finish_documents(second).0
    }

    /// Ends as [`Collector::finish`], and also returns the sum of each document.
    pub fn finish_documents(mut self, mut second: impl FnMut(&Page)) -> (Page, Vec<Page>) {
        while let Ok(leaf) = self.received.try_recv() {
            self.take(leaf);
        }
        while !self.pending.is_empty() {
            self.complete_first(&mut second);
        }
        let mut documents = Vec::new();
        for (document, sum) in self.shards.iter().filter_map(|shard| shard.own.as_ref()) {
            documents.resize_with(documents.len().max(document + 1), || Page::new(self.timers.len()));
            documents[*document].add_beside(sum);
        }
        (self.totals, documents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;
    use std::time::UNIX_EPOCH;

    const S: u64 = 1_000_000;

    #[test]
    fn a_shard_that_slept_is_late_but_time_is_covered_once() {
        let mut collector = Collector::new(Clock::new(0, UNIX_EPOCH), vec![], 2);
        let (mut busy, mut sleepy) = (collector.recorder(0), collector.recorder(0));
        sleepy.calls_intended(7);
        let mut seconds = Vec::new();
        for tenth in 0..300 {
            let now = tenth * S / 10;
            busy.tick(now);
            busy.calls_intended(10);
            collector.poll(now, |page| seconds.push((page.second, page.covered)));
        }
        // Without a page of the other shard a second waits five more.
        assert_eq!(seconds.len(), 25);
        assert!(seconds.iter().all(|(_, covered)| *covered == S), "{seconds:?}");
        sleepy.tick(30 * S);
        busy.close(30 * S);
        sleepy.close(30 * S);
        let totals = collector.finish(|page| seconds.push((page.second, page.covered)));
        assert_eq!((totals.covered, totals.counter(Counter::CallsIntended)), (30 * S, 3_007));
        assert!(seconds.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seconds:?}");
    }

    #[test]
    fn what_a_shard_waited_before_it_began_is_no_time_of_the_run() {
        let mut collector = Collector::new(Clock::new(0, UNIX_EPOCH), vec![], 1);
        let mut recorder = collector.recorder(S / 2);
        recorder.reopen(4 * S + S / 4, 0);
        recorder.tick(5 * S);
        recorder.close(6 * S);
        let mut seconds = Vec::new();
        let totals = collector.finish(|page| seconds.push((page.second, page.covered)));
        assert_eq!(seconds, [(4, 3 * S / 4), (5, S)]);
        assert_eq!((totals.begun, totals.covered), (4 * S + S / 4, 7 * S / 4));
    }

    #[test]
    fn when_all_sleep_the_time_is_covered_all_the_same() {
        let mut collector = Collector::new(Clock::new(0, UNIX_EPOCH), vec![], 2);
        let mut both = [collector.recorder(S / 2), collector.recorder(S / 2)];
        for now in [S, 9 * S, 10 * S] {
            both.iter_mut().for_each(|recorder| recorder.tick(now));
        }
        both.into_iter().for_each(|recorder| recorder.close(10 * S + S / 4));
        let mut covered = Vec::new();
        let totals = collector.finish(|page| covered.push(page.covered));
        assert_eq!(covered, [S / 2, 8 * S, S, S / 4]);
        assert_eq!(totals.covered, 9 * S + S / 2 + S / 4);
    }
}
