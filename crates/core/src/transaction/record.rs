//! A transaction written down, to go on in another table.

use super::key::Key;
use super::table::Machine;
use crate::Target;

/// Which side of the transaction this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

/// Everything about one transaction. The table that takes it must have the same secret key, or nothing finds it.
#[derive(Clone, Debug)]
pub struct Record {
    /// The id that it had, as a word ([`super::ServerId::to_u64`], [`super::ClientId::to_u64`]).
    pub id: u64,
    pub role: Role,
    /// The user's word. It names something of the old shard: the user translates it with its own records.
    pub owner: u64,
    pub target: Target,
    /// The bucket of its call, 0 to 255.
    pub bucket: u8,
    pub(super) key: Key,
    pub(super) machine: Machine,
    pub(super) kept: Option<Vec<u8>>,
    pub(super) attempts: u8,
    pub(super) cancel: super::table::Cancel,
    /// Milliseconds that its timers still have to run.
    pub(super) retransmission: Option<u64>,
    pub(super) end: Option<u64>,
}
