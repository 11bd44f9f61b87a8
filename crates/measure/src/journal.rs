//! Journal of a run: collects the shards' pages, samples the machine, writes the raw log, and ends as a [`Run`].

use super::heading::{Ending, Heading, Level, Note, ReceiveBuffer};
use super::log::Log;
use super::run::Run;
use super::{
    Clock, Collector, DocumentName, DocumentTotals, FailedCall, Guard, Judgement, Page, Requirement, Sampler,
    ShardRecorder,
};

/// Journal of a run. A thread beside the shards calls [`Journal::poll`] a few times a second.
pub struct Journal {
    clock: Clock,
    collector: Collector,
    run: Run,
    log: Option<Log>,
    /// Documents with sums of their own.
    documents: Vec<DocumentName>,
    sampler: Sampler,
    guard: Guard,
    /// Second of the last sample.
    sampled: u64,
    reported: bool,
}

impl Journal {
    /// Begins a run. `shards`: how many will write; `log`: receiver of the raw log, if any.
    pub fn new(clock: Clock, heading: Heading, shards: usize, log: Option<Log>) -> Self {
        let collector = Collector::new(clock, heading.timers.clone(), shards);
        let run = Run::new(heading);
        let (sampler, guard) = (Sampler::new(), Guard::new(Vec::new()));
        Self { clock, collector, run, log, documents: Vec::new(), sampler, guard, sampled: 0, reported: false }
    }

    /// Sets the documents of a run with several, see [`Journal::recorder_of_document`].
    #[must_use]
    pub fn of_documents(self, documents: Vec<DocumentName>) -> Self {
        Self { documents, ..self }
    }

    /// Creates the recorder of one more shard, as [`Journal::recorder`] does. In a run with several documents, the
    /// recorder also adds to the sum of this document.
    pub fn recorder_of_document(&mut self, now: u64, document: usize, timers: &[String]) -> ShardRecorder {
        match self.documents.is_empty() {
            true => self.collector.recorder(now),
            false => self.collector.recorder_of_document(now, document, timers),
        }
    }

    /// Sets the requirements that end the run, see [`Journal::lost_requirement`].
    #[must_use]
    pub fn guarded(self, requirements: Vec<Requirement>) -> Self {
        Self { guard: Guard::new(requirements), ..self }
    }

    /// Limits the rows, see [`Run::bounded`].
    #[must_use]
    pub fn bounded(mut self, rows: usize) -> Self {
        self.run = self.run.bounded(rows);
        self
    }

    /// Sets the length of windows, see [`Run::in_windows`].
    #[must_use]
    pub fn in_windows(mut self, seconds: u64) -> Self {
        self.run = self.run.in_windows(seconds);
        self
    }

    /// Creates the recorder of one more shard, open from `now` (µs).
    pub fn recorder(&mut self, now: u64) -> ShardRecorder {
        self.collector.recorder(now)
    }

    /// Drops samples of the machine while the run has not begun.
    pub fn wait(&mut self, now: u64) {
        let second = self.clock.second(now);
        if second != self.sampled {
            self.sampled = second;
            self.sampler.sample(now, second);
        }
    }

    /// Takes new pages by `now` (µs). Returns the number of seconds that have become complete; see [`Run::recent`].
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
        let (run, log, guard) = (&mut self.run, &mut self.log, &mut self.guard);
        self.collector.poll(now, |page| {
            write(run, log, page);
            if run.generators[0].lost.is_none()
                && let Some(lost) = guard.second(page, &run.totals)
            {
                log.iter_mut().for_each(|log| log.requirement_lost(&lost));
                run.generators[0].lost = Some(lost);
            }
        });
        run.settle();
        self.report_problem(now);
        self.run.seconds() - before
    }

    /// Reports that the log cannot be written, but only once; the run continues.
    fn report_problem(&mut self, now: u64) {
        let problem = self.log.as_ref().and_then(Log::problem);
        if let Some(problem) = problem.filter(|_| !self.reported) {
            let text = format!(
                "The raw log cannot be written ({problem}). The run continues; the figures of this process are reported, but the log \
                 lacks seconds."
            );
            self.reported = true;
            self.run.generators[0].notes.push(Note { at: self.clock.wall(now), level: Level::Error, text });
        }
    }

    /// Adds a sentence to the report.
    pub fn note(&mut self, now: u64, level: Level, text: impl Into<String>) {
        let note = Note { at: self.clock.wall(now), level, text: text.into() };
        if let Some(log) = &mut self.log {
            log.note(&note);
        }
        self.run.generators[0].notes.push(note);
    }

    /// Adds the receive buffer of an opened socket.
    pub fn receive_buffer(&mut self, buffer: ReceiveBuffer) {
        if let Some(log) = &mut self.log {
            log.receive_buffer(&buffer);
        }
        self.run.generators[0].receive_buffers.push(buffer);
    }

    /// Adds a failed call with its messages.
    pub fn failed_call(&mut self, call: FailedCall) {
        if let Some(log) = &mut self.log {
            log.failed_call(&call);
        }
        self.run.generators[0].failed_calls.push(call);
    }

    /// Ends the judgement of [`Journal::guarded`], because no call begins any more.
    pub fn unguard(&mut self) {
        self.guard.stop();
    }

    /// Returns the requirement that the run has lost.
    pub fn lost_requirement(&self) -> Option<&Judgement> {
        self.run.generators[0].lost.as_ref()
    }

    /// Returns the run so far; [`Run::totals`] is the sum of all complete seconds.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the number of records that the raw log lacks.
    pub fn lost(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::lost)
    }

    /// Ends the run, after the shards have closed their recorders.
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
        let (_, sums) = self.collector.finish_documents(|page| write(&mut run, &mut log, page));
        run.settle();
        for (document, totals) in self.documents.into_iter().zip(sums) {
            let sum = DocumentTotals { document, totals };
            log.iter_mut().for_each(|log| log.document(&sum));
            run.generators[0].documents.push(sum);
        }
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
