//! A server as a host of the world.

use super::accounts::Written;
use super::observer::Input;
use super::{ServerHost, UPKEEP, shard_of_token};
use crate::world::{Host, listener, listens_at, nothing_left};
use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox, Target, Transport};
use strowger_server::engine::Engine;

impl Host for ServerHost {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        debug_assert_eq!(arrival.listener, listener(arrival.transport), "in the order of the configuration");
        self.pass_time(now);
        let shard = self.shard_of(bytes);
        let input = Input::Message(arrival, bytes);
        self.process.failed_targets.came(bytes);
        self.work(now, shard, input, out, |engine, out| engine.receive(now, arrival, bytes, out));
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let (shard, own) = shard_of_token(token);
        if shard < self.process.engines.len() && own != 0 {
            let errors = |server: &Self| server.process.engines[shard].transactions().counts().transport_errors;
            let before = errors(self);
            self.work(now, shard, Input::Unsent, out, |engine, out| {
                engine.unsent(now, own, "connection not made", true, out);
            });
            if errors(self) > before {
                self.process.failed_targets.fails(token, now.mono);
            }
        }
    }

    fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let (shard, token) = shard_of_token(token);
        self.work(now, shard, Input::Unsent, out, |engine, out| engine.cut_off(now, token, out));
    }

    fn closed(&mut self, _now: Now, flow: Flow, _out: &mut Outbox) {
        self.process.engines[usize::from(flow.shard)].closed(flow);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.pass_time(now);
        if self.settings.moves.pop_if(|due| *due <= now.mono).is_some() {
            self.move_buckets(now, out);
        }
        if self.settings.reloads.pop_if(|due| *due <= now.mono).is_some() {
            self.reload(now);
        }
        if let Some((_, end)) = self.settings.ends.pop_if(|(due, _)| *due <= now.mono) {
            self.end(now, end);
            // The next process numbers its rounds from the start.
            if self.has_restarted {
                return;
            }
        }
        self.exchange_counts(now);
        self.ask_users(now);
        while let Some(entry) = self.process.due.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let what = entry.remove();
            self.run(now, what, out);
            if self.has_restarted {
                return;
            }
        }
        for shard in 0..self.process.engines.len() {
            self.work(now, shard, Input::Timer, out, |engine, out| engine.poll(now, out));
        }
        if now.mono >= self.kept_up + UPKEEP {
            self.kept_up = now.mono;
            self.process.shared.keep_up(now);
            self.process.shared.drop_retired();
            self.process.shared.tidy(now);
            self.keep_bindings(now);
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        let due = self.process.due.keys().next().map(|(due, _)| *due);
        let settings = &self.settings;
        let planned = [settings.moves.last(), settings.reloads.last(), settings.ends.last().map(|(at, _)| at)];
        let probe = self.process.lookups.as_ref().and_then(|(_, asking)| asking.deadline());
        let exchange = self.next_exchange();
        let engines = self.process.engines.iter_mut().filter_map(Engine::deadline);
        engines.chain(due).chain(probe).chain(exchange).chain(planned.into_iter().flatten().copied()).min()
    }

    fn owner(&mut self) -> (u16, u16, u8) {
        let shard = self.random.u64() as usize % self.process.engines.len();
        (self.node(), self.process.number, shard as u8)
    }

    fn takes(&self, target: &Target) -> bool {
        target.name.is_none() && target.address == listens_at(self.settings.address, target.transport)
    }

    fn aliases(&mut self) -> Vec<(Flow, Transport, SocketAddr)> {
        std::mem::take(&mut self.aliases)
    }

    fn has_restarted(&mut self) -> bool {
        std::mem::take(&mut self.has_restarted)
    }

    fn check(&self) -> Result<(), String> {
        let here = self.settings.address;
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        if let Some((lookups, _)) = &self.process.lookups {
            lookups.check().map_err(|e| format!("{here}: {e}"))?;
        }
        for engine in &self.process.engines {
            let counts = engine.transactions().counts();
            let whole = counts.servers + counts.clients;
            if counts.keys + counts.forgotten != whole {
                return Err(format!("{here}: {} keys for {whole} transactions", counts.keys));
            }
            if counts.kept_messages > whole || counts.timers > 2 * whole || engine.contexts() as u64 > whole {
                return Err(format!("{here}: more is held than transactions need: {counts:?}"));
            }
        }
        let counted: usize = self.process.engines.iter().map(Engine::counted).sum();
        let listed: u32 = self.process.shared.call_limits.list().iter().map(|(_, calls)| calls).sum();
        if counted != listed as usize {
            return Err(format!("{here}: {counted} calls count under limits, and {listed} are counted"));
        }
        let bounds = &self.process.shared.bounds;
        let longest = self.process.engines.iter().map(|engine| engine.waiting().longest).max().unwrap_or(0);
        if longest > bounds.held_messages {
            return Err(format!("{here}: {longest} messages of one call are held back"));
        }
        self.check_counters().map_err(|e| format!("{here}: {e}"))
    }

    fn leftovers(&self) -> Result<(), String> {
        let here = self.settings.address;
        for engine in &self.process.engines {
            nothing_left(&here, engine.transactions())?;
            let (contexts, waiting) = (engine.contexts(), engine.waiting());
            if contexts > 0 || !waiting.is_nothing() {
                return Err(format!("{here}: {contexts} contexts, {waiting:?}"));
            }
        }
        let counts = self.counts();
        let calls = [counts.calls_tracked, counts.calls_logged, counts.dialogs_early, counts.dialogs_confirmed];
        if calls != [0; 4] {
            return Err(format!("{here}: tracked and logged calls, early and confirmed dialogs: {calls:?}"));
        }
        self.counts_left().map_err(|e| format!("{here}: {e}"))?;
        self.process.shared.drop_retired();
        if self.process.outlived.iter().any(|policy| policy.strong_count() > 0) {
            return Err(format!("{here}: a policy is held that no request goes by"));
        }
        if let Some(keeper) = &self.process.keeper {
            let gauges = keeper.journal.gauges();
            if keeper.is_busy || gauges.queued > 0 {
                return Err(format!("{here}: bindings are still to be written: {gauges:?}"));
            }
        }
        if let Some((lookups, _)) = &self.process.lookups {
            lookups.leftovers().map_err(|e| format!("{here}: {e}"))?;
        }
        if self.process.writer.open() > 0 {
            return Err(format!("{here}: {} rows of accounting wait", self.process.writer.open()));
        }
        if let Some(kept) = &self.kept {
            kept.leftovers().map_err(|e| format!("{here}: {e}"))?;
        }
        let (process, written) = (&self.process, Written::of(&self.settings));
        process.accounts.leftovers(written, &process.observer).map_err(|e| format!("{here}: {e}"))?;
        process.observer.leftovers().map_err(|e| format!("{here}: {e}"))
    }
}
