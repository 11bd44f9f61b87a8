//! Timers: the timers of one length wait in one queue, first in, first out.
//!
//! A timer costs 16 bytes and no search: within one length, the first to start is the first to end. A timer is stopped
//! by forgetting its [`Stamp`]. Its entry in the queue is skipped later, or removed sooner if the queue has many such
//! entries.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Lengths of all timers in milliseconds: RFC 3261 table 4 (appendix A), RFC 6026.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerSettings {
    /// Round-trip time estimate. Default 500. It is the first length of timers A, E and G; timers F, H, J, L, M are 64
    /// times as long.
    pub t1: u64,
    /// Longest pause between retransmissions of a non-INVITE request or an INVITE response. Default 4,000.
    pub t2: u64,
    /// Longest time that a message may stay in the network: timers I and K. Default 5,000.
    pub t4: u64,
    /// Timer B: time until the first response to an INVITE. `None` means 64*T1.
    pub b: Option<u64>,
    /// Timer D over unreliable transports; at least 32 s (RFC 3261 section 17.1.1.2). Default 32,000.
    pub d: u64,
    /// Timer C of a proxy: more than three minutes (RFC 3261 section 16.6 step 11). Default 181,000.
    pub c: u64,
    /// Ends of transactions are rounded up to a multiple of this, so that many share one wake-up; retransmissions are
    /// exact. Default 100. With 1 every timer is exact.
    pub step: u64,
}

impl Default for TimerSettings {
    fn default() -> Self {
        Self { t1: 500, t2: 4_000, t4: 5_000, b: None, d: 32_000, c: 181_000, step: 100 }
    }
}

impl TimerSettings {
    /// Returns 64*T1: timers F, H, J, L and M, and B unless it is set.
    pub const fn t1_64(&self) -> u64 {
        self.t1.saturating_mul(64)
    }

    /// Returns the time until Timer E is set to T2, when a request other than INVITE must have had a response (RFC 4320 section 4.1).
    pub fn until_t2(&self) -> u64 {
        let pauses = std::iter::successors(Some(self.t1.max(1)), |pause| pause.checked_mul(2));
        pauses.take_while(|pause| *pause < self.t2).sum::<u64>().max(self.t1)
    }
}

/// Returns the earlier of two optional moments.
#[inline]
pub fn sooner(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Handle of a started timer. Its owner keeps it while the timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Stamp(u32);

impl Stamp {
    /// Value without a running timer.
    pub const NONE: Self = Self(0);

    /// Tells whether the timer was started and has neither been stopped nor ended.
    pub fn is_running(self) -> bool {
        self != Self::NONE
    }
}

/// Handle of a timer length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length(u8);

/// Waiting timer: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedTimer {
    due: u64,
    stamp: u32,
    slot: u32,
}

/// Timers of one table. Time is `Now::mono`, in milliseconds.
#[derive(Debug, Default)]
pub struct Timers {
    queues: Vec<Queue>,
    /// Timers of uncommon lengths, from entries of another shard.
    odd: BinaryHeap<Reverse<QueuedTimer>>,
    spare: Vec<Chunk>,
    stamp: u32,
    running: usize,
    /// Moment before which no timer ends.
    soonest: u64,
}

type Chunk = VecDeque<QueuedTimer>;

/// Entries of a chunk: 4 KB.
const CHUNK: usize = 256;
/// Number of empty chunks kept for reuse.
const SPARE: usize = 16;

#[derive(Debug)]
struct Queue {
    length: u64,
    step: u64,
    last: u64,
    chunks: VecDeque<Chunk>,
}

impl Timers {
    /// Creates an empty table; [`Timers::length`] adds each length.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the handle of this length in milliseconds. Ends are rounded up to a multiple of `step` milliseconds.
    ///
    /// # Panics
    /// With more than 255 different lengths.
    pub fn length(&mut self, length: u64, step: u64) -> Length {
        let step = step.max(1);
        let known = self.queues.iter().position(|q| q.length == length && q.step == step);
        let at = known.unwrap_or_else(|| {
            self.queues.push(Queue { length, step, last: 0, chunks: VecDeque::new() });
            self.queues.len() - 1
        });
        Length(u8::try_from(at).expect("a table has a dozen lengths"))
    }

