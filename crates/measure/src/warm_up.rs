//! Warm-up in the recorder of a shard. Until its end all pages belong to it. Later events of calls that fell due in it
//! go to a second page, so that the pages of the window hold only calls of the window.

use super::shard_recorder::Leaf;
use super::{Page, ShardRecorder};
use std::sync::mpsc::TrySendError;

/// Second page of a shard.
#[derive(Debug)]
pub(super) struct WarmUp {
    page: Box<Page>,
    /// True if the warm-up is over. Its calls may still be open.
    over: bool,
    /// True if the page has a count.
    used: bool,
}

impl WarmUp {
    pub(super) fn new(timers: usize) -> Self {
        Self { page: Box::new(Page::new(timers)), over: false, used: false }
    }
}

impl ShardRecorder {
    /// Returns whether a call that falls due at `intended` (µs) belongs to the warm-up.
    #[inline]
    pub fn in_warm_up(&self, intended: u64) -> bool {
        intended < self.warm_until
    }

    /// Swaps the two pages. MUST be called before and after each event of a call of the warm-up.
    #[cold]
    pub fn turn_to_warm_up(&mut self) {
        let Some(warm_up) = self.warm_up.as_mut().filter(|warm_up| warm_up.over) else { return };
        std::mem::swap(&mut self.page, &mut warm_up.page);
        warm_up.used = true;
        // Such a call is open, too.
        if warm_up.page.warm_up {
            self.page.peak = self.page.peak.max(self.open);
        }
    }

    /// Counts calls that fell due in the warm-up, as [`ShardRecorder::calls_intended`] does.
    #[cold]
    pub fn calls_warming(&mut self, calls: u64) {
        self.turn_to_warm_up();
        self.calls_intended(calls);
        self.turn_to_warm_up();
    }

    /// Ends the warm-up when its time is over, and sends the second page. Returns false if the other page is kept.
    #[cold]
    pub(super) fn turn_warm_up(&mut self, now: u64) -> bool {
        let until = self.warm_until;
        if self.page.warm_up {
            if now < until {
                return true;
            }
            self.close_page(until);
            let fresh = self.blank();
            let full = std::mem::replace(&mut self.page, fresh);
            let part = self.clock.second(until) == full.second;
            match self.leaves.try_send(Leaf { shard: self.shard, page: full, last: false, part }) {
                Ok(()) => {
                    self.begin_page(until);
                    self.page.warm_up = false;
                    if let Some(warm_up) = &mut self.warm_up {
                        (warm_up.over, warm_up.page.warm_up) = (true, true);
                    }
                    // A shard that slept has more to turn.
                    return self.clock.second(until) < self.clock.second(now);
                }
                Err(TrySendError::Full(leaf) | TrySendError::Disconnected(leaf)) => {
                    // The collector is late, so the page is sent again in the next round.
                    self.page = leaf.page;
                    return false;
                }
            }
        }
        if let Some(leaf) = self.warm_leaf()
            && let Err(TrySendError::Full(leaf) | TrySendError::Disconnected(leaf)) = self.leaves.try_send(leaf)
            && let Some(warm_up) = &mut self.warm_up
        {
            (warm_up.page, warm_up.used) = (leaf.page, true);
        }
        true
    }

    /// Returns the second page, if it has an event.
    pub(super) fn warm_leaf(&mut self) -> Option<Leaf> {
        let second = self.page.second;
        let blank = self.warm_up.as_ref().filter(|warm_up| warm_up.used).map(|_| self.blank())?;
        let warm_up = self.warm_up.as_mut()?;
        let mut page = std::mem::replace(&mut warm_up.page, blank);
        (warm_up.page.warm_up, warm_up.used) = (true, false);
        // The pages of the window cover their time.
        (page.second, page.begun, page.covered) = (second, second * 1_000_000, 0);
        (page.open, page.peak, page.waiting) = (0, 0, 0);
        Some(Leaf { shard: self.shard, page, last: false, part: true })
    }
}
