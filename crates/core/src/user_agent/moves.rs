//! Moves of calls, requests and registrations to another shard.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

use super::call::{Call, OpenRequest};
use super::client_request::{ClientRequestKind, Request};
use super::registration::Registration;
use super::{CallKey, IncomingKey, RegistrationKey, RequestKey, UserAgent};
use crate::call::BucketSet;
use crate::record::{Number, Recorded};
use crate::slots::Id;
use crate::timer::{Stamp, Timers};
use crate::transaction::{NewIds, Role, ServerId, Side, TransactionRecord, TransactionUser};
use crate::{Now, call};

/// State of some buckets, without transactions, that one shard hands to another.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentRecord {
    buckets: BucketSet,
    calls: Vec<(Id, Call, Left)>,
    requests: Vec<(Id, Request)>,
    registrations: Vec<(Id, Registration, Option<u64>)>,
    /// Requests of peers, with the remaining milliseconds for the owner's answer.
    open: Vec<(Id, OpenRequest, u64)>,
}

/// Number of CSeqs that a process skips in each dialog that it takes over: the process before may have used some after its last record.
const SKIPPED_CSEQS: u32 = 1_000;

/// Highest CSeq of the first request of a callee.
pub(super) const HIGHEST_FIRST_CSEQ: u32 = 0x1_0000;

/// Remaining milliseconds of the timers of a call.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Left {
    again: Option<u64>,
    end: Option<u64>,
    refresh: Option<u64>,
    expiry: Option<u64>,
}

impl AgentRecord {
    /// Tells whether the call is in the record.
    pub fn has_call(&self, key: CallKey) -> bool {
        self.calls.iter().any(|(id, ..)| *id == key.0)
    }

    /// Advances the timers of the calls in a record of an earlier process by `time` milliseconds. Expired timers are due at once.
    pub fn pass(&mut self, time: u64) {
        for (_, _, Left { again, end, refresh, expiry }) in &mut self.calls {
            let lefts = [again, end, refresh, expiry].into_iter().flatten();
            lefts.for_each(|left| *left = left.saturating_sub(time));
        }
    }

    /// Tells whether the registration is in the record.
    pub fn has_registration(&self, key: RegistrationKey) -> bool {
        self.registrations.iter().any(|(id, ..)| *id == key.0)
    }
}

impl AgentRecord {
    /// Returns the ids of the server transactions of UPDATEs and PRACKs that wait for an answer, as words. These transactions have no transaction
    /// user, and move with their calls.
    pub fn updates(&self) -> BTreeSet<u64> {
        let legs = self.calls.iter().flat_map(|(_, call, _)| &call.legs);
        legs.filter_map(|leg| Some(leg.updated.as_ref()?.server.to_u64())).collect()
    }
}

impl Recorded for AgentRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        for (_, call, _) in &mut self.calls {
            call.target.numbers(show);
            let named = call.legs.iter_mut().filter_map(|leg| leg.named.as_mut()?.target.as_mut());
            named.for_each(|target| target.numbers(show));
        }
        let requests = self.requests.iter_mut().map(|(_, request)| &mut request.target);
        let registrations = self.registrations.iter_mut().map(|(_, registration, _)| registration.target_mut());
        requests.chain(registrations).for_each(|target| target.numbers(show));
    }
}

/// New keys of calls, requests and registrations that moved from another shard.
#[derive(Debug, Default)]
pub struct MovedCalls {
    calls: HashMap<Id, Id>,
    requests: HashMap<Id, Id>,
    registrations: HashMap<Id, Id>,
    open: HashMap<Id, Id>,
}

impl MovedCalls {
    /// Returns the new transaction user of a transaction; `None` if its call, request or registration did not move.
    pub fn user(&self, record: &TransactionRecord) -> Option<TransactionUser> {
        let Role::UserAgent(old) = record.tu.role() else { return None };
        let of = match (record.side, record.is_invite()) {
            (Side::Client, _) => &self.requests,
            (Side::Server, true) => &self.calls,
            (Side::Server, false) => &self.open,
        };
        Some(TransactionUser::new(Role::UserAgent(*of.get(&old)?)))
    }

