//! Load on a system under test, made by processes of `strowger load`: callers, answering sides, registrations.
//!
//! A generator knows only the address of a system. A [`Generator`] is made once for a system; [`Generator::register`] registers its
//! users once; [`Generator::trial`] makes one trial of load after the other. Each trial has processes, logs and, over loopback by a stream
//! transport, source addresses of its own, so that no trial meets sockets of an earlier one in TIME_WAIT.
//!
//! All processes end when their trial ends, also after an error. After a call of [`crate::process::end_by_signals`] they also end by
//! Ctrl-C, and the trial returns an error.

mod clocks;
mod document;
mod reading;
mod setting;
mod source;
mod trial;
mod words;

pub(crate) use reading::of_second;
pub use setting::{CalleeBehaviour, CallerConnections, PATIENCE, Setting, Traffic};

use crate::Error;
use crate::row::{Figures, Load, Reason};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};
use strowger_core::Transport;
use strowger_load::campaign::Connections;

/// Generator of load on one system.
#[derive(Debug)]
pub struct Generator {
    setting: Setting,
    files: document::Files,
}

/// Trial: a load, and for how long.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// Offered load. For a number of simultaneous calls or connections, the generator begins the rate that keeps this number, so the
    /// warm-up has to be longer than a call.
    pub load: Load,
    /// Load before the window.
    pub warm_up: Duration,
    /// Window. The figures are those of the calls that fall due in it.
    pub window: Duration,
    /// Load after the window, which no figure includes. Only a window of whole seconds has a cool-down.
    pub cool_down: Duration,
    /// Load of the warm-up, if it is another one.
    pub before: Option<f64>,
    /// Load after the window, if it is another one.
    pub after: Option<f64>,
    /// Changes of the load: from a moment of the window on, another load.
    pub changes: Vec<(Duration, f64)>,
    /// Channel for the begin of the window, which is sent when the caller has started.
    pub begins: Option<Sender<SystemTime>>,
    /// Folder of the trial's logs, which is made if it is missing.
    pub folder: &'a Path,
}

impl<'a> Trial<'a> {
    /// Creates a trial whose load does not change.
    pub const fn new(load: Load, warm_up: Duration, window: Duration, folder: &'a Path) -> Self {
        Self {
            load,
            warm_up,
            window,
            cool_down: Duration::ZERO,
            before: None,
            after: None,
            changes: Vec::new(),
            begins: None,
            folder,
        }
    }
}

/// Trial that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Figures of calls and registrations that fell due in the window, each to its end, and of the generator's threads. Figures of streams of
    /// media are those of all calls, because a window may be shorter than a call.
    ///
    /// `attempts`, `failed`, `failed.warm_up`, `refused`, `refused.share`, `goodput`, `timeouts`, `retransmissions`, `rate.achieved`;
    /// `ira`, `isa`, `ira.any`, `isa.any`, `failed.any`;
    /// `rrd`, `srd`, `response` and `request` with `.mean`, `.p50`, `.p95` and `.p99`; `delay.first` and `delay.last`; `generator.thread/`,
    /// `generator.cpu.call`; `connect.rate` if each call has a connection; `media.` and `packet.delay.max` if calls have media. A figure has
    /// no value if nothing was measured.
    pub figures: Figures,
    /// Failed checks: the verdict of the generator on itself, a rate missed by more than 1 %, ends that disagree.
    pub reasons: Vec<Reason>,
    /// Raw logs of callers, then of answering sides.
    pub logs: Vec<PathBuf>,
    /// Begin of the window, a whole second of the clock.
    pub begin: SystemTime,
    /// End of the window.
    pub end: SystemTime,
}

/// Repetitions of a registration that is not complete.
const REGISTERED_AGAIN: u32 = 3;

impl Generator {
    /// Writes the documents and data of the setting into this folder, which is made if it is missing.
    ///
    /// # Errors
    /// A document is unknown or has a mark without a value, or the folder cannot be written.
    pub fn new(setting: Setting, folder: &Path) -> Result<Self, Error> {
        // Programs run in folders of their own.
        let folder = std::path::absolute(folder).map_err(Error::file(folder))?;
        Ok(Self { files: document::write(&setting, &folder)?, setting })
    }

    /// Returns the file with the data of callers: a line `user;credentials;callee` for each user. A trial reads the file when it begins,
    /// so that credentials can be written into it before.
    pub fn data(&self) -> &Path {
        &self.files.data
    }

    /// Returns the number of connections that users have throughout a trial: one for each user, or 0 if users share a
    /// connection.
    pub fn connections(&self) -> u32 {
        let is_stream = self.setting.transport != Transport::Udp;
        if is_stream && self.setting.connections.owner == Connections::PerUser { self.setting.users } else { 0 }
    }

    /// Registers all users at the answering sides, in turn, at this rate a second, and writes the logs into this folder.
    ///
    /// A system that is too slow for this rate does not answer some requests, or answers 5xx. In this case all users are registered again
    /// at the rate that the system reached, at most half of the previous rate, [`REGISTERED_AGAIN`] times at most.
    ///
    /// # Errors
    /// A process does not start or end, or a user is not registered.
    pub fn register(&self, rate: f64, folder: &Path) -> Result<(), Error> {
        if self.files.registering.is_empty() {
            return Ok(());
        }
        let mut rate = rate;
        for attempt in 0.. {
            let folder = match attempt {
                0 => made(folder)?,
                again => made(&folder.join(format!("again-{again}")))?,
            };
            let begun = Instant::now();
            let parts = self.files.registering.iter().enumerate().filter(|(_, (.., users))| *users > 0);
            let logs = parts.map(|(number, part)| trial::register(&self.setting, number, part, rate, &folder));
            let registered = reading::registered(&logs.collect::<Result<Vec<_>, _>>()?, self.setting.users)?;
            if attempt == REGISTERED_AGAIN || !registered.is_worth_another() {
                return registered.complete();
            }
            rate = (rate / 2.0).min(registered.count() as f64 / begun.elapsed().as_secs_f64()).max(1.0);
        }
        Ok(())
    }

    /// Makes a trial and waits until its calls have ended.
    ///
    /// # Errors
    /// A process does not start, or ends without a log.
    pub fn trial(&self, trial: &Trial<'_>) -> Result<Made, Error> {
        let folder = &made(trial.folder)?;
        trial::make(&self.setting, &self.files, &Trial { folder, ..trial.clone() })
    }
}

/// Makes a folder, and gives its whole path.
fn made(folder: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    std::path::absolute(folder).map_err(Error::file(folder))
}
