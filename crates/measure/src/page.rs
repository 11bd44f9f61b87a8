//! Figures of one second, or the sum of many.

use super::counter::COUNTERS;
use super::{Counter, Delay, Delays, Failure};
use strowger_message::Method;

/// Methods with a row of their own, and one for all others.
pub const METHODS: usize = Method::KNOWN.len() + 1;
/// Status codes 100 to 699, and one place for all others.
const CODES: usize = 601;

/// Messages by method and status code, for one direction.
#[derive(Clone, Debug)]
pub struct Codes {
    counts: Box<[u64]>,
    /// True while nothing is counted: adding and clearing are then free.
    blank: bool,
}

impl Default for Codes {
    fn default() -> Self {
        Self { counts: vec![0; METHODS * CODES].into(), blank: true }
    }
}

impl Codes {
    #[inline]
    fn place(method: Method, code: u16) -> usize {
        method as usize * CODES + if (100..700).contains(&code) { code as usize - 100 } else { CODES - 1 }
    }

    #[inline]
    pub(super) fn count(&mut self, method: Method, code: u16, by: u64) {
        self.blank = false;
        let place = &mut self.counts[Self::place(method, code)];
        *place = place.saturating_add(by);
    }

    /// Returns the number of responses `code` to `method`. All codes outside 100 to 699 are counted as one code.
    pub fn of(&self, method: Method, code: u16) -> u64 {
        self.counts[Self::place(method, code)]
    }

    /// Returns the number of responses `code`, to any method.
    pub fn total(&self, code: u16) -> u64 {
        (0..METHODS).map(|method| self.counts[method * CODES + (Self::place(Method::Ack, code) % CODES)]).sum()
    }

    /// Returns the responses that occurred as (method, code, count), by method and code. Code 0 means codes outside 100
    /// to 699.
    pub fn iter(&self) -> impl Iterator<Item = (Method, u16, u64)> + '_ {
        let counts = if self.blank { &[] } else { &self.counts[..] };
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(place, count)| {
            let code = place % CODES;
            (method(place / CODES), if code == CODES - 1 { 0 } else { code as u16 + 100 }, *count)
        })
    }

    pub(super) fn add(&mut self, other: &Self) {
        if other.blank {
            return;
        }
        self.blank = false;
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    fn clear(&mut self) {
        if !self.blank {
            self.counts.fill(0);
            self.blank = true;
        }
    }
}

/// Returns the method of this row.
pub(super) fn method(row: usize) -> Method {
    Method::KNOWN.get(row).copied().unwrap_or(Method::Other)
}

/// Counters and delays of one second of one shard, or the sum of any of these: of a second over all shards and
/// generators, or of a run.
#[derive(Clone, Debug)]
pub struct Page {
    /// Wall-clock second (since 1970-01-01 UTC); of a sum, the first.
    pub second: u64,
    /// Start, µs since 1970-01-01 UTC.
    pub begun: u64,
    /// Time for which the recorder was open within the second or seconds, µs. The first and the last second of a run
    /// are shorter.
    pub covered: u64,
    /// Calls open at its end.
    pub open: u64,
    /// Peak of open calls. For several shards it is the sum of their peaks, and so an upper bound.
    pub peak: u64,
    /// Starts of the first and the last call of the schedule, µs since 1970-01-01 UTC; 0: none.
    pub first_start: u64,
    pub last_start: u64,
    /// Due times of the first and the last call of the schedule, started or not, µs since 1970-01-01 UTC; 0: none.
    pub first_due: u64,
    pub last_due: u64,
    /// Calls that were due at the end of the page and waited for a place below the limit of concurrent calls.
    pub waiting: u64,
    /// True for calls and seconds of a warm-up, which are in no sum of the run.
    pub warm_up: bool,
    pub(super) counters: [u64; COUNTERS],
    pub(crate) failures: [u64; Failure::ALL.len()],
    pub(super) requests_sent: [u64; METHODS],
    pub(super) requests_received: [u64; METHODS],
    pub(super) requests_resent: [u64; METHODS],
    pub(super) responses_sent: Codes,
    pub(super) responses_received: Codes,
    pub(super) refusals: Codes,
    pub(super) delays: Vec<Delays>,
    pub(super) timers: Vec<Delays>,
}

