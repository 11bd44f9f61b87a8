//! All transactions of one shard: found by key, driven by messages, timers and their user.

use super::key::{Key, Keys, TopVia, cseq, method_text};
use super::places::Places;
use super::record::{Record, Role};
use super::route::Route;
use super::step::{Action, Class, End, Retransmission, Step};
use super::{client_invite, client_non_invite, hop, server_invite, server_non_invite};
use crate::kept::{Kept, KeptStore};
use crate::slots::{Id, Slots};
use crate::timer::{Length, Stamp, TimerSettings, Timers};
use crate::{Arrival, Now, Outbox, Target, call};
use std::collections::HashMap;
use std::ops::Range;
use strowger_message::{Index, Limits, Message, Method, Name};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Id);

        impl $name {
            /// The id as one word, never 0.
            pub const fn to_u64(self) -> u64 {
                self.0.to_u64()
            }

            /// Reads the word back. Any word may be given; one that was no id finds nothing.
            pub const fn from_u64(word: u64) -> Self {
                Self(Id::from_u64(word))
            }
        }
    )*};
}

ids! {
    /// A server transaction: a request that came in. Ids of transactions that ended find nothing.
    ServerId
    /// A client transaction: a request that was sent. Its word is the token of what it sends.
    ClientId
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A new transaction: answer it with [`Transactions::respond`].
    New(ServerId),
    /// Nothing is left to do: a retransmission, answered with the last response if there is one; the ACK of a 300-699; a message
    /// without a usable Via.
    Absorbed,
    /// An ACK that belongs to a 2xx or to nothing known: no transaction, its user routes it (RFC 3261 section 17).
    Ack,
    /// A new CANCEL, itself to be answered, and the INVITE that it means, if there is one here (section 9.2).
    Cancel { cancel: ServerId, invite: Option<ServerId> },
    /// As many transactions as are allowed: answer 503 without one.
    Full,
}

/// What a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// No transaction waits for it. It must not be passed on (RFC 6026 section 7.3).
    Stray,
    /// Nothing is left to do: a copy of a final response, an answer to a CANCEL of [`Transactions::cancel`].
    Absorbed,
    /// For the user. A 300-699 to an INVITE is acknowledged already, a 2xx never is.
    Deliver {
        id: ClientId,
        owner: u64,
        /// A 2xx to an INVITE came before: this is its copy or another branch's (RFC 6026 section 7.2).
        after_final: bool,
    },
}

/// What happened without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No final response came: timer B or F, or 64*T1 after a CANCEL. To be treated as a 408 (RFC 3261 section 8.1.3.1).
    Timeout { id: ClientId, owner: u64 },
    /// The request could not be sent. To be treated as a 503 (section 8.1.3.1).
    ClientTransportError { id: ClientId, owner: u64 },
    /// A response could not be sent.
    ServerTransportError { id: ServerId, owner: u64 },
    /// A 300-699 to an INVITE found no ACK: timer H.
    NoAck { id: ServerId, owner: u64 },
    /// The last word of this transaction.
    ServerEnded { id: ServerId, owner: u64 },
    /// The last word of this transaction.
    ClientEnded { id: ClientId, owner: u64 },
}

/// Gauges (first block) and counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub servers: u64,
    pub clients: u64,
    /// Bytes of the messages kept.
    pub kept_bytes: u64,
    pub kept_messages: u64,
    /// Timers that run.
    pub timers: u64,
    /// Entries in timer queues, stopped ones included.
    pub timers_waiting: u64,
    /// Places in the table of keys that are taken.
    pub keys: u64,

    /// Requests that came again.
    pub request_retransmissions: u64,
    /// Final responses that came again.
    pub response_retransmissions: u64,
    /// Requests sent again by timers A and E.
    pub requests_resent: u64,
    /// Responses sent again, by timer G or on a request that came again.
    pub responses_resent: u64,
    pub timeouts: u64,
    pub no_acks: u64,
    pub transport_errors: u64,
    /// Responses that no transaction waited for, messages without a usable Via.
    pub strays: u64,
    /// Requests refused because of the bound.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the names of the RFC")]
