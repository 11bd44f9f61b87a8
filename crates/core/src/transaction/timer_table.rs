//! Timers A to M as lengths of time (RFC 3261 table 4, RFC 6026).

use super::step::{End, Retransmission};
use crate::timer::{Length, TimerSettings, Timers};

/// Queues of the timer lengths of transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerTable {
    /// T1 times 1, 2, 4, ... 64.
    doubled: [Length; 7],
    t2: Length,
    pub(super) now: Length,
    t4: Length,
    t1_64: Length,
    b: Length,
    pub(super) c: Length,
    d: Length,
    /// Time until a 100 is due to a request other than INVITE.
    pub(super) trying: Length,
}

impl TimerTable {
    pub(super) fn new(settings: &TimerSettings, timers: &mut Timers) -> Self {
        Self {
            doubled: std::array::from_fn(|n| timers.length(settings.t1.saturating_mul(1 << n), 1)),
            t2: timers.length(settings.t2, 1),
            now: timers.length(0, 1),
            t4: timers.length(settings.t4, settings.step),
            t1_64: timers.length(settings.t1_64(), settings.step),
            b: timers.length(settings.b.unwrap_or_else(|| settings.t1_64()), settings.step),
            c: timers.length(settings.c, 1),
            d: timers.length(settings.d, settings.step),
            trying: timers.length(settings.until_t2(), 1),
        }
    }

    /// Returns the time until the next retransmission.
    pub(super) fn retransmission(
        &self,
        change: Retransmission,
        attempts: &mut u8,
        settings: &TimerSettings,
    ) -> Option<Length> {
        let doubled = |attempts: u8| self.doubled[usize::from(attempts).min(self.doubled.len() - 1)];
        match change {
            Retransmission::Unchanged | Retransmission::Stop => None,
            Retransmission::Start => {
                *attempts = 0;
                Some(doubled(0))
            }
            Retransmission::Double => {
                *attempts = attempts.saturating_add(1);
                Some(doubled(*attempts))
            }
            Retransmission::DoubleToT2 => {
                *attempts = attempts.saturating_add(1);
                let pause = settings.t1.saturating_mul(1 << (*attempts).min(6));
                Some(if pause < settings.t2 { doubled(*attempts) } else { self.t2 })
            }
            Retransmission::T2 => Some(self.t2),
        }
    }

    /// Returns the time until the state ends.
    pub(super) const fn end(&self, change: End) -> Option<Length> {
        match change {
            End::Unchanged | End::Stop => None,
            End::Now => Some(self.now),
            End::T4 => Some(self.t4),
            End::T1_64 => Some(self.t1_64),
            End::B => Some(self.b),
            End::D => Some(self.d),
        }
    }
}