impl Page {
    /// Creates a blank page with room for this many named timers.
    pub fn new(timers: usize) -> Self {
        Self {
            second: 0,
            begun: 0,
            covered: 0,
            open: 0,
            peak: 0,
            first_start: 0,
            last_start: 0,
            first_due: 0,
            last_due: 0,
            waiting: 0,
            warm_up: false,
            counters: [0; COUNTERS],
            failures: [0; Failure::ALL.len()],
            requests_sent: [0; METHODS],
            requests_received: [0; METHODS],
            requests_resent: [0; METHODS],
            responses_sent: Codes::default(),
            responses_received: Codes::default(),
            refusals: Codes::default(),
            delays: Delay::ALL.iter().map(|delay| Delays::of(*delay)).collect(),
            timers: (0..timers).map(|_| Delays::new()).collect(),
        }
    }

    #[inline]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Returns the failed calls with this cause.
    #[inline]
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// Returns the requests of this method sent, without retransmissions.
    pub fn requests_sent(&self, method: Method) -> u64 {
        self.requests_sent[method as usize]
    }

    /// Returns the requests of this method received, without retransmissions.
    pub fn requests_received(&self, method: Method) -> u64 {
        self.requests_received[method as usize]
    }

    /// Returns the retransmissions of requests of this method sent.
    pub fn requests_resent(&self, method: Method) -> u64 {
        self.requests_resent[method as usize]
    }

    /// Returns the responses sent, by the method of the request.
    pub fn responses_sent(&self) -> &Codes {
        &self.responses_sent
    }

    /// Returns the responses received, by the method of the request.
    pub fn responses_received(&self) -> &Codes {
        &self.responses_received
    }

    /// Returns the responses that ended a call as a failure, by the method of the request. There is one response for
    /// each such call.
    pub fn refusals(&self) -> &Codes {
        &self.refusals
    }

    #[inline]
    pub fn delays(&self, delay: Delay) -> &Delays {
        &self.delays[delay as usize]
    }

    /// Returns the named timers, in the order of their names.
    pub fn timers(&self) -> &[Delays] {
        &self.timers
    }

    /// Adds `by` to a counter.
    #[inline]
    pub fn count(&mut self, counter: Counter, by: u64) {
        self.counters[counter as usize] += by;
    }

    /// Adds `by` failed calls with this cause; [`Counter::CallsFailed`] is counted separately.
    #[inline]
    pub fn count_failures(&mut self, failure: Failure, by: u64) {
        self.failures[failure as usize] += by;
    }

    /// Adds `by` responses that ended a call as a failure.
    #[inline]
    pub fn count_refusals(&mut self, method: Method, code: u16, by: u64) {
        self.refusals.count(method, code, by);
    }

    /// Records a delay of `us` microseconds.
    #[inline]
    pub fn record(&mut self, delay: Delay, us: u64) {
        self.delays[delay as usize].record(us);
    }

    /// Adds another page of the same second (of another shard or generator).
    pub fn add_beside(&mut self, other: &Self) {
        // Two pages of the same time cover it once, and one that covers none adds none.
        let (begun, end) = match (self.covered, other.covered) {
            (0, _) => (other.begun, other.end()),
            (_, 0) => (self.begun, self.end()),
            _ => (self.begun.min(other.begun), self.end().max(other.end())),
        };
        (self.begun, self.covered) = (begun, end - begun);
        self.add(other);
        self.open = self.open.saturating_add(other.open);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.peak = self.peak.saturating_add(other.peak);
    }

    /// Adds the page of a later second.
    pub fn add_after(&mut self, other: &Self) {
        if self.covered == 0 {
            self.begun = other.begun;
        }
        self.add(other);
        self.covered = self.covered.saturating_add(other.covered);
        (self.open, self.waiting) = (other.open, other.waiting);
        self.peak = self.peak.max(other.peak);
    }

