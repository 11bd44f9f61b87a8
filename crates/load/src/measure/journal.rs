//! The journal of a run: collects the shards' pages, samples the machine, writes the raw log, and ends as a [`Run`].

use super::heading::{Ending, Heading, Level, Note, ReceiveBuffer};
use super::log::Log;
use super::run::Run;
use super::{Books, Clock, Collector, Page, Sampler};

/// Kept by one thread beside the shards, which calls [`Journal::poll`] a few times a second.
pub struct Journal {
    clock: Clock,
    collector: Collector,
    run: Run,
    log: Option<Log>,
    sampler: Sampler,
    /// The second of the last sample.
    sampled: u64,
    reported: bool,
}

impl Journal {
    /// A run that begins. `shards`: how many will write; `log`: where the raw log goes, if anywhere.
    pub fn new(clock: Clock, heading: Heading, shards: usize, log: Option<Log>) -> Self {
        let collector = Collector::new(clock, heading.timers.clone(), shards);
        let run = Run::new(heading);
        Self { clock, collector, run, log, sampler: Sampler::new(), sampled: 0, reported: false }
    }

    /// See [`Run::bounded`].
    #[must_use]
    pub fn bounded(mut self, rows: usize) -> Self {
        self.run = self.run.bounded(rows);
        self
    }

    /// See [`Run::in_windows`].
    #[must_use]
    pub fn in_windows(mut self, seconds: u64) -> Self {
        self.run = self.run.in_windows(seconds);
        self
    }

    /// The books of one more shard, open from `now` (µs).
    pub fn books(&mut self, now: u64) -> Books {
        self.collector.books(now)
    }

    /// Takes what has come by `now` (µs). Gives the number of seconds that became complete; see [`Run::recent`].
    pub fn poll(&mut self, now: u64) -> u64 {
        let second = self.clock.second(now);
        if second != self.sampled {
            self.sampled = second;
            if let Some(sample) = self.sampler.sample(now, second) {
                if let Some(log) = &mut self.log {
                    log.sample(&sample);
                }
                self.run.generators[0].sample(sample);
            }
        }
        let before = self.run.seconds();
        let (run, log) = (&mut self.run, &mut self.log);
        self.collector.poll(now, |page| write(run, log, page));
        self.report_problem(now);
        self.run.seconds() - before
    }

    /// A log that cannot be written is said once, when it happens; the run goes on.
    fn report_problem(&mut self, now: u64) {
        let problem = self.log.as_ref().and_then(Log::problem);
        if let Some(problem) = problem.filter(|_| !self.reported) {
            let text = format!(
                "The raw log cannot be written ({problem}). The run goes on; what this process knows is reported, but the log \
                 lacks seconds."
            );
            self.reported = true;
            self.run.generators[0].notes.push(Note { at: self.clock.wall(now), level: Level::Error, text });
        }
    }

    /// A sentence for the report.
    pub fn note(&mut self, now: u64, level: Level, text: impl Into<String>) {
        let note = Note { at: self.clock.wall(now), level, text: text.into() };
        if let Some(log) = &mut self.log {
            log.note(&note);
        }
        self.run.generators[0].notes.push(note);
    }

    /// A socket was opened, and this is its receive buffer.
    pub fn receive_buffer(&mut self, buffer: ReceiveBuffer) {
        if let Some(log) = &mut self.log {
            log.receive_buffer(&buffer);
        }
        self.run.generators[0].receive_buffers.push(buffer);
    }

    /// The run so far; [`Run::totals`] is the sum of all complete seconds.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Records that the raw log lacks.
    pub fn lost(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::lost)
    }

    /// The run is over, and the shards have closed their books.
    pub fn finish(mut self, now: u64, reason: &str) -> Run {
        self.poll(now);
        if let Some(sample) =
            self.sampler.sample(now, self.clock.second(now)).filter(|sample| sample.interval > 100_000)
        {
            if let Some(log) = &mut self.log {
                log.sample(&sample);
            }
            self.run.generators[0].sample(sample);
        }
        let (mut run, mut log) = (self.run, self.log);
        self.collector.finish(|page| write(&mut run, &mut log, page));
        let ending = Ending { at: self.clock.wall(now), reason: reason.into() };
        if let Some(log) = &mut log {
            log.ending(&ending);
            if log.lost() > 0 {
                let text = format!("{} records of the raw log could not be written.", log.lost());
                run.generators[0].notes.push(Note { at: ending.at, level: Level::Error, text });
            }
        }
        run.generators[0].ending = Some(ending);
        run
    }
}

fn write(run: &mut Run, log: &mut Option<Log>, page: &Page) {
    if let Some(log) = log {
        log.page(page);
    }
    run.generators[0].second(page);
    run.second(page);
}
