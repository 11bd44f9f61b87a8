//! Requests that wait for a slow answer, and later messages of the same call and sender, which are held back behind
//! them.

use crate::engine::{Engine, EngineRecord};
use crate::handling::{Handling, Progress};
use crate::question::QuestionKind;
use crate::waiting::{Held, HoldKey, LookupResult, Suspended, SuspendedRequest, line_of};
use std::net::IpAddr;
use strowger_core::routing::Request;
use strowger_core::slots::Id;
use strowger_core::source::counted;
use strowger_core::transaction::{Role, ServerId, TransactionUser};
use strowger_core::{Arrival, Now, Outbox, call};
use strowger_message::{Index, Message, respond};

impl Engine {
    /// Holds a message behind the suspended requests of its line, that is, of the same call and sender. A copy of a
    /// held message is ignored. If there is no room, the message is dropped, or answered if it came over a connection,
    /// because then it is not retransmitted.
    pub(crate) fn hold(&mut self, now: Now, line: HoldKey, request: &Request<'_>, out: &mut Outbox) {
        let (bytes, arrival) = (request.message.bytes(), request.arrival);
        let most = self.shared.bounds.held_messages;
        let queue = self.waiting.queue(line);
        if arrival.flow.is_none()
            && queue.iter().any(|held| held.arrival.remote == arrival.remote && held.bytes == bytes)
        {
            return;
        }
        let is_full = queue.len() >= most;
        let has_room = |engine: &Self| {
            engine.has_room_to_wait(arrival, bytes.len(), false)
                || (engine.decider().proves_dialog(now, request) && engine.has_room_to_wait(arrival, bytes.len(), true))
        };
        // The user agent sends the CANCEL of a far INVITE once.
        if !arrival.is_loopback() && (is_full || !has_room(self)) {
            self.counters().held_dropped.one();
            return self.shed(now, arrival, bytes, out);
        }
        self.begins_to_wait(arrival, bytes.len());
        let held = Held { bytes: bytes.to_vec(), arrival: *arrival, policy: Some(self.policy.clone()) };
        self.waiting.queue(line).push_back(held);
    }

    /// Tells whether a message of this source and length may wait for a look-up. `in_dialog`: whether the message
    /// proved its dialog, and so may use the reserve.
    pub(crate) fn has_room_to_wait(&self, arrival: &Arrival, bytes: usize, in_dialog: bool) -> bool {
        let most = self.shared.bounds.lookup_memory.div_ceil(self.shard.process_status.shards);
        let (source, waiting) = (arrival.remote.ip(), self.waiting.bytes.saturating_add(bytes));
        match in_dialog {
            true => waiting <= raised(most) && self.stack.core.transactions.has_room_within_dialog(source, bytes),
            false => waiting <= most && self.stack.core.transactions.has_room(source, bytes),
        }
    }

    fn begins_to_wait(&mut self, arrival: &Arrival, bytes: usize) {
        self.waiting.bytes += bytes;
        self.stack.core.transactions.charge(arrival.remote.ip(), bytes);
    }

    fn ends_to_wait(&mut self, arrival: &Arrival, bytes: usize) {
        self.waiting.bytes -= bytes;
        self.stack.core.transactions.refund(arrival.remote.ip(), bytes);
    }

    /// Tells whether one more name may be looked up for a request. Each source has its share. Half of the room is
    /// reserved for requests that have proved a password or a route token of this server, and for emergency calls.
    pub(crate) fn may_resolve(&self, handling: &Handling<'_, '_>) -> bool {
        let (arrival, bounds) = (handling.request.arrival, &self.shared.bounds);
        let proof = &handling.progress.proof;
        let (most, most_of_source) = match (proof.in_dialog, proof.is_any()) {
            (true, _) => (raised(bounds.lookups), raised(bounds.lookups_per_source)),
            (false, true) => (bounds.lookups, bounds.lookups_per_source),
            (false, false) => {
                let is_full = self.waiting.suspended.len() >= bounds.lookups / 2;
                let share = if is_full && self.decider().is_emergency_of(handling) { 1 } else { 2 };
                (bounds.lookups / share, bounds.lookups_per_source)
            }
        };
        let of_source = self.waiting.resolving.get(&self.policy.source_of(arrival)).copied().unwrap_or(0);
        self.waiting.suspended.len() < most
            && of_source < most_of_source
            && self.has_room_to_wait(arrival, handling.request.message.bytes().len(), proof.in_dialog)
    }

