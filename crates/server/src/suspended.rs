//! Requests that wait for a slow answer, and later messages of the same call and sender, which are held back behind
//! them.

use crate::decider::Decider;
use crate::engine::{Engine, EngineRecord};
use crate::handling::{Handling, Progress};
use crate::policy::InForce;
use crate::question::{HostKey, QuestionKind, Resolved};
use crate::registration_log::{Changes, Sender};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use strowger_cache::error::CacheError;
use strowger_core::routing::Request;
use strowger_core::slots::{Id, Slots};
use strowger_core::source::counted;
use strowger_core::transaction::{Role, ServerId, TransactionUser};
use strowger_core::{Arrival, Now, Outbox, Target, call};
use strowger_message::{Index, Message, respond};
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// Key of messages that stay in order: hashes of the Call-ID and of the sender's tag. Another peer that knows the
/// Call-ID delays none of them.
pub(crate) type HoldKey = (u32, u32);

/// Work that waits under a ticket.
#[derive(Debug)]
pub(crate) enum Suspended {
    /// Request that waits for an answer to its stage.
    Request(Box<SuspendedRequest>),
    /// Responses to a REGISTER whose bindings or credentials are being written.
    Registration(Box<Registration>),
}

/// Request that waits for the answer to a question.
#[derive(Debug)]
pub(crate) struct SuspendedRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    pub(crate) call_hash: u32,
    pub(crate) line: HoldKey,
    /// Kind of the question.
    pub(crate) asks: QuestionKind,
    /// Server transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    /// [`Now::mono`] when the request began to wait.
    pub(crate) since: u64,
    pub(crate) progress: Progress,
}

/// Message that is held back behind a suspended request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    /// Policy with which the message came. It is not part of the bytes: a message read from bytes uses the policy of
    /// its new engine.
    #[serde(skip)]
    policy: Option<Arc<InForce>>,
}

impl SuspendedRequest {
    /// Takes the answer. An answer of another kind is ignored.
    fn hear(&mut self, answer: LookupResult) {
        let answers = &mut self.progress.answers;
        match (self.asks, answer) {
            (QuestionKind::Name, LookupResult::Name(name, to)) => answers.names.push((name, to)),
            (QuestionKind::Credential, LookupResult::Subscriber(result)) => answers.credential = Some(result),
            (QuestionKind::Registered, LookupResult::Registered(result)) => answers.registered = Some(result),
            (QuestionKind::User(place), LookupResult::Subscriber(result)) => answers.user = Some((place, result)),
            _ => (),
        }
    }
}

/// Counts of suspended requests and held messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Requests that wait for an answer or a commit.
    pub requests: usize,
    /// Messages held back behind others of their call and sender.
    pub held: usize,
    /// Length of the longest queue of held messages of one call and sender.
    pub longest: usize,
    /// Pairs of call and sender with suspended requests, plus pairs with held messages.
    pub lines: usize,
    /// Sources of requests that wait for a name.
    pub sources: usize,
    /// Bytes of all that waits for look-ups.
    pub bytes: usize,
}

impl WaitingCounts {
    /// Returns the number of suspended requests and held messages.
    pub fn messages(&self) -> usize {
        self.requests + self.held
    }

    /// Tells whether all counts are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Requests that wait for an answer, and messages held back behind them.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) suspended: Slots<Suspended>,
    /// Memory of resumed requests, reused for the next ones.
    #[expect(clippy::vec_box, reason = "they go into slots as they are")]
    spare: Vec<Box<SuspendedRequest>>,
    /// Held messages by call and sender, in order of arrival.
    held: HashMap<HoldKey, VecDeque<Held>>,
    /// Number of suspended requests by call and sender.
    lines: HashMap<HoldKey, usize>,
    /// Number of requests that wait for a name, by source.
    resolving: HashMap<IpAddr, usize>,
    /// Bytes of all that waits.
    bytes: usize,
}

/// Answer to one question.
pub(crate) enum LookupResult {
    Name(HostKey, Resolved),
    Subscriber(Result<subscriber::Answer, StoreError>),
    /// Value in the cache of registered users, if it has one.
    Registered(Result<Option<Box<[u8]>>, CacheError>),
}

#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) ok: Vec<u8>,
    pub(crate) failed: Vec<u8>,
    pub(crate) target: Option<Target>,
    /// Address of record, for the log.
    pub(crate) aor: String,
    /// Log entry for the moment when the bindings are stored, if there is one.
    pub(crate) log: Option<(Changes, Sender)>,
    /// Number of missing results: of the journal, and of the credential cache.
    pub(crate) left: u8,
    /// Set if one of the results demands a 500.
    pub(crate) has_failed: bool,
    /// Set if the cache stores the credentials of the registrant.
    pub(crate) stores: bool,
    /// Set if a failure of the cache demands a 500.
    pub(crate) needs_cache: bool,
}

impl Waiting {
    /// Returns the counts of suspended requests and held messages.
    pub(crate) fn counts(&self) -> WaitingCounts {
        WaitingCounts {
            requests: self.suspended.len(),
            held: self.held.values().map(VecDeque::len).sum(),
            longest: self.held.values().map(VecDeque::len).max().unwrap_or(0),
            lines: self.held.len() + self.lines.len(),
            sources: self.resolving.len(),
            bytes: self.bytes,
        }
    }

