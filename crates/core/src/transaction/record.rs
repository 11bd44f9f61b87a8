//! Record of a transaction, for a move to another table.

use super::allowance::Allowance;
use super::entry::{Entry, runs};
use super::key::Key;
use super::machine::{Cancel, Machine};
use super::user::TransactionUser;
use super::{ClientId, ServerId, Transactions};
use crate::record::{Number, Recorded};
use crate::slots::Id;
use crate::timer::Stamp;
use crate::{Now, Target};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Side of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// Server: receives the request and responds.
    Server,
    /// Client: sends the request.
    Client,
}

/// State of one transaction. It is found only in a table with the same secret key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionRecord {
    /// Id in the old table, as a word ([`super::ServerId::to_u64`], [`super::ClientId::to_u64`]).
    pub id: u64,
    /// Kind of the id.
    pub side: Side,
    /// Transaction user in the old shard; the user translates it by its own records.
    pub tu: TransactionUser,
    /// Target of the responses, or of the request.
    pub target: Target,
    /// Bucket of the call, 0 to 255.
    pub bucket: u8,
    pub(super) key: Key,
    pub(super) machine: Machine,
    pub(super) kept: Option<Vec<u8>>,
    pub(super) abridged: bool,
    pub(super) attempts: u8,
    pub(super) due: u32,
    pub(super) allowance: Allowance,
    pub(super) cancel: Cancel,
    /// Header lines of a CANCEL that is held back.
    pub(super) cancel_lines: Option<Arc<[u8]>>,
    /// Remaining milliseconds of its timers.
    pub(super) retransmission: Option<u64>,
    pub(super) end: Option<u64>,
}

impl Recorded for TransactionRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.target.numbers(show);
    }
}

impl TransactionRecord {
    /// Tells whether the transaction is that of an INVITE.
    pub const fn is_invite(&self) -> bool {
        matches!(self.machine, Machine::ServerInvite(_) | Machine::ClientInvite(_))
    }
}

/// New ids of transactions that moved from another table.
#[derive(Debug, Default)]
pub struct NewIds(HashMap<(Side, u64), u64>);

impl NewIds {
    /// Returns the new id; `None` if the transaction did not move, or has ended.
    pub fn server(&self, old: ServerId) -> Option<ServerId> {
        self.0.get(&(Side::Server, old.to_u64())).copied().map(ServerId::from_u64)
    }

    /// Returns the new id; `None` if the transaction did not move, or has ended.
    pub fn client(&self, old: ClientId) -> Option<ClientId> {
        self.0.get(&(Side::Client, old.to_u64())).copied().map(ClientId::from_u64)
    }
}

impl Transactions {
    /// Adds transactions that another table exported. `user`: function that returns the transaction user of each in
    /// this shard.
    pub fn import_all(
        &mut self,
        now: Now,
        records: Vec<TransactionRecord>,
        user: impl Fn(&TransactionRecord) -> TransactionUser,
    ) -> NewIds {
        let import = |record: TransactionRecord| {
            let (old, tu) = ((record.side, record.id), user(&record));
            (old, self.import(now, record, tu))
        };
        NewIds(records.into_iter().map(import).collect())
    }

    /// Removes and returns every transaction of the buckets for which `moves` is true.
    pub fn export(&mut self, now: Now, moves: impl Fn(u8) -> bool) -> Vec<TransactionRecord> {
        // Repeated moves within a second must not leave a queue of stopped timers behind.
        self.timers.tidy(runs(&self.entries));
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
            records.push(TransactionRecord {
                id: id.to_u64(),
                side: entry.machine.side(),
                tu: entry.tu,
                target: entry.target.into(),
                bucket: entry.bucket,
                key: entry.key,
                machine: entry.machine,
                kept,
                abridged: entry.abridged,
                attempts: entry.attempts,
                due: entry.due,
                allowance: entry.allowance,
                cancel: entry.cancel,
                cancel_lines: self.cancel_lines.get(&id.to_u64()).cloned(),
                retransmission: left(entry.retransmission),
                end: left(entry.end),
            });
            self.remove(id);
        }
        records
    }

    /// Adds a transaction of another table, with its user in this shard. Returns the new id as a word, of a
    /// [`ServerId`] or a [`ClientId`] according to the record.
    pub fn import(&mut self, now: Now, record: TransactionRecord, tu: TransactionUser) -> u64 {
        let mut entry = Entry::new(record.key, record.machine, record.target, record.bucket, tu);
        entry.kept = record.kept.map(|bytes| self.kept.store(&bytes));
        (entry.abridged, entry.attempts) = (record.abridged, record.attempts);
        (entry.allowance, entry.due) = (record.allowance, record.due);
        self.dues.charge(record.target.address.ip(), record.due as usize);
        entry.cancel = record.cancel;
        let id = self.insert(now, entry);
        self.cancel_lines.extend(record.cancel_lines.map(|lines| (id.to_u64(), lines)));
        let mut start = |left: Option<u64>| left.map_or(Stamp::NONE, |ms| self.timers.start_at(now.mono + ms, id.slot));
        let (retransmission, end) = (start(record.retransmission), start(record.end));
        let entry = self.entries.get_mut(id).expect("the entry was just put there");
        (entry.retransmission, entry.end) = (retransmission, end);
        id.to_u64()
    }
}
