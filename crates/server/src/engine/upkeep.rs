//! Upkeep of each round: bounds, gauges, memory.

use super::{Effect, Engine};
use strowger_core::Now;

impl Engine {
    /// Divides the memory bounds among the running shards: each has about as many calls of each source.
    pub(super) fn divide_bounds(&mut self) {
        let shards = self.shard.circumstances.shards;
        if shards != self.divided_among {
            self.divided_among = shards;
            let limits = &self.policy.config.limits;
            let [of_source, of_all] =
                [limits.request_memory_per_source, limits.request_memory_of_all].map(|bytes| bytes.div_ceil(shards));
            self.transactions.set_shares(of_source, of_all, limits.ipv6_prefix);
        }
    }

    /// Returns memory to the system after a drop of the load: step by step while the tables empty, and a last time when
    /// they rest.
    pub(super) fn give_memory_back(&mut self, now: Now) {
        const WORTH_IT: u64 = 1_024;
        // Milliseconds. The steps together cover the time that transactions live on.
        const STEP: u64 = 2_000;
        const STEPS: u32 = 20;
        let counts = self.transactions.counts();
        let alive = counts.servers + counts.clients;
        self.most_transactions = self.most_transactions.max(alive);
        if self.most_transactions >= WORTH_IT && alive * 4 < self.most_transactions {
            self.most_transactions = alive;
            self.gives_left = STEPS;
        }
        let rests = self.transactions.deadline().is_none() && self.proxy.deadline().is_none();
        if self.gives_left > 0 && (rests || now.mono >= self.gave_back + STEP) {
            self.gave_back = now.mono;
            self.gives_left = if rests { 0 } else { self.gives_left - 1 };
            self.effects.push(Effect::GiveBack);
        }
    }

    /// Updates the gauges of this engine, which the metrics show and the shutdown waits for. A round calls this at its
    /// end, before its messages leave: a peer that has a response finds it counted. Inputs after the end of a round
    /// call it themselves.
    pub fn show_gauges(&self) {
        let counters = self.counters();
        counters.unanswered.set(self.proxy.unanswered() as u64);
        counters.waiting.set(self.suspended.len() as u64);
        let calls = self.calls.counts();
        counters.calls_logged.set(calls.logged as u64);
        counters.calls_tracked.set(calls.tracked as u64);
        counters.dialogs_early.set(calls.early as u64);
        counters.dialogs_confirmed.set(calls.confirmed as u64);
        let counts = self.transactions.counts();
        counters.server_transactions.set(counts.servers);
        counters.client_transactions.set(counts.clients);
        counters.kept_bytes.set(counts.kept_bytes);
        counters.charged_bytes.set(counts.charged_bytes);
        counters.kept_abridged.set(counts.abridged);
        counters.retransmissions.set(counts.requests_resent + counts.responses_resent);
        counters.timeouts.set(counts.timeouts);
    }
}
