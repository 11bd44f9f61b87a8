//! Part of the engine that decides: it reads the state of the engine, and changes nothing.
//!
//! A stage is a function of the request, the policy and the answers so far ([`crate::stage`]), so it is a method of
//! [`Decider`]. Transactions, response contexts and waiting requests are not accessible to it.

use crate::counters::{Counters, Messages};
use crate::policy::ActivePolicy;
use crate::process_state::ProcessState;
use crate::shard::{ShardState, Sinks};
use strowger_calls::CallTable;

/// View of an engine for decisions.
#[derive(Clone, Copy)]
pub(crate) struct Decider<'a> {
    /// Policy of the request.
    pub(crate) policy: &'a ActivePolicy,
    /// State that the engines of the process share.
    pub(crate) shared: &'a ProcessState,
    /// Shard of the engine.
    pub(crate) shard: &'a ShardState,
    /// Calls of the shard.
    pub(crate) calls: &'a CallTable,
    /// Receivers of answers, and the scratch memory of questions.
    pub(crate) sinks: &'a Sinks,
}

impl<'a> Decider<'a> {
    pub(crate) fn counters(&self) -> &'a Counters {
        &self.shared.counters[self.shard.number]
    }

    pub(crate) fn messages(&self) -> &'a Messages {
        &self.shared.messages[self.shard.number]
    }
}