    /// Returns the new key of this call; `None` if it did not move.
    pub fn call(&self, old: CallKey) -> Option<CallKey> {
        self.calls.get(&old.0).copied().map(CallKey)
    }

    /// Returns the new key of this request of ours; `None` if it did not move.
    pub fn request(&self, old: RequestKey) -> Option<RequestKey> {
        self.requests.get(&old.0).copied().map(RequestKey)
    }

    /// Returns the new key of this registration; `None` if it did not move.
    pub fn registration(&self, old: RegistrationKey) -> Option<RegistrationKey> {
        self.registrations.get(&old.0).copied().map(RegistrationKey)
    }

    /// Returns the new key of this request of a peer; `None` if it did not move.
    pub fn incoming(&self, old: IncomingKey) -> Option<IncomingKey> {
        self.open.get(&old.0).copied().map(IncomingKey)
    }
}

impl UserAgent {
    /// Removes and returns the state of these buckets, which another shard owns from now on. Events must be taken
    /// before. The transactions move too.
    pub fn export(&mut self, now: Now, buckets: BucketSet) -> AgentRecord {
        self.owned = self.owned.without(buckets);
        let of = |hash: u32| buckets.contains(call::bucket(hash));
        let (ends, refreshes) = (ends(&self.timers), ends(&self.refreshes));
        let left = |ends: &HashMap<Stamp, u64>, stamp: Stamp| Some(ends.get(&stamp)?.saturating_sub(now.mono));
        let (calls, requests, registrations, open) = Default::default();
        let mut record = AgentRecord { buckets, calls, requests, registrations, open };
        let ids: Vec<Id> = self.calls.iter().filter(|(_, c)| of(c.call_hash)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(mut call) = self.calls.remove(id) else { continue };
            if let Ok(entry) = self.places.find_entry(call.place, |&(_, other)| other == id) {
                entry.remove();
            }
            let left = |stamp: Stamp| left(&ends, stamp);
            let (again, end) = (left(call.again), left(call.end));
            let [refresh, expiry] = call.session.lefts(now);
            let left = Left { again, end, refresh, expiry };
            self.timers.stop(&mut call.again);
            self.timers.stop(&mut call.end);
            call.session.stop(&mut self.timers);
            record.calls.push((id, call, left));
        }
        let ids: Vec<Id> = self.requests.iter().filter(|(_, r)| of(r.call_hash)).map(|(id, _)| id).collect();
        record.requests.extend(ids.into_iter().filter_map(|id| Some((id, self.requests.remove(id)?))));
        let secret = self.call_secret;
        let is_of = |r: &Registration| of(call::hash(secret, r.call_id()));
        let ids: Vec<Id> = self.registrations.iter().filter(|(_, r)| is_of(r)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(mut registration) = self.registrations.remove(id) else { continue };
            let left = left(&refreshes, registration.refresh);
            self.refreshes.stop(&mut registration.refresh);
            record.registrations.push((id, registration, left));
        }
        let ids: Vec<(u64, Id)> = self.open_until.iter().copied().collect();
        for (until, id) in ids {
            if self.open.get(id).is_some_and(|open| of(open.call_hash)) {
                let left = until.saturating_sub(now.mono);
                record.open.extend(self.open.remove(id).map(|open| (id, open, left)));
            }
        }
        record
    }

    /// Returns a copy of these calls for the next process; `None` unless all are up and have no open request, since transactions end
    /// with the process. The next process skips some CSeqs, because this process may still send requests after the copy.
    pub fn keep(&self, now: Now, calls: &[CallKey]) -> Option<AgentRecord> {
        let kept = calls.iter().map(|key| {
            let mut call = self.calls.get(key.0).filter(|call| call.is_at_rest())?.clone();
            call.legs.iter_mut().for_each(|leg| leg.dialog.skip_cseqs(HIGHEST_FIRST_CSEQ, SKIPPED_CSEQS));
            let [refresh, expiry] = call.session.lefts(now);
            // The timers themselves stay here.
            (call.session.refresh, call.session.expiry) = (Stamp::NONE, Stamp::NONE);
            Some((key.0, call, Left { refresh, expiry, ..Left::default() }))
        });
        let calls = kept.collect::<Option<Vec<_>>>()?;
        let (requests, registrations, open) = Default::default();
        Some(AgentRecord { buckets: BucketSet::NONE, calls, requests, registrations, open })
    }

