//! Windows of a run. Each is judged by itself, so that one stall in a day spoils ten seconds instead of the day.

use super::{Counter, Page};

/// Default length of a window, seconds.
pub const WINDOW: u64 = 10;
/// Maximum number of windows, an even number. In a longer run each window is twice as long, and so on, so that a window
/// is at least one per cent of the run.
const MOST: usize = 100;

/// Window of a run.
#[derive(Clone, Debug)]
pub struct Window {
    /// First wall-clock second (since 1970-01-01 UTC), and the one after the last.
    pub from: u64,
    pub until: u64,
    /// Calls that were due, had a place, and were not started by the end of the window, nor a second before it: a call
    /// that falls due while the generator is late for a moment counts as lag. For the last window: by the end of the
    /// run.
    pub behind: u64,
    /// Counters and delays, encoded: a hundred uncompressed pages take 250 MB.
    page: Box<[u8]>,
    timers: usize,
}

impl Window {
    fn of(page: &Page, until: u64, behind: u64) -> Self {
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        Self { from: page.second, until, behind, page: bytes.into(), timers: page.timers().len() }
    }

    /// Decodes its counters and delays.
    pub fn page(&self, into: &mut Page) {
        into.restore(&self.page, self.timers);
    }
}

/// Windows of one generator, during the run.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Length of each, seconds.
    length: u64,
    over: Vec<Window>,
    /// Current window, and the second after its last.
    current: Box<Page>,
    until: u64,
    /// Calls due so far, and calls started.
    due: u64,
    started: u64,
    /// Calls not started at the end of the last second, though there was a place for them, and of the one before.
    behind: [u64; 2],
    /// True if the generator continued after the last second.
    went_on: bool,
    timers: usize,
}

impl Windows {
    /// Creates windows for pages with this many timers.
    pub fn new(timers: usize) -> Self {
        let current = Box::new(Page::new(timers));
        Self {
            length: WINDOW,
            over: Vec::new(),
            current,
            until: 0,
            due: 0,
            started: 0,
            behind: [0; 2],
            went_on: false,
            timers,
        }
    }

    /// Sets the initial length, at least one second.
    #[must_use]
    pub fn of_seconds(self, length: u64) -> Self {
        Self { length: length.max(1), ..self }
    }

    /// Adds a complete second, later than any before.
    pub fn second(&mut self, page: &Page) {
        if self.until > 0 && page.second >= self.current.second + self.length {
            self.close();
        }
        self.current.add_after(page);
        self.follow_schedule(page);
        // A page that was kept longer because the shard stood still covers more than its second.
        self.until = ((page.begun + page.covered) / 1_000_000).max(page.second + 1);
    }

    /// Takes a second before the first that counts, or after the last. Only the delay of the calls that are behind
    /// their schedule is used.
    pub(super) fn second_outside(&mut self, page: &Page) {
        if self.until == 0 {
            self.follow_schedule(page);
        } else {
            self.went_on = true;
        }
    }

    fn follow_schedule(&mut self, page: &Page) {
        self.due += page.counter(Counter::CallsIntended);
        self.started += page.counter(Counter::CallsOutgoing);
        self.behind = [self.due.saturating_sub(self.started).saturating_sub(page.waiting), self.behind[0]];
    }

    /// Returns the calls that were not started by the end of the last second, nor a second before.
    fn behind_twice(&self) -> u64 {
        self.behind[0].min(self.behind[1])
    }

    fn close(&mut self) {
        self.over.push(Window::of(&self.current, self.until, self.behind_twice()));
        self.current.clear();
        if self.over.len() == MOST {
            self.length *= 2;
            let mut page = Page::new(self.timers);
            let all = std::mem::take(&mut self.over);
            self.over = all.chunks_exact(2).map(|pair| self.joined(&pair[0], &pair[1], &mut page)).collect();
        }
    }

    fn joined(&self, first: &Window, second: &Window, scratch: &mut Page) -> Window {
        let mut sum = Page::new(self.timers);
        first.page(&mut sum);
        second.page(scratch);
        sum.add_after(scratch);
        Window::of(&sum, second.until, second.behind)
    }

