//! Messages that the machines of one round want to send: one byte buffer, and targets of its ranges.

use crate::Target;
use std::collections::VecDeque;
use std::ops::Range;

/// Messages to send, in order. Machines write directly into [`Outbox::bytes`]; the shard passes the ranges to the kernel without another
/// copy. Cleared after each round, it allocates nothing once warm.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Messages in sequence.
    pub bytes: Vec<u8>,
    sends: Vec<Send>,
    /// Messages to [`Target::LOOPBACK`].
    looped: VecDeque<Send>,
}

/// Message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Target and listener of the message.
    pub target: Target,
    range: (u32, u32),
    /// Token for [`Failure`] if the message cannot be sent. 0: the sender needs no report.
    pub token: u64,
    /// Set if the sender has a fallback. Such a message fails early if it needs a new connection that is not
    /// established in time (`strowger-net`).
    pub has_fallback: bool,
}

impl Send {
    /// Returns the range of the message in [`Outbox::bytes`].
    pub fn range(&self) -> Range<usize> {
        self.range.0 as usize..self.range.1 as usize
    }
}

/// Failure to send a message (RFC 3261 section 17.1.4).
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// [`Send::token`] of the message.
    pub token: u64,
}

impl Outbox {
    /// Creates an outbox without memory; it grows with the first rounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the start of the next message. The caller appends the message to [`Outbox::bytes`] from there on, then
    /// passes its range to [`Outbox::send`].
    pub fn start(&self) -> usize {
        self.bytes.len()
    }

    /// Adds `range` of [`Outbox::bytes`] to the messages to send, for `target`. The same range may be added several
    /// times. A message to [`Target::LOOPBACK`] is not sent: [`Outbox::take_looped`] returns it.
    pub fn send(&mut self, target: Target, range: Range<usize>, token: u64) {
        debug_assert!(range.end <= self.bytes.len());
        let range = (range.start as u32, range.end as u32);
        let send = Send { target, range, token, has_fallback: false };
        if target.is_loopback() {
            self.looped.push_back(send);
        } else {
            self.sends.push(send);
        }
    }

    /// Takes the next message to [`Target::LOOPBACK`], in the order of [`Outbox::send`]: its bytes replace those of `into`. Returns its token.
    /// The owner of an outbox with such messages takes all of them before it sends.
    pub fn take_looped(&mut self, into: &mut Vec<u8>) -> Option<u64> {
        let send = self.looped.pop_front()?;
        into.clear();
        into.extend_from_slice(&self.bytes[send.range()]);
        Some(send.token)
    }

    /// Tells whether messages to [`Target::LOOPBACK`] wait to be taken.
    pub fn has_looped(&self) -> bool {
        !self.looped.is_empty()
    }

    /// Marks the last message as one with a fallback ([`Send::has_fallback`]).
    pub fn set_fallback(&mut self) {
        if let Some(send) = self.sends.last_mut() {
            send.has_fallback = true;
        }
    }

    /// Returns the messages to send, in the order of their calls.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// Tells whether there is no message to send.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Clears the messages at the end of a round; the memory stays allocated.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
        self.looped.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, ListenerId, Transport};

    #[test]
    fn looped_messages_are_taken_in_order_and_never_sent() {
        let remote = "192.0.2.7:5060".parse().unwrap();
        let caller = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        let mut out = Outbox::new();
        for (target, text) in [(Target::LOOPBACK, "one"), (caller.reply(), "two"), (caller.looped().reply(), "three")] {
            let start = out.start();
            out.bytes.extend_from_slice(text.as_bytes());
            out.send(target, start..out.bytes.len(), text.len() as u64);
        }
        let sent: Vec<&[u8]> = out.sends().iter().map(|send| &out.bytes[send.range()]).collect();
        assert_eq!(sent, [b"two"]);
        let mut bytes = b"before".to_vec();
        assert!(out.has_looped());
        assert_eq!((out.take_looped(&mut bytes), &bytes[..]), (Some(3), &b"one"[..]));
        assert_eq!((out.take_looped(&mut bytes), &bytes[..]), (Some(5), &b"three"[..]));
        assert_eq!((out.take_looped(&mut bytes), out.has_looped()), (None, false));
    }
}
