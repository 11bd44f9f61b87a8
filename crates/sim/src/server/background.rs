//! Activities around the engines of a server, by the clock of the world: look-ups, commits, reloads, the end of the
//! process.

use super::database::{Outage, OutageKind, error, outage};
use super::kept::INTERVAL;
use super::lookups::STEP;
use super::observer::Input;
use super::process::{Draining, Due, Process};
use super::{End, ServerHost, identity};
use std::sync::Arc;
use strowger_calls::CallView;
use strowger_core::{Now, Outbox};
use strowger_server::engine::{Effect, EngineInput};
use strowger_store::error::StoreError;

/// Time in ms between two checks whether a draining process has work in progress.
const DRAIN_STEP: u64 = 50;

impl ServerHost {
    /// Sends the pending look-ups of the engines to the database, and schedules the answer to each waiting request.
    pub(super) fn ask_users(&mut self, now: Now) {
        let Some((lookups, asking)) = &mut self.process.lookups else { return };
        let (lookups, batches) = (lookups.clone(), asking.take(lookups, &mut self.random));
        for (batch, (due, said)) in batches {
            self.chase(now, due);
            self.plan(due, Due::Looked(batch, said));
        }
        if lookups.is_busy() && !self.process.due.values().any(|due| matches!(due, Due::KeepTime)) {
            self.plan(now.mono + STEP, Due::KeepTime);
        }
        for (shard, ticket, result) in lookups.results() {
            self.plan(now.mono, Due::Answer(shard, EngineInput::Subscribers(vec![(ticket, result)])));
        }
    }

    /// Starts the commit of queued bindings, and schedules the answer to each waiting request.
    pub(super) fn keep_bindings(&mut self, now: Now) {
        let Some(keeper) = &mut self.process.keeper else { return };
        let written = keeper.written();
        let begins = !keeper.is_busy && keeper.journal.gauges().queued > 0;
        keeper.is_busy |= begins;
        for (shard, ticket, result) in written {
            let due = now.mono + self.random.between(0, 2);
            let due = self.in_order(shard, due);
            self.plan(due, Due::Answer(shard, EngineInput::Written(vec![(ticket, result)])));
        }
        if begins {
            self.plan(now.mono + 2, Due::Commit);
        }
    }

    /// Returns the time of an answer of the journal to a shard, not before an earlier answer.
    fn in_order(&self, shard: usize, due: u64) -> u64 {
        let is_of = |due: &Due| matches!(due, Due::Answer(to, EngineInput::Written(_)) if *to == shard);
        let last = self.process.due.iter().rev().find(|(_, due)| is_of(due)).map_or(0, |((at, _), _)| *at);
        due.max(last)
    }

    pub(super) fn run(&mut self, now: Now, what: Due, out: &mut Outbox) {
        match what {
            Due::Keep => self.commit_kept(now),
            Due::LastWords => self.kept.iter_mut().for_each(|kept| kept.remove_last_words(now)),
            Due::Group => self.take_group(now),
            Due::GroupWritten => self.group_written(now),
            Due::Counted => self.on_counts(now),
            Due::Answer(shard, answer) => {
                self.work(now, shard, Input::Other, out, |engine, out| engine.answered(now, answer, out));
            }
            Due::Policy(shard, number, policy) => {
                self.process.in_force[shard] = number;
                self.work(now, shard, Input::Other, out, |engine, out| {
                    engine.answered(now, EngineInput::Policy(policy), out);
                });
            }
            Due::Looked(batch, said) => {
                if let Some((lookups, asking)) = &mut self.process.lookups {
                    asking.answered(lookups, batch, said);
                }
                self.ask_users(now);
            }
            Due::KeepTime => {
                if let Some((lookups, asking)) = &mut self.process.lookups {
                    asking.keep_time(lookups);
                }
                self.ask_users(now);
                if let Some((lookups, asking)) = &mut self.process.lookups {
                    asking.check_connections(lookups);
                }
            }
            Due::Commit => self.commit(now),
            Due::Committed(error) => self.committed(now, error),
            Due::Drain => self.drain(now),
        }
    }

    /// Takes a group from the queue and decides its outcome: after a delay the group is on disk, or its commit fails.
    fn commit(&mut self, now: Now) {
        let Some(keeper) = &mut self.process.keeper else { return };
        if !keeper.steps.take() {
            keeper.is_busy = false;
            return;
        }
        let (shortest, longest) = self.settings.commits;
        let mut due = now.mono + self.random.between(shortest, longest);
        let mut fails = self.random.chance(self.settings.commit_failures);
        match outage(&self.settings.disk_outages, now.mono) {
            Some(Outage { kind: OutageKind::Failing, .. }) => fails = true,
            Some(Outage { kind: OutageKind::Silent, to, .. }) => due = due.max(to),
            Some(Outage { kind: OutageKind::Slow(more), .. }) => due += more,
            None => (),
        }
        let error = fails.then(|| error(&mut self.random));
        self.plan(due, Due::Committed(error));
    }

