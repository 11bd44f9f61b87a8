//! Request in flight.

use std::time::Instant;

use smallvec::SmallVec;

use super::changes_in_progress::Claim;
use crate::request::{Count, Life, Request};
use crate::ticket::Ticket;

/// Key; usual ones need no separate memory.
pub(super) type KeyBytes = SmallVec<[u8; 64]>;

/// Operation of a request, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Fetch,
    Store(Life),
    Add(Life),
    Count(Count),
    Remove,
}

impl Op {
    /// Returns operation, key and value of a request.
    pub(super) const fn of<'a>(request: &Request<'a>) -> (Self, &'a [u8], &'a [u8]) {
        match *request {
            Request::Fetch { key } => (Self::Fetch, key, &[]),
            Request::Store { key, value, life } => (Self::Store(life), key, value),
            Request::Add { key, value, life } => (Self::Add(life), key, value),
            Request::Count { key, count } => (Self::Count(count), key, &[]),
            Request::Remove { key } => (Self::Remove, key, &[]),
        }
    }
}

/// Request with a connection, until it has its answer.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) op: Op,
    pub(super) key: KeyBytes,
    /// Copy of the value, if it may have to be sent again.
    pub(super) value: Option<Box<[u8]>>,
    /// Bytes of the request's key and value.
    pub(super) size: u32,
    /// `None`: it was answered at its deadline, and the reply of the server is ignored.
    pub(super) ticket: Option<Ticket>,
    pub(super) due: Instant,
    /// Number of redirections within a cluster.
    pub(super) hops: u8,
    /// True if sent with ASKING, while the slot migrates to the server.
    pub(super) is_asking: bool,
    /// Claim of a change, which ends with this.
    pub(super) _claim: Option<Claim>,
}

/// Returns the value of a new counter after this change.
pub(super) const fn first(count: Count) -> i64 {
    match count.floor {
        crate::request::Floor::Zero if count.by < 0 => 0,
        _ => count.by,
    }
}
