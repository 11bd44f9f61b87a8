//! Lasting failures: when to write a log line about them.

use std::time::{Duration, Instant};

/// Counter of failures of one kind. They are logged at their beginning, repeatedly while they last, and at their end.
#[derive(Clone, Copy, Debug)]
pub struct LastingFailure {
    again: Duration,
    since: Option<Instant>,
    said: Option<Instant>,
    times: u64,
}

impl LastingFailure {
    /// Creates a counter that reports a lasting failure again after this time.
    pub const fn every(again: Duration) -> Self {
        Self { again, since: None, said: None, times: 0 }
    }

    /// Counts a failure. Returns the number of failures since the beginning if a line must be logged now. If `is_new`
    /// is false, this is a consequence of another failure, which is counted and not logged.
    pub fn fails(&mut self, is_new: bool) -> Option<u64> {
        let now = Instant::now();
        self.times += 1;
        self.since.get_or_insert(now);
        let is_due = is_new && self.said.is_none_or(|said| now - said >= self.again);
        if is_due {
            self.said = Some(now);
        }
        is_due.then_some(self.times)
    }

    /// Ends the lasting failure. Returns how often it has occurred and how long it lasted; `None` if there was no
    /// failure.
    pub fn works(&mut self) -> Option<(u64, Duration)> {
        let since = self.since?;
        let before = std::mem::replace(self, Self::every(self.again));
        Some((before.times, since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_when_it_begins_now_and_then_and_when_it_is_over() {
        let mut failure = LastingFailure::every(Duration::from_secs(3_600));
        assert_eq!(failure.works(), None);
        assert_eq!([true, true, false].map(|is_new| failure.fails(is_new)), [Some(1), None, None]);
        assert_eq!(failure.works().map(|(times, _)| times), Some(3));
        assert_eq!([false, true].map(|is_new| failure.fails(is_new)), [None, Some(2)]);
        let mut often = LastingFailure::every(Duration::ZERO);
        assert_eq!([true, true].map(|is_new| often.fails(is_new)), [Some(1), Some(2)]);
    }
}