    /// Tells whether no request is suspended.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Tells whether a request of this line is suspended.
    pub(crate) fn holds(&self, line: HoldKey) -> bool {
        self.lines.contains_key(&line)
    }

    /// Returns the queue of held messages of a line.
    fn queue(&mut self, line: HoldKey) -> &mut VecDeque<Held> {
        self.held.entry(line).or_default()
    }

    /// Enters a request that begins to wait, and returns its ticket. `source`: the source that waits for a name.
    fn insert(&mut self, waiting: SuspendedRequest, bytes: &[u8], source: Option<IpAddr>) -> Id {
        *self.lines.entry(waiting.line).or_insert(0) += 1;
        if let Some(source) = source {
            *self.resolving.entry(source).or_insert(0) += 1;
        }
        let mut entry = match self.spare.pop() {
            Some(mut spare) => {
                let bytes = std::mem::take(&mut spare.bytes);
                *spare = SuspendedRequest { bytes, ..waiting };
                spare
            }
            None => Box::new(waiting),
        };
        entry.bytes.extend_from_slice(bytes);
        self.suspended.insert(Suspended::Request(entry))
    }

    /// Removes the suspended request of this ticket. `prefix`: bits of an IPv6 network that counts as one source.
    fn remove(&mut self, ticket: Id, prefix: u8) -> Option<Box<SuspendedRequest>> {
        let Some(Suspended::Request(waiting)) = self.suspended.remove(ticket) else { return None };
        one_less(&mut self.lines, &waiting.line);
        if waiting.asks == QuestionKind::Name {
            let arrival = &waiting.arrival;
            let source = counted(arrival.remote.ip(), prefix);
            one_less(&mut self.resolving, &source);
        }
        Some(waiting)
    }

    /// Returns the next held message of a line unless a request of the line is suspended.
    fn next_held(&mut self, line: HoldKey) -> Option<Held> {
        if self.holds(line) {
            return None;
        }
        let queue = self.held.get_mut(&line)?;
        let held = queue.pop_front();
        if held.is_none() {
            self.held.remove(&line);
        }
        held
    }

    /// Keeps the memory of a resumed request for the next one.
    fn keep_spare(&mut self, mut waiting: Box<SuspendedRequest>) {
        const SPARE: usize = 64;
        const LONGEST: usize = 8_192;
        if self.spare.len() < SPARE && waiting.bytes.capacity() <= LONGEST {
            waiting.bytes.clear();
            waiting.progress = Progress::new(waiting.progress.began);
            self.spare.push(waiting);
        }
    }
}

impl Decider<'_> {
    pub(crate) fn line_of(&self, request: &Request<'_>) -> HoldKey {
        (request.call_hash, call::hash(self.shared.call_secret, request.from_tag))
    }

    /// Returns the key under which a source is counted: an IPv4 address, or an IPv6 network of `limits.ipv6_prefix`
    /// bits.
    pub(crate) fn source_of(&self, arrival: &Arrival) -> IpAddr {
        counted(arrival.remote.ip(), self.policy.config.limits.ipv6_prefix)
    }
}

impl Engine {
    /// Holds a message behind the suspended ones of its line. A copy of a held message is ignored. Without room the
    /// message is dropped; over a connection, by which it comes once, it is answered.
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
        if is_full || !has_room(self) {
            self.counters().held_dropped.one();
            return self.shed(arrival, bytes, out);
        }
        self.begins_to_wait(arrival, bytes.len());
        let held = Held { bytes: bytes.to_vec(), arrival: *arrival, policy: Some(self.policy.clone()) };
        self.waiting.queue(line).push_back(held);
    }

    /// Tells whether a message of this source and length may wait for a look-up. `in_dialog`: it proved its dialog, and
    /// may use the reserve.
    pub(crate) fn has_room_to_wait(&self, arrival: &Arrival, bytes: usize, in_dialog: bool) -> bool {
        let most = self.shared.bounds.lookup_memory.div_ceil(self.shard.circumstances.shards);
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

    /// Tells whether one more name may be looked up for a request. Each source has its share. Half of the room is for
    /// requests that have shown a password or a route token of this server, and for emergency calls.
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
        let of_source = self.waiting.resolving.get(&self.decider().source_of(arrival)).copied().unwrap_or(0);
        self.waiting.suspended.len() < most
            && of_source < most_of_source
            && self.has_room_to_wait(arrival, handling.request.message.bytes().len(), proof.in_dialog)
    }

    /// Suspends a request with its progress. The returned ticket comes back with the answer.
    pub(crate) fn suspend(&mut self, handling: &mut Handling<'_, '_>, asks: QuestionKind) -> u64 {
        let request = handling.request;
        self.begins_to_wait(request.arrival, request.message.bytes().len());
        let line = self.decider().line_of(request);
        let source = (asks == QuestionKind::Name).then(|| self.decider().source_of(request.arrival));
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
        waiting.hear(answer);
        let SuspendedRequest { bytes, arrival, line, server, progress, .. } = &mut *waiting;
        let (line, server) = (*line, *server);
        let its = progress.policy.take();
        self.by_policy(its, |engine| {
            let mut reader = engine.stack.core.lend_reader();
            if let Some(request) = reader.read_again(arrival, bytes, &engine.reading()) {
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
            if let Some(request) = reader.read_again(&arrival, &bytes, &engine.reading()) {
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

/// Decrements a count, and removes it at zero.
fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
