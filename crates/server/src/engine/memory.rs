//! Return of memory to the system.

use super::stack::Stack;
use strowger_core::Now;

/// Return of memory to the operating system after a drop of the load: stepwise while the tables empty, and a last time
/// when no timer is left.
#[derive(Default)]
pub(super) struct Memory {
    /// Highest number of live transactions since the last drop of the load.
    most_transactions: u64,
    /// Number of remaining steps that return memory to the operating system; zero once no timer is left.
    gives_left: u32,
    /// [`Now::mono`] of the last such step.
    gave_back: u64,
}

impl Memory {
    /// Tells whether memory is to be returned now. `rests`: no timer of the state machines runs. `pings`: number of transactions that begin and
    /// end in each step of a round of pings.
    pub(super) fn step(&mut self, now: Now, stack: &Stack, rests: bool, pings: u64) -> bool {
        const WORTH_IT: u64 = 1_024;
        // Milliseconds. The steps together cover the time for which transactions exist after their final response.
        const STEP: u64 = 2_000;
        const STEPS: u32 = 20;
        let counts = stack.core.transactions.counts();
        let alive = (counts.servers + counts.clients).saturating_sub(pings);
        self.most_transactions = self.most_transactions.max(alive);
        if self.most_transactions >= WORTH_IT && alive * 4 < self.most_transactions {
            self.most_transactions = alive;
            self.gives_left = STEPS;
        }
        let is_due = self.gives_left > 0 && (rests || now.mono >= self.gave_back + STEP);
        if is_due {
            self.gave_back = now.mono;
            self.gives_left = if rests { 0 } else { self.gives_left - 1 };
        }
        is_due
    }
}
