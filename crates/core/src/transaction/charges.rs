//! What the table keeps for the requests of each source, charged to the source where it is kept.

use super::dues::Dues;
use super::entry::Entry;
use super::record::Side;
use super::table::read;
use super::{ServerId, Transactions, abridged};
use crate::message_store::{MessageStore, memory_of};
use crate::slots::Id;
use std::net::IpAddr;

/// Bytes of a message that fits into a datagram of any network (RFC 3261 section 18.1.1). A response or an ACK up to this length is
/// kept as part of its transaction, whose number is bounded.
const ORDINARY: usize = 1_300;

impl Transactions {
    /// Bytes kept at most for the requests of one source, and of all sources together: of their requests until they have a final
    /// response, of responses what goes beyond an ordinary one. Where there is no room, [`Transactions::request`] takes no more, and
    /// responses are sent and not kept. By IPv6 a source is a network of `ipv6_prefix` bits, which must not change once
    /// anything is charged. Default: no bound.
    pub fn set_shares(&mut self, of_source: usize, of_all: usize, ipv6_prefix: u8) {
        self.dues.set_shares(of_source, of_all, ipv6_prefix);
    }

    /// Memory that one kept message takes at most. A larger response is sent once and not kept. A larger request
    /// too, but for what its ACK and CANCEL and a response of our own are made of, if that is not larger. Default: no bound.
    pub fn set_most_kept(&mut self, memory: usize) {
        self.most_kept = memory;
    }

    /// Whether so many bytes more may be kept for this source.
    pub fn has_room(&self, source: IpAddr, bytes: usize) -> bool {
        self.dues.has_room(source, bytes)
    }

    /// Whether so many bytes more may be kept for a request of this source that proved its dialog: each bound is an eighth higher.
    pub fn has_room_within_dialog(&self, source: IpAddr, bytes: usize) -> bool {
        self.dues.has_room_within_dialog(source, bytes)
    }

    /// Whether so many bytes more may be kept for a source that proved nothing: half of what is for all is not for such.
    pub fn has_room_for_unproven(&self, bytes: usize) -> bool {
        self.dues.has_half(bytes)
    }

    /// So many bytes are kept for a request of this source elsewhere, until [`Transactions::refund`].
    pub fn charge(&mut self, source: IpAddr, bytes: usize) {
        self.dues.charge(source, bytes);
    }

    /// Takes back what [`Transactions::charge`] counted.
    pub fn refund(&mut self, source: IpAddr, bytes: usize) {
        self.dues.refund(source, bytes);
    }

    /// So many bytes are kept for the request of this server transaction, until it has a final response.
    pub fn bill(&mut self, id: ServerId, bytes: usize) {
        let Some(entry) = self.entries.get_mut(id.0).filter(|e| e.machine.awaits_answer()) else { return };
        entry.due = entry.due.saturating_add(bytes as u32);
        self.dues.charge(entry.target.ip(), bytes);
    }

    /// As [`Transactions::bill`], of what can be done without: false if there is no room for what goes beyond an ordinary message.
    pub fn try_bill(&mut self, id: ServerId, bytes: usize) -> bool {
        let Some(entry) = self.entries.get(id.0) else { return false };
        let has_room = bytes <= ORDINARY || self.dues.has_room(entry.target.ip(), bytes);
        if has_room {
            self.bill(id, bytes);
        }
        has_room
    }

    /// Keeps what was sent in the place of what was kept before.
    pub(super) fn keep(&mut self, id: Id, message: &[u8]) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.drop_kept(&mut self.kept, &mut self.dues);
        let fits = memory_of(message.len()) <= self.most_kept;
        match entry.machine.side() {
            // It is billed to the transaction of the server that it was forwarded for.
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
                // A forged source is charged for no response: it is the share of another.
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

    /// Keeps the ACK that was sent, if it is an ordinary one: the transaction that a longer one could be charged to is over.
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

    /// A request has its final response: what its source was charged for it is refunded, but not for a response that is kept.
    pub(super) fn settle(&mut self, id: Id) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let beyond = entry.beyond(&self.kept) as u32;
        self.dues.refund(entry.target.ip(), entry.due.saturating_sub(beyond) as usize);
        entry.due = entry.due.min(beyond);
    }
}

impl Entry {
    /// What its source is charged for the response that it keeps.
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
