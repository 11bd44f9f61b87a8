//! Requests that wait for something slow, and later messages of the same call and sender, which are held back behind them.

use crate::asked::{Asked, Why};
use crate::engine::Engine;
use crate::registration_log::{Changes, Sender};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use strowger_core::routing::Request;
use strowger_core::slots::Id;
use strowger_core::source::counted;
use strowger_core::transaction::{Role, ServerId, TransactionUser};
use strowger_core::{Arrival, Now, Outbox, PeerName, Target, Transport, call};
use strowger_message::{Index, Message, Method, respond};
use strowger_store::subscriber::{Answer, LookupError};

/// Messages that go on in their order: those of one call and one sender, by hashes of the Call-ID and of the sender's tag. Another peer
/// that knows the Call-ID holds up no other.
pub(crate) type Line = (u32, u32);

/// What waits under a ticket.
#[derive(Debug)]
pub(crate) enum Parked {
    /// A request: it is looked at again with what was found.
    Request(Box<Waiting>),
    /// The answers to a REGISTER whose bindings are being written.
    Registration(Box<Registration>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    pub(crate) call_hash: u32,
    pub(crate) line: Line,
    /// For a name, of which one source may ask for so many.
    pub(crate) resolves: bool,
    /// Its transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    pub(crate) found: Found,
}

#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) ok: Vec<u8>,
    pub(crate) failed: Vec<u8>,
    pub(crate) target: Option<Target>,
    /// For the log.
    pub(crate) aor: String,
    /// What is logged when it is kept, if anything is.
    pub(crate) log: Option<(Changes, Sender)>,
}

/// A name to resolve: host in lower case, port, transport, sips.
pub type HostKey = (Box<[u8]>, Option<u16>, Option<Transport>, bool);

/// Where a name leads.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub targets: Vec<(Transport, SocketAddr)>,
    /// What those of secure transports must prove: the name that was asked for, not one that it led to (RFC 5922 section 7.2).
    pub name: Option<PeerName>,
}

/// What look-ups of this request have found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) subscriber: Option<Result<Answer, LookupError>>,
    pub(crate) exists: Option<Result<Answer, LookupError>>,
    /// The look-up under way asks whether a user exists, not for a credential.
    pub(crate) asks_existence: bool,
    pub(crate) names: Vec<(HostKey, Resolved)>,
    /// Credentials were verified: a nonce counts once, so they must not be verified again.
    pub(crate) authenticated: bool,
    /// The credentials were right, but had been used before: nothing may change.
    pub(crate) replayed: bool,
    /// Its mark or seal proved that it goes to the other party of a call.
    pub(crate) in_dialog: bool,
    /// A 100 was sent.
    pub(crate) trying: bool,
}

impl Found {
    pub(crate) fn note_subscriber(&mut self, result: Result<Answer, LookupError>) {
        if self.asks_existence {
            self.exists = Some(result);
        } else {
            self.subscriber = Some(result);
        }
    }

    pub(crate) fn name(&self, key: &HostKey) -> Option<&Resolved> {
        self.names.iter().find(|(k, _)| k == key).map(|(_, resolved)| resolved)
    }
}

impl Engine {
    pub(crate) fn line_of(&self, request: &Request<'_>) -> Line {
        (request.call_hash, call::hash(self.shared.call_secret, request.from_tag))
    }

    /// Keeps a message behind those of its line that wait.
    pub(crate) fn hold(&mut self, line: Line, bytes: &[u8], arrival: &Arrival) {
        let most = self.shared.config.limits.held_messages_per_call;
        let queue = self.held.entry(line).or_default();
        let is_full = queue.len() >= most;
        if is_full || !self.has_room_to_wait(arrival, bytes.len()) {
            self.counters().held_dropped.one();
            return;
        }
        self.begins_to_wait(arrival, bytes.len());
        self.held.entry(line).or_default().push_back((bytes.to_vec(), *arrival));
    }

    /// Whether a message of this source and length may wait for a look-up.
    pub(crate) fn has_room_to_wait(&self, arrival: &Arrival, bytes: usize) -> bool {
        let most = self.shared.config.limits.lookup_memory.div_ceil(self.circumstances.shards);
        self.waiting_bytes.saturating_add(bytes) <= most && self.transactions.has_room(arrival.remote.ip(), bytes)
    }

    fn begins_to_wait(&mut self, arrival: &Arrival, bytes: usize) {
        self.waiting_bytes += bytes;
        self.transactions.charge(arrival.remote.ip(), bytes);
    }

    fn ends_to_wait(&mut self, arrival: &Arrival, bytes: usize) {
        self.waiting_bytes -= bytes;
        self.transactions.refund(arrival.remote.ip(), bytes);
    }

    /// Whether one more name may be looked up for a request. One source has its share; half of the room is for requests that have shown a
    /// password or a mark of ours.
    pub(crate) fn may_resolve(&self, asked: &Asked<'_, '_>) -> bool {
        let (arrival, limits) = (asked.request.arrival, &self.shared.config.limits);
        let known = asked.found.authenticated || asked.found.in_dialog;
        let most = if known { limits.lookup_queue } else { limits.lookup_queue / 2 };
        let of_source = self.resolving.get(&self.source_of(arrival)).copied().unwrap_or(0);
        self.parked.len() < most
            && of_source < limits.lookups_per_source
            && self.has_room_to_wait(arrival, asked.request.message.bytes().len())
    }

