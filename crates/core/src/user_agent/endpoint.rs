//! A user agent with transactions of its own.

use std::sync::Arc;

use super::{Settings, UserAgent};
use crate::entropy::Entropy;
use crate::routing::Identity;
use crate::timer::sooner;
use crate::transaction::{Counts, Event, Transactions};
use crate::{Arrival, Now, Outbox, Round};

/// A [`UserAgent`] and its transactions, for a shard on which nothing else uses any: telephones, small programs.
#[derive(Debug)]
pub struct Endpoint {
    /// What needs no transactions.
    pub agent: UserAgent,
    transactions: Transactions,
    told: Vec<Event>,
}

impl Endpoint {
    /// As [`UserAgent::new`].
    pub fn new(identity: Arc<Identity>, settings: Settings, mut entropy: Entropy, call_secret: u32) -> Self {
        let transactions = Transactions::new(settings.timers, [entropy.u64(), entropy.u64()]);
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
