//! Transaction table of one shard. It finds transactions by key, and is driven by messages, timers and the users of the
//! transactions.

use super::admission::{DialogReserve, EmergencyReserve};
use super::allowance::Allowance;
use super::dues::Dues;
use super::entry::{Entry, TRYING, key_of, runs};
use super::failure::Lost;
use super::key::{Key, Keys, TopVia, cseq};
use super::key_index::KeyIndex;
use super::machine::{Cancel, Machine};
use super::outcome::{ClientId, Counts, Event, Incoming, ServerId};
use super::record::Side;
use super::step::{Action, Class, End, Retransmission, Step};
use super::timer_table::TimerTable;
use super::user::TransactionUser;
use super::{ack_cancel, client_invite, client_non_invite};
use crate::message_store::{MessageStore, StoredMessage, memory_of};
use crate::slots::{Id, Slots};
use crate::timer::{Stamp, TimerSettings, Timers, sooner};
use crate::{Now, Outbox, Target, call};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use strowger_message::{Index, Limits, Message, Name};

/// Milliseconds between two releases of spare memory.
const TIDY: u64 = 1_000;

/// Approximate maximum of bytes that the timers of one round send. Peers decide how many large messages are due at one moment, and the
/// shard never frees the memory of its outbox.
const AT_ONCE: usize = 1 << 20;

/// Transactions of one shard.
#[derive(Debug)]
pub struct Transactions {
    settings: TimerSettings,
    pub(super) keys: Keys,
    pub(super) limit: usize,
    /// Places beyond the bounds.
    pub(super) reserve: DialogReserve,
    pub(super) emergencies: EmergencyReserve,
    pub(super) most_kept: usize,
    pub(super) dues: Dues,
    pub(super) entries: Slots<Entry>,
    pub(super) places: KeyIndex,
    pub(super) kept: MessageStore,
    pub(super) timers: Timers,
    pub(super) lengths: TimerTable,
    pub(super) counts: Counts,
    /// Buffer for the INVITE that an ACK or a CANCEL is made from.
    pub(super) invite: Vec<u8>,
    pub(super) index: Index,
    /// Next release of spare memory; `None` if there is nothing to free.
    tidy: Option<u64>,
    /// Requests without an answer, for the events of the last [`Transactions::poll`] or [`Transactions::failed`].
    pub(super) lost: Vec<Lost>,
    /// Header lines of CANCELs that wait for a provisional response.
    pub(super) cancel_lines: HashMap<u64, Arc<[u8]>>,
}

impl Transactions {
    /// Creates a table. `key`: secret of the transaction keys, the same in every shard of the process.
    pub fn new(settings: TimerSettings, key: [u64; 2]) -> Self {
        let mut timers = Timers::new();
        let lengths = TimerTable::new(&settings, &mut timers);
        Self {
            settings,
            keys: Keys::new(key),
            limit: usize::MAX,
            reserve: DialogReserve::default(),
            emergencies: EmergencyReserve::default(),
            most_kept: usize::MAX,
            dues: Dues::new(key[0]),
            entries: Slots::new(),
            places: KeyIndex::new(),
            kept: MessageStore::new(),
            timers,
            lengths,
            counts: Counts::default(),
            invite: Vec::new(),
            index: Index::new(),
            tidy: None,
            lost: Vec::new(),
            cancel_lines: HashMap::new(),
        }
    }

    /// Sets the maximum number of transactions, server and client transactions together. Beyond the maximum
    /// [`Transactions::request`] accepts only the CANCEL of a known INVITE. Default: no bound.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the lengths of the timers.
    pub fn settings(&self) -> &TimerSettings {
        &self.settings
    }

    /// Returns the user of a client transaction; none if the transaction was removed.
    pub fn client_user(&self, id: ClientId) -> TransactionUser {
        self.entries.get(id.0).map_or(TransactionUser::NONE, |e| e.tu)
    }

