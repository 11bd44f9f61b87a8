//! Admission of requests to transactions: a bound for all requests, a reserve beyond the bound for requests within
//! known dialogs, and a second reserve for emergency requests. Emergency requests are limited to the size of their
//! reserve even if the bound is not reached, because they need no password, so that a sender may forge many of them.

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
use std::hash::Hash;
use std::net::IpAddr;
use strowger_message::{Message, Method};

/// Divisor of a bound that gives the size of its reserve.
const SHARE: usize = 8;

/// Minimum number of transactions in the reserve, however low the bound.
const LEAST: usize = 16;

/// Minimum number of transactions in the reserve for emergency requests.
const LEAST_EMERGENCIES: usize = 32;

/// Emergency requests that a source may have, however few places are free.
const PER_SOURCE: usize = 4;

/// Maximum number of transactions of one call in the reserve, so that a party that proves its dialog cannot fill the
/// reserve with that dialog.
const PER_CALL: usize = 8;

/// Maximum number of transactions of one call in the reserve, BYEs included. Only BYEs use the places above
/// [`PER_CALL`].
const PER_CALL_WITH_BYE: usize = PER_CALL + 4;

/// Server transactions with a place in a reserve. Each belongs to a group with a bound of its own.
#[derive(Debug)]
pub(super) struct Reserve<Group> {
    /// Group of each transaction, and length of its request.
    places: HashMap<Id, (Group, usize)>,
    /// Number of transactions of each group.
    of_group: HashMap<Group, usize>,
    /// Sum of the lengths of the requests.
    bytes: usize,
}

/// Reserve for known dialogs. Its groups are calls, by the hash of their Call-ID.
pub(super) type DialogReserve = Reserve<u32>;

/// Reserve for emergency requests. Its groups are sources.
pub(super) type EmergencyReserve = Reserve<IpAddr>;

impl<Group> Default for Reserve<Group> {
    fn default() -> Self {
        Self { places: HashMap::new(), of_group: HashMap::new(), bytes: 0 }
    }
}

impl<Group: Copy + Eq + Hash> Reserve<Group> {
    fn has_room(&self, most: usize, most_bytes: usize, (group, most_of_group): (Group, usize), bytes: usize) -> bool {
        self.places.len() < most
            && self.bytes.saturating_add(bytes) <= most_bytes
            && self.of_group.get(&group).copied().unwrap_or(0) < most_of_group
    }

    fn take(&mut self, id: Id, group: Group, bytes: usize) {
        self.places.insert(id, (group, bytes));
        *self.of_group.entry(group).or_insert(0) += 1;
        self.bytes += bytes;
    }

    /// Frees the place of an ended transaction, if it had a place in this reserve.
    pub(super) fn give_back(&mut self, id: Id) {
        if self.places.is_empty() {
            return;
        }
        let Some((group, bytes)) = self.places.remove(&id) else { return };
        self.bytes -= bytes;
        if let Some(count) = self.of_group.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.of_group.remove(&group);
            }
        }
    }
}

