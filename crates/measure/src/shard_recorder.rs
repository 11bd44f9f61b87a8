//! Recorder of one shard.

mod health;
mod messages;

use super::call::Side;
use super::warm_up::WarmUp;
use super::{CallBook, CallOutcome, Clock, Counter, Delay, Failure, Page, Role};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use strowger_message::Method;

/// Page that a shard sends to the collector.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) shard: usize,
    pub(super) page: Box<Page>,
    /// True for the shard's last page.
    pub(super) last: bool,
    /// True if another page of this second follows.
    pub(super) part: bool,
}

/// Reason why a message could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// Fault of this machine: buffers full, no route, message too long, no port left.
    Local,
    /// Fault of the target: port closed, connection refused or reset.
    Remote,
}

/// Recorder of one shard. The engine reports events with their times; the recorder turns them into measures. It takes
/// no lock, allocates nothing once warm (a histogram grows when a delay is twice as long as any before), and needs tens
/// of nanoseconds an event.
///
/// Times are microseconds of the engine's monotonic clock, and the times of one shard never decrease.
/// [`ShardRecorder::tick`] MUST be called once a round before the round's events, and at least once a second: it turns the
/// page when a wall-clock second has ended. Full pages go to the [`Collector`](super::Collector). If the collector is late,
/// the page covers more than a second, so that the recorder never waits.
#[derive(Debug)]
pub struct ShardRecorder {
    pub(super) page: Box<Page>,
    pub(super) shard: usize,
    pub(super) clock: Clock,
    /// Start of the page, and the time to turn it, µs.
    begun: u64,
    turn: u64,
    /// Start of the round.
    now: u64,
    pub(super) open: u64,
    pub(super) leaves: SyncSender<Leaf>,
    blanks: Receiver<Box<Page>>,
    timers: usize,
    /// Index of each timer of this shard's scenario among the timers of the run.
    timer_places: Option<Box<[u16]>>,
    closed: bool,
    /// End of the warm-up, µs; 0: none. Calls that fall due before it belong to the warm-up.
    pub(super) warm_until: u64,
    pub(super) warm_up: Option<Box<WarmUp>>,
}

impl ShardRecorder {
    pub(super) fn new(
        shard: usize,
        clock: Clock,
        timers: usize,
        now: u64,
        leaves: SyncSender<Leaf>,
        blanks: Receiver<Box<Page>>,
    ) -> Self {
        let mut page = Box::new(Page::new(timers));
        page.second = clock.second(now);
        page.begun = clock.wall(now);
        let turn = clock.begin(page.second + 1);
        Self {
            page,
            shard,
            clock,
            begun: now,
            turn,
            now,
            open: 0,
            leaves,
            blanks,
            timers,
            timer_places: None,
            closed: false,
            warm_until: 0,
            warm_up: None,
        }
    }

    /// Sets the index of each timer among the timers of the run.
    pub(super) fn place_timers(&mut self, places: Box<[u16]>) {
        self.timer_places = Some(places);
    }

