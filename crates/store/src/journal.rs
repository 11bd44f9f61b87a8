//! From the location table to disk: changes in order, written in groups, acknowledged once they are kept.
//!
//! # Order, and why no wrong 200 leaves
//!
//! The memory of the location table is the truth that shards read. A change is decided, applied there and queued here
//! under the *same* bucket lock, so the order on disk is the order in memory, whichever shards the REGISTERs of an
//! address-of-record came by. A shard holds its 200 until the ticket of the change comes back.
//!
//! If a group cannot be written, nothing of it is on disk. Then, for each address-of-record in it, memory goes back to what
//! it was before the first change that failed (each change carries that picture), and every change for that
//! address-of-record that was decided before memory went back fails too, since it was decided on what is no longer so.
//! So memory and disk agree again, and each of those tickets comes back with an error: a 500, never a 200. A phone may
//! be called by a binding whose 200 is a few milliseconds away; that harms no call and saves a second copy of the table.
//!
//! A REGISTER that only asks (no Contact) takes its place in the same queue: its list may name a binding that is still
//! being written, and it must not be sent if that fails.
//!
//! A commit in doubt, whose connection was lost or whose database was silent, is a failure too: its rows are written again as they were before it,
//! with the next group that works. Only the end of the process in between leaves a row on disk whose REGISTER got a 500.
//!
//! # Engines
//!
//! [`BindingEngine`] is what a database must do. It may block: it lives on one thread of its own and sees groups, so an
//! engine over a network (MariaDB, PostgreSQL) sends one multi-row statement a group, Redis one pipeline. The rest, order,
//! linger, bounds, roll-back and tickets, is here once for all of them.

mod change;
mod engine;
mod load;
mod steps;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::change::Change;
pub use self::engine::{BindingEngine, Durability, Write};
use self::load::load;
pub use self::steps::JournalSteps;
use self::writer::{Writer, give_up};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::group::{GroupGauges, GroupWriter};
use crate::location::LocationTable;
use crate::ticket::{SinkId, Sinks};

/// Receives tickets: once a group for each receiver, on the writer's thread. It must not block; pushing to the shard's ring
/// and waking it is what it is for.
pub trait WriteSink: Send + Sync {
    /// The tickets of one group with what became of them, in the order of their changes.
    fn written(&self, results: &[(u64, Result<(), StoreError>)]);
}

impl<F: Fn(&[(u64, Result<(), StoreError>)]) + Send + Sync> WriteSink for F {
    fn written(&self, results: &[(u64, Result<(), StoreError>)]) {
        self(results);
    }
}

/// Limits of the queue and the writer.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    /// How long the first change of a group waits for company.
    pub linger: Duration,
    /// Most changes in a group; a group that reaches it does not wait longer.
    pub group: usize,
    /// Most changes queued, one with more than 4 KiB of bindings counting for several; more are refused ([`Refused::Full`](crate::ticket::Refused::Full)).
    pub queue: usize,
    /// Longest life of a binding that is loaded: no longer than the registrar grants, also where the system's clock was set. One
    /// whose row says that it was granted more keeps that.
    pub longest: Duration,
    /// Names of the listeners, by their numbers: what stands on disk, so that a binding keeps its listener when the configuration lists them
    /// otherwise.
    pub listeners: Vec<Box<str>>,
    /// Further names of domains, each with the canonical name: the bindings of a user stand under the canonical one, under whichever they were
    /// stored.
    pub aliases: Vec<(String, String)>,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(2),
            group: 4096,
            queue: 20_000,
            longest: Duration::MAX,
            listeners: Vec::new(),
            aliases: Vec::new(),
        }
    }
}

/// Figures of the writer since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalGauges {
    /// Changes queued now, large ones counted several times.
    pub queued: usize,
    /// Bound of the queue.
    pub bound: usize,
    /// Groups committed.
    pub groups: u64,
    /// Changes kept.
    pub kept: u64,
    /// Changes failed.
    pub failed: u64,
    /// Changes refused since the queue was full.
    pub refused: u64,
    /// Microseconds spent in commits, all together.
    pub commit_us: u64,
    /// Longest commit, in microseconds.
    pub commit_max_us: u64,
    /// Rows of expired bindings still to be deleted because the database failed.
    pub unpurged: u64,
}

/// The writer: a thread with an engine. Dropping it writes what is queued and ends the thread.
pub struct Journal {
    writer: GroupWriter<Change>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    unpurged: Arc<AtomicU64>,
}

impl Journal {
    /// Loads the bindings that `engine` has into `table`, then starts the writer and makes `table` use it from now on.
    /// `clock` tells what time the table is asked by, and what time stands on disk. Returns it with the number of bindings loaded.
    ///
    /// # Errors
    /// What the engine said to the load, or that the thread could not be started ([`StoreError::Refused`]).
    pub fn start(
        mut engine: impl BindingEngine,
        table: &Arc<LocationTable>,
        settings: JournalSettings,
        clock: Clock,
    ) -> Result<(Self, usize), StoreError> {
        let loaded = load(&mut engine, table, &settings, &clock)?;
        let writer = Writer::new(engine, Arc::clone(table), settings, clock);
        let (queue, sinks, unpurged) = (writer.queue(), writer.sinks(), writer.unpurged());
        let to = Arc::clone(&sinks);
        let writer =
            GroupWriter::on("binding-writer", Arc::clone(&queue), writer, move |changes| give_up(changes, &to));
        let writer = writer.map_err(|error| {
            tracing::error!("the thread that writes bindings cannot be started: {error}");
            StoreError::Unavailable
        })?;
        table.write_to(queue);
        Ok((Self { writer, sinks, unpurged }, loaded))
    }

    /// Adds a receiver of tickets.
    ///
    /// # Panics
    /// After 65,535 receivers: they are shards, and are made at start.
    pub fn receiver(&self, sink: Arc<dyn WriteSink>) -> SinkId {
        self.sinks.add(sink)
    }

    /// Figures for the log and the metrics.
    pub fn gauges(&self) -> JournalGauges {
        let GroupGauges { queued, bound, groups, kept, failed, refused, commit_us, commit_max_us, .. } =
            self.writer.gauges();
        let unpurged = self.unpurged.load(Ordering::Relaxed);
        JournalGauges { queued, bound, groups, kept, failed, refused, commit_us, commit_max_us, unpurged }
    }

    /// How long commits took.
    pub fn commits(&self) -> strowger_metrics::Observed {
        self.writer.commits()
    }

    /// Whether the thread has ended before it was asked to: by a panic. Every change is refused from then on.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Writes what is queued, hands back its tickets and ends the thread. Changes after that are refused.
    pub fn close(self) {
        self.writer.close();
    }
}

#[cfg(test)]
mod tests;
