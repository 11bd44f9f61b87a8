//! Moves of calls with their bucket to another shard, or to another process.
//!
//! To another shard the state moves as values. To another process [`Engine::export_bytes`] writes the same values
//! without state that exists only in one process, such as the policy of a request: the request continues under the
//! policy of its new owner.

use super::Engine;
use crate::bridge::BridgedRecord;
use crate::endpoint::EndpointRecord;
use crate::far_leg::FarLegRecord;
use crate::handling::Progress;
use crate::media_sessions::ClosingRecord;
use crate::waiting::Held;
use serde::{Deserialize, Serialize};
use strowger_calls::{Call, CallTable, HeldLimits};
use strowger_core::call::BucketSet;
use strowger_core::proxy::ContextRecord;
use strowger_core::record::{self, Names, Number, Recorded, Unreadable};
use strowger_core::transaction::{Role, Side, TransactionRecord};
use strowger_core::user_agent::{AgentRecord, UserAgent};
use strowger_core::{Arrival, Now, Outbox};

/// State that moves with a bucket of calls.
#[derive(Debug, Serialize, Deserialize)]
pub enum EngineRecord {
    /// State that waits for nothing but messages and timers.
    Calls {
        /// Response contexts of the proxy core.
        contexts: Vec<ContextRecord>,
        /// Transactions, including those of the contexts.
        transactions: Vec<TransactionRecord>,
        /// Calls that are tracked or logged and have not ended.
        calls: Vec<Call>,
        /// Limits under which some of these calls count at their gateways and groups.
        held: Vec<HeldLimits>,
    },
    /// Far legs of calls, which their suspended INVITEs need.
    FarLegs(FarLegRecord),
    /// Suspended request. The request asks its question again with its new owner.
    Suspended {
        /// Request with its body.
        bytes: Vec<u8>,
        /// Source of the request.
        arrival: Arrival,
        /// Milliseconds since its first stage began.
        age: u64,
        /// Progress of the request.
        progress: Box<Progress>,
    },
    /// Message held back behind such a request.
    Held(Held),
    /// Calls of the user agent.
    Agent {
        /// Calls and requests of the user agent.
        agent: Box<AgentRecord>,
        /// Transactions of these calls and requests.
        transactions: Vec<TransactionRecord>,
        /// Calls that endpoints of this server have answered.
        endpoints: EndpointRecord,
        /// Calls that are bridged.
        bridges: Box<BridgedRecord>,
        /// Media sessions that are being closed.
        closing: ClosingRecord,
    },
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
            Self::FarLegs(legs) => legs.numbers(show),
            Self::Held(held) => held.arrival.numbers(show),
            Self::Agent { agent, transactions, bridges, .. } => {
                agent.numbers(show);
                transactions.numbers(show);
                bridges.numbers(show);
            }
        }
    }
}

impl Engine {
    /// Takes out the state of the calls of this bucket, 0 to 255, in the order in which its new owner needs it.
    pub fn export(&mut self, now: Now, bucket: u8) -> Vec<EngineRecord> {
        let moves = |b: u8| b == bucket;
        // The reports about the media of calls that have ended come to the new owner of their bucket.
        self.calls.close_unreported(u64::MAX);
        self.keep_changed(now);
        // Suspended requests are taken out before the transactions, because this drops their transactions, which are
        // not moved.
        let waiting = self.take_waiting(now, bucket);
        let contexts = self.stack.proxy.export(now, moves);
        // The pairs are taken out before their calls.
        let bridges = Box::new(self.anchored.bridges.export(now, bucket));
        let (agent, has_calls) = self.export_agent(now, bucket);
        let transactions = self.stack.core.transactions.export(now, moves);
        self.pings.leave(bucket, &transactions);
        let updates = agent.updates();
        let is_agents = |record: &TransactionRecord| {
            matches!(record.tu.role(), Role::UserAgent(_))
                || (record.side == Side::Server && updates.contains(&record.id))
        };
        let (of_agent, transactions): (Vec<_>, Vec<_>) = transactions.into_iter().partition(is_agents);
        let mut calls = self.calls.export(now, bucket);
        let held = CallTable::export_held(&mut calls);
        let is_any = !contexts.is_empty() || !transactions.is_empty() || !calls.is_empty();
        let record = is_any.then_some(EngineRecord::Calls { contexts, transactions, calls, held });
        let endpoints = self.anchored.endpoints.export(bucket);
        let closing = self.anchored.media.export(bucket);
        let is_agent =
            has_calls || !of_agent.is_empty() || !endpoints.is_empty() || !bridges.is_empty() || !closing.is_empty();
        let (agent, transactions) = (Box::new(agent), of_agent);
        let agent = is_agent.then_some(EngineRecord::Agent { agent, transactions, endpoints, bridges, closing });
        let far_legs = self.anchored.far_legs.export(bucket);
        let far_legs = (!far_legs.is_empty()).then_some(EngineRecord::FarLegs(far_legs));
        self.show_gauges();
        record.into_iter().chain(agent).chain(far_legs).chain(waiting).collect()
    }

