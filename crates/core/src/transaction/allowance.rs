//! Limit of repeated messages to an unproved UDP source, which may be forged (RFC 3261 section 26.3.2.4).

use super::{ClientId, ServerId, Transactions};
use crate::{Now, Outbox};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use strowger_message::Message;
use strowger_message::header::Via;

/// Maximum ratio of bytes sent to such a source and bytes received from it (RFC 9000 section 8).
pub const MOST_TIMES: usize = 3;

/// Bytes that may still be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allowance(u16);

/// Bytes of one unit, such that 16 bits can count three datagrams of 64 KiB.
const UNIT: usize = 4;

impl Allowance {
    pub(super) const UNBOUNDED: Self = Self(u16::MAX);

    pub(super) fn of(bytes: usize) -> Self {
        Self((bytes / UNIT).min(usize::from(u16::MAX - 1)) as u16)
    }

    pub(super) const fn is_bounded(self) -> bool {
        self.0 != u16::MAX
    }

    /// Subtracts bytes that are sent regardless of the allowance.
    pub(super) fn spend(&mut self, bytes: usize) {
        if self.is_bounded() {
            self.0 = self.0.saturating_sub(units(bytes));
        }
    }

    /// Subtracts bytes if enough are left. Returns false otherwise.
    pub(super) fn try_spend(&mut self, bytes: usize) -> bool {
        let is_enough = !self.is_bounded() || self.0 >= units(bytes);
        if is_enough {
            self.spend(bytes);
        }
        is_enough
    }

    /// Adds the bytes for a retransmitted request of this length.
    pub(super) fn earn(&mut self, bytes: usize) {
        if self.is_bounded() {
            *self = Self::of(usize::from(self.0) * UNIT + MOST_TIMES * bytes);
        }
    }
}

fn units(bytes: usize) -> u16 {
    bytes.div_ceil(UNIT).min(usize::from(u16::MAX)) as u16
}

impl Transactions {
    /// Marks the source of this request as unproved. Each response of the transaction user is sent once. A
    /// retransmission, by Timer G, by [`Transactions::respond_again`] or because the request is retransmitted, is sent
    /// only while retransmissions and the final response together have at most `bytes` plus [`MOST_TIMES`] times the
    /// bytes of retransmitted requests. A response longer than an ordinary response is not kept. Only the first call has
    /// an effect.
    pub fn doubt(&mut self, id: ServerId, bytes: usize) {
        if let Some(entry) = self.entries.get_mut(id.0).filter(|entry| !entry.allowance.is_bounded()) {
            entry.allowance = Allowance::of(bytes);
        }
    }

    /// Tells whether the source of this request is marked as unproved.
    pub fn is_doubted(&self, id: ServerId) -> bool {
        self.entries.get(id.0).is_some_and(|entry| entry.allowance.is_bounded())
    }

    /// Stops the copies of a request, which was sent to a peer that has proved nothing.
    pub fn stop_copies(&mut self, id: ClientId) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.allowance = Allowance::of(0);
        }
    }

    /// Sends a copy of a response that the user repeats until its ACK or PRACK, as [`Transactions::respond`] does.
    /// Returns false also if the source is doubted and its allowance is used up.
    pub fn respond_again(
        &mut self,
        now: Now,
        id: ServerId,
        status: u16,
        range: Range<usize>,
        out: &mut Outbox,
    ) -> bool {
        let entry = self.entries.get_mut(id.0);
        let is_allowed = entry.is_some_and(|entry| entry.allowance.try_spend(range.len()));
        is_allowed && self.respond(now, id, status, range, out)
    }
}

/// Returns the length of a request as sent, before its topmost Via was completed on arrival (RFC 3261 section 18.2.1, RFC 3581).
pub fn length_as_sent(message: &Message<'_>, top: &Via<'_>) -> usize {
    let received = top.received.map_or(0, |ip| ip.len() + b";received=".len());
    let rport = top.rport.map_or(0, |port| port.len() + 1);
    message.bytes().len().saturating_sub(received + rport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spent_and_earned() {
        let mut all = Allowance::UNBOUNDED;
        all.earn(1);
        all.spend(1 << 30);
        assert!(all.try_spend(1 << 30) && !all.is_bounded());
        let mut some = Allowance::of(1_000);
        some.spend(600);
        assert!(!some.try_spend(401) && some.try_spend(400) && !some.try_spend(1));
        some.earn(100);
        assert!(!some.try_spend(301) && some.try_spend(300));
        some.spend(1 << 30);
        assert!(!some.try_spend(1));
        // Three datagrams of the largest size fit.
        some.earn(65_535);
        assert!(some.try_spend(196_000) && some.is_bounded());
        for _ in 0..9 {
            some.earn(65_535);
        }
        assert!(some.is_bounded());
    }
}
