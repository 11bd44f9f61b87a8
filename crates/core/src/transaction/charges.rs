//! Memory of the transaction table, charged to the source of each request.

use super::dues::Dues;
use super::entry::Entry;
use super::record::Side;
use super::table::read;
use super::{ServerId, Transactions, abridged};
use crate::message_store::{MessageStore, memory_of};
use crate::slots::Id;
use std::net::IpAddr;

/// Maximum length in bytes of an ordinary message: it fits into a datagram of any network (RFC 3261 section 18.1.1). A response or an ACK
/// up to this length is kept as part of its transaction, since the number of transactions is bounded.
const ORDINARY: usize = 1_300;

impl Transactions {
    /// Sets the maximum number of kept bytes for the requests of one source, and of all sources together: requests until their final
    /// response, and the part of responses beyond an ordinary length. At the bound, [`Transactions::request`] refuses requests, and
    /// responses are sent but not kept. For IPv6 a source is a network of `ipv6_prefix` bits, which must not change after the first charge.
    /// Default: no bound.
    pub fn set_shares(&mut self, of_source: usize, of_all: usize, ipv6_prefix: u8) {
        self.dues.set_shares(of_source, of_all, ipv6_prefix);
    }

    /// Sets the maximum memory of one kept message. A larger response is sent once and not kept. Of a larger request only the parts for
    /// ACK, CANCEL and a response of this server are kept, if they fit. Default: no bound.
    pub fn set_most_kept(&mut self, memory: usize) {
        self.most_kept = memory;
    }

    /// Tells whether this source has room for more bytes.
    pub fn has_room(&self, source: IpAddr, bytes: usize) -> bool {
        self.dues.has_room(source, bytes)
    }

    /// Tells whether this source has room for a request that proved its dialog: each bound is an eighth higher.
    pub fn has_room_within_dialog(&self, source: IpAddr, bytes: usize) -> bool {
        self.dues.has_room_within_dialog(source, bytes)
    }

    /// Tells whether there is room for an unproved source. Such sources may use half of the memory of all.
    pub fn has_room_for_unproven(&self, bytes: usize) -> bool {
        self.dues.has_half(bytes)
    }

    /// Charges this source for bytes that another part of the server keeps for a request, until [`Transactions::refund`].
    pub fn charge(&mut self, source: IpAddr, bytes: usize) {
        self.dues.charge(source, bytes);
    }

    /// Reverses [`Transactions::charge`].
    pub fn refund(&mut self, source: IpAddr, bytes: usize) {
        self.dues.refund(source, bytes);
    }

    /// Charges the source of this server transaction for kept bytes, until its final response.
    pub fn bill(&mut self, id: ServerId, bytes: usize) {
        let Some(entry) = self.entries.get_mut(id.0).filter(|e| e.machine.awaits_answer()) else { return };
        entry.due = entry.due.saturating_add(bytes as u32);
        self.dues.charge(entry.target.ip(), bytes);
    }

    /// Charges as [`Transactions::bill`] does, for optional data. Returns false if the data is longer than an ordinary
    /// message and there is no room.
    pub fn try_bill(&mut self, id: ServerId, bytes: usize) -> bool {
        let Some(entry) = self.entries.get(id.0) else { return false };
        let has_room = bytes <= ORDINARY || self.dues.has_room(entry.target.ip(), bytes);
        if has_room {
            self.bill(id, bytes);
        }
        has_room
    }

    /// Keeps the sent message in place of the previous one.
    pub(super) fn keep(&mut self, id: Id, message: &[u8]) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.drop_kept(&mut self.kept, &mut self.dues);
        let fits = memory_of(message.len()) <= self.most_kept;
        match entry.machine.side() {
            // A request is charged to the server transaction for which it was forwarded.
            Side::Client => {
                entry.abridged = !fits;
                if fits {
                    entry.kept = Some(self.kept.store(message));
                } else {
                    self.invite.clear();
                    let written = read(message, &mut self.index).map(|all| abridged::write(&all, &mut self.invite));
                    if written.is_some() && memory_of(self.invite.len()) <= self.most_kept {
                        entry.kept = Some(self.kept.store(&self.invite));
                    }
                }
            }
            Side::Server => {
                if !entry.machine.awaits_answer() {
                    entry.allowance.spend(message.len());
                }
                let (source, beyond) = (entry.target.ip(), message.len().saturating_sub(ORDINARY));
                // A source that may be forged is charged for no response, because its share belongs to the victim of
                // the forgery.
                let has_room = beyond == 0 || (!entry.allowance.is_bounded() && self.dues.has_room(source, beyond));
                entry.abridged = !fits || !has_room;
                if !entry.abridged {
                    entry.kept = Some(self.kept.store(message));
                    entry.due = entry.due.saturating_add(beyond as u32);
                    self.dues.charge(source, beyond);
                }
            }
        }
        self.counts.abridged += u64::from(entry.abridged);
    }

    /// Keeps the sent ACK if it has an ordinary length. A longer ACK cannot be kept, because the transaction to which
    /// it could be charged is over.
    pub(super) fn keep_ack(&mut self, id: Id, ack: &[u8]) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.abridged = ack.len() > ORDINARY || memory_of(ack.len()) > self.most_kept;
        if !entry.abridged {
            entry.kept = Some(self.kept.store(ack));
        }
        self.counts.abridged += u64::from(entry.abridged);
    }

    pub(super) fn drop_kept(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.drop_kept(&mut self.kept, &mut self.dues);
        }
    }

    /// Settles a request with its final response: refunds the charges of its source, except those for a kept response.
    pub(super) fn settle(&mut self, id: Id) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let beyond = entry.beyond(&self.kept) as u32;
        self.dues.refund(entry.target.ip(), entry.due.saturating_sub(beyond) as usize);
        entry.due = entry.due.min(beyond);
    }
}

impl Entry {
    /// Returns the number of charged bytes of the kept response.
    fn beyond(&self, store: &MessageStore) -> usize {
        match (&self.kept, self.machine.side()) {
            (Some(kept), Side::Server) => store.len(kept).saturating_sub(ORDINARY),
            _ => 0,
        }
    }

    fn drop_kept(&mut self, store: &mut MessageStore, dues: &mut Dues) {
        let beyond = self.beyond(store);
        if let Some(kept) = self.kept.take() {
            store.free(kept);
        }
        if beyond > 0 {
            self.due = self.due.saturating_sub(beyond as u32);
            dues.refund(self.target.ip(), beyond);
        }
    }
}