    fn end(&self) -> u64 {
        self.begun.saturating_add(self.covered)
    }

    /// Removes the time up to `until` (µs since 1970-01-01 UTC), which earlier pages cover, from this page. Returns the
    /// time up to which all is covered now.
    pub(super) fn follow(&mut self, until: u64) -> u64 {
        let end = self.end();
        self.begun = self.begun.max(until.min(end));
        self.covered = end - self.begun;
        end.max(until)
    }

    fn add(&mut self, other: &Self) {
        if self.second == 0 {
            self.second = other.second;
        }
        earlier(&mut self.first_start, other.first_start);
        earlier(&mut self.first_due, other.first_due);
        self.last_start = self.last_start.max(other.last_start);
        self.last_due = self.last_due.max(other.last_due);
        add(&mut self.counters, &other.counters);
        add(&mut self.failures, &other.failures);
        add(&mut self.requests_sent, &other.requests_sent);
        add(&mut self.requests_received, &other.requests_received);
        add(&mut self.requests_resent, &other.requests_resent);
        self.responses_sent.add(&other.responses_sent);
        self.responses_received.add(&other.responses_received);
        self.refusals.add(&other.refusals);
        for (mine, theirs) in self.delays.iter_mut().zip(&other.delays) {
            mine.add(theirs);
        }
        if self.timers.len() < other.timers.len() {
            self.timers.resize_with(other.timers.len(), Delays::new);
        }
        for (mine, theirs) in self.timers.iter_mut().zip(&other.timers) {
            mine.add(theirs);
        }
    }

    /// Clears the page; the memory stays.
    pub fn clear(&mut self) {
        (self.second, self.covered, self.open, self.peak, self.waiting) = (0, 0, 0, 0, 0);
        (self.begun, self.first_start, self.last_start, self.first_due, self.last_due) = (0, 0, 0, 0, 0);
        self.warm_up = false;
        self.counters.fill(0);
        self.failures.fill(0);
        self.requests_sent.fill(0);
        self.requests_received.fill(0);
        self.requests_resent.fill(0);
        self.responses_sent.clear();
        self.responses_received.clear();
        self.refusals.clear();
        self.delays.iter_mut().chain(&mut self.timers).for_each(Delays::clear);
    }
}

/// Keeps the earlier of two times; 0 is none.
fn earlier(mine: &mut u64, theirs: u64) {
    if theirs != 0 && (*mine == 0 || theirs < *mine) {
        *mine = theirs;
    }
}

fn add(mine: &mut [u64], theirs: &[u64]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = mine.saturating_add(*theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_by_method() {
        let mut codes = Codes::default();
        codes.count(Method::Invite, 200, 2);
        codes.count(Method::Bye, 200, 1);
        codes.count(Method::Other, 999, 1);
        assert_eq!((codes.of(Method::Invite, 200), codes.total(200), codes.total(404)), (2, 3, 0));
        let all: Vec<_> = codes.iter().collect();
        assert_eq!(all, [(Method::Bye, 200, 1), (Method::Invite, 200, 2), (Method::Other, 0, 1)]);
    }

    #[test]
    fn pages_beside_and_after() {
        let page = |second, open, calls| {
            let mut page = Page::new(1);
            (page.second, page.covered, page.open, page.peak) = (second, 1_000_000, open, open + 1);
            page.count(Counter::CallsOutgoing, calls);
            page.timers[0].record(calls);
            page
        };
        let mut second = page(10, 3, 100);
        second.add_beside(&page(10, 4, 50));
        assert_eq!((second.covered, second.open, second.peak), (1_000_000, 7, 9));
        let mut run = Page::new(0);
        run.add_after(&second);
        run.add_after(&page(11, 1, 1));
        assert_eq!((run.second, run.covered, run.open, run.peak), (10, 2_000_000, 1, 9));
        assert_eq!((run.counter(Counter::CallsOutgoing), run.timers()[0].count()), (151, 3));
        run.clear();
        assert_eq!((run.counter(Counter::CallsOutgoing), run.timers()[0].count()), (0, 0));
    }
}
