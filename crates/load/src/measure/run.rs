//! A run as reports see it: the same whether it just ended or is read from logs, from one generator or several.

use super::heading::{Ending, Heading, Level, Note, ReceiveBuffer};
use super::log::{Entry, LogError, LogReader};
use super::series::Row;
use super::{Page, Sample};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

/// A run has so many rows, unless set otherwise: an hour by the second.
const ROWS: usize = 3_600;
/// The latest seconds, whatever becomes of the rows.
const RECENT: usize = 60;

/// What one generator said of itself.
#[derive(Clone, Debug)]
pub struct Generator {
    pub heading: Heading,
    pub totals: Page,
    pub samples: Vec<Sample>,
    pub notes: Vec<Note>,
    pub receive_buffers: Vec<ReceiveBuffer>,
    /// `None`: it goes on, or was killed.
    pub ending: Option<Ending>,
    /// What a sample covers at least, µs; grows with the run, so that there are never more than `most`.
    step: u64,
    most: usize,
}

impl Generator {
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        Self {
            heading,
            totals,
            samples: vec![],
            notes: vec![],
            receive_buffers: vec![],
            ending: None,
            step: 0,
            most: ROWS,
        }
    }

    /// What the process used in another second.
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

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Page => {}
            Entry::Sample(sample) => self.sample(sample),
            Entry::Note(note) => self.notes.push(note),
            Entry::ReceiveBuffer(buffer) => self.receive_buffers.push(buffer),
            Entry::Ending(ending) => self.ending = Some(ending),
        }
    }
}

/// A run of one generator or of several.
#[derive(Clone, Debug)]
pub struct Run {
    /// The first names the run.
    pub generators: Vec<Generator>,
    /// The sum over generators and seconds.
    pub totals: Page,
    /// Over all generators: second by second, or in steps of several where the run has more seconds than rows.
    pub rows: Vec<Row>,
    /// Seconds that a row stands for: 1, 2, 4 and so on.
    step: u64,
    most: usize,
    /// Complete seconds.
    seconds: u64,
    recent: VecDeque<Row>,
    /// The sum of the seconds of the last row, where a row has several.
    partial: Option<Box<Page>>,
}

impl Run {
    /// Of this generator alone; nothing has happened yet.
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        Self {
            generators: vec![Generator::new(heading)],
            totals,
            rows: vec![],
            step: 1,
            most: ROWS,
            seconds: 0,
            recent: VecDeque::new(),
            partial: None,
        }
    }

    /// With at most so many rows (and samples of each generator): in a longer run each stands for 2, 4, 8 seconds and so on, so
    /// that memory and reports are bounded. 3,600 unless set; at least 2.
    #[must_use]
    pub fn bounded(mut self, rows: usize) -> Self {
        self.most = rows.max(2);
        self.generators.iter_mut().for_each(|generator| generator.most = self.most);
        self
    }

    /// The run's name, timers and so on: those of the first generator.
    pub fn heading(&self) -> &Heading {
        &self.generators[0].heading
    }

    /// A complete second over all generators; later than any before.
    pub fn second(&mut self, page: &Page) {
        self.totals.add_after(page);
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
        }
    }

    /// Seconds that a row stands for.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Complete seconds so far.
    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// The last minute by the second, the newest last.
    pub const fn recent(&self) -> &VecDeque<Row> {
        &self.recent
    }

    /// The runs in these logs, put together by wall-clock second. What a kill or a full disk cut off is missing, and said in a
    /// note.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self, LogError> {
        Self::read_bounded(paths, ROWS)
    }

    /// As [`Run::read`], with at most so many rows, see [`Run::bounded`].
    pub fn read_bounded(paths: &[impl AsRef<Path>], rows: usize) -> Result<Self, LogError> {
        let mut sources = Vec::new();
        for path in paths {
            sources.push(Source::open(path.as_ref(), rows.max(2))?);
        }
        let heading = sources.first().map(|source| source.generator.heading.clone()).unwrap_or_default();
        let mut run = Self::new(heading).bounded(rows);
        let mut sum = Page::new(run.heading().timers.len());
        let mut until = 0;
        while let Some(second) = sources.iter().filter_map(Source::second).min() {
            sum.clear();
            for source in sources.iter_mut().filter(|source| source.second() == Some(second)) {
                // One generator may have two pages of a second; its own times do not overlap then.
                while source.second() == Some(second) {
                    sum.add_beside(&source.page);
                    source.generator.totals.add_after(&source.page);
                    source.advance();
                }
            }
            sum.second = second;
            until = sum.follow(until);
            run.second(&sum);
        }
        if !sources.is_empty() {
            run.generators = sources.into_iter().map(Source::finish).collect();
        }
        run.say_what_differs();
        run.number_names();
        Ok(run)
    }

    /// Generators of one host have its name: those that began later have a number behind it, whatever the order of the logs.
    fn number_names(&mut self) {
        let name = |generator: &Generator| generator.heading.generator.clone();
        let mut taken: BTreeSet<String> = self.generators.iter().map(name).collect();
        let mut order: Vec<&mut Generator> = self.generators.iter_mut().collect();
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

    fn say_what_differs(&mut self) {
        let mut all = self.generators.iter().enumerate();
        if all.any(|(place, one)| self.generators[..place].iter().any(|other| other.heading == one.heading)) {
            self.generators[0].notes.push(Note {
                at: 0,
                level: Level::Warning,
                text: "The same run was put together with itself: it is counted once for each of its logs.".into(),
            });
        }
        let timers = self.heading().timers.clone();
        if self.generators.iter().any(|generator| generator.heading.timers != timers) {
            self.generators[0].notes.push(Note {
                at: 0,
                level: Level::Warning,
                text: "The runs put together have different timers; theirs were added by number, under the names of the first."
                    .into(),
            });
        }
        let span = |generator: &Generator| {
            let first = generator.totals.second;
            (first, first + generator.totals.covered / 1_000_000)
        };
        let spans: Vec<_> = self.generators.iter().map(span).collect();
        let apart = spans.iter().any(|(first, _)| spans.iter().any(|(_, last)| last < first));
        if apart {
            self.generators[0].notes.push(Note {
                at: 0,
                level: Level::Warning,
                text: "The runs put together do not overlap in time: are the clocks of the generators set alike?"
                    .into(),
            });
        }
    }
}