    /// Adds the state that another shard exported, with the same `call_secret` and the same accounts in the same order. Its transactions
    /// follow ([`import_all`](crate::transaction::Transactions::import_all)), then [`UserAgent::settle`].
    pub fn import(&mut self, now: Now, record: AgentRecord) -> MovedCalls {
        self.owned = self.owned.with(record.buckets);
        let mut moved = MovedCalls::default();
        for (old, call, left) in record.calls {
            let id = self.insert_call(call);
            moved.calls.insert(old, id);
            let start = |timers: &mut Timers, left: Option<u64>| {
                left.map_or(Stamp::NONE, |left| timers.start_at(now.mono + left, id.slot))
            };
            if let Some(call) = self.calls.get_mut(id) {
                let timers = &mut self.timers;
                (call.again, call.end) = (start(timers, left.again), start(timers, left.end));
                call.session.start(now, timers, id.slot, [left.refresh, left.expiry]);
            }
        }
        for (old, registration, left) in record.registrations {
            let id = self.registrations.insert(registration);
            moved.registrations.insert(old, id);
            let refresh = left.map_or(Stamp::NONE, |left| self.refreshes.start_at(now.mono + left, id.slot));
            if let Some(registration) = self.registrations.get_mut(id) {
                registration.refresh = refresh;
            }
        }
        for (old, mut request) in record.requests {
            let of = if request.kind == ClientRequestKind::Register { &moved.registrations } else { &moved.calls };
            request.of = request.of.and_then(|old| of.get(&old).copied());
            moved.requests.insert(old, self.requests.insert(request));
        }
        for (old, open, left) in record.open {
            let until = now.mono + left;
            let id = self.open.insert(open);
            moved.open.insert(old, id);
            let at = self.open_until.partition_point(|(other, _)| *other <= until);
            self.open_until.insert(at, (until, id));
        }
        moved
    }

    /// Replaces the old transaction ids in imported state.
    pub fn settle(&mut self, moved: &MovedCalls, ids: &NewIds) {
        // The id of an ended transaction must not name another transaction in this table.
        let server = |old: ServerId| ids.server(old).unwrap_or(ServerId::from_u64(0));
        let request = |old: Id| moved.requests.get(&old).copied();
        for id in moved.calls.values() {
            let Some(call) = self.calls.get_mut(*id) else { continue };
            call.inviting = call.inviting.and_then(request);
            for asked in [&mut call.asked, &mut call.accepted].into_iter().flatten() {
                asked.server = server(asked.server);
            }
            for leg in &mut call.legs {
                leg.updating = leg.updating.and_then(request);
                if let Some(updated) = &mut leg.updated {
                    updated.server = server(updated.server);
                }
            }
        }
        for id in moved.requests.values() {
            if let Some(request) = self.requests.get_mut(*id) {
                request.client = request.client.and_then(|old| ids.client(old));
            }
        }
        for id in moved.open.values() {
            if let Some(open) = self.open.get_mut(*id) {
                open.server = server(open.server);
            }
        }
    }

    /// Returns a new Call-ID in this bucket, for a call that belongs to another one: the far leg of a back-to-back user agent.
    pub fn call_id_in(&mut self, bucket: u8) -> Vec<u8> {
        loop {
            let mut call_id = self.word().to_vec();
            if call::end_in(self.call_secret, bucket, &mut call_id) {
                return call_id;
            }
        }
    }

    /// Returns a new Call-ID whose bucket this shard owns.
    pub(super) fn own_call_id(&mut self) -> [u8; 16] {
        // If sixteen shards own a sixteenth of the buckets each, all draws miss once in ten thousand million cases. The
        // answers to a shard without buckets, at its start or its end, are passed on to it by the owner of the bucket.
        const DRAWS: usize = 360;
        for _ in 0..DRAWS {
            let word = self.word();
            if self.owned.contains(call::bucket(call::hash(self.call_secret, &word))) {
                return word;
            }
        }
        self.word()
    }
}

/// Returns the end of each running timer.
fn ends(timers: &Timers) -> HashMap<Stamp, u64> {
    timers.iter().collect()
}