impl Transactions {
    /// Handles a received request. `call_hash`: [`call::hash`] of its Call-ID.
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
        // Each INVITE has at most one CANCEL, so the bound of INVITEs also bounds CANCELs (RFC 3261 section 9.2).
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
        Incoming::Request(id)
    }

    /// Creates a transaction in the reserve for a request that [`Transactions::request`] has no room for, and whose
    /// sender has proved that it belongs to an admitted dialog. The reserve is an eighth of each bound, in addition to
    /// the bound. Returns `None` if the reserve is full too.
    pub fn admit_within_dialog(
        &mut self,
        now: Now,
        message: &Message<'_>,
        arrival: &Arrival,
        call_hash: u32,
    ) -> Option<ServerId> {
        let bytes = message.bytes().len();
        if !self.has_room_in_reserve(message.method()?, call_hash, bytes) {
            return None;
        }
        let id = self.insert_reserved(now, message, arrival, call_hash)?;
        self.reserve.take(id.0, call_hash, bytes);
        Some(id)
    }

    /// Creates a transaction in the reserve for emergency requests. `is_known`: whether the source of the request is
    /// proved. Other sources may use half of the reserve.
    pub fn admit_emergency(
        &mut self,
        now: Now,
        message: &Message<'_>,
        arrival: &Arrival,
        call_hash: u32,
        is_known: bool,
    ) -> Option<ServerId> {
        let bytes = message.bytes().len();
        if !self.has_room_for_emergency(arrival, is_known, bytes) {
            return None;
        }
        let id = self.insert_reserved(now, message, arrival, call_hash)?;
        self.hold_emergency(id, arrival, is_known, bytes).then_some(id)
    }

    /// Gives the transaction of an emergency request a place in the reserve, if it has none. Returns false if there is no room.
    pub fn hold_emergency(&mut self, id: ServerId, arrival: &Arrival, is_known: bool, bytes: usize) -> bool {
        let has_place = self.emergencies.places.contains_key(&id.0);
        let is_held = has_place || self.has_room_for_emergency(arrival, is_known, bytes);
        if is_held && !has_place {
            self.emergencies.take(id.0, self.dues.source(arrival.remote.ip()), bytes);
        }
        is_held
    }

    /// Tells whether the reserve has room for this emergency request. One source may have at most as many entries as
    /// are free.
    fn has_room_for_emergency(&self, arrival: &Arrival, is_known: bool, bytes: usize) -> bool {
        let share = if is_known { SHARE } else { 2 * SHARE };
        let most = (self.limit / share).max(LEAST_EMERGENCIES * SHARE / share);
        let of_source = most.saturating_sub(self.emergencies.places.len()).max(PER_SOURCE);
        let (source, most_bytes) = (self.dues.source(arrival.remote.ip()), self.dues.most_of_all() / share);
        self.emergencies.has_room(most, most_bytes, (source, of_source), bytes)
    }

    fn has_room_in_reserve(&self, method: Method, call_hash: u32, bytes: usize) -> bool {
        let of_call = if method == Method::Bye { PER_CALL_WITH_BYE } else { PER_CALL };
        let (most, most_bytes) = ((self.limit / SHARE).max(LEAST), self.dues.most_of_all() / SHARE);
        self.reserve.has_room(most, most_bytes, (call_hash, of_call), bytes)
    }

    /// Creates a transaction beyond the bounds for a request that [`Transactions::request`] has counted as refused.
    fn insert_reserved(
        &mut self,
        now: Now,
        message: &Message<'_>,
        arrival: &Arrival,
        call_hash: u32,
    ) -> Option<ServerId> {
        let (method, via) = (message.method()?, TopVia::of_message(message)?);
        let key = self.keys.server(message, &via, method_text(method, message.method_text()));
        let id = self.insert_server(now, key, method, arrival.reply(), call_hash);
        self.counts.refused -= 1;
        self.counts.reserved += 1;
        Some(ServerId(id))
    }

    /// Creates a server transaction for a request of this server's own, which is handled like a received request but
    /// whose responses are not sent. Returns `None` if there is no room, or the request has a transaction.
    pub fn begin_own(&mut self, now: Now, message: &Message<'_>, call_hash: u32) -> Option<ServerId> {
        let via = TopVia::of_message(message)?;
        let (method, bytes) = (message.method()?, message.bytes().len());
        let key = self.keys.server(message, &via, method_text(method, message.method_text()));
        let is_full = self.entries.len() >= self.limit;
        if self.find(&key).is_some() || (is_full && !self.has_room_in_reserve(method, call_hash, bytes)) {
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

    /// Handles a message of an existing transaction: a retransmission, or the ACK of a failure. Returns false, without any effect, for any other
    /// message.
    pub fn absorb(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) -> bool {
        let (Some(method), Some(via)) = (message.method(), TopVia::of_message(message)) else { return false };
        let text = if method == Method::Ack { b"INVITE" } else { method_text(method, message.method_text()) };
        let key = self.keys.server(message, &via, text);
        self.find(&key).is_some_and(|id| matches!(self.take_own(now, id, message, out), Incoming::Absorbed))
    }

    /// Handles an ACK or a retransmission of a server transaction.
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
