//! A run as reports see it: the same whether it just ended or is read from logs, from one generator or several.

use super::heading::{Ending, Heading, Level, Note, ReceiveBuffer};
use super::log::{Entry, LogError, LogReader};
use super::series::Row;
use super::{Page, Sample};
use std::path::Path;

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
}

impl Generator {
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        Self { heading, totals, samples: vec![], notes: vec![], receive_buffers: vec![], ending: None }
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Page => {}
            Entry::Sample(sample) => self.samples.push(sample),
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
    /// Second by second, over all generators.
    pub rows: Vec<Row>,
}

impl Run {
    /// Of this generator alone; nothing has happened yet.
    pub fn new(heading: Heading) -> Self {
        let totals = Page::new(heading.timers.len());
        Self { generators: vec![Generator::new(heading)], totals, rows: vec![] }
    }

    /// The run's name, timers and so on: those of the first generator.
    pub fn heading(&self) -> &Heading {
        &self.generators[0].heading
    }

    /// A complete second over all generators; later than any before.
    pub fn second(&mut self, page: &Page) {
        self.totals.add_after(page);
        self.rows.push(Row::of(page));
    }

    /// The runs in these logs, put together by wall-clock second. What a kill or a full disk cut off is missing, and said in a
    /// note.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self, LogError> {
        let mut sources = Vec::new();
        for path in paths {
            sources.push(Source::open(path.as_ref())?);
        }
        let heading = sources.first().map(|source| source.generator.heading.clone()).unwrap_or_default();
        let mut run = Self::new(heading);
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
        Ok(run)
    }

    fn say_what_differs(&mut self) {
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
    fn open(path: &Path) -> Result<Self, LogError> {
        let reader = LogReader::open(path)?;
        let generator = Generator::new(reader.heading().clone());
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
            self.generator.notes.push(Note { at: 0, level: Level::Warning, text: format!("The log {damage}.") });
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