    fn committed(&mut self, now: Now, error: Option<StoreError>) {
        let Some(keeper) = &mut self.process.keeper else { return };
        self.site.rows.fail(error);
        keeper.steps.write();
        self.site.rows.fail(None);
        keeper.is_busy = false;
        self.committed += 1;
        // The more entries there are, the less often all entries are compared.
        let is_time = self.committed.is_multiple_of(1 + self.process.shared.location.gauges().bindings as u64 / 16);
        if is_time
            && keeper.journal.gauges().queued == 0
            && let Err(problem) = self.site.rows.check_memory(&self.process.shared.location, self.node())
        {
            self.wrong(problem);
        }
        self.keep_bindings(now);
    }

    /// Reads the configuration again; each shard gets the configuration a moment later.
    pub(super) fn reload(&mut self, now: Now) {
        self.policy += 1;
        let config = self.settings.read(self.policy);
        let identity = identity(self.settings.address, &config);
        let before = self.process.shared.policy();
        self.process.outlived.push(Arc::downgrade(&before));
        let policy = self.process.shared.set_config(config, identity);
        for shard in 0..self.process.engines.len() {
            let due = (now.mono + self.random.between(0, 20)).max(self.process.policies_due[shard]);
            self.process.policies_due[shard] = due;
            self.plan(due, Due::Policy(shard, self.policy, policy.clone()));
        }
    }

    pub(super) fn end(&mut self, now: Now, end: End) {
        match end {
            End::Killed => {
                // A commit in progress is on disk or not; no caller has learned the outcome.
                if self.random.chance(500)
                    && let Some(keeper) = &mut self.process.keeper
                {
                    keeper.steps.write();
                }
                if self.kept.is_some() {
                    self.kill_kept(now);
                }
                self.lose_rows();
                self.start(now);
            }
            End::Drained(most) if self.process.draining.is_none() => {
                self.process.draining = Some(Draining { until: now.mono + most, busy: None });
                self.plan(now.mono, Due::Drain);
            }
            End::Drained(_) => (),
        }
    }

    /// Ends a draining process as soon as `strowger-node` would end it.
    fn drain(&mut self, now: Now) {
        let is_busy = self.process.is_busy();
        let t1 = self.process.shared.policy().config.timers.t1.as_millis() as u64;
        let Some(draining) = &mut self.process.draining else { return };
        draining.busy = if is_busy { Some(now.mono) } else { draining.busy };
        // The ACK of a call that was just answered, or of a failure, has not arrived yet.
        let is_over = draining.busy.is_none_or(|last| now.mono >= last + t1);
        if now.mono < draining.until && !is_over {
            return self.plan(now.mono + DRAIN_STEP, Due::Drain);
        }
        self.write_all();
        self.commit_kept(now);
        self.write_rows();
        self.leave_counts(now);
        self.start(now);
    }

    /// Persists the current state of a call, or removes the persisted state.
    pub(super) fn keep(&mut self, now: Now, change: Effect) {
        match self.kept.as_mut().map_or(Ok(false), |kept| kept.take(now, change, &self.led)) {
            Ok(true) => self.plan(now.mono + INTERVAL, Due::Keep),
            Ok(false) => (),
            Err(problem) => self.wrong(problem),
        }
    }

    /// Writes the pending changes of persisted calls to disk.
    fn commit_kept(&mut self, now: Now) {
        match self.kept.as_mut().map_or(Ok(None), |kept| kept.commit(now)) {
            Ok(Some(due)) => self.plan(due, Due::LastWords),
            Ok(None) => (),
            Err(problem) => self.wrong(problem),
        }
    }

    /// Loses or completes the write of persisted calls at a kill.
    fn kill_kept(&mut self, now: Now) {
        let (calls, is_written) = (self.tracked(now), self.random.chance(500));
        let Some(kept) = &mut self.kept else { return };
        if let Err(problem) = kept.on_kill(now, is_written).and_then(|()| kept.check(&calls)) {
            self.wrong(problem);
        }
    }

    fn tracked(&self, now: Now) -> Vec<CallView> {
        let engines = self.process.engines.iter();
        engines.flat_map(|engine| engine.list_calls(now, 0, usize::MAX, None).calls).collect()
    }

