//! Requirements that end a run. A count fails when it passes its bound. Other measures are judged each second over the
//! last [`SPAN`] seconds, if [`CALLS`] calls have ended in them, because fewer calls say little about a share or a
//! percentile.

use super::{Counter, Judgement, Page, Requirement};
use std::collections::VecDeque;

/// Seconds over which shares, rates and delays are judged.
pub(super) const SPAN: u64 = 10;
/// Number of calls that must have ended in them.
const CALLS: u64 = 20;

/// Judge of a run in progress.
pub struct Guard {
    requirements: Vec<Requirement>,
    /// Last seconds.
    recent: VecDeque<Box<Page>>,
    sum: Box<Page>,
}

impl Guard {
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Self { requirements, recent: VecDeque::new(), sum: Box::new(Page::new(0)) }
    }

    /// Stops judging.
    pub(super) fn stop(&mut self) {
        self.requirements.clear();
    }

    /// Adds a second and returns the first requirement that is no longer met. `totals`: sum of the run so far.
    pub(super) fn second(&mut self, page: &Page, totals: &Page) -> Option<Judgement> {
        if self.requirements.is_empty() || page.warm_up {
            return None;
        }
        let old = self.recent.front().is_some_and(|first| first.second + SPAN <= page.second);
        // The page of the oldest second is reused for the newest.
        let oldest = if old { self.recent.pop_front() } else { None };
        let mut newest = oldest.unwrap_or_else(|| Box::new(Page::new(page.timers().len())));
        newest.clear();
        newest.add_after(page);
        self.recent.push_back(newest);
        while self.recent.front().is_some_and(|first| first.second + SPAN <= page.second) {
            self.recent.pop_front();
        }
        self.sum.clear();
        self.recent.iter().for_each(|second| self.sum.add_after(second));
        let ended = self.sum.counter(Counter::CallsSuccessful) + self.sum.counter(Counter::CallsFailed);
        let recent = Some(&*self.sum).filter(|_| ended >= CALLS);
        self.requirements.iter().find_map(|requirement| requirement.lost(totals, recent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delay;

    fn second(number: u64, successful: u64, failed: u64, delay: u64) -> Page {
        let mut page = Page::new(0);
        (page.second, page.begun, page.covered) = (number, number * 1_000_000, 1_000_000);
        page.count(Counter::CallsSuccessful, successful);
        page.count(Counter::CallsFailed, failed);
        (0..successful).for_each(|_| page.delays[Delay::Response as usize].record(delay));
        page
    }

    /// Returns the second in which the requirement is lost, and the shown value.
    fn lost(text: &str, seconds: impl Iterator<Item = Page>) -> Option<(u64, String)> {
        let requirement = Requirement::parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
        let (mut guard, mut totals) = (Guard::new(vec![requirement]), Page::new(0));
        seconds.into_iter().find_map(|page| {
            totals.add_after(&page);
            let judgement = guard.second(&page, &totals)?;
            assert!(!judgement.met && judgement.requirement == text);
            Some((page.second, judgement.shown))
        })
    }

    #[test]
    fn the_last_seconds_are_judged_once_there_are_enough_calls() {
        // One call a second, which fails: twenty have never ended within ten seconds.
        assert_eq!(lost("calls.success>=50%", (1..100).map(|n| second(n, 0, 1, 0))), None);
        // Four a second: the fifth second has the twentieth.
        let (at, shown) = lost("calls.success>=50%", (1..100).map(|n| second(n, 1, 3, 0))).expect("it is lost");
        assert_eq!((at, shown.as_str()), (5, "25.00 % in the last 10 s"));
        // Bad after a good minute: old seconds do not count.
        let turns = (1..100).map(|n| if n <= 60 { second(n, 10, 0, 9) } else { second(n, 2, 8, 900_000) });
        assert_eq!(lost("calls.success>=50%", turns.clone()).map(|(at, _)| at), Some(67));
        assert_eq!(lost("response.p50<=100ms", turns.clone()).map(|(at, _)| at), Some(69));
        assert_eq!(lost("calls.success>=10%", turns.clone()), None);
        // Seconds without a call are seconds.
        let gap = turns.filter(|page| !(55..80).contains(&page.second));
        assert_eq!(lost("calls.success>=50%", gap).map(|(at, _)| at), Some(81));
    }

    #[test]
    fn counts_are_lost_when_they_have_passed_their_bound() {
        let seconds = || (1..100).map(|n| second(n, 1, u64::from(n % 10 == 0), 0));
        assert_eq!(lost("calls.failed<=2", seconds()), Some((30, "3".into())));
        assert_eq!(lost("calls.failed<2", seconds()), Some((20, "2".into())));
        assert_eq!(lost("calls.failed==1", seconds()), Some((20, "2".into())));
        assert_eq!(lost("duration<=20s", seconds()), Some((21, "21.0 s".into())));
        for later in ["calls.successful>=1000", "calls.failed!=3", "calls.failed==100", "srd.p95<1ms"] {
            assert_eq!(lost(later, seconds()), None, "{later}");
        }
        let mut guard = Guard::new(vec![Requirement::parse("calls.failed==0", &[]).expect("it is one")]);
        let mut warm = second(1, 0, 5, 0);
        warm.warm_up = true;
        assert_eq!(guard.second(&warm, &Page::new(0)), None);
    }
}
