//! Limit of repeated messages to an unproved UDP source, which may be forged (RFC 3261 section 26.3.2.4).

use serde::{Deserialize, Serialize};
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
