//! Calls that move with their bucket to another shard.

use super::Engine;
use crate::call_log::LoggedCall;
use crate::handling::Progress;
use strowger_core::proxy::ContextRecord;
use strowger_core::routing::Request;
use strowger_core::transaction::{Record, TransactionUser};
use strowger_core::{Arrival, Now, Outbox, call};
use strowger_message::{Index, Message, Name};

/// What moves with a bucket of calls.
#[derive(Debug)]
pub enum Moved {
    /// All that is under way and waits for nothing but messages and timers.
    Calls {
        /// Of the proxy core.
        contexts: Vec<ContextRecord>,
        /// Of the transaction table, those of the contexts among them.
        transactions: Vec<Record>,
        /// Calls in the log that have not ended, by the hash of their dialog.
        logged: Vec<(u64, LoggedCall)>,
    },
    /// A request that waited for an answer, with how far it came: it asks again with its new owner. Without that: a message that was
    /// held back behind one.
    Waiting {
        /// The message with its body.
        bytes: Vec<u8>,
        /// Where it came from.
        arrival: Arrival,
        /// None of a message that was held back.
        progress: Option<Progress>,
    },
}

impl Engine {
    /// Takes out what belongs to the calls of this bucket, 0 to 255, in the order in which its new owner is to have it.
    pub fn export(&mut self, now: Now, bucket: u8) -> Vec<Moved> {
        let moves = |b: u8| b == bucket;
        // Before the transactions: those of requests that wait are forgotten, not moved.
        let waiting = self.take_waiting(now, bucket);
        let contexts = self.proxy.export(now, moves);
        let transactions = self.transactions.export(now, moves);
        let logged = self.call_log.export(bucket);
        let is_any = !contexts.is_empty() || !transactions.is_empty() || !logged.is_empty();
        let calls = is_any.then_some(Moved::Calls { contexts, transactions, logged });
        self.show_busy();
        calls.into_iter().chain(waiting).collect()
    }

    /// What another engine exported; timers go on where they were.
    pub fn import(&mut self, now: Now, record: Moved, out: &mut Outbox) {
        match record {
            Moved::Calls { contexts, transactions, logged } => {
                self.call_log.import(logged);
                let moved = self.proxy.import(now, contexts);
                let user = |record: &Record| moved.user(record).unwrap_or(TransactionUser::NONE);
                let ids = self.transactions.import_all(now, transactions, user);
                self.proxy.settle(&moved, &ids);
            }
            Moved::Waiting { bytes, arrival, progress: Some(progress) } => {
                self.go_on_here(now, &arrival, &bytes, progress, out);
            }
            Moved::Waiting { bytes, arrival, progress: None } => self.read(now, &arrival, &bytes, out),
        }
        self.show_busy();
    }

    /// A request that waited in another shard, at the stage that it came to.
    fn go_on_here(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], mut progress: Progress, out: &mut Outbox) {
        // Its transaction is another one here, which has sent nothing.
        progress.trying = false;
        let its = progress.policy.take();
        self.by_policy(its, |engine| {
            let mut index = Index::new();
            if index.parse(bytes, &engine.policy.limits).is_err() {
                return;
            }
            let message = Message::new(bytes, &index);
            let call_hash = message.header(Name::CallId).map_or(0, |id| call::hash(engine.shared.call_secret, id));
            if let Ok(request) = Request::of(message, arrival, call_hash) {
                engine.begin(now, &request, &mut progress, out);
            }
        });
    }
}
