//! Common interface of the protocols: requests are written one after another, replies arrive in the same order.

use std::ops::Range;

use super::flight::{Flight, Op};
use super::{memcached, redis};
use crate::error::CacheError;
use crate::request::CacheAnswer;

/// Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Memcached,
    Redis,
}

/// Result of reading at the front of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// No complete reply yet.
    More,
    /// Reply of this many bytes.
    Reply(usize, ReplyMeaning),
    /// Not a reply to this request: the following bytes cannot be trusted either.
    Broken(&'static str),
}

/// Meaning of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyMeaning {
    /// Answer, and the position of the value of [`CacheAnswer::Found`].
    Done(Result<CacheAnswer, CacheError>, Range<usize>),
    /// Refusal; the reply has its reason.
    Denied(CacheError),
    /// Refusal, after which the connection is unusable.
    Last(CacheError, &'static str),
    /// Redirection to another server of the cluster: its address, and whether for this request only.
    Elsewhere(Range<usize>, bool),
    /// Reply to a command in front of the request.
    Passed,
}

impl ReplyMeaning {
    pub(super) const fn done(result: Result<CacheAnswer, CacheError>) -> Self {
        Self::Done(result, 0..0)
    }
}

impl Wire {
    /// Appends a request. The reply repeats `token` if the protocol supports that.
    pub(super) fn write(self, op: Op, key: &[u8], value: &[u8], token: u32, out: &mut Vec<u8>) {
        match self {
            Self::Memcached => memcached::write(op, key, value, token, out),
            Self::Redis => redis::write(op, key, value, out),
        }
    }

    /// Reads the reply to the request that was written with this token. `most`: maximum bytes of a value.
    pub(super) fn read(self, input: &[u8], flight: &Flight, token: u32, most: usize) -> Read {
        match self {
            Self::Memcached => memcached::read(input, flight, token, most),
            Self::Redis => redis::read(input, flight, most),
        }
    }
}

/// Reads a decimal number of a server.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends a decimal number.
pub(super) fn write_number(number: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writes to memory cannot fail.
    let _ = write!(out, "{number}");
}
