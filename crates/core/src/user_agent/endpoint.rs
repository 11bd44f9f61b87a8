//! A user agent with transactions of its own.

use std::sync::Arc;

use super::{AgentRecord, MovedCalls, Settings, UserAgent};
use crate::entropy::Entropy;
use crate::routing::Identity;
use crate::timer::sooner;
use crate::transaction::{Counts, Event, Record, TransactionUser, Transactions};
use crate::{Arrival, Now, Outbox, Round};

/// A [`UserAgent`] and its transactions, for a shard on which nothing else uses any: telephones, small programs.
#[derive(Debug)]
pub struct Endpoint {
    /// What needs no transactions.
    pub agent: UserAgent,
    transactions: Transactions,
    told: Vec<Event>,
}

/// What one endpoint hands to another.
#[derive(Debug)]
pub struct EndpointRecord {
    agent: AgentRecord,
    transactions: Vec<Record>,
}

impl EndpointRecord {
    pub fn is_empty(&self) -> bool {
        self.agent.is_empty() && self.transactions.is_empty()
    }
}

impl Endpoint {
    /// As [`UserAgent::new`].
    pub fn new(identity: Arc<Identity>, settings: Settings, mut entropy: Entropy, call_secret: u32) -> Self {
        let key = [entropy.u64(), entropy.u64()];
        Self::of_shard(identity, settings, entropy, call_secret, key)
    }

    /// One of several, among which calls move: with the same `call_secret` and the same `key` of transactions.
    pub fn of_shard(
        identity: Arc<Identity>,
        settings: Settings,
        entropy: Entropy,
        call_secret: u32,
        key: [u64; 2],
    ) -> Self {
        let transactions = Transactions::new(settings.timers, key);
        let agent = UserAgent::new(identity, settings, entropy, call_secret);
        Self { agent, transactions, told: Vec::new() }
    }

    /// The user agent, and what it is lent for what it is to do.
    pub fn lend<'a>(&'a mut self, now: Now, out: &'a mut Outbox) -> (&'a mut UserAgent, Round<'a>) {
        (&mut self.agent, Round { now, tx: &mut self.transactions, out })
    }

    /// One whole message.
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let (agent, mut round) = self.lend(now, out);
        agent.receive(&mut round, arrival, bytes);
    }

    /// A message with this token could not be sent.
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.failed(now, token, out, &mut self.told);
        self.tell(now, out);
    }

    /// When [`Endpoint::poll`] must be called at the latest ([`Now::mono`] milliseconds).
    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.transactions.deadline(), self.agent.deadline())
    }

    /// Runs the timers that are due.
    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.transactions.poll(now, out, &mut self.told);
        self.tell(now, out);
        let (agent, mut round) = self.lend(now, out);
        agent.poll(&mut round);
    }

    /// Takes out everything of the buckets for which `moves` is true. Events must have been taken before.
    pub fn export(&mut self, now: Now, moves: impl Fn(u8) -> bool) -> EndpointRecord {
        let agent = self.agent.export(now, &moves);
        EndpointRecord { agent, transactions: self.transactions.export(now, moves) }
    }

    /// Takes in what another one exported; says which keys have changed to which.
    pub fn import(&mut self, now: Now, record: EndpointRecord) -> MovedCalls {
        let moved = self.agent.import(now, record.agent);
        let user = |record: &Record| moved.user(record).unwrap_or(TransactionUser::NONE);
        let ids = self.transactions.import_all(now, record.transactions, user);
        self.agent.settle(&moved, &ids);
        moved
    }

    /// Of the transactions.
    pub fn counts(&self) -> Counts {
        self.transactions.counts()
    }

    fn tell(&mut self, now: Now, out: &mut Outbox) {
        let mut round = Round { now, tx: &mut self.transactions, out };
        for event in self.told.drain(..) {
            self.agent.transaction_event(&mut round, &event);
        }
    }
}