    /// Lets a request wait for a look-up, `resolves`: of a name; the ticket comes back with the answer.
    pub(crate) fn park(&mut self, asked: &Asked<'_, '_>, resolves: bool) -> u64 {
        let request = asked.request;
        self.counters().parked.one();
        self.begins_to_wait(request.arrival, request.message.bytes().len());
        let line = self.line_of(request);
        *self.waiting.entry(line).or_insert(0) += 1;
        if resolves {
            *self.resolving.entry(self.source_of(request.arrival)).or_insert(0) += 1;
        }
        let id = self.parked.insert(Parked::Request(Box::new(Waiting {
            bytes: request.message.bytes().to_vec(),
            arrival: *request.arrival,
            call_hash: request.call_hash,
            line,
            resolves,
            server: asked.server,
            found: asked.found.clone(),
        })));
        if let Some(server) = asked.server {
            self.transactions.expect_answer(asked.now, server);
            self.transactions.set_user(server, TransactionUser::new(Role::Suspended, id));
        }
        id.to_u64()
    }

    /// A 100 is due to a request that waits for a look-up (RFC 4320 section 4.1).
    pub(crate) fn still_waits(&mut self, now: Now, ticket: Id, server: ServerId, out: &mut Outbox) {
        let Some(Parked::Request(waiting)) = self.parked.get(ticket) else { return };
        let mut index = Index::new();
        if index.parse(&waiting.bytes, &self.shared.limits).is_ok() {
            let from = out.start();
            respond(&Message::new(&waiting.bytes, &index), 100, None, None, &mut out.bytes).finish(b"");
            self.transactions.respond(now, server, 100, from..out.bytes.len(), out);
        }
    }

    /// Takes back a request that waits, if this ticket stands for one.
    pub(crate) fn unpark(&mut self, ticket: Id) -> Option<Box<Waiting>> {
        let Some(Parked::Request(waiting)) = self.parked.remove(ticket) else { return None };
        self.ends_to_wait(&waiting.arrival, waiting.bytes.len());
        one_less(&mut self.waiting, &waiting.line);
        if waiting.resolves {
            let source = self.source_of(&waiting.arrival);
            one_less(&mut self.resolving, &source);
        }
        if let Some(server) = waiting.server {
            self.transactions.set_user(server, TransactionUser::NONE);
        }
        Some(waiting)
    }

    fn source_of(&self, arrival: &Arrival) -> IpAddr {
        counted(arrival.remote.ip(), self.shared.config.limits.ipv6_prefix)
    }

    /// The look-up that this ticket stands for has an answer, which `add` notes.
    pub(crate) fn go_on(&mut self, now: Now, ticket: u64, add: impl FnOnce(&mut Found), out: &mut Outbox) {
        let Some(mut waiting) = self.unpark(Id::from_u64(ticket)) else { return };
        add(&mut waiting.found);
        let (call_hash, line) = (waiting.call_hash, waiting.line);
        let mut index = Index::new();
        if index.parse(&waiting.bytes, &self.shared.limits).is_ok()
            && let Ok(request) = Request::of(Message::new(&waiting.bytes, &index), &waiting.arrival, call_hash)
        {
            let (server, found, why) = (waiting.server, &mut waiting.found, Why::Status);
            let mut asked = Asked { now, request: &request, server, found, why, out };
            match (waiting.server, request.method) {
                (Some(_), _) => self.request(&mut asked),
                (None, Method::Ack) => self.ack(&mut asked),
                (None, _) => self.register(&mut asked),
            }
        }
        self.release(now, line, out);
    }

    /// Messages that were held back go on in their order, until one waits again.
    fn release(&mut self, now: Now, line: Line, out: &mut Outbox) {
        while !self.waiting.contains_key(&line) {
            let Some(queue) = self.held.get_mut(&line) else { return };
            let Some((bytes, arrival)) = queue.pop_front() else {
                self.held.remove(&line);
                return;
            };
            self.ends_to_wait(&arrival, bytes.len());
            let mut index = Index::new();
            if index.parse(&bytes, &self.shared.limits).is_ok() {
                self.enter(now, &arrival, &Message::new(&bytes, &index), out);
            }
        }
    }

    /// Takes out what waits of the calls of this bucket, those that asked first: it starts again with their new owner. What the
    /// look-ups bring back here finds nothing.
    pub(crate) fn take_waiting(&mut self, now: Now, bucket: u8) -> Vec<(Vec<u8>, Arrival)> {
        let moves = |call_hash: u32| call::bucket(call_hash) == bucket;
        let waits = |p: &Parked| matches!(p, Parked::Request(waiting) if moves(waiting.call_hash));
        let waiting: Vec<Id> = self.parked.iter().filter(|(_, p)| waits(p)).map(|(id, _)| id).collect();
        let mut taken = Vec::new();
        for id in waiting {
            let Some(waiting) = self.unpark(id) else { continue };
            if let Some(server) = waiting.server {
                self.transactions.forget(now, server);
            }
            taken.push((waiting.bytes, waiting.arrival));
        }
        let lines: Vec<Line> = self.held.keys().copied().filter(|(call_hash, _)| moves(*call_hash)).collect();
        for line in lines {
            for (bytes, arrival) in self.held.remove(&line).unwrap_or_default() {
                self.ends_to_wait(&arrival, bytes.len());
                taken.push((bytes, arrival));
            }
        }
        taken
    }
}

/// Counts one less of these, and forgets them with the last.
fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
