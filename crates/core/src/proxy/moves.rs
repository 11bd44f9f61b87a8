//! Moves of response contexts to another shard.

use super::response_context::ResponseContext;
use super::{Proxy, TIDY};
use crate::record::{Number, Recorded};
use crate::slots::Id;
use crate::transaction::{NewIds, Role, TransactionRecord, TransactionUser};
use crate::{Now, call};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Response context that moves to another shard, with the ids of its transactions in the old one.
#[derive(Debug, Serialize, Deserialize)]
pub struct ContextRecord {
    old: Id,
    /// Milliseconds since the request was forwarded; `None` once the first response that shows an answer was sent
    /// upstream.
    age: Option<u32>,
    context: ResponseContext,
}

impl Recorded for ContextRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        if let Some(pending) = &mut self.context.pending {
            pending.arrival.numbers(show);
        }
        self.context.waiting_targets_mut().for_each(|target| target.numbers(show));
    }
}

/// New ids of response contexts that moved here from another shard.
#[derive(Debug, Default)]
pub struct MovedContexts(HashMap<Id, Id>);

impl MovedContexts {
    /// Returns the transaction user of this transaction, if it belongs to one of these response contexts.
    pub fn user(&self, record: &TransactionRecord) -> Option<TransactionUser> {
        let Role::Proxy(old) = record.tu.role() else { return None };
        let new = self.0.get(&old)?;
        Some(TransactionUser::new(Role::Proxy(*new)))
    }
}

impl Proxy {
    /// Removes and returns every response context of the buckets for which `moves` is true. Their transactions move too.
    pub fn export(&mut self, now: Now, moves: impl Fn(u8) -> bool) -> Vec<ContextRecord> {
        let ids: Vec<Id> =
            self.contexts.iter().filter(|(_, c)| moves(call::bucket(c.call_hash))).map(|(id, _)| id).collect();
        ids.into_iter()
            .filter_map(|old| {
                let mut context = self.contexts.remove(old)?;
                self.unanswered -= usize::from(!context.answered);
                // Moments become remaining milliseconds.
                context.untils_mut().for_each(|until| *until = until.saturating_sub(now.mono));
                let age = context.first_sign(now);
                Some(ContextRecord { old, age, context })
            })
            .collect()
    }

    /// Adds response contexts that another shard exported. Their transactions follow
    /// ([`import_all`](crate::transaction::Transactions::import_all)), then [`Proxy::settle`].
    pub fn import(&mut self, now: Now, contexts: Vec<ContextRecord>) -> MovedContexts {
        let mut moved = MovedContexts(HashMap::with_capacity(contexts.len()));
        for ContextRecord { old, age, mut context } in contexts {
            context.forwarded_before(now, age);
            context.untils_mut().for_each(|left| *left += now.mono);
            self.unanswered += usize::from(!context.answered);
            let until = [context.ring_end(), context.silent_until()];
            let id = self.contexts.insert(context);
            self.fork_timers.extend(until.into_iter().flatten().map(|until| Reverse((until, id.to_u64()))));
            moved.0.insert(old, id);
        }
        if !self.contexts.is_empty() {
            self.tidy_at.get_or_insert(now.mono + TIDY);
        }
        moved
    }

    /// Replaces the old transaction ids in imported response contexts.
    pub fn settle(&mut self, moved: &MovedContexts, ids: &NewIds) {
        for id in moved.0.values() {
            let Some(context) = self.contexts.get_mut(*id) else { continue };
            // The id of an ended transaction must not name another transaction in this table.
            context.server = ids.server(context.server).unwrap_or(super::GONE);
            for branch in context.branches_mut() {
                branch.client = branch.client.and_then(|old| ids.client(old));
            }
            self.ask_again(*id);
        }
    }
}
