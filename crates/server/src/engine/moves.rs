//! Calls that move with their bucket to another shard, or to another process.
//!
//! A shard hands the next one the values. In bytes ([`Engine::export_bytes`]) go the same: what a process alone has, such as the policy of a
//! request, stays behind, and the request goes on by that of its new owner.

use super::Engine;
use crate::calls::{Call, Calls, LedScopes};
use crate::handling::Progress;
use crate::suspended::Held;
use serde::{Deserialize, Serialize};
use strowger_core::proxy::ContextRecord;
use strowger_core::record::{self, Names, Number, Recorded, Unreadable};
use strowger_core::routing::Request;
use strowger_core::transaction::{TransactionRecord, TransactionUser};
use strowger_core::{Arrival, Now, Outbox, call};
use strowger_message::{Index, Message, Name};

/// What moves with a bucket of calls.
#[derive(Debug, Serialize, Deserialize)]
pub enum EngineRecord {
    /// All that is under way and waits for nothing but messages and timers.
    Calls {
        /// Of the proxy core.
        contexts: Vec<ContextRecord>,
        /// Of the transaction table, those of the contexts among them.
        transactions: Vec<TransactionRecord>,
        /// Calls that are tracked or logged and have not ended.
        calls: Vec<Call>,
        /// What some of these count under where they are led.
        led: Vec<LedScopes>,
    },
    /// A request that waited for an answer: it asks again with its new owner.
    Suspended {
        /// The request with its body.
        bytes: Vec<u8>,
        /// Where it came from.
        arrival: Arrival,
        /// Milliseconds since its first stage began.
        age: u64,
        /// How far it came.
        progress: Box<Progress>,
    },
    /// A message that was held back behind such a request.
    Held(Held),
}

impl Recorded for EngineRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        match self {
            Self::Calls { contexts, transactions, .. } => {
                contexts.numbers(show);
                transactions.numbers(show);
            }
            Self::Suspended { arrival, progress, .. } => {
                arrival.numbers(show);
                progress.answers.numbers(show);
            }
            Self::Held(held) => held.arrival.numbers(show),
        }
    }
}

impl Engine {
    /// Takes out what belongs to the calls of this bucket, 0 to 255, in the order in which its new owner is to have it.
    pub fn export(&mut self, now: Now, bucket: u8) -> Vec<EngineRecord> {
        let moves = |b: u8| b == bucket;
        self.keep_changed(now);
        // Before the transactions: those of requests that wait are forgotten, not moved.
        let waiting = self.take_waiting(now, bucket);
        let contexts = self.proxy.export(now, moves);
        let transactions = self.transactions.export(now, moves);
        let mut calls = self.calls.export(now, bucket);
        let led = Calls::export_led(&mut calls);
        let is_any = !contexts.is_empty() || !transactions.is_empty() || !calls.is_empty();
        let record = is_any.then_some(EngineRecord::Calls { contexts, transactions, calls, led });
        self.show_gauges();
        record.into_iter().chain(waiting).collect()
    }

    /// What another engine exported; timers go on where they were.
    pub fn import(&mut self, now: Now, record: EngineRecord, out: &mut Outbox) {
        match record {
            EngineRecord::Calls { contexts, transactions, calls, led } => {
                self.calls.import(now, calls, led);
                let moved = self.proxy.import(now, contexts);
                let user = |record: &TransactionRecord| moved.user(record).unwrap_or(TransactionUser::NONE);
                let ids = self.transactions.import_all(now, transactions, user);
                self.proxy.settle(&moved, &ids);
            }
            EngineRecord::Suspended { bytes, arrival, age, mut progress } => {
                let ago = |moment: u64| moment.saturating_sub(age);
                progress.began = Now { mono: ago(now.mono), wall: ago(now.wall) };
                self.go_on_here(now, &arrival, &bytes, *progress, out);
            }
            EngineRecord::Held(held) => self.enter_held(now, held, out),
        }
    }

    /// [`Engine::export`], written down.
    pub fn export_bytes(&mut self, now: Now, bucket: u8, names: &impl Names) -> Vec<u8> {
        record::write(self.export(now, bucket), names)
    }

    /// [`Engine::import`] of all that another engine wrote down. That one must have had the same [`Surroundings`] but for what runs and lies
    /// around this process: with another secret, seed or `call_secret` nothing is found again.
    ///
    /// # Errors
    /// The bytes are no such record, or mean nothing here: nothing was taken in.
    ///
    /// [`Surroundings`]: crate::process_state::Surroundings
    pub fn import_bytes(
        &mut self,
        now: Now,
        bytes: &[u8],
        names: &impl Names,
        out: &mut Outbox,
    ) -> Result<(), Unreadable> {
        for moved in record::read::<Vec<EngineRecord>>(bytes, names)? {
            self.import(now, moved, out);
        }
        Ok(())
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
