//! Path from the location table to disk: changes in order, written in groups, acknowledged once they are stored.
//!
//! # Order, and why each 200 is correct
//!
//! Shards read the location table in memory. A change is decided, applied there and queued here under the *same* bucket
//! lock, so the order on disk is the order in memory, whichever shards the REGISTERs of an address-of-record came by. A
//! shard holds its 200 until the ticket of the change comes back.
//!
//! If a group cannot be written, no change of the group is on disk. Then each address-of-record of the group is rolled
//! back in memory to its state before the first failed change (each change carries this state). Every change of that
//! address-of-record that was decided before the roll-back fails too, because it was decided on a state that no longer
//! exists. So memory and disk agree again, and each ticket of these changes comes back with an error: a 500, never a
//! 200. A call may use a binding a few milliseconds before its 200; that harms no call and saves a second copy of the
//! table.
//!
//! A REGISTER query (without Contact) waits in the same queue: its answer may list a binding that is still being
//! written, and must not be sent if this write fails.
//!
//! A commit in doubt (lost connection, silent database) counts as failed: its earlier rows are written again with the
//! next group that works. Only if the process ends before that can a row stay on disk whose REGISTER got a 500.
//!
//! # Engines
//!
//! [`BindingEngine`] is the contract of a database. It may block: it lives on one thread of its own and sees groups, so
//! an engine over a network (MariaDB, PostgreSQL) sends one multi-row statement per group, Redis one pipeline. Order,
//! linger, bounds, roll-back and tickets are implemented here once for all of them.

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

/// Receiver of tickets: called once per group, on the writer's thread. It must not block; it should push to the shard's
/// ring and wake the shard.
pub trait WriteSink: Send + Sync {
    /// Takes the tickets of one group with their results, in the order of their changes.
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
    /// Time that the first change of a group waits for further changes.
    pub linger: Duration,
    /// Maximum number of changes in a group; a group that reaches it does not wait longer.
    pub group: usize,
    /// Limit of changes queued; a change with more than 4 KiB of bindings counts several times. More are refused
    /// ([`Refused::Full`](crate::ticket::Refused::Full)).
    pub queue: usize,
    /// Longest remaining life of a loaded binding: not longer than the registrar grants, even after a step of the
    /// system clock. A binding whose row shows a longer grant keeps it.
    pub longest: Duration,
    /// Names of the listeners, by number. Rows have the name, so that a binding keeps its listener when the
    /// configuration reorders them.
    pub listeners: Vec<Box<str>>,
    /// Aliases of domains, each with the canonical name: the table has the bindings of a user under the canonical name,
    /// whichever name their rows have.
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
    /// Changes queued; large ones count several times.
    pub queued: usize,
    /// Bound of the queue.
    pub bound: usize,
    /// Groups committed.
    pub groups: u64,
    /// Changes stored.
    pub kept: u64,
    /// Changes failed.
    pub failed: u64,
    /// Changes refused because the queue was full.
    pub refused: u64,
    /// Total time in commits, in microseconds.
    pub commit_us: u64,
    /// Longest commit, in microseconds.
    pub commit_max_us: u64,
    /// Rows of expired bindings still to be deleted after a failure of the database.
    pub unpurged: u64,
}

/// Writer: a thread with an engine. A drop writes the queued changes and ends the thread.
pub struct Journal {
    writer: GroupWriter<Change>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    unpurged: Arc<AtomicU64>,
}

impl Journal {
    /// Loads the bindings of `engine` into `table`, then starts the writer, which `table` uses from then on. `clock`
    /// gives the time of the table and the time on disk. Returns the journal with the number of bindings loaded.
    ///
    /// # Errors
    /// The engine's error of the load, or a failure to start the thread ([`StoreError::Refused`]).
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
    /// After 65,535 receivers: each is a shard, created at start.
    pub fn receiver(&self, sink: Arc<dyn WriteSink>) -> SinkId {
        self.sinks.add(sink)
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> JournalGauges {
        let GroupGauges { queued, bound, groups, kept, failed, refused, commit_us, commit_max_us, .. } =
            self.writer.gauges();
        let unpurged = self.unpurged.load(Ordering::Relaxed);
        JournalGauges { queued, bound, groups, kept, failed, refused, commit_us, commit_max_us, unpurged }
    }

    /// Returns the histogram of commit times.
    pub fn commits(&self) -> strowger_metrics::Observed {
        self.writer.commits()
    }

    /// Tells whether the thread has ended by a panic; then every change is refused.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Writes the queued changes, returns their tickets and ends the thread. Later changes are refused.
    pub fn close(self) {
        self.writer.close();
    }
}

#[cfg(test)]
mod tests;
