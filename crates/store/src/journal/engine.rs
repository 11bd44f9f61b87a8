//! What a database that keeps bindings must do, and what it promises.

use std::ops::RangeInclusive;

use crate::binding::{Binding, BindingId};
use crate::error::StoreError;

/// What a 200 to REGISTER promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Committed before the answer: survives `kill -9` of the process. After a power cut the last moments may be missing,
    /// the file is whole.
    #[default]
    Crash,
    /// Synced to disk (`fsync` or `fdatasync` returned) before the answer: survives a power cut.
    PowerLoss,
    /// Memory only: no rows are written, a restart forgets.
    None,
}

/// One row to write.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Insert the row of this id, or replace it whole. The text is the name of its listener, which is kept in place of the number.
    Put(BindingId, Binding<'a>, &'a str),
    /// Delete the row of this id; fine when there is none.
    Delete(BindingId),
}

/// A database that keeps bindings; their times are milliseconds since 1970 UTC in all of this. Called on the writer's thread alone; may block, should give up after its own deadline.
pub trait BindingEngine: Send + 'static {
    /// Hands over every binding that has not expired at `wall_ms`, with the name of its listener, and forgets the others. Returns the
    /// highest of `ids`, those of this node, that was ever used as far as the rows show; their first for none.
    ///
    /// # Errors
    /// What the database said; the server should not start on it.
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError>;

    /// Writes all rows or none, in their order, as durable as it was opened for. Logs in words what went wrong.
    ///
    /// A ticket waits at most for the linger and two of these calls, its own and the one before, so their deadline bounds
    /// the time to the 200.
    ///
    /// # Errors
    /// Nothing of the group is kept then; or [`Self::is_in_doubt`] says that it may be.
    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError>;

    /// Whether the commit that failed last may be made all the same, now or later: the connection was lost, or the database was silent, while it
    /// was under way. Its rows come again then, as they were before it, with the next group, and the engine sees to it that the commit in doubt
    /// has come to its end before that one begins.
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Called after the tickets of a group went out: the place for work that may take longer (checkpoints).
    fn settle(&mut self) {}
}
