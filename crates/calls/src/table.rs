//! Table of the calls of a shard, by key and by deadline.

use crate::call::{Call, names};
use crate::cdr::{Account, CallNames};
use crate::context::{BELOW_KEY, Purpose};
use crate::counts::CallCounts;
use crate::effect::CallEffect;
use crate::ended_calls::EndedCalls;
use crate::keys::CallSeed;
use crate::limits::{CallLimits, Claim};
use crate::media::UnreportedCalls;
use crate::scopes::HeldLimits;
use crate::shares::{Parties, Shares};
use crate::texts::Texts;
use crate::times::{CallTimes, moment};
use hashbrown::HashTable;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::shown::shown;
use strowger_core::slots::{Id, Slots};
use strowger_core::{Now, call};
use strowger_message::Index;

/// Call that has left the table.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) key: u64,
    pub(crate) is_kept: bool,
    /// Set if it was tracked, and its later requests passed here.
    pub(crate) was_tracked: bool,
    pub(crate) account: Option<Box<Account>>,
    /// Texts of the call, some of which its account does not store.
    pub(crate) texts: Texts,
}

/// Key of a table, and state that it shares with the other tables of the process.
#[derive(Clone, Debug)]
pub struct TableSettings {
    /// Key of the hashes of calls, equal in all shards.
    pub seed: u64,
    /// Set if calls are kept over a restart.
    pub keeps: bool,
    /// Counts of calls under limits.
    pub limits: Arc<CallLimits>,
    /// Ended calls of the process.
    pub ended: Arc<EndedCalls>,
}

/// Table of the calls of one shard.
#[derive(Debug)]
pub struct CallTable {
    pub(crate) calls: Slots<Call>,
    /// Slots by key: a hash of Call-ID and caller's tag, the same in all shards.
    places: HashTable<Id>,
    /// Deadlines, in steps of [`STEP`], with the slots of their calls.
    deadlines: BTreeSet<(u32, u32)>,
    pub(crate) times: CallTimes,
    counts: CallCounts,
    pub(crate) shares: Shares,
    pub(crate) settings: TableSettings,
    /// Ended calls whose record is not written, or whose persisted state is not removed.
    pub(crate) ended: Vec<Ended>,
    /// Ended calls whose record waits for the report about their media.
    pub(crate) unreported: UnreportedCalls,
    /// Keys of calls whose persisted state is out of date.
    pub(crate) changed: Vec<u64>,
    /// Source of the response that the next notices are about.
    pub(crate) responded: Option<SocketAddr>,
    /// Effects since the owner took them last.
    pub(crate) effects: Vec<CallEffect>,
    /// [`Now::mono`] of the last release of memory.
    tidied: u64,
    /// Scratch.
    pub(crate) index: Index,
}

/// Granularity of deadlines, in milliseconds: one turn handles all deadlines of a step. Counted in steps, thirteen
/// years fit into four bytes.
pub(crate) const STEP: u64 = 100;

impl CallTable {
    /// Creates an empty table.
    pub fn new(times: CallTimes, settings: TableSettings) -> Self {
        let (calls, places, deadlines, counts, index) = Default::default();
        let (ended, unreported, changed, responded, effects, shares) = Default::default();
        Self {
            calls,
            places,
            deadlines,
            times,
            counts,
            shares,
            settings,
            ended,
            unreported,
            changed,
            responded,
            effects,
            tidied: 0,
            index,
        }
    }

    /// Sets the times of calls, which are used from the next change of each call on.
    pub fn set_times(&mut self, times: CallTimes) {
        self.times = times;
    }

    /// Sets the source of the response that the next notices are about; `None` if they are about no response.
    pub fn set_responded(&mut self, by: Option<SocketAddr>) {
        self.responded = by;
    }

    /// Returns the source of the response that the next notices are about.
    pub fn responded(&self) -> Option<SocketAddr> {
        self.responded
    }

    /// Returns the effects since the owner took them last, in order. The owner carries them out one by one, with an
    /// empty list in their place, because a request that it sends may have further effects.
    pub fn effects(&mut self) -> &mut Vec<CallEffect> {
        &mut self.effects
    }

    /// Returns the key of a call. It is the same in all shards, and no peer knows it.
    pub fn key_of_call(&self, call_id: &[u8], caller_tag: &[u8]) -> u64 {
        CallSeed(self.settings.seed).key_of_call(call_id, caller_tag)
    }

