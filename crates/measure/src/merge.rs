//! Merging of logs into one run. Generators of one role are added up, while callers and answerers stay separate.

use super::heading::{GeneratorRole, Level, Note};
use super::log::{Entry, LogError, LogReader};
use super::run::{Generator, ROWS, Run};
use super::span::{Coverage, Span};
use super::{Counter, DocumentTotals, Page, WINDOW, several};
use std::collections::BTreeSet;
use std::path::Path;

impl Run {
    /// Reads the runs in these logs and merges them by wall-clock second, and timers by their names. Generators that
    /// only answered are added up separately from those that made calls: see [`Run::answering`]. If a kill or a full
    /// disk lost data, a note reports that they are missing. Logs of observers are skipped: see
    /// [`Observed::read`](super::Observed::read).
    ///
    /// # Errors
    /// A file cannot be read, or is no log.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self, LogError> {
        Self::read_bounded(paths, ROWS, WINDOW)
    }

    /// Reads these logs as [`Run::read`] does, but keeps only the figures, rows, samples and windows of one span. The
    /// verdict is invalid if a log is damaged, has no ending, or lacks a second of the span: see
    /// [`Generator::missing`].
    ///
    /// # Errors
    /// As [`Run::read`].
    pub fn read_span(paths: &[impl AsRef<Path>], span: Span) -> Result<Self, LogError> {
        Self::read_by(paths, span, ROWS, WINDOW, &mut |_| ())
    }

    /// Reads these logs as [`Run::read_span`] does, and passes the page of each second to `see`. The page has all
    /// events in the second at the generators that made calls, without the warm-up. A second without events may have no
    /// page.
    ///
    /// # Errors
    /// As [`Run::read`].
    pub fn read_seconds(paths: &[impl AsRef<Path>], span: Span, see: &mut dyn FnMut(&Page)) -> Result<Self, LogError> {
        Self::read_by(paths, span, ROWS, WINDOW, see)
    }

    /// Reads as [`Run::read`], with at most `rows` rows, see [`Run::bounded`], and windows of `window` seconds, see
    /// [`Run::in_windows`].
    ///
    /// # Errors
    /// As [`Run::read`].
    pub fn read_bounded(paths: &[impl AsRef<Path>], rows: usize, window: u64) -> Result<Self, LogError> {
        Self::read_by(paths, Span::WHOLE, rows, window, &mut |_| ())
    }

    fn read_by(
        paths: &[impl AsRef<Path>],
        span: Span,
        rows: usize,
        window: u64,
        see: &mut dyn FnMut(&Page),
    ) -> Result<Self, LogError> {
        let mut sources = Vec::new();
        for path in paths {
            sources.push(Source::open(path.as_ref(), span, rows.max(2), window)?);
        }
        sources.retain(|source| source.generator.heading.role != GeneratorRole::Observer);
        if let (true, Some(path)) = (sources.is_empty(), paths.first()) {
            return Err(LogError::NoCalls(path.as_ref().into()));
        }
        let mut timers: Vec<String> = Vec::new();
        for name in sources.iter().flat_map(|source| &source.generator.heading.timers) {
            if !timers.contains(name) {
                timers.push(name.clone());
            }
        }
        sources.iter_mut().for_each(|source| source.begin(&timers));
        let calls = |source: &Source| source.generator.heading.role == GeneratorRole::Caller;
        let (mut first, mut beside): (Vec<_>, Vec<_>) = sources.into_iter().partition(calls);
        if first.is_empty() {
            std::mem::swap(&mut first, &mut beside);
        }
        let mut run = merge(first, span, &timers, rows, see);
        if !beside.is_empty() {
            run.answering = Some(Box::new(merge(beside, span, &timers, rows, &mut |_| ())));
        }
        run.report_differences();
        run.number_names();
        Ok(run)
    }

    /// Gives generators of one name different names: a generator that began later gets a number, whatever the order of
    /// the logs.
    fn number_names(&mut self) {
        let mut order: Vec<&mut Generator> = self.everyone_mut().collect();
        let mut taken: BTreeSet<String> = order.iter().map(|generator| generator.heading.generator.clone()).collect();
        order.sort_by_key(|generator| (generator.heading.started, generator.heading.seed));
        let mut met = BTreeSet::new();
        for generator in order {
            let name = &mut generator.heading.generator;
            if met.insert(name.clone()) {
                continue;
            }
            let numbered = (2u32..).map(|number| format!("{name}#{number}")).find(|numbered| !taken.contains(numbered));
            *name = numbered.expect("there are more numbers than logs");
            taken.insert(name.clone());
        }
    }

    fn report_differences(&mut self) {
        let all: Vec<&Generator> = self.everyone().collect();
        let mut said = Vec::new();
        let twice = all.iter().enumerate().any(|(place, one)| all[..place].iter().any(|o| o.heading == one.heading));
        if twice {
            said.push("The same run was put together with itself: it is counted once for each of its logs.");
        }
        let span = |generator: &&Generator| {
            let first = generator.totals.second;
            (first, first + generator.totals.covered / 1_000_000)
        };
        let spans: Vec<_> = all.iter().filter(|generator| generator.totals.covered > 0).map(span).collect();
        if spans.iter().any(|(first, _)| spans.iter().any(|(_, last)| last < first)) {
            said.push("The runs put together do not overlap in time: are the clocks of the generators set alike?");
        }
        let note = |text: &str| Note { at: 0, level: Level::Warning, text: text.into() };
        self.generators[0].notes.extend(said.into_iter().map(note));
    }
}