pub(super) enum Machine {
    ClientInvite(client_invite::State),
    ClientNonInvite(client_non_invite::State),
    ServerInvite(server_invite::State),
    ServerNonInvite(server_non_invite::State),
}

impl Machine {
    const fn role(self) -> Role {
        match self {
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Role::Client,
            Self::ServerInvite(_) | Self::ServerNonInvite(_) => Role::Server,
        }
    }

    const fn is_terminated(self) -> bool {
        matches!(
            self,
            Self::ClientInvite(client_invite::State::Terminated)
                | Self::ClientNonInvite(client_non_invite::State::Terminated)
                | Self::ServerInvite(server_invite::State::Terminated)
                | Self::ServerNonInvite(server_non_invite::State::Terminated)
        )
    }

    fn retransmit(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::Retransmit, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => {
                client_non_invite::step(s, client_non_invite::Event::Retransmit, reliable).map(Self::ClientNonInvite)
            }
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Retransmit, reliable).map(Self::ServerInvite)
            }
            // Its responses are sent again only when the request comes again.
            Self::ServerNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    fn end(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::End, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => {
                client_non_invite::step(s, client_non_invite::Event::End, reliable).map(Self::ClientNonInvite)
            }
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::End, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => {
                server_non_invite::step(s, server_non_invite::Event::End, reliable).map(Self::ServerNonInvite)
            }
        }
    }

    fn transport_error(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::TransportError, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => client_non_invite::step(s, client_non_invite::Event::TransportError, reliable)
                .map(Self::ClientNonInvite),
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::TransportError, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => server_non_invite::step(s, server_non_invite::Event::TransportError, reliable)
                .map(Self::ServerNonInvite),
        }
    }

    fn respond(self, class: Class, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Respond(class), reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => server_non_invite::step(s, server_non_invite::Event::Respond(class), reliable)
                .map(Self::ServerNonInvite),
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    fn request(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Request, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => {
                server_non_invite::step(s, server_non_invite::Event::Request, reliable).map(Self::ServerNonInvite)
            }
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    fn ack(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Ack, reliable).map(Self::ServerInvite)
            }
            _ => Step::to(self, Action::Absorb),
        }
    }

    fn response(self, class: Class, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::Response(class), reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => client_non_invite::step(s, client_non_invite::Event::Response(class), reliable)
                .map(Self::ClientNonInvite),
            Self::ServerInvite(_) | Self::ServerNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }
}

/// What the transaction has to do with CANCEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    /// To be cancelled as soon as a provisional response came (RFC 3261 section 9.1).
    Wanted,
    /// Its CANCEL was sent.
    Sent,
    /// This is a CANCEL made here; nobody hears of it.
    Itself,
}

/// One transaction: 96 bytes.
#[derive(Debug)]
struct Entry {
    key: Key,
    owner: u64,
    route: Route,
    /// Of a client: the request, or the ACK that a failure got. Of a server: the last response.
    kept: Option<Kept>,
    retransmission: Stamp,
    end: Stamp,
    machine: Machine,
    /// Pauses between retransmissions so far.
    attempts: u8,
    bucket: u8,
    cancel: Cancel,
}

impl Entry {
    fn is_reliable(&self) -> bool {
        self.route.transport().is_reliable()
    }

    fn runs(&self, stamp: Stamp) -> bool {
        self.retransmission == stamp || self.end == stamp
    }
}

/// The queues of the lengths that transactions use.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// T1 times 1, 2, 4, ... 64.
    doubled: [Length; 7],
    t2: Length,
    now: Length,
    t4: Length,
    t1_64: Length,
    d: Length,
}