    /// Returns the stored form of a tag, by which dialogs are distinguished.
    pub(crate) fn kept_tag<'a>(&self, tag: &'a [u8]) -> Cow<'a, [u8]> {
        CallSeed(self.settings.seed).kept_tag(tag)
    }

    /// Returns the counts of the calls.
    pub fn counts(&self) -> CallCounts {
        self.counts
    }

    /// Tells whether calls are kept over a restart.
    pub fn are_kept(&self) -> bool {
        self.settings.keeps
    }

    /// Tells whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the call with this key.
    pub fn get(&self, key: u64) -> Option<&Call> {
        self.calls.get(self.place(key)?)
    }

    fn place(&self, key: u64) -> Option<Id> {
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.key == key);
        self.places.find(place_hash(key), is_meant).copied()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut Call> {
        self.calls.get_mut(self.place(key)?)
    }

    /// Returns the key of the call of a request with this context, if the call is still there.
    pub fn key_of(&self, context: u64) -> Option<u64> {
        let purpose = Purpose::of(context)?;
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.has_context(context, purpose));
        let id = self.places.find(place_hash(context), is_meant)?;
        self.calls.get(*id).map(|call| call.key)
    }

    /// Returns the moment when [`CallTable::end_due`] is due.
    pub fn deadline(&self) -> Option<u64> {
        let of_calls = self.deadlines.first().map(|(at, _)| u64::from(*at) * STEP);
        of_calls.into_iter().chain(self.unreported.deadline()).min()
    }

    /// Returns the call with the earliest deadline, if that has passed.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        let (_, slot) = self.deadlines.first().filter(|(at, _)| u64::from(*at) * STEP <= now)?;
        self.calls.at(*slot).map(|(_, call)| call.key)
    }

    /// Inserts a call that counts under its limits already. It replaces another call with its key.
    pub(crate) fn put(&mut self, key: u64, call: Call) {
        if let Some(before) = self.take(key).filter(|before| before.kept) {
            self.ended.push(Ended {
                key,
                is_kept: before.kept,
                was_tracked: false,
                account: None,
                texts: before.texts,
            });
        }
        self.recount(CallCounts::default(), CallCounts::of(&call));
        self.shares.add(call.parties);
        let id = self.calls.insert(Call { key, changed: false, deadline: 0, ..call });
        let calls = &self.calls;
        self.places.insert_unique(place_hash(key), id, |id| calls.get(*id).map_or(0, |call| place_hash(call.key)));
        self.set_deadline(key);
    }

    /// Removes a call, which then counts under no limit any more, and returns it.
    pub(crate) fn take(&mut self, key: u64) -> Option<Call> {
        let calls = &self.calls;
        let is_meant = |id: &Id| calls.get(*id).is_some_and(|call| call.key == key);
        let (id, _) = self.places.find_entry(place_hash(key), is_meant).ok()?.remove();
        let mut call = self.calls.remove(id)?;
        self.recount(CallCounts::of(&call), CallCounts::default());
        self.shares.remove(call.parties);
        call.taken().for_each(|counted| self.settings.limits.give_back(counted));
        if call.deadline != 0 {
            self.deadlines.remove(&(call.deadline, id.slot));
            call.deadline = 0;
        }
        Some(call)
    }

    /// Makes a call count under these limits too, once under each. Returns false if the call is not in the table, or
    /// one of the limits is full.
    pub fn count(&mut self, key: u64, claims: &[Claim]) -> bool {
        let Some(call) = self.get(key) else { return false };
        let more: Vec<Claim> = claims.iter().filter(|claim| !call.counts_to_its_end(claim)).cloned().collect();
        let taken: Vec<Claim> = more.iter().filter(|claim| !call.counts_under(claim)).cloned().collect();
        if let Err(full) = self.settings.limits.take(&taken) {
            let call_id = shown(call.call_id());
            tracing::debug!(limit = %full.counted.name, %call_id, "failure passed over: its limit of calls is full");
            return false;
        }
        self.change(key, |call| call.count(&more, &taken));
        self.has_changed(key);
        true
    }

    /// Moves an INVITE of a call from a target with the limits `before` to a target with the limits `next`. Returns
    /// false, and changes nothing, if `next` has no room, or the call is not in the table.
    pub fn change_target(&mut self, key: Option<u64>, before: &[Claim], next: &[Claim]) -> bool {
        let Some((key, call)) = key.and_then(|key| Some((key, self.get(key)?))) else { return next.is_empty() };
        let without = |claims: &[Claim], others: &[Claim]| -> Vec<Claim> {
            let is_other = |claim: &&Claim| !others.iter().any(|other| other.counted == claim.counted);
            claims.iter().filter(is_other).cloned().collect()
        };
        let (left, new) = (without(before, next), without(next, before));
        let taken: Vec<Claim> = new.iter().filter(|claim| !call.counts_to_its_end(claim)).cloned().collect();
        if let Err(full) = self.settings.limits.take(&taken) {
            let call_id = shown(call.call_id());
            tracing::debug!(limit = %full.counted.name, %call_id, "gateway passed over: its limit of calls is full");
            return false;
        }
        let given = self.change(key, |call| {
            call.hold(&new, &taken);
            call.leave(&left)
        });
        given.iter().flatten().for_each(|scope| self.settings.limits.give_back(scope));
        self.has_changed(key);
        true
    }

    /// Applies `change` to a call, if it is in the table, and removes the call if it is over then.
    pub(crate) fn change<T>(&mut self, key: u64, change: impl FnOnce(&mut Call) -> T) -> Option<T> {
        let call = self.get_mut(key)?;
        let before = CallCounts::of(call);
        let result = change(call);
        let (after, is_over) = (CallCounts::of(call), call.is_over());
        self.recount(before, after);
        if is_over {
            let call = self.take(key);
            self.ended.extend(call.map(|call| Ended {
                key,
                is_kept: call.kept,
                was_tracked: call.tracked && call.legs.are_here(),
                account: call.account,
                texts: call.texts,
            }));
        } else {
            self.set_deadline(key);
        }
        Some(result)
    }

    /// Notes that the stored state of this call may be out of date, if the call is kept or is to be kept.
    pub fn has_changed(&mut self, key: u64) {
        if !self.settings.keeps {
            return;
        }
        let Some(call) = self.get_mut(key) else { return };
        call.kept |= call.tracked && call.has_answer();
        if call.kept && !std::mem::replace(&mut call.changed, true) {
            self.changed.push(key);
        }
    }

    /// Returns the account of a call, if it has one, and the names of the call.
    pub(crate) fn account(&mut self, key: u64) -> Option<(&mut Account, CallNames<'_>)> {
        let Call { account, texts, .. } = self.get_mut(key)?;
        Some((account.as_deref_mut()?, names(texts)))
    }

    /// Takes the account of each call that is not kept. Returns the results of `make` for these accounts.
    pub(crate) fn take_accounts<T>(&mut self, make: impl Fn(Account, CallNames<'_>) -> Option<T>) -> Vec<T> {
        let ids: Vec<Id> = self.places.iter().copied().collect();
        let take = |id| {
            let call = self.calls.get_mut(id).filter(|call| !call.kept)?;
            make(*call.account.take()?, names(&call.texts))
        };
        ids.into_iter().filter_map(take).collect()
    }

    /// Returns an emergency place for a call of this source, [`party_of`](crate::shares::party_of) a key that names it; `None`: no such place is free. `is_known`: the
    /// source cannot be forged. `places`: number of calls that the shard may track.
    pub fn emergency_place(&self, places: usize, source: u32, is_known: bool) -> Option<Parties> {
        self.shares.emergency_place(places, source, is_known)
    }

    fn recount(&mut self, before: CallCounts, after: CallCounts) {
        let add = |count: &mut usize, before: usize, after: usize| *count = *count + after - before;
        add(&mut self.counts.logged, before.logged, after.logged);
        add(&mut self.counts.tracked, before.tracked, after.tracked);
        add(&mut self.counts.early, before.early, after.early);
        add(&mut self.counts.confirmed, before.confirmed, after.confirmed);
        add(&mut self.counts.ending, before.ending, after.ending);
        add(&mut self.counts.counted, before.counted, after.counted);
    }

    pub(crate) fn set_deadline(&mut self, key: u64) {
        let times = self.times;
        let Some(id) = self.place(key) else { return };
        let Some(call) = self.calls.get_mut(id) else { return };
        let steps = |at: u64| u32::try_from(at.div_ceil(STEP).max(1)).unwrap_or(u32::MAX);
        let at = call.until(times).map_or(0, steps);
        let before = std::mem::replace(&mut call.deadline, at);
        if before == at {
            return;
        }
        if before != 0 {
            self.deadlines.remove(&(before, id.slot));
        }
        if at != 0 {
            self.deadlines.insert((at, id.slot));
        }
    }

    /// Takes out the calls of a bucket.
    pub fn export(&mut self, now: Now, bucket: u8) -> Vec<Call> {
        let of_bucket = |call: &Call| call::bucket(call.call_hash) == bucket;
        let keys: Vec<u64> = self.calls.iter().filter(|(_, call)| of_bucket(call)).map(|(_, call)| call.key).collect();
        let mut taken: Vec<_> = keys.into_iter().filter_map(|key| self.take(key)).collect();
        taken.iter_mut().for_each(|call| call.turn(moment(now)));
        taken
    }

    /// Takes the limits of gateways and groups out of calls that move to another shard.
    pub fn export_held(calls: &mut [Call]) -> Vec<HeldLimits> {
        let held = calls.iter_mut().map(|call| (call.key, call.take_held()));
        held.filter(|(_, held)| !held.is_empty()).collect()
    }

    /// Inserts calls that another shard exported. `held`: limits of gateways and groups of some of them, in the same order.
    pub fn import(&mut self, now: Now, calls: Vec<Call>, held: Vec<HeldLimits>) {
        let mut held = held.into_iter().peekable();
        for mut call in calls {
            call.turn(moment(now));
            if let Some((_, held)) = held.next_if(|(key, _)| *key == call.key) {
                call.set_held(held);
            }
            self.put_back(call);
        }
    }

    /// Inserts a call that has counted before, in this shard or in another.
    pub(crate) fn put_back(&mut self, call: Call) {
        call.taken().for_each(|counted| self.settings.limits.take_over(counted));
        self.put(call.key, call);
    }

    /// Releases memory, once a second at most.
    pub fn tidy(&mut self, now: u64) {
        if now < self.tidied + 1_000 {
            return;
        }
        self.tidied = now;
        self.calls.tidy();
        if self.calls.is_empty() {
            self.places = HashTable::new();
        }
    }
}

/// Returns a hash of the bits that a key has in common with its contexts.
const fn place_hash(key: u64) -> u64 {
    (key >> BELOW_KEY).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
