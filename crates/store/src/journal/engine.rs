//! Contract of a database that stores bindings, and its guarantees.

use std::ops::RangeInclusive;

use crate::binding::{Binding, BindingId};
use crate::error::StoreError;

/// Guarantee of a 200 to REGISTER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Committed before the answer: survives `kill -9` of the process. After a power cut the most recent changes may be
    /// missing, the file is intact.
    #[default]
    Crash,
    /// Synced to disk (`fsync` or `fdatasync` returned) before the answer: survives a power cut.
    PowerLoss,
    /// Memory only: no rows are written, a restart loses all bindings.
    None,
}

/// Row to write.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Inserts the row of this id, or replaces it as a whole. The text is the name of its listener, stored in place of
    /// the number.
    Put(BindingId, Binding<'a>, &'a str),
    /// Deletes the row of this id, if there is one.
    Delete(BindingId),
}

/// Database of bindings. All times are milliseconds since 1970 UTC. Called only on the writer's thread; may block,
/// should have a deadline of its own.
pub trait BindingEngine: Send + 'static {
    /// Passes every binding that has not expired at `wall_ms` to `each`, with the name of its listener, and deletes the
    /// expired bindings. `ids` are the ids of this node. Returns the highest of these ids that was ever used, as far as
    /// the rows show, or the first id if none was used.
    ///
    /// # Errors
    /// Error of the database; the server should not start with it.
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError>;

    /// Writes either all rows or none, in order, with the durability for which the engine was opened. Logs the cause of
    /// a failure.
    ///
    /// A ticket waits at most for the linger and two of these calls: the one that writes its change, and the previous
    /// one. So their deadline bounds the time to the 200.
    ///
    /// # Errors
    /// Nothing of the group is stored then; or [`Self::is_in_doubt`] says that it may be.
    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError>;

    /// Tells whether the last failed commit may still take effect, now or later: the connection was lost, or the
    /// database was silent during it. Then the next group restores the earlier rows, and the engine ensures that the
    /// commit in doubt has ended before that group begins.
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Called after the tickets of a group are returned: for work that may take longer (checkpoints).
    fn settle(&mut self) {}
}