    /// Tells whether further requests of this peer may wait for look-ups. While they may not, they wait at the connections of
    /// the peer.
    pub fn has_room(&self, peer: IpAddr) -> bool {
        let (waiting, bounds) = (&self.waiting, &self.shared.bounds);
        let most = bounds.lookup_memory.div_ceil(self.shard.process_status.shards);
        // A large message may not have the last part of the memory.
        if waiting.bytes >= most - most / 8 {
            return false;
        }
        if waiting.resolving.is_empty() {
            return true;
        }
        let source = counted(peer, self.policy.config.limits.ipv6_prefix);
        let of_source = waiting.resolving.get(&source).copied().unwrap_or(0);
        // Others do not wait for the names of this source. Half of the room is reserved.
        let is_full = of_source > 0 && waiting.suspended.len() >= bounds.lookups / 2;
        of_source < bounds.lookups_per_source && !is_full
    }

    /// Suspends a request with its progress. The returned ticket is in the answer.
    pub(crate) fn suspend(&mut self, handling: &mut Handling<'_, '_>, asks: QuestionKind) -> u64 {
        let request = handling.request;
        self.begins_to_wait(request.arrival, request.message.bytes().len());
        let line = line_of(request, self.shared.call_secret());
        let source = (asks == QuestionKind::Name).then(|| self.policy.source_of(request.arrival));
        let (arrival, call_hash, server) = (*request.arrival, request.call_hash, handling.server);
        let since = handling.now.mono;
        let progress = Progress { policy: Some(self.policy.clone()), ..handling.progress.take() };
        let bytes = Vec::new();
        let waiting = SuspendedRequest { bytes, arrival, call_hash, line, asks, server, since, progress };
        let id = self.waiting.insert(waiting, request.message.bytes(), source);
        if let Some(server) = server {
            self.stack.core.transactions.expect_answer(handling.now, server);
            self.stack.core.transactions.set_user(server, TransactionUser::new(Role::Suspended(id)));
        }
        id.to_u64()
    }

    /// Sends the 100 that is due to a request that waits for a look-up (RFC 4320 section 4.1).
    pub(crate) fn still_waits(&mut self, now: Now, ticket: Id, server: ServerId, out: &mut Outbox) {
        let Some(Suspended::Request(waiting)) = self.waiting.suspended.get(ticket) else { return };
        let mut index = Index::new();
        let limits = waiting.progress.policy.as_ref().map_or(&self.policy.limits, |its| &its.limits);
        if index.parse(&waiting.bytes, limits).is_ok() {
            let from = out.start();
            respond(&Message::new(&waiting.bytes, &index), 100, None, None, &mut out.bytes).finish(b"");
            self.stack.core.transactions.respond(now, server, 100, from..out.bytes.len(), out);
        }
    }

    /// Takes back the suspended request of this ticket, if there is one.
    pub(crate) fn resume(&mut self, ticket: Id) -> Option<Box<SuspendedRequest>> {
        let waiting = self.waiting.remove(ticket, self.policy.config.limits.ipv6_prefix)?;
        self.ends_to_wait(&waiting.arrival, waiting.bytes.len());
        if let Some(server) = waiting.server {
            self.stack.core.transactions.set_user(server, TransactionUser::NONE);
        }
        Some(waiting)
    }