    /// Sets the user of a client transaction, for its later responses and events.
    pub fn set_client_user(&mut self, id: ClientId, tu: TransactionUser) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.tu = tu;
        }
    }

    /// Returns the target of the request of this client transaction.
    pub fn client_target(&self, id: ClientId) -> Option<Target> {
        self.entries.get(id.0).map(|e| e.target.into())
    }

    /// Sends the request in the bytes `range` of [`Outbox::bytes`], whose topmost Via has this branch. Not for ACK, which is no transaction
    /// of its own.
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
        tu: TransactionUser,
        out: &mut Outbox,
    ) -> ClientId {
        let (bucket, cancel) = (call::bucket(call_hash), Cancel::No);
        self.send_entry(now, range, self.keys.client(branch, method), method, target, bucket, tu, cancel, out)
    }

    #[expect(clippy::too_many_arguments, reason = "as `send`, with what a CANCEL of our own differs in")]
    pub(super) fn send_entry(
        &mut self,
        now: Now,
        range: Range<usize>,
        key: Key,
        method: &[u8],
        target: Target,
        bucket: u8,
        tu: TransactionUser,
        cancel: Cancel,
        out: &mut Outbox,
    ) -> ClientId {
        let reliable = target.is_reliable();
        let step = if method == b"INVITE" {
            client_invite::start(reliable).map(Machine::ClientInvite)
        } else {
            client_non_invite::start(reliable).map(Machine::ClientNonInvite)
        };
        let mut entry = Entry::new(key, step.next, target, bucket, tu);
        entry.cancel = cancel;
        let id = self.insert(now, entry);
        self.drive(now, id, |_, _| step, Given::Bytes(range), out);
        ClientId(id)
    }

    /// Ends a client transaction without an event. To be used by a user that needs nothing after the final response.
    /// Timer K is not needed for such a user, because it only keeps copies of the response away from the user (RFC 3261
    /// section 17.1.2.2), and a response without a transaction reaches no user either.
    pub fn terminate(&mut self, id: ClientId) {
        self.remove(id.0);
    }

    /// Handles a response of a peer. It is none to a request to [`Target::LOOPBACK`], whose branch a peer may have read in a Via.
    pub fn response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) -> Incoming {
        self.response_of(now, message, false, out)
    }

    /// Handles a response of this server to a request to [`Target::LOOPBACK`].
    pub fn looped_response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) -> Incoming {
        self.response_of(now, message, true, out)
    }

    fn response_of(&mut self, now: Now, message: &Message<'_>, is_looped: bool, out: &mut Outbox) -> Incoming {
        let found = message.status().and_then(|status| {
            let via = TopVia::of_message(message)?;
            let (_, method) = message.header(Name::CSeq).and_then(cseq)?;
            let id = self.find(&self.keys.client(via.branch, method))?;
            let is_own = self.entries.get(id)?.target.is_loopback();
            (is_own == is_looped).then_some((status, id))
        });
        let Some((status, id)) = found else {
            self.counts.strays += 1;
            return Incoming::Unmatched;
        };
        let class = Class::of(status);
        let action = self.drive(now, id, |m, reliable| m.response(class, reliable), Given::Response(message), out);
        let Some(entry) = self.entries.get(id) else { return Incoming::Absorbed };
        let (tu, cancel) = (entry.tu, entry.cancel);
        if class == Class::Provisional && cancel == Cancel::Wanted {
            let lines = self.cancel_lines.remove(&id.to_u64());
            self.send_cancel(now, id, lines.as_deref().unwrap_or_default(), out);
        }
        let deliver = |after_final| match cancel {
            Cancel::Request => Incoming::Absorbed,
            _ => Incoming::Response { id: ClientId(id), tu, after_final },
        };
        match action {
            Action::Deliver | Action::Acknowledge => deliver(false),
            Action::DeliverAgain => deliver(true),
            _ => {
                self.counts.response_retransmissions += u64::from(class != Class::Provisional);
                Incoming::Absorbed
            }
        }
    }

    /// Starts Timer C of a sent INVITE after a provisional response. [`Event::TimerC`] follows when it runs out, unless it is started
    /// again, a final response is received or the INVITE is cancelled (RFC 3261 sections 16.6 step 11 and 16.7 step 2).
    pub fn start_timer_c(&mut self, now: Now, id: ClientId) {
        let Some(entry) = self.entries.get_mut(id.0) else { return };
        if entry.may_run_timer_c() {
            self.timers.stop(&mut entry.end);
            entry.end = self.timers.start(now.mono, self.lengths.c, id.0.slot);
        }
    }

    /// Runs the due timers. If they send many bytes, the remaining timers run in the next round, as
    /// [`Transactions::deadline`] shows. Appends events in the order of their occurrence.
    pub fn poll(&mut self, now: Now, out: &mut Outbox, events: &mut Vec<Event>) {
        self.lost.clear();
        self.timers.shed(self.lengths.c, runs(&self.entries));
        let room = out.start() + AT_ONCE;
        while out.bytes.len() < room
            && let Some((slot, stamp)) = self.timers.due(now.mono, runs(&self.entries))
        {
            let Some((id, entry)) = self.entries.at(slot) else { continue };
            let retransmit = entry.retransmission == stamp;
            let entry = self.entries.get_mut(id).expect("the entry was just found");
            let (tu, is_trying) = (entry.tu, entry.machine == TRYING);
            let action = if retransmit && is_trying {
                entry.retransmission = Stamp::NONE;
                events.push(Event::TryingDue { id: ServerId(id), tu });
                continue;
            } else if retransmit {
                entry.retransmission = Stamp::NONE;
                self.drive(now, id, |m, reliable| m.retransmit(reliable), Given::Nothing, out)
            } else if entry.may_run_timer_c() {
                entry.end = Stamp::NONE;
                events.push(Event::TimerC { id: ClientId(id), tu });
                continue;
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

    /// Appends the request of this transaction to `out`, as it was sent. Returns false if it is no longer kept.
    pub fn sent_request(&self, id: ClientId, out: &mut Vec<u8>) -> bool {
        let kept = self.entries.get(id.0).and_then(|entry| entry.kept.as_ref());
        kept.inspect(|kept| self.kept.append_to(kept, out)).is_some()
    }

    /// Returns the number of bytes kept for retransmissions of this transaction.
    pub fn kept_memory(&self, id: ClientId) -> usize {
        let kept = self.entries.get(id.0).and_then(|entry| entry.kept.as_ref());
        kept.map_or(0, |kept| memory_of(self.kept.len(kept)))
    }

    /// Returns the moment of the next [`Transactions::poll`], as `Now::mono`.
    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.timers.deadline(runs(&self.entries)), self.tidy)
    }

    /// Returns the number of entries in timer queues, stopped ones included. The function reads one value per 4 KB of
    /// entries.
    pub fn timers_waiting(&self) -> usize {
        self.timers.waiting()
    }

    /// Returns the current gauges and the counters. A shard copies them at the end of each round.
    pub fn counts(&self) -> Counts {
        Counts {
            kept_bytes: self.kept.bytes() as u64,
            kept_messages: self.kept.messages() as u64,
            timers: self.timers.running() as u64,
            keys: self.places.len() as u64,
            charged_bytes: self.dues.sum() as u64,
            ..self.counts
        }
    }

    /// Returns the bytes of memory for transactions, kept messages and timers, spare memory included.
    pub fn memory(&self) -> usize {
        self.entries.memory() + self.places.memory() + self.kept.memory() + self.timers.memory()
    }

    pub(super) fn find(&self, key: &Key) -> Option<Id> {
        let slot = self.places.find(key, key_of(&self.entries))?;
        self.entries.at(slot).map(|(id, _)| id)
    }

    pub(super) fn insert(&mut self, now: Now, entry: Entry) -> Id {
        let (key, side, is_terminated) = (entry.key, entry.machine.side(), entry.machine.is_terminated());
        let id = self.entries.insert(entry);
        if is_terminated {
            self.counts.forgotten += 1;
        } else {
            self.places.insert(&key, id.slot);
        }
        match side {
            Side::Server => self.counts.servers += 1,
            Side::Client => self.counts.clients += 1,
        }
        self.tidy.get_or_insert(now.mono + TIDY);
        id
    }

    pub(super) fn remove(&mut self, id: Id) {
        let Some(mut entry) = self.entries.remove(id) else { return };
        if !self.places.remove(&entry.key, id.slot) {
            self.counts.forgotten -= 1;
        }
        self.reserve.give_back(id);
        self.emergencies.give_back(id);
        self.timers.stop(&mut entry.retransmission);
        self.timers.stop(&mut entry.end);
        if entry.cancel == Cancel::Wanted {
            self.cancel_lines.remove(&id.to_u64());
        }
        if let Some(kept) = entry.kept {
            self.kept.free(kept);
        }
        self.dues.refund(entry.target.ip(), entry.due as usize);
        match entry.machine.side() {
            Side::Server => self.counts.servers -= 1,
            Side::Client => self.counts.clients -= 1,
        }
    }

    /// Reports the result of a timer or a failure to the user, and removes the transaction if it has ended.
    pub(super) fn tell(&mut self, id: Id, action: Action, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get(id) else { return };
        let (tu, side, told) = (entry.tu, entry.machine.side(), entry.cancel != Cancel::Request);
        let terminated = entry.machine.is_terminated();
        let (server, client) = (ServerId(id), ClientId(id));
        if matches!(action, Action::Timeout | Action::TransportError)
            && side == Side::Client
            && told
            && let Some(kept) = &entry.kept
        {
            let mut request = Vec::with_capacity(self.kept.len(kept));
            self.kept.append_to(kept, &mut request);
            self.lost.push(Lost { id, target: entry.target.into(), request });
        }
        match action {
            Action::Timeout => {
                self.counts.timeouts += 1;
                if told {
                    events.push(Event::Timeout { id: client, tu });
                }
            }
            Action::NoAck => {
                self.counts.no_acks += 1;
                events.push(Event::NoAck { id: server, tu });
            }
            Action::TransportError if told => events.push(match side {
                Side::Server => Event::ServerTransportError { id: server, tu },
                Side::Client => Event::ClientTransportError { id: client, tu },
            }),
            _ => (),
        }
        if terminated {
            self.remove(id);
            if told {
                events.push(match side {
                    Side::Server => Event::ServerEnded { id: server, tu },
                    Side::Client => Event::ClientEnded { id: client, tu },
                });
            }
        }
    }

    /// Feeds one event to the machine and executes its step. A transaction that terminates by the step remains in the
    /// table.
    pub(super) fn drive(
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
        let (target, reliable): (Target, bool) = (entry.target.into(), entry.is_reliable());
        // This is done before a final response is kept, so that the response can use the room of its request.
        if entry.due > 0 && !entry.machine.awaits_answer() {
            self.settle(id);
        }
        match (step.action, given) {
            (Action::Send | Action::SendAndKeep | Action::Resend, _) if target.is_nowhere() => (),
            (Action::Send, Given::Bytes(range)) => out.send(target, range, id.to_u64()),
            (Action::SendAndKeep, Given::Bytes(range)) => {
                self.keep(id, &out.bytes[range.clone()]);
                out.send(target, range, id.to_u64());
            }
            (Action::Resend, _) => self.resend(id, target, out),
            (Action::Acknowledge, Given::Response(response)) => {
                let kept = self.entries.get_mut(id).and_then(|entry| entry.kept.take());
                if let Some(kept) = kept {
                    let start = out.start();
                    let written = read_kept(&self.kept, &kept, &mut self.invite, &mut self.index)
                        .and_then(|invite| ack_cancel::write_ack(&invite, response, &mut out.bytes));
                    self.kept.free(kept);
                    if written.is_some() {
                        let range = start..out.bytes.len();
                        if !reliable {
                            self.keep_ack(id, &out.bytes[range.clone()]);
                        }
                        out.send(target, range, id.to_u64());
                    }
                }
            }
            _ => (),
        }
        if step.forget {
            self.drop_kept(id);
        }
        step.action
    }

    fn resend(&mut self, id: Id, target: Target, out: &mut Outbox) {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.abridged) else { return };
        let Some(kept) = &entry.kept else { return };
        if !entry.allowance.try_spend(self.kept.len(kept)) {
            return;
        }
        let start = out.start();
        self.kept.append_to(kept, &mut out.bytes);
        out.send(target, start..out.bytes.len(), id.to_u64());
        match entry.machine.side() {
            Side::Server => self.counts.responses_resent += 1,
            Side::Client => self.counts.requests_resent += 1,
        }
    }

    /// Stops the copies of a request, which was sent to a peer that has proved nothing.
    pub fn stop_copies(&mut self, id: ClientId) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.allowance = Allowance::of(0);
        }
    }
}

/// Data of an event.
pub(super) enum Given<'a> {
    Nothing,
    /// Range of the message to send in the outbox.
    Bytes(Range<usize>),
    /// Received response.
    Response(&'a Message<'a>),
}

/// Parses a kept INVITE.
pub(super) fn read_kept<'a>(
    store: &MessageStore,
    kept: &StoredMessage,
    bytes: &'a mut Vec<u8>,
    index: &'a mut Index,
) -> Option<Message<'a>> {
    bytes.clear();
    store.append_to(kept, bytes);
    read(bytes, index)
}

/// Parses a message of this server, for which no limit applies.
pub(super) fn read<'a>(bytes: &'a [u8], index: &'a mut Index) -> Option<Message<'a>> {
    let limits = Limits { message: usize::MAX, body: usize::MAX, headers: usize::from(u16::MAX) - 1, uri: usize::MAX };
    index.parse(bytes, &limits).ok()?;
    Some(Message::new(bytes, index))
}