    /// Returns the number of running timers.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of queued entries, stopped ones included.
    pub fn waiting(&self) -> usize {
        self.queues.iter().flat_map(|q| &q.chunks).map(VecDeque::len).sum::<usize>() + self.odd.len()
    }

    /// Returns the bytes that the queues take.
    pub fn memory(&self) -> usize {
        let chunks = self.queues.iter().flat_map(|q| &q.chunks).chain(&self.spare);
        (chunks.map(VecDeque::capacity).sum::<usize>() + self.odd.capacity()) * size_of::<QueuedTimer>()
    }

    fn next_stamp(&mut self) -> u32 {
        self.running += 1;
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.stamp
    }

    /// Starts a timer for the entry in `slot`.
    pub fn start(&mut self, now: u64, length: Length, slot: u32) -> Stamp {
        let stamp = self.next_stamp();
        let queue = &mut self.queues[usize::from(length.0)];
        let due = now.saturating_add(queue.length);
        // The end must not be before an earlier end, so that the order holds even if the caller's clock goes back.
        let due = due.checked_next_multiple_of(queue.step).unwrap_or(due).max(queue.last);
        queue.last = due;
        self.soonest = self.soonest.min(due);
        if queue.chunks.back().is_none_or(|c| c.len() >= CHUNK) {
            queue.chunks.push_back(self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(CHUNK)));
        }
        let chunk = queue.chunks.back_mut().expect("a chunk was put there");
        chunk.push_back(QueuedTimer { due, stamp, slot });
        Stamp(stamp)
    }

    /// Starts a timer of any length that ends at `due`.
    pub fn start_at(&mut self, due: u64, slot: u32) -> Stamp {
        let stamp = self.next_stamp();
        self.soonest = self.soonest.min(due);
        self.odd.push(Reverse(QueuedTimer { due, stamp, slot }));
        Stamp(stamp)
    }

    /// Stops the timer of `stamp`, if it is running.
    pub fn stop(&mut self, stamp: &mut Stamp) {
        if stamp.is_running() {
            *stamp = Stamp::NONE;
            self.running -= 1;
        }
    }

    /// Removes the next ended timer. Returns its stamp, with the slot of its entry. `runs`: function that tells whether
    /// the entry in a slot still has the stamp. The returned timer no longer runs, and its owner must forget the stamp.
    pub fn due(&mut self, now: u64, runs: impl Fn(u32, Stamp) -> bool) -> Option<(u32, Stamp)> {
        if now < self.soonest {
            return None;
        }
        let first = self.first(&runs);
        self.soonest = first.map_or(u64::MAX, |(due, _)| due);
        let (due, from) = first?;
        if due > now {
            return None;
        }
        let waiting = self.pop(from)?;
        self.running -= 1;
        Some((waiting.slot, Stamp(waiting.stamp)))
    }

    /// Removes stopped timers of this length, up to the first running one. To be used for a length whose timers are
    /// mostly stopped early, because their entries would accumulate while shorter timers run.
    pub fn shed(&mut self, length: Length, runs: impl Fn(u32, Stamp) -> bool) {
        let at = usize::from(length.0);
        while let Some(head) = self.queues[at].chunks.front().and_then(VecDeque::front)
            && !runs(head.slot, Stamp(head.stamp))
        {
            self.pop(Some(at));
        }
    }

    /// Returns the end of the next timer.
    pub fn deadline(&mut self, runs: impl Fn(u32, Stamp) -> bool) -> Option<u64> {
        self.first(&runs).map(|(due, _)| due)
    }

    /// Returns every queued timer, stopped ones included, with its end; in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Stamp, u64)> {
        let all = self.queues.iter().flat_map(|q| &q.chunks).flatten().chain(self.odd.iter().map(|r| &r.0));
        all.map(|w| (Stamp(w.stamp), w.due))
    }

    /// Returns the end of the first running timer and its queue (`None` for the queue of timers started with
    /// [`Timers::start_at`]). Removes stopped timers at the heads of the queues.
    fn first(&mut self, runs: &impl Fn(u32, Stamp) -> bool) -> Option<(u64, Option<usize>)> {
        let mut first: Option<(u64, Option<usize>)> = None;
        for at in 0..self.queues.len() {
            while let Some(head) = self.queues[at].chunks.front().and_then(VecDeque::front).copied() {
                if first.is_some_and(|(due, _)| due <= head.due) {
                    break;
                }
                if runs(head.slot, Stamp(head.stamp)) {
                    first = Some((head.due, Some(at)));
                    break;
                }
                self.pop(Some(at));
            }
        }
        while let Some(&Reverse(head)) = self.odd.peek() {
            if first.is_some_and(|(due, _)| due <= head.due) {
                break;
            }
            if runs(head.slot, Stamp(head.stamp)) {
                first = Some((head.due, None));
                break;
            }
            self.odd.pop();
        }
        first
    }

    fn pop(&mut self, from: Option<usize>) -> Option<QueuedTimer> {
        let Some(at) = from else { return self.odd.pop().map(|r| r.0) };
        let queue = &mut self.queues[at];
        let chunk = queue.chunks.front_mut()?;
        let waiting = chunk.pop_front();
        if chunk.is_empty()
            && let Some(chunk) = queue.chunks.pop_front()
            && self.spare.len() < SPARE
        {
            self.spare.push(chunk);
        }
        waiting
    }

    /// Removes stopped timers if they are more than half of all, and frees spare memory when no timer runs. To be
    /// called about once a second.
    pub fn tidy(&mut self, runs: impl Fn(u32, Stamp) -> bool) {
        if self.waiting() > 2 * self.running + CHUNK {
            for queue in &mut self.queues {
                let mut kept: VecDeque<Chunk> = VecDeque::new();
                for mut chunk in queue.chunks.drain(..) {
                    chunk.retain(|w| runs(w.slot, Stamp(w.stamp)));
                    match kept.back_mut() {
                        Some(last) if last.len() + chunk.len() <= CHUNK => last.append(&mut chunk),
                        _ if chunk.is_empty() => {}
                        _ => kept.push_back(chunk),
                    }
                }
                queue.chunks = kept;
            }
            self.odd.retain(|r| runs(r.0.slot, Stamp(r.0.stamp)));
        }
        if self.running == 0 {
            self.spare = Vec::new();
            self.odd.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_end_in_order_and_stopped_ones_never() {
        let mut timers = Timers::new();
        let (short, long) = (timers.length(500, 1), timers.length(32_000, 100));
        assert_eq!(timers.length(500, 1), short);
        let mut stamps = vec![Stamp::NONE; 2000];
        for slot in 0..1000u32 {
            stamps[slot as usize] = timers.start(slot.into(), short, slot);
            stamps[1000 + slot as usize] = timers.start(slot.into(), long, 1000 + slot);
        }
        for slot in (0..2000).step_by(2) {
            timers.stop(&mut stamps[slot]);
        }
        assert_eq!((timers.running(), timers.waiting()), (1000, 2000));
        assert_eq!(timers.deadline(|slot, stamp| stamps[slot as usize] == stamp), Some(501));
        assert!(timers.iter().any(|timer| timer == (stamps[1001], 32_100)));
        timers.tidy(|slot, stamp| stamps[slot as usize] == stamp);
        let mut ended = Vec::new();
        for now in 0..40_000u64 {
            while let Some((slot, stamp)) = timers.due(now, |slot, stamp| stamps[slot as usize] == stamp) {
                assert_eq!(stamps[slot as usize], stamp);
                stamps[slot as usize] = Stamp::NONE;
                ended.push((now, slot));
            }
        }
        let want = (1..1000u32).step_by(2).map(|n| (u64::from(n) + 500, n));
        let want_long = (1..1000u32).step_by(2).map(|n| ((u64::from(n) + 32_000).next_multiple_of(100), 1000 + n));
        assert_eq!(ended, want.chain(want_long).collect::<Vec<_>>());
        assert_eq!((timers.running(), timers.waiting(), timers.deadline(|_, _| true)), (0, 0, None));
    }

    #[test]
    fn stopped_timers_are_swept_when_they_are_the_most() {
        let mut timers = Timers::new();
        let length = timers.length(181_000, 1);
        let mut stamps: Vec<Stamp> = (0..10_000).map(|slot| timers.start(0, length, slot)).collect();
        for stamp in &mut stamps[..9_900] {
            timers.stop(stamp);
        }
        timers.tidy(|slot, stamp| stamps[slot as usize] == stamp);
        assert_eq!(timers.waiting(), 100);
        let odd = timers.start_at(5, 0);
        stamps[0] = odd;
        assert_eq!(timers.due(5, |slot, stamp| stamps[slot as usize] == stamp), Some((0, odd)));
    }
}