    /// Resumes the request of this ticket with its answer, at its stage.
    pub(crate) fn go_on(&mut self, now: Now, ticket: u64, answer: LookupResult, out: &mut Outbox) {
        let Some(mut waiting) = self.resume(Id::from_u64(ticket)) else { return };
        let durations = &self.shared.durations[self.shard.number];
        let lookup = match waiting.asks {
            QuestionKind::Name => &durations.name_lookup,
            QuestionKind::Credential | QuestionKind::Registered | QuestionKind::User(_) => &durations.subscriber_lookup,
        };
        lookup.observe(now.mono.saturating_sub(waiting.since) * 1_000);
        waiting.take_answer(answer);
        let SuspendedRequest { bytes, arrival, line, server, progress, .. } = &mut *waiting;
        let (line, server) = (*line, *server);
        let its = progress.policy.take();
        self.by_policy(its, |engine| {
            let mut reader = engine.stack.core.lend_reader();
            if let Some(mut request) = reader.read_again(arrival, bytes, &engine.reading()) {
                request.call_hash = engine.shared.bridged_dialogs.placed_hash(request.call_hash, request.call_id);
                engine.advance(&mut Handling { now, request: &request, server, progress, out });
            }
            engine.stack.core.return_reader(reader);
        });
        self.waiting.keep_spare(waiting);
        self.release(now, line, out);
    }

    /// Handles the held messages of a line in order, until one is suspended.
    fn release(&mut self, now: Now, line: HoldKey, out: &mut Outbox) {
        while let Some(held) = self.waiting.next_held(line) {
            self.ends_to_wait(&held.arrival, held.bytes.len());
            self.enter_held(now, held, out);
        }
    }

    /// Handles a message that was held back, in this shard or another, under its policy. It was counted on arrival.
    pub(crate) fn enter_held(&mut self, now: Now, held: Held, out: &mut Outbox) {
        let Held { bytes, arrival, policy } = held;
        self.by_policy(policy, |engine| {
            let mut reader = engine.stack.core.lend_reader();
            if let Some(mut request) = reader.read_again(&arrival, &bytes, &engine.reading()) {
                request.call_hash = engine.shared.bridged_dialogs.placed_hash(request.call_hash, request.call_id);
                engine.enter(now, &request, out);
            }
            engine.stack.core.return_reader(reader);
        });
    }

    /// Takes out the suspended requests of this bucket and the messages held behind them, requests first. A request
    /// asks again with its new owner, at its stage. Answers that still arrive here find nothing.
    pub(crate) fn take_waiting(&mut self, now: Now, bucket: u8) -> Vec<EngineRecord> {
        let moves = |call_hash: u32| call::bucket(call_hash) == bucket;
        let waits = |s: &Suspended| matches!(s, Suspended::Request(waiting) if moves(waiting.call_hash));
        let waiting: Vec<Id> = self.waiting.suspended.iter().filter(|(_, s)| waits(s)).map(|(id, _)| id).collect();
        let mut taken = Vec::new();
        for id in waiting {
            let Some(waiting) = self.resume(id) else { continue };
            if let Some(server) = waiting.server {
                self.stack.core.transactions.abandon(now, server);
            }
            let SuspendedRequest { bytes, arrival, progress, .. } = *waiting;
            let age = now.mono.saturating_sub(progress.began.mono);
            taken.push(EngineRecord::Suspended { bytes, arrival, age, progress: Box::new(progress) });
        }
        let lines: Vec<HoldKey> =
            self.waiting.held.keys().copied().filter(|(call_hash, _)| moves(*call_hash)).collect();
        for line in lines {
            for held in self.waiting.held.remove(&line).unwrap_or_default() {
                self.ends_to_wait(&held.arrival, held.bytes.len());
                taken.push(EngineRecord::Held(held));
            }
        }
        taken
    }
}

/// Returns a bound plus the reserve of requests that proved their dialog.
const fn raised(bound: usize) -> usize {
    bound.saturating_add(bound.div_ceil(8))
}
