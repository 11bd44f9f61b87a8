//! Observer: a thread that samples process trees and the machine into a log.

use super::heading::{Ending, GeneratorRole, Heading};
use super::log::Log;
use super::{Clock, MachineSampler, TreeSampler};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Limit of samples per second.
pub const MOST_SAMPLES: u32 = 10;

enum ObserverCommand {
    Watch(String, u32),
    Stop(String),
}

/// Sampler of process trees and this machine, several times a second, until it is stopped or dropped. It reads files of
/// `/proc` and starts no program.
///
/// ```
/// use strowger_measure::{Heading, Observed, Observer, Span};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("samples.log");
/// let observer = Observer::start(&path, Heading::default(), 10)?;
/// observer.watch("itself", std::process::id());
/// std::thread::sleep(std::time::Duration::from_millis(150));
/// observer.stop("enough")?;
///
/// let observed = Observed::read(&path, Span::WHOLE)?;
/// let usage = observed.tree("itself").ok_or("it was sampled")?;
/// assert!(usage.pss.is_some_and(|bytes| bytes > 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    commands: Sender<ObserverCommand>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl Observer {
    /// Starts the thread, which writes a log at this path: the machine `rate` times a second, 1 to [`MOST_SAMPLES`].
    ///
    /// # Errors
    /// The file or the thread cannot be created.
    pub fn start(path: &std::path::Path, heading: Heading, rate: u32) -> io::Result<Self> {
        Self::start_by(path, heading, rate, SystemTime::now())
    }

    /// Starts an observer, as [`Observer::start`], with another wall clock, which shows `wall` now.
    ///
    /// # Errors
    /// As [`Observer::start`].
    pub fn start_by(path: &std::path::Path, heading: Heading, rate: u32, wall: SystemTime) -> io::Result<Self> {
        let begun = Instant::now();
        let clock = Clock::new(0, wall);
        let heading = Heading { role: GeneratorRole::Observer, started: clock.wall(0), ..heading };
        let log = Log::create(path, &heading)?;
        let (commands, received) = channel();
        let period = Duration::from_secs(1) / rate.clamp(1, MOST_SAMPLES);
        let work = Work { log, trees: Vec::new(), machine: MachineSampler::default(), begun, clock };
        let thread = std::thread::Builder::new().name("observer".into()).spawn(move || work.run(&received, period))?;
        Ok(Self { commands, thread: Some(thread) })
    }

    /// Starts to sample also this process and its descendants, under a name.
    pub fn watch(&self, name: impl Into<String>, root: u32) {
        // The thread runs until it is stopped.
        let _ = self.commands.send(ObserverCommand::Watch(name.into(), root));
    }

    /// Takes a last sample of everything and ends the log; `reason`: a few words.
    ///
    /// # Errors
    /// A sample could not be written.
    pub fn stop(mut self, reason: &str) -> io::Result<()> {
        match self.end(reason) {
            Some(problem) => Err(io::Error::other(problem)),
            None => Ok(()),
        }
    }

    /// Ends the thread and returns the problem of the log, if any.
    fn end(&mut self, reason: &str) -> Option<String> {
        let _ = self.commands.send(ObserverCommand::Stop(reason.into()));
        let thread = self.thread.take()?;
        thread.join().unwrap_or_else(|_| Some("the observer panicked".into()))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end("dropped");
    }
}

struct Work {
    log: Log,
    trees: Vec<(String, TreeSampler)>,
    machine: MachineSampler,
    begun: Instant,
    clock: Clock,
}

impl Work {
    fn now(&self) -> u64 {
        self.clock.wall(self.begun.elapsed().as_micros() as u64)
    }

    fn run(mut self, commands: &Receiver<ObserverCommand>, period: Duration) -> Option<String> {
        self.sample(false);
        let mut due = Instant::now() + period;
        loop {
            match commands.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(ObserverCommand::Watch(name, root)) => {
                    let mut sampler = TreeSampler::new(root);
                    sampler.sample(self.now());
                    self.trees.push((name, sampler));
                }
                Ok(ObserverCommand::Stop(reason)) => return self.stop(reason),
                Err(RecvTimeoutError::Disconnected) => return self.stop("given up".into()),
                Err(RecvTimeoutError::Timeout) => {
                    self.sample(false);
                    // A missed sample is not made up for.
                    due = (due + period).max(Instant::now());
                }
            }
        }
    }

    fn sample(&mut self, last: bool) {
        let now = self.now();
        if let Some(sample) = self.machine.sample(now) {
            self.log.machine(&sample);
        }
        for (name, sampler) in &mut self.trees {
            let sample = if last { sampler.last(now) } else { sampler.sample(now) };
            if let Some(mut sample) = sample {
                sample.name.clone_from(name);
                self.log.tree(&sample);
            }
        }
    }

    fn stop(mut self, reason: String) -> Option<String> {
        self.sample(true);
        self.log.ending(&Ending { at: self.now(), reason });
        self.log.problem().map(str::to_owned)
    }
}