/// A log on its way through a merge: its next page, everything else taken as it comes.
struct Source {
    reader: LogReader,
    generator: Generator,
    page: Page,
    has_page: bool,
}

impl Source {
    fn open(path: &Path, rows: usize) -> Result<Self, LogError> {
        let reader = LogReader::open(path)?;
        let generator = Generator { most: rows, ..Generator::new(reader.heading().clone()) };
        let page = Page::new(generator.heading.timers.len());
        let mut source = Self { reader, generator, page, has_page: false };
        source.advance();
        Ok(source)
    }

    fn second(&self) -> Option<u64> {
        self.has_page.then_some(self.page.second)
    }

    fn advance(&mut self) {
        let before = if self.has_page { self.page.second } else { 0 };
        self.has_page = false;
        while let Some(entry) = self.reader.next(&mut self.page) {
            if entry == Entry::Page {
                // Order is what a merge rests on; a page that breaks it is put where it can be.
                self.page.second = self.page.second.max(before);
                self.has_page = true;
                return;
            }
            self.generator.take(entry);
        }
    }

    fn finish(mut self) -> Generator {
        if let Some(damage) = self.reader.damage() {
            self.generator.notes.push(Note { at: 0, level: Level::Error, text: format!("The log {damage}.") });
        } else if self.generator.ending.is_none() {
            let text = format!(
                "The log {} has no ending: the generator goes on, or was killed; the last second may be missing.",
                self.reader.path().display()
            );
            self.generator.notes.push(Note { at: 0, level: Level::Warning, text });
        }
        self.generator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Counter, Delay, Log, columns};

    fn page(second: u64) -> Page {
        let mut page = Page::new(0);
        (page.second, page.begun, page.covered, page.open) = (second, second * 1_000_000, 1_000_000, second);
        page.count(Counter::CallsOutgoing, 10);
        page.delays[Delay::Setup as usize].record(second);
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
    fn a_long_run_has_few_rows_and_loses_nothing() {
        let names = columns(&[]);
        let place = |name: &str| names.iter().position(|n| n == name).unwrap();
        let (calls, rate, most, p50) =
            (place("calls.outgoing"), place("rate.achieved"), place("srd.max"), place("srd.p50"));
        let mut run = Run::new(Heading::default()).bounded(10);
        let mut seconds = 0;
        // Seconds are missing where everybody slept.
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
        // Where the row was made of pages, its percentile is exact.
        let last = run.rows.last().unwrap();
        assert_eq!((last.second, last.values[p50]), (1_144, 1_146.0));
        assert_eq!(run.recent().len(), 60);
        assert_eq!(run.recent().back().map(|row| row.second), Some(1_149));
        let covered: u64 = run.generators[0].samples.iter().map(|sample| sample.interval).sum();
        assert_eq!(covered, seconds * 1_000_000);
    }
}
