//! A request on its way.

use std::time::Instant;

use smallvec::SmallVec;

use super::order::Claim;
use crate::request::{Count, Life, Request};
use crate::ticket::Ticket;

/// A key; the usual ones need no memory of their own.
pub(super) type KeyBytes = SmallVec<[u8; 64]>;

/// What is asked, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Fetch,
    Store(Life),
    Add(Life),
    Count(Count),
    Remove,
    Publish,
}

impl Op {
    /// What a request asks, its key and its value.
    pub(super) const fn of<'a>(request: &Request<'a>) -> (Self, &'a [u8], &'a [u8]) {
        match *request {
            Request::Fetch { key } => (Self::Fetch, key, &[]),
            Request::Store { key, value, life } => (Self::Store(life), key, value),
            Request::Add { key, value, life } => (Self::Add(life), key, value),
            Request::Count { key, count } => (Self::Count(count), key, &[]),
            Request::Remove { key } => (Self::Remove, key, &[]),
            Request::Publish { channel, message } => (Self::Publish, channel, message),
        }
    }
}

/// A request that was handed to a connection, until it has its answer.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) op: Op,
    pub(super) key: KeyBytes,
    /// Kept where it may have to be sent again.
    pub(super) value: Option<Box<[u8]>>,
    /// Bytes of its key and value.
    pub(super) size: u32,
    /// None: it was answered at its deadline, and what the server says is passed over.
    pub(super) ticket: Option<Ticket>,
    pub(super) due: Instant,
    /// Times that another server of a cluster was named for it.
    pub(super) hops: u8,
    /// The server is to answer though the slot is on its way to it.
    pub(super) is_asking: bool,
    /// Of a change: it ends with this.
    pub(super) _claim: Option<Claim>,
}

/// What a counter that is not there becomes by this change.
pub(super) const fn first(count: Count) -> i64 {
    match count.floor {
        crate::request::Floor::Zero if count.by < 0 => 0,
        _ => count.by,
    }
}
