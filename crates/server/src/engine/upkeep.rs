//! Upkeep of each round: memory and gauges.

use super::Engine;
use super::stack::Stack;
use strowger_core::Now;

/// Return of memory to the system after a drop of the load: step by step while the tables empty, and a last time when
/// they rest.
#[derive(Default)]
pub(super) struct Memory {
    /// Highest number of live transactions since the last drop of the load.
    most_transactions: u64,
    /// Remaining steps that return memory to the system; zero once the tables rest.
    gives_left: u32,
    /// [`Now::mono`] of the last such step.
    gave_back: u64,
}

impl Memory {
    /// Tells whether memory is to be returned now. `pings`: transactions that come and go in each step of a round of pings.
    pub(super) fn step(&mut self, now: Now, stack: &mut Stack, pings: u64) -> bool {
        const WORTH_IT: u64 = 1_024;
        // Milliseconds. The steps together cover the time that transactions live on.
        const STEP: u64 = 2_000;
        const STEPS: u32 = 20;
        let counts = stack.core.transactions.counts();
        let alive = (counts.servers + counts.clients).saturating_sub(pings);
        self.most_transactions = self.most_transactions.max(alive);
        if self.most_transactions >= WORTH_IT && alive * 4 < self.most_transactions {
            self.most_transactions = alive;
            self.gives_left = STEPS;
        }
        let rests = stack.deadline().is_none();
        let is_due = self.gives_left > 0 && (rests || now.mono >= self.gave_back + STEP);
        if is_due {
            self.gave_back = now.mono;
            self.gives_left = if rests { 0 } else { self.gives_left - 1 };
        }
        is_due
    }
}

impl Engine {
    /// Updates the gauges of this engine, which the metrics show and the shutdown waits for. A round calls this at its
    /// end, before its messages leave: a peer that has a response finds it counted. Inputs after the end of a round
    /// call it themselves.
    pub fn show_gauges(&self) {
        let counters = self.counters();
        counters.unanswered.set(self.stack.proxy.unanswered() as u64);
        counters.waiting.set(self.waiting.suspended.len() as u64);
        let calls = self.calls.counts();
        counters.calls_logged.set(calls.logged as u64);
        counters.calls_tracked.set(calls.tracked as u64);
        counters.dialogs_early.set(calls.early as u64);
        counters.dialogs_confirmed.set(calls.confirmed as u64);
        let counts = self.stack.core.transactions.counts();
        counters.server_transactions.set(counts.servers);
        counters.client_transactions.set(counts.clients);
        counters.kept_bytes.set(counts.kept_bytes);
        counters.charged_bytes.set(counts.charged_bytes);
        counters.kept_abridged.set(counts.abridged);
        counters.retransmissions.set(counts.requests_resent + counts.responses_resent);
        counters.pings_pending.set(self.pings.pending() as u64);
        counters.timeouts.set(counts.timeouts.saturating_sub(counters.pings_unanswered.value()));
    }
}