/// Merges these logs of one role over the span.
fn merge(mut sources: Vec<Source>, span: Span, timers: &[String], rows: usize, see: &mut dyn FnMut(&Page)) -> Run {
    let heading = sources.first().map(|source| source.generator.heading.clone()).unwrap_or_default();
    let mut run = Run::new(heading).bounded(rows);
    run.timers = timers.to_vec();
    let mut sum = Page::new(timers.len());
    let mut until = 0;
    while let Some(second) = sources.iter().filter_map(Source::second).min() {
        // The page of the warm-up is the first of its second in each log.
        for warm_up in [true, false] {
            sum.clear();
            let mut any = false;
            for source in sources.iter_mut().filter(|source| source.second() == Some(second)) {
                // A generator may have two pages for a second, whose own times then do not overlap.
                while source.second() == Some(second) && source.page.warm_up == warm_up {
                    any = true;
                    sum.add_beside(&source.page);
                    source.take_page();
                    source.advance();
                }
            }
            if any {
                (sum.second, sum.warm_up) = (second, warm_up);
                until = sum.follow(until);
                if span.has(second) {
                    run.second(&sum);
                    if !warm_up {
                        see(&sum);
                    }
                }
            }
        }
    }
    run.settle();
    if !sources.is_empty() {
        run.generators = sources.into_iter().map(Source::finish).collect();
    }
    run
}

/// Log during a merge, positioned at its next page. Records before that page have been taken.
struct Source {
    reader: LogReader,
    generator: Generator,
    page: Page,
    has_page: bool,
    span: Span,
    coverage: Coverage,
    /// Calls begun and ended in all pages, inside the span or not.
    begun: u64,
    ended: u64,
}

impl Source {
    fn open(path: &Path, span: Span, rows: usize, window: u64) -> Result<Self, LogError> {
        let reader = LogReader::open(path)?;
        let generator = Generator::new(reader.heading().clone()).bounded(rows, window);
        let coverage = Coverage::of(span);
        Ok(Self { reader, generator, page: Page::new(0), has_page: false, span, coverage, begun: 0, ended: 0 })
    }

    /// Advances to the first page. `timers`: the names of all timers of the merge.
    fn begin(&mut self, timers: &[String]) {
        self.reader.arrange(timers);
        self.advance();
    }

    fn second(&self) -> Option<u64> {
        self.has_page.then_some(self.page.second)
    }

    fn take_page(&mut self) {
        self.coverage.page(&self.page);
        if !self.page.warm_up {
            let count = |all: &[Counter]| all.iter().map(|counter| self.page.counter(*counter)).sum::<u64>();
            self.begun += count(&[Counter::CallsOutgoing, Counter::CallsIncoming]);
            self.ended += count(&[Counter::CallsSuccessful, Counter::CallsFailed, Counter::CallsStopped]);
        }
        if self.span.has(self.page.second) {
            self.generator.second(&self.page);
        } else if !self.page.warm_up {
            self.generator.windows.second_outside(&self.page);
        }
    }

    fn advance(&mut self) {
        let before = if self.has_page { self.page.second } else { 0 };
        self.has_page = false;
        while let Some(entry) = self.reader.next(&mut self.page) {
            if entry == Entry::Page {
                // A merge needs pages in order. A page out of order is moved to the first possible second.
                self.page.second = self.page.second.max(before);
                self.has_page = true;
                return;
            }
            match entry {
                // The log has totals of a document for the whole run only.
                Entry::Document(document) if self.span == Span::WHOLE => {
                    let totals = self.page.clone();
                    self.generator.documents.push(DocumentTotals { document, totals });
                }
                Entry::Sample(sample) if !self.span.has_interval(sample.second * 1_000_000, sample.interval) => {}
                entry => self.generator.take(entry),
            }
        }
    }

