//! Windows of a run, judged.

use super::RunVerdict;
use crate::judge::Case;
use crate::window::is_active;
use crate::{Generator, Page, Reason, Thresholds};
use serde::Serialize;

/// Judged window of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// First wall-clock second (since 1970-01-01 UTC), and the one after the last.
    pub from: u64,
    pub until: u64,
    /// True if calls were made or accepted in it.
    pub active: bool,
    /// Exceeded thresholds. If there are none, the figures of the window describe the server.
    pub reasons: Vec<Reason>,
}

impl Judged {
    pub fn is_good(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Judges each window. Also returns the sum of the good windows, if some windows are bad.
pub(super) fn judged(generator: &Generator, thresholds: &Thresholds, cause: &str) -> (Vec<Judged>, Option<Box<Page>>) {
    let timers = generator.totals.timers().len();
    let (mut page, mut good) = (Page::new(timers), Box::new(Page::new(timers)));
    let mut samples = generator.samples_of_window();
    let mut judged = Vec::new();
    let all = generator.windows.all();
    for (place, window) in all.iter().enumerate() {
        window.page(&mut page);
        // A sample is taken when its second is over, and the last one at the end of the run.
        let last = place + 1 == all.len();
        let of_window = samples.iter().take_while(|sample| last || sample.second <= window.until).count();
        let (own, later) = samples.split_at(of_window);
        samples = later;
        let case =
            Case { page: &page, behind: window.behind, samples: own, receive_buffers: &generator.receive_buffers };
        let reasons = case.reasons(thresholds, cause);
        if reasons.is_empty() {
            good.add_after(&page);
        }
        judged.push(Judged { from: window.from, until: window.until, active: is_active(&page), reasons });
    }
    let some_are_bad = judged.iter().any(|window| !window.is_good());
    (judged, Some(good).filter(|_| some_are_bad))
}

/// Judges the run, which is invalid if more of its windows are bad than allowed. Each exceeded setting gives one
/// reason, from its worst window.
pub(super) fn of_run(windows: &[Judged], thresholds: &Thresholds) -> RunVerdict {
    let bad: Vec<&Judged> = windows.iter().filter(|window| !window.is_good()).collect();
    let all = windows.iter().filter(|window| window.active || !window.is_good()).count();
    if bad.is_empty() || bad.len() as f64 * 100.0 <= all as f64 * thresholds.bad_windows {
        return RunVerdict::Valid;
    }
    let mut reasons: Vec<(Reason, usize)> = Vec::new();
    for reason in bad.iter().flat_map(|window| &window.reasons) {
        match reasons.iter_mut().find(|(known, _)| known.threshold == reason.threshold) {
            Some((known, times)) => {
                *times += 1;
                if reason.excess > known.excess {
                    *known = reason.clone();
                }
            }
            None => reasons.push((reason.clone(), 1)),
        }
    }
    let reasons = reasons.into_iter().map(|(reason, times)| {
        let several = if all > 1 { format!(" In {times} of {all} windows.") } else { String::new() };
        Reason { sentence: reason.sentence + &several, ..reason }
    });
    RunVerdict::Invalid { reasons: reasons.collect() }
}
