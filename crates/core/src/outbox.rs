//! What the machines of one round want sent: one run of bytes and a list of the targets of its parts.

use crate::Target;
use std::ops::Range;

/// Messages to send, in order. Machines write straight into [`Outbox::bytes`]; the shard hands the ranges
/// to the kernel without copying them again. Cleared after each round, it allocates nothing once warm.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The messages, one behind the other.
    pub bytes: Vec<u8>,
    sends: Vec<Send>,
}

/// One message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Where it goes, and from where.
    pub target: Target,
    range: (u32, u32),
    /// Given back with [`Failure`] if the message could not be sent; 0: the sender does not ask.
    pub token: u64,
    /// Whether the sender has a fallback. Such a message fails soon if it needs a new connection that is not made in time
    /// (`strowger-net`).
    pub has_fallback: bool,
}

impl Send {
    /// Where the message stands in [`Outbox::bytes`].
    pub fn range(&self) -> Range<usize> {
        self.range.0 as usize..self.range.1 as usize
    }
}

/// A message that could not be sent (RFC 3261 section 17.1.4).
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// What its [`Send::token`] was.
    pub token: u64,
}

impl Outbox {
    /// Without memory; it grows with the first rounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the next message starts: take it, write into [`Outbox::bytes`], then [`Outbox::send`] the range.
    pub fn start(&self) -> usize {
        self.bytes.len()
    }

    /// `range` of [`Outbox::bytes`] goes to `target`. The same range may be sent several times.
    pub fn send(&mut self, target: Target, range: Range<usize>, token: u64) {
        debug_assert!(range.end <= self.bytes.len());
        let range = (range.start as u32, range.end as u32);
        self.sends.push(Send { target, range, token, has_fallback: false });
    }

    /// Marks the last message as one with a fallback ([`Send::has_fallback`]).
    pub fn set_fallback(&mut self) {
        if let Some(send) = self.sends.last_mut() {
            send.has_fallback = true;
        }
    }

    /// What is to be sent, in the order in which the machines said so.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// Nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// At the end of a round: messages go, memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
    }
}