    /// Returns all windows so far, the current one as the last. A remainder after the last whole window that is shorter
    /// than half a window is judged with that window.
    pub fn all(&self) -> Vec<Window> {
        let mut all = self.over.clone();
        if self.until == 0 {
            return all;
        }
        let behind = if self.went_on { self.behind_twice() } else { self.behind[0] };
        let last = Window::of(&self.current, self.until, behind);
        match all.last_mut().filter(|_| (self.until - self.current.second) * 2 < self.length) {
            Some(before) => *before = self.joined(before, &last, &mut Page::new(self.timers)),
            None => all.push(last),
        }
        all
    }
}

/// Returns whether the generator made or accepted calls in this time.
pub(super) fn is_active(page: &Page) -> bool {
    [Counter::CallsIntended, Counter::CallsOutgoing, Counter::CallsIncoming].iter().any(|of| page.counter(*of) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delay;

    fn second(number: u64) -> Page {
        let mut page = Page::new(1);
        (page.second, page.begun, page.covered) = (number, number * 1_000_000, 1_000_000);
        page.count(Counter::CallsOutgoing, 1);
        page.delays[Delay::Lag as usize].record(number);
        page.timers[0].record(number);
        page
    }

    fn spans(windows: &Windows) -> Vec<(u64, u64, u64)> {
        let mut page = Page::new(0);
        let all = windows.all();
        let of = |window: &Window| {
            window.page(&mut page);
            assert_eq!((page.second, page.timers().len()), (window.from, 1));
            assert_eq!(page.delays(Delay::Lag).count(), page.counter(Counter::CallsOutgoing));
            (window.from, window.until, page.counter(Counter::CallsOutgoing))
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn ten_seconds_each_and_a_short_rest_belongs_to_the_last() {
        let mut windows = Windows::new(1);
        assert_eq!(spans(&windows), []);
        for number in 1_000..1_024 {
            windows.second(&second(number));
        }
        assert_eq!(spans(&windows), [(1_000, 1_010, 10), (1_010, 1_024, 14)]);
        windows.second(&second(1_024));
        assert_eq!(spans(&windows), [(1_000, 1_010, 10), (1_010, 1_020, 10), (1_020, 1_025, 5)]);
        // Nothing was written while the process was stopped.
        let mut stopped = second(1_025);
        stopped.covered = 20_000_000;
        windows.second(&stopped);
        windows.second(&second(1_045));
        assert_eq!(spans(&windows)[2..], [(1_020, 1_046, 7)]);
        windows.second(&second(1_050));
        assert_eq!(spans(&windows)[2..], [(1_020, 1_045, 6), (1_045, 1_051, 2)]);
    }

    #[test]
    fn a_short_delay_keeps_the_rate_and_falling_behind_does_not() {
        let behind = |due: [u64; 4]| {
            let mut windows = Windows::new(1).of_seconds(2);
            for (place, due) in due.into_iter().enumerate() {
                let mut page = second(1_000 + place as u64);
                page.count(Counter::CallsIntended, due);
                windows.second(&page);
            }
            windows.all().iter().map(|window| window.behind).collect::<Vec<_>>()
        };
        // One is started each second.
        assert_eq!(behind([1, 9, 0, 0]), [0, 6]);
        assert_eq!(behind([5, 5, 1, 0]), [4, 7]);
    }

    #[test]
    fn a_day_has_no_more_windows_than_a_quarter_of_an_hour() {
        let mut windows = Windows::new(1).of_seconds(1);
        for number in 0..1_000 {
            windows.second(&second(number + 1));
            assert!(windows.over.len() < MOST);
        }
        let spans = spans(&windows);
        assert_eq!(spans.iter().map(|(.., calls)| calls).sum::<u64>(), 1_000);
        assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
        assert_eq!((spans[0].0, spans.last().map(|last| last.1)), (1, Some(1_001)));
        let long = spans.iter().filter(|(.., calls)| *calls == 16).count();
        assert_eq!((long, spans.len()), (62, 63));
    }
}