impl Lengths {
    fn new(settings: &TimerSettings, timers: &mut Timers) -> Self {
        Self {
            doubled: std::array::from_fn(|n| timers.length(settings.t1.saturating_mul(1 << n), 1)),
            t2: timers.length(settings.t2, 1),
            now: timers.length(0, 1),
            t4: timers.length(settings.t4, settings.step),
            t1_64: timers.length(settings.t1_64(), settings.step),
            d: timers.length(settings.d, settings.step),
        }
    }
}

/// How often memory is given back, ms.
const TIDY: u64 = 1_000;

/// The transactions of one shard.
#[derive(Debug)]
pub struct Transactions {
    settings: TimerSettings,
    keys: Keys,
    limit: usize,
    entries: Slots<Entry>,
    places: Places,
    kept: KeptStore,
    timers: Timers,
    lengths: Lengths,
    counts: Counts,
    /// For the INVITE that an ACK or a CANCEL is made from.
    invite: Vec<u8>,
    index: Index,
    /// When memory is looked through next; `None`: there is nothing to give back.
    tidy: Option<u64>,
    /// Requests without an answer, of the events of the last [`Transactions::poll`] or [`Transactions::failed`].
    lost: Vec<(Id, Vec<u8>)>,
}

impl Transactions {
    /// `key`: the secret that keys are made with; the same in every shard of the process.
    pub fn new(settings: TimerSettings, key: [u64; 2]) -> Self {
        let mut timers = Timers::new();
        let lengths = Lengths::new(&settings, &mut timers);
        Self {
            settings,
            keys: Keys::new(key),
            limit: usize::MAX,
            entries: Slots::new(),
            places: Places::new(),
            kept: KeptStore::new(),
            timers,
            lengths,
            counts: Counts::default(),
            invite: Vec::new(),
            index: Index::new(),
            tidy: None,
            lost: Vec::new(),
        }
    }

