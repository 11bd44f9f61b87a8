//! What the protocols of servers have in common: requests are written one behind the other, replies come in the same order.

use std::ops::Range;

use super::flight::{Flight, Op};
use super::{memcached, redis};
use crate::error::CacheError;
use crate::request::Answer;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Memcached,
    Redis,
}

/// What stands at the front of the bytes that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// No whole reply yet.
    More,
    /// A reply of so many bytes.
    Reply(usize, Outcome),
    /// No reply to this request: what comes behind it cannot be trusted either.
    Broken(&'static str),
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The answer, and where in the bytes the value of [`Answer::Found`] is.
    Done(Result<Answer, CacheError>, Range<usize>),
    /// The server does not do it; the reply says why.
    Denied(CacheError),
    /// The same, after which the connection is of no more use.
    Last(CacheError, &'static str),
    /// Another server of the cluster has the key: its address, and whether for this request only.
    Elsewhere(Range<usize>, bool),
    /// It is about what was sent in front of the request.
    Passed,
}

impl Outcome {
    pub(super) const fn done(result: Result<Answer, CacheError>) -> Self {
        Self::Done(result, 0..0)
    }
}

impl Wire {
    /// Appends a request. `token` comes back with the reply, where the protocol has that.
    pub(super) fn write(self, op: Op, key: &[u8], value: &[u8], token: u32, out: &mut Vec<u8>) {
        match self {
            Self::Memcached => memcached::write(op, key, value, token, out),
            Self::Redis => redis::write(op, key, value, out),
        }
    }

    /// Reads the reply to the request that was written with this token. `most`: bytes of a value.
    pub(super) fn read(self, input: &[u8], flight: &Flight, token: u32, most: usize) -> Read {
        match self {
            Self::Memcached => memcached::read(input, flight, token, most),
            Self::Redis => redis::read(input, flight, most),
        }
    }
}

/// A decimal number as servers write it.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends a decimal number.
pub(super) fn write_number(number: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to memory does not fail.
    let _ = write!(out, "{number}");
}
