//! User agent with a stack of its own.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::{AgentRecord, CallKey, MovedCalls, RegistrationKey, UserAgent, UserAgentSettings};
use crate::call::BucketSet;
use crate::entropy::Entropy;
use crate::record::{Number, Recorded};
use crate::routing::Identity;
use crate::stack::{Incoming, Reading, Received, Stack, Unread};
use crate::timer::sooner;
use crate::transaction::{Counts, TransactionRecord, TransactionUser};
use crate::{Arrival, Now, Outbox, Round};

/// [`UserAgent`] with a [`Stack`], for a shard without other roles: telephones, small programs.
#[derive(Debug)]
pub struct Endpoint {
    /// User agent, for calls that need no transactions.
    pub agent: UserAgent,
    stack: Stack,
}

/// Record that one endpoint hands to another.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndpointRecord {
    agent: AgentRecord,
    transactions: Vec<TransactionRecord>,
}

impl EndpointRecord {
    /// Tells whether the call is in the record.
    pub fn has_call(&self, key: CallKey) -> bool {
        self.agent.has_call(key)
    }

    /// Tells whether the registration is in the record.
    pub fn has_registration(&self, key: RegistrationKey) -> bool {
        self.agent.has_registration(key)
    }
}

impl Recorded for EndpointRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.agent.numbers(show);
        self.transactions.numbers(show);
    }
}

impl Endpoint {
    /// Creates the only endpoint of a process: it owns every call. `entropy` and `call_secret` as for [`UserAgent::new`].
    pub fn new(identity: Arc<Identity>, settings: UserAgentSettings, entropy: Entropy, call_secret: u32) -> Self {
        Self::of_shard(identity, settings, &entropy, call_secret, 0)
    }

    /// Creates one of several endpoints between which calls move, all with the same `entropy` and `call_secret`. At
    /// first shard 0 owns every bucket; the other shards import their buckets.
    pub fn of_shard(
        identity: Arc<Identity>,
        settings: UserAgentSettings,
        entropy: &Entropy,
        call_secret: u32,
        shard: usize,
    ) -> Self {
        let mut key = entropy.derive(b"transactions");
        let stack = Stack::new(settings.timers, [key.u64(), key.u64()], Reading::new(call_secret));
        let owned = if shard == 0 { BucketSet::ALL } else { BucketSet::NONE };
        let own = entropy.derive(&(shard as u64).to_le_bytes());
        let agent = UserAgent::new(identity, settings, own, call_secret, owned);
        Self { agent, stack }
    }

    /// Returns the user agent, and the round for its next work.
    pub fn lend<'a>(&'a mut self, now: Now, out: &'a mut Outbox) -> (&'a mut UserAgent, Round<'a>) {
        (&mut self.agent, self.stack.round(now, out))
    }

    /// Handles one whole message.
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let Self { agent, stack } = self;
        let (received, incoming, mut round) = stack.receive(now, arrival, bytes, out);
        match (&received, incoming) {
            (Received::Request(request), Incoming::Request(server)) => agent.take_request(&mut round, request, server),
            (Received::Request(request), Incoming::Ack) => agent.take_ack(&mut round, request),
            (Received::Request(request), Incoming::Cancel { cancel, invite }) => {
                agent.take_cancel(&mut round, request, cancel, invite);
            }
            (Received::Request(request), Incoming::Full) => agent.refuse(arrival, &request.message, 503, round.out),
            (Received::Response(response), Incoming::Response { id, tu, after_final }) => {
                agent.take_response(&mut round, arrival, response, id, tu, after_final);
            }
            (Received::Unread(Unread { error, request: Some(request) }), _) => {
                agent.refuse(arrival, request, error.status(), round.out);
            }
            _ => (),
        }
    }

    /// Handles a failure to send a message with this token.
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.stack.failed(now, token, out);
        self.tell(now, out);
    }

    /// Returns the latest moment for the next [`Endpoint::poll`] ([`Now::mono`] milliseconds).
    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.stack.transactions.deadline(), self.agent.deadline())
    }

    /// Runs the due timers.
    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.stack.poll(now, out);
        self.tell(now, out);
        let (agent, mut round) = self.lend(now, out);
        agent.poll(&mut round);
    }

    /// Removes and returns the state of these buckets, for the shard that owns them from now on. Events must be taken
    /// before.
    pub fn export(&mut self, now: Now, buckets: BucketSet) -> EndpointRecord {
        let agent = self.agent.export(now, buckets);
        let transactions = self.stack.transactions.export(now, |bucket| buckets.contains(bucket));
        EndpointRecord { agent, transactions }
    }

    /// Adds the state that another endpoint exported. Returns the changed keys.
    pub fn import(&mut self, now: Now, record: EndpointRecord) -> MovedCalls {
        let moved = self.agent.import(now, record.agent);
        let user = |record: &TransactionRecord| moved.user(record).unwrap_or(TransactionUser::NONE);
        let ids = self.stack.transactions.import_all(now, record.transactions, user);
        self.agent.settle(&moved, &ids);
        moved
    }

    /// Returns the counts of the transactions.
    pub fn counts(&self) -> Counts {
        self.stack.transactions.counts()
    }

    fn tell(&mut self, now: Now, out: &mut Outbox) {
        while let Some(event) = self.stack.event() {
            self.agent.transaction_event(&mut self.stack.round(now, out), &event);
        }
    }
}