    /// Begins a round, before its events. Begins a new page if the second is over.
    #[inline]
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        if now >= self.turn {
            self.turn(now);
        }
    }

    /// Opens the recorder again, for a shard that was waiting. The first `warm_up` µs are the warm-up.
    pub fn reopen(&mut self, now: u64, warm_up: u64) {
        self.page.clear();
        self.begin_page(now);
        self.now = now;
        if warm_up > 0 {
            self.warm_until = now.saturating_add(warm_up);
            self.warm_up = Some(Box::new(WarmUp::new(self.timers)));
            self.page.warm_up = true;
            self.turn = self.turn.min(self.warm_until);
        }
    }

    /// Begins a page at `now`.
    pub(super) fn begin_page(&mut self, now: u64) {
        self.page.second = self.clock.second(now);
        self.page.begun = self.clock.wall(now);
        (self.page.open, self.page.peak) = (self.open, self.open);
        self.turn = self.clock.begin(self.page.second + 1);
        self.begun = now;
    }

    #[cold]
    fn turn(&mut self, now: u64) {
        if self.warm_up.is_some() && !self.turn_warm_up(now) {
            return;
        }
        let fresh = self.blank();
        self.close_page(now);
        let full = std::mem::replace(&mut self.page, fresh);
        let warm_up = full.warm_up;
        match self.leaves.try_send(Leaf { shard: self.shard, page: full, last: false, part: false }) {
            Ok(()) => self.begin_page(now),
            // The collector is late, or has ended: the page continues into the next second.
            Err(TrySendError::Full(leaf) | TrySendError::Disconnected(leaf)) => {
                self.page = leaf.page;
                self.turn = self.clock.begin(self.clock.second(now) + 1);
            }
        }
        self.page.warm_up = warm_up;
        if warm_up {
            self.turn = self.turn.min(self.warm_until);
        }
    }

    pub(super) fn blank(&self) -> Box<Page> {
        self.blanks.try_recv().unwrap_or_else(|_| Box::new(Page::new(self.timers)))
    }

    pub(super) fn close_page(&mut self, now: u64) {
        self.page.covered = now.saturating_sub(self.begun);
        self.page.open = self.open;
    }

    /// Sends the last page at the end of the shard, and waits for a collector that is late.
    pub fn close(mut self, now: u64) {
        self.last(now);
    }

    /// Closes as [`ShardRecorder::close`] does, for use in `drop`. Stops waiting for a collector that takes nothing for
    /// a second.
    pub fn last(&mut self, now: u64) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.close_page(now);
        if let Some(leaf) = self.warm_leaf() {
            self.give(leaf);
        }
        let page = std::mem::replace(&mut self.page, Box::new(Page::new(0)));
        self.give(Leaf { shard: self.shard, page, last: true, part: false });
    }

    /// Sends a page; waits at most a second for the collector.
    fn give(&self, mut leaf: Leaf) {
        for _ in 0..1_000 {
            match self.leaves.try_send(leaf) {
                Err(TrySendError::Full(again)) => leaf = again,
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Returns the number of open calls.
    #[inline]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Returns the current page.
    #[inline]
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Records that `calls` more calls fell due, in the round in which they did, whether or not they can begin.
    #[inline]
    pub fn calls_intended(&mut self, calls: u64) {
        if calls == 0 {
            return;
        }
        self.page.count(Counter::CallsIntended, calls);
        let wall = self.clock.wall(self.now);
        if self.page.first_due == 0 {
            self.page.first_due = wall;
        }
        self.page.last_due = wall;
    }

    /// Sets the number of due calls that wait for a place below the limit of concurrent calls.
    #[inline]
    pub fn calls_waiting(&mut self, calls: u64) {
        self.page.waiting = calls;
    }

    /// Records the start of a call that was due at `intended`. `free`: time since which its place below the limit of
    /// concurrent calls is free (0: long ago). The wait until `free` is attributed to the limit, the wait after it is
    /// the generator's lag.
    #[inline]
    pub fn call_started(&mut self, now: u64, intended: u64, free: u64) -> CallBook {
        if !self.in_warm_up(intended) {
            return self.call_counted(now, intended, free);
        }
        self.turn_to_warm_up();
        let book = self.call_counted(now, intended, free);
        self.turn_to_warm_up();
        CallBook { warm_up: true, ..book }
    }

    #[inline]
    fn call_counted(&mut self, now: u64, intended: u64, free: u64) -> CallBook {
        self.page.count(Counter::CallsOutgoing, 1);
        let wall = self.clock.wall(now);
        if self.page.first_start == 0 {
            self.page.first_start = wall;
        }
        self.page.last_start = wall;
        let free = free.min(now);
        if free > intended {
            self.page.count(Counter::CallsLimited, 1);
            self.delay(Delay::LimitWait, free - intended);
        }
        self.delay(Delay::Lag, now.saturating_sub(free.max(intended)));
        self.opened();
        CallBook::new(Role::Outgoing, intended.min(now), now)
    }

    /// Records the start of a call by a received message.
    #[inline]
    pub fn call_accepted(&mut self, now: u64) -> CallBook {
        self.page.count(Counter::CallsIncoming, 1);
        self.opened();
        CallBook { due: 0, warm_up: self.in_warm_up(now), ..CallBook::new(Role::Incoming, now, now) }
    }

    #[inline]
    fn opened(&mut self) {
        self.open += 1;
        self.page.peak = self.page.peak.max(self.open);
    }

    /// Records the end of a call. The outcome decides how its open request is recorded: as timed out, as a transport
    /// failure, as left open by the end of the run, or as given up.
    pub fn call_ended(&mut self, call: &mut CallBook, now: u64, outcome: CallOutcome) {
        self.open = self.open.saturating_sub(1);
        match outcome {
            CallOutcome::Successful => {
                self.page.count(Counter::CallsSuccessful, 1);
                self.delay(Delay::CallLength, now.saturating_sub(call.started));
            }
            CallOutcome::Failed(failure) => {
                self.page.count(Counter::CallsFailed, 1);
                self.page.count_failures(failure, 1);
            }
            CallOutcome::Stopped => {
                self.page.count(Counter::CallsStopped, 1);
                if call.talking == Side::Originating || call.leaving == Side::Originating {
                    self.page.count(Counter::SessionCut, 1);
                }
            }
        }
        for method in [Method::Register, Method::Invite, Method::Bye, Method::Other] {
            self.conclude(call, now, method, outcome);
        }
        if call.has_two() {
            call.turn();
            self.conclude(call, now, Method::Invite, outcome);
        }
    }

    /// Records that the response `code` to a request of `method` makes a call fail. To be called before
    /// [`ShardRecorder::call_ended`].
    #[inline]
    pub fn refused(&mut self, method: Method, code: u16) {
        self.page.count_refusals(method, code, 1);
    }

    /// Records that the open request of this method got no final response in time (Timer B or F, RFC 3261 section
    /// 17.1), for scenarios that continue. Not needed if the call fails for this reason.
    pub fn timed_out(&mut self, call: &mut CallBook, now: u64, method: Method) {
        self.conclude(call, now, method, CallOutcome::Failed(Failure::TimeoutOnReceive));
    }

    #[inline]
    pub(super) fn delay(&mut self, delay: Delay, us: u64) {
        self.page.record(delay, us);
    }
}

impl Drop for ShardRecorder {
    /// Sends the last page of a shard that ends without closing its recorder, if the collector has room.
    fn drop(&mut self) {
        if !self.closed {
            self.page.covered = self.page.covered.max(1);
            self.page.open = self.open;
            if let Some(leaf) = self.warm_leaf() {
                let _ = self.leaves.try_send(leaf);
            }
            let page = std::mem::replace(&mut self.page, Box::new(Page::new(0)));
            let _ = self.leaves.try_send(Leaf { shard: self.shard, page, last: true, part: false });
        }
    }
}
