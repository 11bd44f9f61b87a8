//! Run as reports see it: equal at its end and when read from logs, of one generator or several.

use super::heading::{Ending, Heading, Note, ReceiveBuffer};
use super::log::Entry;
use super::series::Row;
use super::{
    Codes, Counter, DocumentTotals, FailedCall, Health, Judgement, Page, RunVerdict, Sample, Thresholds, Windows,
};
use std::collections::VecDeque;

/// Default limit of rows: an hour by the second.
pub(super) const ROWS: usize = 3_600;
/// Number of latest seconds kept besides the rows.
const RECENT: usize = 60;

/// Data of one generator.
#[derive(Clone, Debug)]
pub struct Generator {
    pub heading: Heading,
    pub totals: Page,
    /// Warm-up, which is in no other sum.
    pub warm_up: Option<Box<Page>>,
    /// Windows of the totals.
    pub windows: Windows,
    pub samples: Vec<Sample>,
    pub notes: Vec<Note>,
    pub receive_buffers: Vec<ReceiveBuffer>,
    /// First failed calls, up to the requested number.
    pub failed_calls: Vec<FailedCall>,
    /// Sums of its documents, if there are several.
    pub documents: Vec<DocumentTotals>,
    /// Requirement that ended the run.
    pub lost: Option<Judgement>,
    /// Ending; `None`: the run continues, or was killed.
    pub ending: Option<Ending>,
    /// Sentence about an incomplete log.
    pub missing: Option<String>,
    /// Shortest time of a sample, µs, which grows with the run, so that there are never more than `most` samples.
    step: u64,
    most: usize,
}

impl Generator {
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        let windows = Windows::new(heading.timers.len());
        Self {
            heading,
            totals,
            warm_up: None,
            windows,
            samples: vec![],
            notes: vec![],
            receive_buffers: vec![],
            failed_calls: vec![],
            documents: vec![],
            lost: None,
            ending: None,
            missing: None,
            step: 0,
            most: ROWS,
        }
    }

    /// Limits the samples to `most` and sets windows of `window` seconds.
    pub(super) fn bounded(self, most: usize, window: u64) -> Self {
        Self { most, windows: self.windows.of_seconds(window), ..self }
    }

    /// Adds a second, later than any before.
    pub fn second(&mut self, page: &Page) {
        if page.warm_up {
            return warmed_up(&mut self.warm_up, page);
        }
        self.totals.add_after(page);
        self.windows.second(page);
    }

    /// Adds a sample of the process.
    pub fn sample(&mut self, sample: Sample) {
        match self.samples.last_mut().filter(|last| last.interval + sample.interval / 2 < self.step) {
            Some(last) => last.append(sample),
            None => self.samples.push(sample),
        }
        if self.samples.len() > self.most {
            self.step = (self.step * 2).max(2_000_000);
            let mut all = std::mem::take(&mut self.samples).into_iter();
            while let Some(mut sample) = all.next() {
                if let Some(next) = all.next() {
                    sample.append(next);
                }
                self.samples.push(sample);
            }
        }
    }

    /// Returns the samples after the warm-up. A sample is taken at the end of its second.
    pub(super) fn samples_of_window(&self) -> &[Sample] {
        let begun = self.totals.begun.div_ceil(1_000_000);
        let before = self.warm_up.as_ref().map_or(0, |_| self.samples.partition_point(|sample| sample.second <= begun));
        &self.samples[before..]
    }

    pub(super) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Page | Entry::Document(_) | Entry::Tree(_) | Entry::Machine(_) => {}
            Entry::Sample(sample) => self.sample(sample),
            Entry::Note(note) => self.notes.push(note),
            Entry::ReceiveBuffer(buffer) => self.receive_buffers.push(buffer),
            Entry::Ending(ending) => self.ending = Some(ending),
            Entry::FailedCall(call) => self.failed_calls.push(call),
            Entry::RequirementLost(judgement) => self.lost = Some(judgement),
        }
    }
}

/// Adds a page of the warm-up.
fn warmed_up(sum: &mut Option<Box<Page>>, page: &Page) {
    let sum = sum.get_or_insert_with(|| Box::new(Page::new(page.timers().len())));
    sum.add_after(page);
    sum.warm_up = true;
}

