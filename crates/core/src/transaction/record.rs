//! A transaction written down, to go on in another table.

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

/// Which side of the transaction this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// It receives the request and answers.
    Server,
    /// It sends the request.
    Client,
}

/// Everything about one transaction. The table that takes it must have the same secret key, or nothing finds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionRecord {
    /// The id that it had, as a word ([`super::ServerId::to_u64`], [`super::ClientId::to_u64`]).
    pub id: u64,
    /// What kind of id that is.
    pub side: Side,
    /// The user's word. It names something of the old shard: the user translates it with its own records.
    pub tu: TransactionUser,
    /// Where responses go, or where the request went.
    pub target: Target,
    /// The bucket of its call, 0 to 255.
    pub bucket: u8,
    pub(super) key: Key,
    pub(super) machine: Machine,
    pub(super) kept: Option<Vec<u8>>,
    pub(super) abridged: bool,
    pub(super) attempts: u8,
    pub(super) due: u32,
    pub(super) allowance: Allowance,
    pub(super) cancel: Cancel,
    /// Of its CANCEL, if that is held back.
    pub(super) cancel_lines: Option<Arc<[u8]>>,
    /// Milliseconds that its timers still have to run.
    pub(super) retransmission: Option<u64>,
    pub(super) end: Option<u64>,
}

impl Recorded for TransactionRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.target.numbers(show);
    }
}

impl TransactionRecord {
    /// It is of an INVITE.
    pub const fn is_invite(&self) -> bool {
        matches!(self.machine, Machine::ServerInvite(_) | Machine::ClientInvite(_))
    }
}

/// The ids that transactions have in another table than before.
#[derive(Debug, Default)]
pub struct NewIds(HashMap<(Side, u64), u64>);

impl NewIds {
    /// None: it did not move, or has ended.
    pub fn server(&self, old: ServerId) -> Option<ServerId> {
        self.0.get(&(Side::Server, old.to_u64())).copied().map(ServerId::from_u64)
    }

    /// None: it did not move, or has ended.
    pub fn client(&self, old: ClientId) -> Option<ClientId> {
        self.0.get(&(Side::Client, old.to_u64())).copied().map(ClientId::from_u64)
    }
}

impl Transactions {
    /// Takes in what another table exported; `user` says whose each is here.
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

    /// Takes out every transaction of the buckets for which `moves` is true.
    pub fn export(&mut self, now: Now, moves: impl Fn(u8) -> bool) -> Vec<TransactionRecord> {
        // What moves to and fro within a second leaves no row of stopped timers behind.
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

    /// Takes in a transaction of another table, with the user's word of this one. Returns the new id as a word: a
    /// [`ServerId`]'s or a [`ClientId`]'s as the record's role says.
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