    /// With so many transactions, servers and clients together, [`Transactions::request`] takes no more. Default: no bound.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub fn settings(&self) -> &TimerSettings {
        &self.settings
    }

    /// A request came. `call_hash` is [`call::hash`] of its Call-ID.
    pub fn request(
        &mut self,
        now: Now,
        message: &Message<'_>,
        arrival: &Arrival,
        call_hash: u32,
        out: &mut Outbox,
    ) -> Incoming {
        let (Some(method), Some(via)) = (message.method(), TopVia::of_message(message)) else {
            self.counts.strays += 1;
            return Incoming::Absorbed;
        };
        let bucket = call::bucket(call_hash);
        let text = method_text(method, message.method_text());
        if method == Method::Ack {
            let key = self.keys.server(message, &via, b"INVITE");
            let Some(id) = self.find(&key) else { return Incoming::Ack };
            return match self.drive(now, id, |m, reliable| m.ack(reliable), Given::Nothing, out) {
                Action::Deliver => Incoming::Ack,
                _ => Incoming::Absorbed,
            };
        }
        let key = self.keys.server(message, &via, text);
        if let Some(id) = self.find(&key) {
            self.counts.request_retransmissions += 1;
            self.drive(now, id, |m, reliable| m.request(reliable), Given::Nothing, out);
            return Incoming::Absorbed;
        }
        if self.entries.len() >= self.limit {
            self.counts.refused += 1;
            return Incoming::Full;
        }
        let machine = match method {
            Method::Invite => Machine::ServerInvite(server_invite::State::Proceeding),
            _ => Machine::ServerNonInvite(server_non_invite::State::Trying),
        };
        let id = ServerId(self.insert(now, Entry::new(key, machine, arrival.reply(), bucket, 0)));
        if method == Method::Cancel {
            let key = self.keys.server(message, &via, b"INVITE");
            return Incoming::Cancel { cancel: id, invite: self.find(&key).map(ServerId) };
        }
        Incoming::New(id)
    }

    /// The user answers with the bytes `range` of [`Outbox::bytes`]. Returns whether they are sent: after a final response only another
    /// 2xx to an INVITE is.
    pub fn respond(&mut self, now: Now, id: ServerId, status: u16, range: Range<usize>, out: &mut Outbox) -> bool {
        let class = Class::of(status);
        let action = self.drive(now, id.0, |m, reliable| m.respond(class, reliable), Given::Bytes(range), out);
        matches!(action, Action::Send | Action::SendAndKeep)
    }

    /// The user's word for a server transaction; 0 at first and for one that is gone.
    pub fn owner(&self, id: ServerId) -> u64 {
        self.entries.get(id.0).map_or(0, |e| e.owner)
    }

    pub fn set_owner(&mut self, id: ServerId, owner: u64) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.owner = owner;
        }
    }

    /// The user's word for a client transaction; 0 for one that is gone.
    pub fn client_owner(&self, id: ClientId) -> u64 {
        self.entries.get(id.0).map_or(0, |e| e.owner)
    }

    pub fn set_client_owner(&mut self, id: ClientId, owner: u64) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.owner = owner;
        }
    }

    /// Where responses go: at first back over the way of the request ([`Arrival::reply`]), then here (RFC 3261 section 18.2.2).
    pub fn set_reply(&mut self, id: ServerId, target: Target) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.route = target.into();
        }
    }

    /// Where the responses of this transaction go, or where the request went.
    pub fn target(&self, id: ServerId) -> Option<Target> {
        self.entries.get(id.0).map(|e| e.route.into())
    }

    /// Where the request of this transaction went.
    pub fn client_target(&self, id: ClientId) -> Option<Target> {
        self.entries.get(id.0).map(|e| e.route.into())
    }

    /// Forgets a server transaction that is not answered at all: the next poll ends it.
    pub fn forget(&mut self, now: Now, id: ServerId) {
        let Some(entry) = self.entries.get_mut(id.0) else { return };
        entry.machine = match entry.machine {
            Machine::ServerInvite(_) => Machine::ServerInvite(server_invite::State::Terminated),
            Machine::ServerNonInvite(_) => Machine::ServerNonInvite(server_non_invite::State::Terminated),
            Machine::ClientInvite(_) | Machine::ClientNonInvite(_) => return,
        };
        self.timers.stop(&mut entry.retransmission);
        self.timers.stop(&mut entry.end);
        entry.end = self.timers.start(now.mono, self.lengths.now, id.0.slot);
    }

    /// Sends the request in the bytes `range` of [`Outbox::bytes`], whose topmost Via has this branch. Not for ACK, which is no
    /// transaction of its own.
    #[expect(
        clippy::too_many_arguments,
        reason = "each says one thing about the request, and the caller has them apart"
    )]
    pub fn send(
        &mut self,
        now: Now,
        range: Range<usize>,
        branch: &[u8],
        method: &[u8],
        target: Target,
        call_hash: u32,
        owner: u64,
        out: &mut Outbox,
    ) -> ClientId {
        let (bucket, cancel) = (call::bucket(call_hash), Cancel::No);
        self.send_entry(now, range, self.keys.client(branch, method), method, target, bucket, owner, cancel, out)
    }

    #[expect(clippy::too_many_arguments, reason = "as `send`, with what a CANCEL of our own differs in")]
    fn send_entry(
        &mut self,
        now: Now,
        range: Range<usize>,
        key: Key,
        method: &[u8],
        target: Target,
        bucket: u8,
        owner: u64,
        cancel: Cancel,
        out: &mut Outbox,
    ) -> ClientId {
        let reliable = target.transport.is_reliable();
        let step = if method == b"INVITE" {
            client_invite::start(reliable).map(Machine::ClientInvite)
        } else {
            client_non_invite::start(reliable).map(Machine::ClientNonInvite)
        };
        let mut entry = Entry::new(key, step.next, target, bucket, owner);
        entry.cancel = cancel;
        let id = self.insert(now, entry);
        self.drive(now, id, |_, _| step, Given::Bytes(range), out);
        ClientId(id)
    }

    /// A response came.
    pub fn response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) -> Outgoing {
        let found = message.status().and_then(|status| {
            let via = TopVia::of_message(message)?;
            let (_, method) = message.header(Name::CSeq).and_then(cseq)?;
            Some((status, self.find(&self.keys.client(via.branch, method))?))
        });
        let Some((status, id)) = found else {
            self.counts.strays += 1;
            return Outgoing::Stray;
        };
        let class = Class::of(status);
        let action = self.drive(now, id, |m, reliable| m.response(class, reliable), Given::Response(message), out);
        let Some(entry) = self.entries.get(id) else { return Outgoing::Absorbed };
        let (owner, cancel) = (entry.owner, entry.cancel);
        if class == Class::Provisional && cancel == Cancel::Wanted {
            self.send_cancel(now, id, out);
        }
        let deliver = |after_final| match cancel {
            Cancel::Itself => Outgoing::Absorbed,
            _ => Outgoing::Deliver { id: ClientId(id), owner, after_final },
        };
        match action {
            Action::Deliver | Action::Acknowledge => deliver(false),
            Action::DeliverAgain => deliver(true),
            _ => {
                self.counts.response_retransmissions += u64::from(class != Class::Provisional);
                Outgoing::Absorbed
            }
        }
    }

    /// Cancels an INVITE that has no final response yet (RFC 3261 section 9.1): at once if a provisional one came, else when one comes. If
    /// then no final response comes for 64*T1, [`Event::Timeout`] tells. What becomes of the CANCEL itself is not told. Returns whether
    /// there was something to cancel.
    pub fn cancel(&mut self, now: Now, id: ClientId, out: &mut Outbox) -> bool {
        let Some(entry) = self.entries.get_mut(id.0) else { return false };
        match (entry.machine, entry.cancel) {
            (Machine::ClientInvite(client_invite::State::Calling), Cancel::No) => {
                entry.cancel = Cancel::Wanted;
                true
            }
            (Machine::ClientInvite(client_invite::State::Proceeding), Cancel::No) => {
                self.send_cancel(now, id.0, out);
                true
            }
            _ => false,
        }
    }

    fn send_cancel(&mut self, now: Now, id: Id, out: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Machine::ClientInvite(client_invite::State::Proceeding) = entry.machine else { return };
        entry.cancel = Cancel::Sent;
        let (target, bucket, owner) = (entry.route.into(), entry.bucket, entry.owner);
        let Some(kept) = &entry.kept else { return };
        let start = out.start();
        let key = read_kept(&self.kept, kept, &mut self.invite, &mut self.index).and_then(|invite| {
            hop::write_cancel(&invite, &mut out.bytes)?;
            Some(self.keys.client(TopVia::of_message(&invite)?.branch, b"CANCEL"))
        });
        if let Some(key) = key {
            let range = start..out.bytes.len();
            self.send_entry(now, range, key, b"CANCEL", target, bucket, owner, Cancel::Itself, out);
        }
        let cancelled = |m, reliable| match m {
            Machine::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::Cancelled, reliable).map(Machine::ClientInvite)
            }
            other => Step::to(other, Action::Absorb),
        };
        self.drive(now, id, cancelled, Given::Nothing, out);
    }

    /// What was sent with this token could not be sent. Any token may be given.
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox, events: &mut Vec<Event>) {
        self.lost.clear();
        let id = Id::from_u64(token);
        if self.entries.get(id).is_some() {
            self.counts.transport_errors += 1;
            let action = self.drive(now, id, |m, reliable| m.transport_error(reliable), Given::Nothing, out);
            self.tell(id, action, events);
        }
    }

    /// Runs the timers that are due. `events` are appended in the order in which things happened.
    pub fn poll(&mut self, now: Now, out: &mut Outbox, events: &mut Vec<Event>) {
        self.lost.clear();
        while let Some((slot, stamp)) = self.timers.due(now.mono, runs(&self.entries)) {
            let Some((id, entry)) = self.entries.at(slot) else { continue };
            let retransmit = entry.retransmission == stamp;
            let entry = self.entries.get_mut(id).expect("the entry was just found");
            let action = if retransmit {
                entry.retransmission = Stamp::NONE;
                self.drive(now, id, |m, reliable| m.retransmit(reliable), Given::Nothing, out)
            } else {
                entry.end = Stamp::NONE;
                self.drive(now, id, |m, reliable| m.end(reliable), Given::Nothing, out)
            };
            self.tell(id, action, events);
        }
        if self.tidy.is_some_and(|at| at <= now.mono) {
            self.timers.tidy(runs(&self.entries));
            self.places.tidy();
            let more = self.entries.tidy() | self.kept.tidy();
            self.tidy = (more || !self.entries.is_empty()).then_some(now.mono + TIDY);
        }
    }

    /// The request that an [`Event::Timeout`] or [`Event::ClientTransportError`] is about, as it was sent: a proxy
    /// makes the response from it that nobody else gave (RFC 3261 section 16.9). Until the next poll or failure.
    pub fn lost_request(&self, id: ClientId) -> Option<&[u8]> {
        self.lost.iter().find(|(lost, _)| *lost == id.0).map(|(_, request)| &request[..])
    }

    /// When [`Transactions::poll`] is to be called next, as `Now::mono`.
    pub fn deadline(&mut self) -> Option<u64> {
        let timer = self.timers.deadline(runs(&self.entries));
        timer.into_iter().chain(self.tidy).min()
    }

    /// Takes out every transaction of the buckets for which `moves` is true.
    pub fn export(&mut self, now: Now, moves: impl Fn(u8) -> bool) -> Vec<Record> {
        let ends: HashMap<Stamp, u64> = self.timers.iter().collect();
        let ids: Vec<Id> = self.entries.iter().filter(|(_, e)| moves(e.bucket)).map(|(id, _)| id).collect();
        let left = |stamp: Stamp| stamp.is_running().then(|| ends.get(&stamp).map(|e| e.saturating_sub(now.mono)))?;
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let entry = self.entries.get(id).expect("the id was just listed");
            let kept = entry.kept.as_ref().map(|kept| {
                let mut bytes = Vec::new();
                self.kept.append_to(kept, &mut bytes);
                bytes
            });
            records.push(Record {
                id: id.to_u64(),
                role: entry.machine.role(),
                owner: entry.owner,
                target: entry.route.into(),
                bucket: entry.bucket,
                key: entry.key,
                machine: entry.machine,
                kept,
                attempts: entry.attempts,
                cancel: entry.cancel,
                retransmission: left(entry.retransmission),
                end: left(entry.end),
            });
            self.remove(id);
        }
        records
    }

    /// Takes in a transaction of another table, with the user's word of this one. Returns the new id as a word: a
    /// [`ServerId`]'s or a [`ClientId`]'s as the record's role says.
    pub fn import(&mut self, now: Now, record: Record, owner: u64) -> u64 {
        let mut entry = Entry::new(record.key, record.machine, record.target, record.bucket, owner);
        entry.kept = record.kept.map(|bytes| self.kept.store(&bytes));
        entry.attempts = record.attempts;
        entry.cancel = record.cancel;
        let id = self.insert(now, entry);
        let mut start = |left: Option<u64>| left.map_or(Stamp::NONE, |ms| self.timers.start_at(now.mono + ms, id.slot));
        let (retransmission, end) = (start(record.retransmission), start(record.end));
        let entry = self.entries.get_mut(id).expect("the entry was just put there");
        (entry.retransmission, entry.end) = (retransmission, end);
        id.to_u64()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            kept_bytes: self.kept.bytes() as u64,
            kept_messages: self.kept.messages() as u64,
            timers: self.timers.running() as u64,
            timers_waiting: self.timers.waiting() as u64,
            keys: self.places.len() as u64,
            ..self.counts
        }
    }

    /// Bytes of memory held for transactions, kept messages and timers, spare ones included.
    pub fn memory(&self) -> usize {
        self.entries.memory() + self.places.memory() + self.kept.memory() + self.timers.memory()
    }

    fn find(&self, key: &Key) -> Option<Id> {
        let slot = self.places.find(key, key_of(&self.entries))?;
        self.entries.at(slot).map(|(id, _)| id)
    }

    fn insert(&mut self, now: Now, entry: Entry) -> Id {
        let (key, role) = (entry.key, entry.machine.role());
        let id = self.entries.insert(entry);
        self.places.insert(&key, id.slot);
        match role {
            Role::Server => self.counts.servers += 1,
            Role::Client => self.counts.clients += 1,
        }
        self.tidy.get_or_insert(now.mono + TIDY);
        id
    }

    fn remove(&mut self, id: Id) {
        let Some(mut entry) = self.entries.remove(id) else { return };
        self.places.remove(&entry.key, id.slot);
        self.timers.stop(&mut entry.retransmission);
        self.timers.stop(&mut entry.end);
        if let Some(kept) = entry.kept {
            self.kept.free(kept);
        }
        match entry.machine.role() {
            Role::Server => self.counts.servers -= 1,
            Role::Client => self.counts.clients -= 1,
        }
    }

    /// Tells the user what a timer or a failure did, and takes the transaction out if it ended.
    fn tell(&mut self, id: Id, action: Action, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get(id) else { return };
        let (owner, role, told) = (entry.owner, entry.machine.role(), entry.cancel != Cancel::Itself);
        let terminated = entry.machine.is_terminated();
        let (server, client) = (ServerId(id), ClientId(id));
        if matches!(action, Action::Timeout | Action::TransportError)
            && role == Role::Client
            && told
            && let Some(kept) = &entry.kept
        {
            let mut request = Vec::with_capacity(self.kept.len(kept));
            self.kept.append_to(kept, &mut request);
            self.lost.push((id, request));
        }
        match action {
            Action::Timeout => {
                self.counts.timeouts += 1;
                if told {
                    events.push(Event::Timeout { id: client, owner });
                }
            }
            Action::NoAck => {
                self.counts.no_acks += 1;
                events.push(Event::NoAck { id: server, owner });
            }
            Action::TransportError if told => events.push(match role {
                Role::Server => Event::ServerTransportError { id: server, owner },
                Role::Client => Event::ClientTransportError { id: client, owner },
            }),
            _ => (),
        }
        if terminated {
            self.remove(id);
            if told {
                events.push(match role {
                    Role::Server => Event::ServerEnded { id: server, owner },
                    Role::Client => Event::ClientEnded { id: client, owner },
                });
            }
        }
    }

    /// Puts one event to the machine and does what it says. The transaction is left in the table even if terminated.
    fn drive(
        &mut self,
        now: Now,
        id: Id,
        event: impl FnOnce(Machine, bool) -> Step<Machine>,
        given: Given<'_>,
        out: &mut Outbox,
    ) -> Action {
        let Some(entry) = self.entries.get_mut(id) else { return Action::Absorb };
        let step = event(entry.machine, entry.is_reliable());
        entry.machine = step.next;
        if let Some(length) = self.lengths.retransmission(step.retransmission, &mut entry.attempts, &self.settings) {
            self.timers.stop(&mut entry.retransmission);
            entry.retransmission = self.timers.start(now.mono, length, id.slot);
        } else if step.retransmission == Retransmission::Stop {
            self.timers.stop(&mut entry.retransmission);
        }
        if step.end != End::Unchanged {
            self.timers.stop(&mut entry.end);
        }
        if let Some(length) = self.lengths.end(step.end) {
            entry.end = self.timers.start(now.mono, length, id.slot);
        }
        let target = entry.route.into();
        match (step.action, given) {
            (Action::Send, Given::Bytes(range)) => out.send(target, range, id.to_u64()),
            (Action::SendAndKeep, Given::Bytes(range)) => {
                let kept = self.kept.store(&out.bytes[range.clone()]);
                if let Some(before) = entry.kept.replace(kept) {
                    self.kept.free(before);
                }
                out.send(target, range, id.to_u64());
            }
            (Action::Resend, _) => {
                if let Some(kept) = &entry.kept {
                    let start = out.start();
                    self.kept.append_to(kept, &mut out.bytes);
                    out.send(target, start..out.bytes.len(), id.to_u64());
                    match entry.machine.role() {
                        Role::Server => self.counts.responses_resent += 1,
                        Role::Client => self.counts.requests_resent += 1,
                    }
                }
            }
            (Action::Acknowledge, Given::Response(response)) => {
                if let Some(kept) = entry.kept.take() {
                    let start = out.start();
                    let written = read_kept(&self.kept, &kept, &mut self.invite, &mut self.index)
                        .and_then(|invite| hop::write_ack(&invite, response, &mut out.bytes));
                    self.kept.free(kept);
                    if written.is_some() {
                        let range = start..out.bytes.len();
                        if !entry.is_reliable() {
                            entry.kept = Some(self.kept.store(&out.bytes[range.clone()]));
                        }
                        out.send(target, range, id.to_u64());
                    }
                }
            }
            _ => (),
        }
        if step.forget
            && let Some(kept) = entry.kept.take()
        {
            self.kept.free(kept);
        }
        step.action
    }
}