/// Run of one generator or of several.
#[derive(Clone, Debug)]
pub struct Run {
    /// Generators; the first names the run.
    pub generators: Vec<Generator>,
    /// Names of the scenario's timers, in the order of pages.
    pub timers: Vec<String>,
    /// Sum over generators and seconds.
    pub totals: Page,
    /// Sum of the warm-up, which is not in `totals`: the calls that fell due in the warm-up, followed until they end.
    pub warm_up: Option<Box<Page>>,
    /// Series over all generators: second by second, or in steps of several if the run has more seconds than rows.
    pub rows: Vec<Row>,
    /// Seconds of a row: 1, 2, 4 and so on.
    step: u64,
    most: usize,
    /// Complete seconds.
    seconds: u64,
    recent: VecDeque<Row>,
    /// Warm-up of the last second, which has no row yet: a page of the same second may follow.
    warm: Option<Box<Page>>,
    /// Sum so far of the last row, if a row spans several seconds.
    partial: Option<Box<Page>>,
    /// Run of the generators that only answered, if logs of callers and of answerers were merged. Both have the same
    /// calls, which must not be added.
    pub answering: Option<Box<Self>>,
}

impl Run {
    /// Creates an empty run of this generator.
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        Self {
            timers: heading.timers.clone(),
            generators: vec![Generator::new(heading)],
            totals,
            warm_up: None,
            rows: vec![],
            step: 1,
            most: ROWS,
            seconds: 0,
            recent: VecDeque::new(),
            warm: None,
            partial: None,
            answering: None,
        }
    }

    /// Returns all generators: first those that made calls, then those that only answered.
    pub fn everyone(&self) -> impl Iterator<Item = &Generator> {
        self.generators.iter().chain(self.answering.iter().flat_map(|run| &run.generators))
    }

    pub(super) fn everyone_mut(&mut self) -> impl Iterator<Item = &mut Generator> {
        self.generators.iter_mut().chain(self.answering.iter_mut().flat_map(|run| &mut run.generators))
    }

    /// Judges the health of each generator, in the order of [`Run::everyone`].
    pub fn health(&self, thresholds: &Thresholds) -> Vec<Health> {
        self.everyone().map(|generator| Health::judge(generator, thresholds)).collect()
    }

    /// Returns the verdict over all generators, which is valid if each generator is valid. With several generators each
    /// reason names its generator.
    pub fn verdict(&self, thresholds: &Thresholds) -> RunVerdict {
        let several = self.everyone().count() > 1;
        let mut reasons = Vec::new();
        for (generator, health) in self.everyone().zip(self.health(thresholds)) {
            for reason in health.verdict.reasons() {
                let mut reason = reason.clone();
                if several {
                    reason.sentence = format!("{}: {}", generator.heading.generator, reason.sentence);
                }
                reasons.push(reason);
            }
        }
        if reasons.is_empty() { RunVerdict::Valid } else { RunVerdict::Invalid { reasons } }
    }

    /// Limits the rows (and the samples of each generator), so that memory and reports are bounded. In a longer run
    /// each row covers 2, 4, 8 seconds and so on. The default is 3,600, the minimum 2.
    #[must_use]
    pub fn bounded(mut self, rows: usize) -> Self {
        self.most = rows.max(2);
        self.generators.iter_mut().for_each(|generator| generator.most = self.most);
        self
    }

    /// Sets the length of the windows (see [`Windows`]), 10 seconds by default. To be called before the first second.
    #[must_use]
    pub fn in_windows(mut self, seconds: u64) -> Self {
        for generator in &mut self.generators {
            generator.windows = generator.windows.clone().of_seconds(seconds);
        }
        self
    }

    /// Returns the received responses by code, with those of the warm-up, as the rows show them.
    pub fn responses_received(&self) -> Codes {
        let mut all = self.totals.responses_received().clone();
        self.warm_up.iter().for_each(|page| all.add(page.responses_received()));
        all
    }

    /// Returns the number of calls begun by the schedule, including the warm-up.
    pub fn begun(&self) -> u64 {
        let warm_up = self.warm_up.as_ref().map_or(0, |page| page.counter(Counter::CallsOutgoing));
        warm_up + self.totals.counter(Counter::CallsOutgoing)
    }

    /// Returns the run's name, target and so on, which are those of the first generator.
    pub fn heading(&self) -> &Heading {
        &self.generators[0].heading
    }

    /// Adds a complete second over all generators, later than any before. A page of the warm-up is the first in its
    /// second, and is added to the series but not to the totals.
    pub fn second(&mut self, page: &Page) {
        if page.warm_up {
            self.settle();
            warmed_up(&mut self.warm_up, page);
            self.warm = Some(Box::new(page.clone()));
            return;
        }
        self.totals.add_after(page);
        match self.warm.take() {
            Some(mut sum) if sum.second == page.second => {
                sum.add_after(page);
                sum.warm_up = false;
                self.see(&sum);
            }
            warm => {
                warm.into_iter().for_each(|warm| self.see(&warm));
                self.see(page);
            }
        }
    }

    /// Completes the last second. A last second that has only a warm-up also gets its row.
    pub(super) fn settle(&mut self) {
        if let Some(warm) = self.warm.take() {
            self.see(&warm);
        }
    }

    fn see(&mut self, page: &Page) {
        self.seconds += 1;
        let row = Row::of(page);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(row.clone());
        let begun = self.rows.first().map_or(row.second, |first| first.second);
        let step = |row: &Row, of: u64| row.second.saturating_sub(begun) / of;
        let of = self.step;
        if let Some(last) = self.rows.last_mut().filter(|last| of > 1 && step(last, of) == step(&row, of)) {
            match self.partial.as_mut().filter(|partial| partial.second == last.second) {
                Some(partial) => {
                    partial.add_after(page);
                    partial.warm_up &= page.warm_up;
                    *last = Row::of(partial);
                }
                None => last.append(&row, &mut Page::new(0)),
            }
            return;
        }
        self.rows.push(row);
        if self.rows.len() > self.most {
            self.step *= 2;
            let mut scratch = Page::new(0);
            for row in std::mem::take(&mut self.rows) {
                match self.rows.last_mut().filter(|last| step(last, self.step) == step(&row, self.step)) {
                    Some(last) => last.append(&row, &mut scratch),
                    None => self.rows.push(row),
                }
            }
        }
        if self.step > 1 {
            let partial = self.partial.get_or_insert_with(|| Box::new(Page::new(self.totals.timers().len())));
            partial.clear();
            partial.add_after(page);
            partial.warm_up = page.warm_up;
        }
    }

    /// Returns the seconds of a row.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Returns the number of complete seconds so far.
    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Returns the last minute by the second, the newest last.
    pub const fn recent(&self) -> &VecDeque<Row> {
        &self.recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Delay, columns};

    fn page(second: u64) -> Page {
        let mut page = Page::new(0);
        (page.second, page.begun, page.covered, page.open) = (second, second * 1_000_000, 1_000_000, second);
        page.count(Counter::CallsOutgoing, 10);
        page.delays[Delay::Setup as usize].record(second);
        page
    }

    #[test]
    fn a_long_run_has_few_rows_and_loses_nothing() {
        let names = columns(&[]);
        let place = |name: &str| names.iter().position(|n| n == name).unwrap();
        let (calls, rate, most, p50) =
            (place("calls.outgoing"), place("rate.achieved"), place("srd.max"), place("srd.p50"));
        let mut run = Run::new(Heading::default()).bounded(10);
        let mut seconds = 0;
        // Seconds in which all shards slept are missing.
        for second in (1_000..1_150).filter(|second| second % 37 != 3) {
            run.second(&page(second));
            run.generators[0].sample(Sample { second, interval: 1_000_000, ..Sample::default() });
            seconds += 1;
            assert!(run.rows.len() <= 10 && run.generators[0].samples.len() <= 10, "{second}");
            let sum: f64 = run.rows.iter().map(|row| row.values[calls]).sum();
            assert_eq!((sum, run.seconds()), (seconds as f64 * 10.0, seconds), "{second}");
        }
        assert_eq!(run.step(), 16);
        for row in &run.rows {
            assert!((row.values[rate] - 10.0).abs() < 1e-9, "{row:?}");
            assert!(row.values[0] <= 16.0 && row.values[most] < (row.second + 16) as f64, "{row:?}");
        }
        // A row made of pages has exact percentiles.
        let last = run.rows.last().unwrap();
        assert_eq!((last.second, last.values[p50]), (1_144, 1_146.0));
        assert_eq!(run.recent().len(), 60);
        assert_eq!(run.recent().back().map(|row| row.second), Some(1_149));
        let covered: u64 = run.generators[0].samples.iter().map(|sample| sample.interval).sum();
        assert_eq!(covered, seconds * 1_000_000);
    }
}