    /// Takes out the calls and requests of the user agent in this bucket. Returns also whether there are any.
    fn export_agent(&mut self, now: Now, bucket: u8) -> (AgentRecord, bool) {
        let count = |agent: &UserAgent| agent.calls() + agent.requests() + agent.open_requests();
        let before = count(&self.stack.agent);
        let record = self.stack.agent.export(now, BucketSet::of(|other| other == bucket));
        (record, count(&self.stack.agent) < before)
    }

    /// Takes over the state that another engine exported; timers continue.
    pub fn import(&mut self, now: Now, record: EngineRecord, out: &mut Outbox) {
        match record {
            EngineRecord::Calls { contexts, transactions, calls, held } => {
                self.calls.import(now, calls, held);
                self.pings.arrive(&transactions);
                self.stack.import(now, contexts, transactions);
            }
            EngineRecord::Suspended { bytes, arrival, age, mut progress } => {
                let ago = |moment: u64| moment.saturating_sub(age);
                progress.began = Now { mono: ago(now.mono), wall: ago(now.wall) };
                self.go_on_here(now, &arrival, &bytes, *progress, out);
            }
            EngineRecord::FarLegs(legs) => self.anchored.far_legs.import(legs),
            EngineRecord::Held(held) => self.enter_held(now, held, out),
            EngineRecord::Agent { agent, transactions, endpoints, bridges, closing } => {
                let moved = self.stack.import_agent(now, *agent, transactions);
                self.anchored.endpoints.import(endpoints, &moved);
                self.import_bridges(now, *bridges, &moved);
                self.anchored.media.import(closing);
                self.place_portless(now, out);
            }
        }
        if out.has_looped() {
            self.process_notices(now, out);
        }
    }

    /// Writes [`Engine::export`] as bytes.
    pub fn export_bytes(&mut self, now: Now, bucket: u8, names: &impl Names) -> Vec<u8> {
        record::write(self.export(now, bucket), names)
    }

    /// Takes over all that another engine wrote with [`Engine::export_bytes`]. Both engines MUST have the same secret,
    /// seed and `call_secret` in their [`ProcessContext`], or nothing is found again.
    ///
    /// # Errors
    /// The bytes are no such record, or refer to nothing here. Nothing was taken over.
    ///
    /// [`ProcessContext`]: crate::process_state::ProcessContext
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

    /// Resumes a request that waited in another shard, at its stage.
    fn go_on_here(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], mut progress: Progress, out: &mut Outbox) {
        // The transaction of the request in this shard is a new one, which has sent nothing.
        progress.trying = false;
        let its = progress.policy.take();
        self.by_policy(its, |engine| {
            let mut reader = engine.stack.core.lend_reader();
            if let Some(mut request) = reader.read_again(arrival, bytes, &engine.reading()) {
                request.call_hash = engine.shared.bridged_dialogs.placed_hash(request.call_hash, request.call_id);
                engine.begin(now, &request, &mut progress, out);
            }
            engine.stack.core.return_reader(reader);
        });
    }
}
