//! Which requests get a transaction: a bound for all, and a reserve beyond it for requests within known dialogs.

use super::allowance::length_as_sent;
use super::entry::Entry;
use super::key::{Key, TopVia, method_text};
use super::machine::Machine;
use super::outcome::{Incoming, ServerId};
use super::step::Action;
use super::table::{Given, Transactions};
use super::user::TransactionUser;
use super::{server_invite, server_non_invite};
use crate::slots::Id;
use crate::{Arrival, Now, Outbox, Target, call};
use std::collections::HashMap;
use strowger_message::{Message, Method};

/// Share of each bound that the reserve has beyond it.
const SHARE: usize = 8;

/// Transactions that the reserve admits at least, however low the bound.
const LEAST: usize = 16;

/// Transactions of one call in the reserve. A party that proves its dialog cannot fill the reserve with it.
const PER_CALL: u8 = 8;

/// Transactions of one call with its BYEs, for which no other request of the call takes the place.
const PER_CALL_WITH_BYE: u8 = PER_CALL + 4;

/// Server transactions beyond the bounds.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// The call of each, by the hash of its Call-ID, and the length of its request.
    places: HashMap<Id, (u32, usize)>,
    /// How many each call has.
    of_call: HashMap<u32, u8>,
    /// Sum of the lengths.
    bytes: usize,
}

impl Reserve {
    fn has_room(&self, limit: usize, most_bytes: usize, method: Method, call_hash: u32, bytes: usize) -> bool {
        let of_call = if method == Method::Bye { PER_CALL_WITH_BYE } else { PER_CALL };
        self.places.len() < (limit / SHARE).max(LEAST)
            && self.bytes.saturating_add(bytes) <= most_bytes / SHARE
            && self.of_call.get(&call_hash).copied().unwrap_or(0) < of_call
    }

    fn take(&mut self, id: Id, call_hash: u32, bytes: usize) {
        self.places.insert(id, (call_hash, bytes));
        *self.of_call.entry(call_hash).or_insert(0) += 1;
        self.bytes += bytes;
    }

    /// A transaction has ended, which may have had a place here.
    pub(super) fn give_back(&mut self, id: Id) {
        if self.places.is_empty() {
            return;
        }
        let Some((call_hash, bytes)) = self.places.remove(&id) else { return };
        self.bytes -= bytes;
        if let Some(count) = self.of_call.get_mut(&call_hash) {
            *count -= 1;
            if *count == 0 {
                self.of_call.remove(&call_hash);
            }
        }
    }
}

impl Transactions {
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
        let text = method_text(method, message.method_text());
        if method == Method::Ack {
            let key = self.keys.server(message, &via, b"INVITE");
            return self.find(&key).map_or(Incoming::Ack, |id| self.take_own(now, id, message, out));
        }
        let key = self.keys.server(message, &via, text);
        if let Some(id) = self.find(&key) {
            return self.take_own(now, id, message, out);
        }
        // Each INVITE has at most one CANCEL, so the bound on INVITEs bounds these too (RFC 3261 section 9.2).
        let is_full =
            self.entries.len() >= self.limit || !self.dues.has_room(arrival.remote.ip(), message.bytes().len());
        if is_full && !(method == Method::Cancel && self.find(&self.keys.server(message, &via, b"INVITE")).is_some()) {
            self.counts.refused += 1;
            return Incoming::Full;
        }
        let id = ServerId(self.insert_server(now, key, method, arrival.reply(), call_hash));
        if method == Method::Cancel {
            let key = self.keys.server(message, &via, b"INVITE");
            return Incoming::Cancel { cancel: id, invite: self.find(&key).map(ServerId) };
        }
        Incoming::New(id)
    }

    /// Gives a request for which [`Transactions::request`] has no room a transaction of the reserve: its sender has proved that it belongs
    /// to a dialog which this server let through. The reserve is an eighth of the bounds, beyond them. None: it has no room either.
    pub fn admit_within_dialog(
        &mut self,
        now: Now,
        message: &Message<'_>,
        arrival: &Arrival,
        call_hash: u32,
    ) -> Option<ServerId> {
        let (method, via) = (message.method()?, TopVia::of_message(message)?);
        let (bytes, most_bytes) = (message.bytes().len(), self.dues.most_of_all());
        if !self.reserve.has_room(self.limit, most_bytes, method, call_hash, bytes) {
            return None;
        }
        let key = self.keys.server(message, &via, method_text(method, message.method_text()));
        let id = self.insert_server(now, key, method, arrival.reply(), call_hash);
        self.reserve.take(id, call_hash, bytes);
        self.counts.refused -= 1;
        self.counts.reserved += 1;
        Some(ServerId(id))
    }

    /// A request of this server's own that goes the way of those that come: its responses go nowhere. None: there is no room for it, or it
    /// is under way already.
    pub fn begin_own(&mut self, now: Now, message: &Message<'_>, call_hash: u32) -> Option<ServerId> {
        let via = TopVia::of_message(message)?;
        let (method, bytes) = (message.method()?, message.bytes().len());
        let key = self.keys.server(message, &via, method_text(method, message.method_text()));
        let is_full = self.entries.len() >= self.limit;
        let has_room = || self.reserve.has_room(self.limit, self.dues.most_of_all(), method, call_hash, bytes);
        if self.find(&key).is_some() || (is_full && !has_room()) {
            return None;
        }
        let id = self.insert_server(now, key, method, Target::NOWHERE, call_hash);
        if is_full {
            self.reserve.take(id, call_hash, bytes);
        }
        Some(ServerId(id))
    }

    fn insert_server(&mut self, now: Now, key: Key, method: Method, reply: Target, call_hash: u32) -> Id {
        let machine = match method {
            Method::Invite => Machine::ServerInvite(server_invite::State::Proceeding),
            _ => Machine::ServerNonInvite(server_non_invite::State::Trying),
        };
        self.insert(now, Entry::new(key, machine, reply, call::bucket(call_hash), TransactionUser::NONE))
    }

    /// Takes a request that belongs to a transaction under way: one that came before, or the ACK of a failure. Returns whether it was such a
    /// one; if not, nothing has happened.
    pub fn absorb(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) -> bool {
        let (Some(method), Some(via)) = (message.method(), TopVia::of_message(message)) else { return false };
        let text = if method == Method::Ack { b"INVITE" } else { method_text(method, message.method_text()) };
        let key = self.keys.server(message, &via, text);
        self.find(&key).is_some_and(|id| matches!(self.take_own(now, id, message, out), Incoming::Absorbed))
    }

    /// A server transaction gets its ACK, or its request once more.
    fn take_own(&mut self, now: Now, id: Id, message: &Message<'_>, out: &mut Outbox) -> Incoming {
        if message.method() == Some(Method::Ack) {
            return match self.drive(now, id, |m, reliable| m.ack(reliable), Given::Nothing, out) {
                Action::Deliver => Incoming::Ack,
                _ => Incoming::Absorbed,
            };
        }
        self.counts.request_retransmissions += 1;
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.allowance.is_bounded())
            && let Ok(top) = message.via()
        {
            entry.allowance.earn(length_as_sent(message, &top));
        }
        self.drive(now, id, |m, reliable| m.request(reliable), Given::Nothing, out);
        Incoming::Absorbed
    }
}