    /// Continues the calls on disk in the next process.
    fn take_over(&mut self, now: Now) {
        let left = self.kept.as_ref().map_or_else(|| Ok(Default::default()), |kept| kept.calls(now));
        let (calls, led) = left.unwrap_or_else(|problem| {
            self.wrong(problem);
            Default::default()
        });
        self.led = led;
        self.kept.iter_mut().for_each(|kept| kept.restored(&calls));
        for call in calls {
            let shard = self.process.owners[usize::from(call.bucket())];
            if self.process.engines[shard].take_over(now, vec![call]) > 0 {
                self.wrong("kept calls: one is found under other keys".into());
            }
        }
    }

    /// Writes all queued bindings at a graceful end.
    fn write_all(&mut self) {
        while let Some(keeper) = self.process.keeper.as_mut().filter(|keeper| keeper.journal.gauges().queued > 0) {
            keeper.steps.write();
            keeper.steps.take();
        }
        if let Some(keeper) = &mut self.process.keeper {
            keeper.steps.write();
        }
    }

    fn start(&mut self, now: Now) {
        self.process = Process::start(now, &self.settings, self.policy, &self.site, &mut self.random);
        (self.has_restarted, self.has_ended) = (true, true);
        self.aliases.clear();
        self.record_counts(now);
        self.write_last_words(now);
        self.take_over(now);
        self.record_counts(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, CalleeAnswer, Line};
    use crate::network::{Conditions, Network};
    use crate::node::SimNode;
    use crate::random::Random;
    use crate::server::{FixedBounds, Keeping, ServerSettings};
    use crate::world::{START, World};
    use std::net::SocketAddr;
    use strowger_core::Transport;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 1, last], 5060))
    }

    /// Returns a server without passwords that persists calls, and ends them after two seconds.
    fn server(killed: u64) -> ServerHost {
        let config = "domains = [\"home.example\"]\nregistrar.authenticate = false\nregistrar.durability = \"none\"\n\
                      auth.calls = false\nauth.secret = \"the secret of a site\"\nproxy.relay_for = \"everyone\"\n\
                      nat.ping_interval = \"never\"\nlog.calls_per_minute = 0\nstore.database = \"memory\"\n\
                      dialogs.track = true\ndialogs.lifetime = \"2s\"\ndialogs.folder = \"calls\"\n";
        let settings = ServerSettings {
            address: address(1),
            configs: vec![config.to_owned()],
            bounds: FixedBounds::default(),
            reloads: Vec::new(),
            names: Vec::new(),
            lookups: (1, 1),
            failures: 0,
            database: None,
            credentials: None,
            counts: None,
            mailbox: None,
            keeping: Keeping::Shared,
            commits: (1, 1),
            commit_failures: 0,
            disk_outages: Vec::new(),
            shards: 1,
            moves: Vec::new(),
            chased: 0,
            ends: vec![(killed, End::Killed)],
        };
        ServerHost::new(START, settings, 1)
    }

    /// The laws must record the messages that a process sends at its start, and these messages need a connection that
    /// stays open.
    #[test]
    fn a_process_ends_at_once_a_call_whose_time_is_over() {
        let mut alice = Agent::new("alice", "home.example", Line::new(address(2), Transport::Udp), address(1), 2);
        let mut bob = Agent::new("bob", "home.example", Line::new(address(3), Transport::Tcp), address(1), 3);
        bob.plan_register(START.mono, 600);
        bob.will_answer(vec![CalleeAnswer::Accept(0)]);
        alice.plan_call(START.mono + 1_000, "sip:bob@home.example", None);
        // At this time the BYEs of the previous process are in transit, and the end of the call is not on disk yet.
        let server = server(START.mono + 3_210);
        let hosts: [(SocketAddr, SimNode); 3] =
            [(address(1), server.into()), (address(2), alice.into()), (address(3), bob.into())];
        let conditions = Conditions { delay: (40, 40), ..Conditions::PERFECT };
        let mut world = World::new(Network::new(conditions, Random::new(1)), hosts.into());
        world.trace = Some(Vec::new());
        assert_eq!(world.run(), Ok(()));
        let of_bob = |line: &&String| line.contains("CSeq: 2 BYE");
        let lines: Vec<String> = world.trace.into_iter().flatten().filter(|line| of_bob(&line)).collect();
        let heads: Vec<&str> = lines.iter().filter_map(|line| line.lines().next()).collect();
        assert_eq!(
            heads,
            [
                "4200 127.0.1.1:5060 -> 127.0.1.3:32768 tcp",
                "4210 127.0.1.1:5060 -> 127.0.1.3:5060 tcp",
                "4250 127.0.1.3:5060 -> 127.0.1.1:32769 tcp"
            ]
        );
    }
}