    fn finish(mut self) -> Generator {
        let path = self.reader.path().display().to_string();
        let broken = match self.reader.damage() {
            None if self.generator.ending.is_none() => {
                Some(format!("{path} has no ending: its generator was killed, or still runs"))
            }
            damage => damage,
        };
        let open = match self.begun.saturating_sub(self.ended) {
            0 => String::new(),
            open => format!(" {} that it began are in no book.", several(open, "call")),
        };
        let broken = broken.map(|what| format!("The log {what}.{open}"));
        let gap = self.coverage.gap().map(|gap| format!("The log {path} {gap}."));
        let sentences: Vec<String> = broken.into_iter().chain(gap).collect();
        self.generator.missing = (!sentences.is_empty()).then(|| sentences.join(" "));
        self.generator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Heading, Log};

    fn page(second: u64) -> Page {
        let mut page = Page::new(0);
        (page.second, page.begun, page.covered, page.open) = (second, second * 1_000_000, 1_000_000, second);
        page.count(Counter::CallsOutgoing, 10);
        page
    }

    #[test]
    fn generators_of_one_host_have_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let log = |file: &str, generator: &str, started: u64| {
            let path = folder.path().join(file);
            let heading = Heading { generator: generator.into(), started, ..Heading::default() };
            Log::create(&path, &heading).unwrap().page(&page(1_000));
            path
        };
        let (early, late) = (log("early", "host", 5), log("late", "host", 9));
        let (other, taken) = (log("other", "east", 7), log("taken", "host#2", 7));
        let names = |paths: &[&std::path::PathBuf]| {
            let run = Run::read(paths).unwrap();
            let notes: Vec<&str> = run.generators[0].notes.iter().map(|note| note.text.as_str()).collect();
            let twice = notes.iter().any(|text| text.contains("put together with itself"));
            (run.generators.iter().map(|generator| generator.heading.generator.clone()).collect::<Vec<_>>(), twice)
        };
        let of = |names: &[&str], twice| (names.iter().map(|name| (*name).to_owned()).collect(), twice);
        assert_eq!(names(&[&early, &other, &late]), of(&["host", "east", "host#2"], false));
        assert_eq!(names(&[&late, &early]), of(&["host#2", "host"], false));
        assert_eq!(names(&[&late, &taken, &early]), of(&["host#3", "host#2", "host"], false));
        assert_eq!(names(&[&early, &early]), of(&["host", "host#2"], true));
        assert_eq!(names(&[&early]), of(&["host"], false));
    }

    #[test]
    fn timers_are_added_by_name_and_callers_stand_beside_answerers() {
        let folder = tempfile::tempdir().unwrap();
        let log = |file: &str, role: GeneratorRole, timers: &[&str]| {
            let path = folder.path().join(file);
            let timers: Vec<String> = timers.iter().map(|name| (*name).to_owned()).collect();
            let mut page = Page::new(timers.len());
            (page.second, page.begun, page.covered, page.peak) = (1_000, 1_000_000_000, 1_000_000, 7);
            page.count(Counter::CallsSuccessful, 50);
            for (place, name) in timers.iter().enumerate() {
                (0..name.len()).for_each(|_| page.timers[place].record(100));
            }
            Log::create(&path, &Heading { generator: file.into(), role, timers, ..Heading::default() })
                .unwrap()
                .page(&page);
            path
        };
        let west = log("west", GeneratorRole::Caller, &["setup", "ring"]);
        let east = log("east", GeneratorRole::Caller, &["other", "setup"]);
        let uas = log("uas", GeneratorRole::Answerer, &["ring"]);
        let run = Run::read(&[&uas, &west, &east]).unwrap();
        let counts = |run: &Run| {
            let all = run.timers.iter().zip(run.totals.timers());
            all.map(|(name, delays)| format!("{name} {}", delays.count())).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(counts(&run), "ring 4, setup 10, other 5");
        let answering = run.answering.as_deref().unwrap();
        assert_eq!(counts(answering), "ring 4, setup 0, other 0");
        assert_eq!((run.totals.counter(Counter::CallsSuccessful), run.totals.peak), (100, 14));
        assert_eq!((answering.totals.counter(Counter::CallsSuccessful), answering.totals.peak), (50, 7));
        assert!(run.everyone().all(|generator| generator.notes.iter().all(|note| !note.text.contains("timer"))));
        // Answerers alone are the run.
        let alone = Run::read(&[&uas]).unwrap();
        assert!(alone.answering.is_none() && alone.totals.counter(Counter::CallsSuccessful) == 50);
    }
}