/// What comes with an event.
enum Given<'a> {
    Nothing,
    /// The message to send, in the outbox.
    Bytes(Range<usize>),
    /// The response that came.
    Response(&'a Message<'a>),
}

impl Lengths {
    fn retransmission(&self, change: Retransmission, attempts: &mut u8, settings: &TimerSettings) -> Option<Length> {
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

    const fn end(&self, change: End) -> Option<Length> {
        match change {
            End::Unchanged | End::Stop => None,
            End::Now => Some(self.now),
            End::T4 => Some(self.t4),
            End::T1_64 => Some(self.t1_64),
            End::D => Some(self.d),
        }
    }
}

impl Entry {
    fn new(key: Key, machine: Machine, target: Target, bucket: u8, owner: u64) -> Self {
        Self {
            key,
            owner,
            route: target.into(),
            kept: None,
            retransmission: Stamp::NONE,
            end: Stamp::NONE,
            machine,
            attempts: 0,
            bucket,
            cancel: Cancel::No,
        }
    }
}

/// Tells the timers whether the entry in a slot still waits for them.
fn runs(entries: &Slots<Entry>) -> impl Fn(u32, Stamp) -> bool {
    |slot, stamp| entries.at(slot).is_some_and(|(_, e)| e.runs(stamp))
}

/// Tells the table of keys what stands in a slot.
fn key_of(entries: &Slots<Entry>) -> impl Fn(u32) -> Option<Key> {
    |slot| entries.at(slot).map(|(_, e)| e.key)
}

/// Parses a kept INVITE. It was sent from here, so no limit applies.
fn read_kept<'a>(store: &KeptStore, kept: &Kept, bytes: &'a mut Vec<u8>, index: &'a mut Index) -> Option<Message<'a>> {
    let limits = Limits { message: usize::MAX, body: usize::MAX, headers: usize::from(u16::MAX) - 1, uri: usize::MAX };
    bytes.clear();
    store.append_to(kept, bytes);
    index.parse(bytes, &limits).ok()?;
    Some(Message::new(bytes, index))
}
