//! Table of the calls of a shard, by key and by deadline.

use super::context::{BELOW_KEY, Purpose};
use super::counts::CallCounts;
use super::shares::Shares;
use super::texts::Texts;
use super::{Call, CallNames, CallTimes, LedScopes, moment, names};
use crate::accounting::Account;
use crate::call_limits::{CallLimits, Claim};
use hashbrown::HashTable;
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
    pub(super) key: u64,
    pub(super) is_kept: bool,
    /// Set if it was tracked, and its later requests passed here.
    pub(super) was_tracked: bool,
    pub(super) account: Option<Box<Account>>,
    /// Texts of the call. Its account lacks some of them.
    pub(super) texts: Texts,
}

/// Calls of one shard.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(super) calls: Slots<Call>,
    /// Slots by key: a hash of Call-ID and caller's tag, the same in all shards.
    places: HashTable<Id>,
    /// Deadlines, in steps of [`STEP`], with the slots of their calls.
    deadlines: BTreeSet<(u32, u32)>,
    pub(super) times: CallTimes,
    counts: CallCounts,
    pub(super) shares: Shares,
    pub(super) limits: Arc<CallLimits>,
    /// Ended calls whose record is not written, or whose persisted state is not removed.
    pub(crate) ended: Vec<Ended>,
    /// Set if calls are kept over a restart.
    pub(super) keeps: bool,
    /// Keys of calls whose persisted state is out of date.
    pub(super) changed: Vec<u64>,
    /// Source of the last response that the proxy has read.
    pub(crate) responded: Option<SocketAddr>,
    /// [`Now::mono`] of the last release of memory.
    tidied: u64,
    /// Scratch.
    pub(super) index: Index,
}

/// Granularity of deadlines, in milliseconds: one turn serves many of them. In these steps a word of four bytes has
/// room for thirteen years.
const STEP: u64 = 100;

impl Calls {
    /// Creates an empty table. `keeps`: calls are kept over a restart.
    pub(crate) fn new(times: CallTimes, limits: Arc<CallLimits>, keeps: bool) -> Self {
        let (calls, places, deadlines, counts, index) = Default::default();
        let (ended, changed, responded, shares) = Default::default();
        Self {
            calls,
            places,
            deadlines,
            times,
            counts,
            shares,
            limits,
            ended,
            keeps,
            changed,
            responded,
            tidied: 0,
            index,
        }
    }

    /// Sets the times of calls, from their next change on.
    pub(crate) fn set_times(&mut self, times: CallTimes) {
        self.times = times;
    }

    pub(crate) fn counts(&self) -> CallCounts {
        self.counts
    }

    /// Tells whether calls are kept over a restart.
    pub(crate) fn are_kept(&self) -> bool {
        self.keeps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Call> {
        self.calls.get(self.place(key)?)
    }

    fn place(&self, key: u64) -> Option<Id> {
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.key == key);
        self.places.find(place_hash(key), is_meant).copied()
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Call> {
        self.calls.get_mut(self.place(key)?)
    }

    /// Returns the key of the call of a request with this context, if the call is still there.
    pub(crate) fn key_of(&self, context: u64) -> Option<u64> {
        let purpose = Purpose::of(context)?;
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.has_context(context, purpose));
        let id = self.places.find(place_hash(context), is_meant)?;
        self.calls.get(*id).map(|call| call.key)
    }

    /// Returns the moment when [`Engine::end_calls`] is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| u64::from(*at) * STEP)
    }

    /// Returns the call with the earliest deadline, if that has passed.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        let (_, slot) = self.deadlines.first().filter(|(at, _)| u64::from(*at) * STEP <= now)?;
        self.calls.at(*slot).map(|(_, call)| call.key)
    }

    /// Inserts a call that counts under its limits already, in place of another with its key.
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

    /// Takes a call out, which then counts under no limit any more.
    pub(crate) fn take(&mut self, key: u64) -> Option<Call> {
        let calls = &self.calls;
        let is_meant = |id: &Id| calls.get(*id).is_some_and(|call| call.key == key);
        let (id, _) = self.places.find_entry(place_hash(key), is_meant).ok()?.remove();
        let mut call = self.calls.remove(id)?;
        self.recount(CallCounts::of(&call), CallCounts::default());
        self.shares.remove(call.parties);
        call.taken().for_each(|counted| self.limits.give_back(counted));
        if call.deadline != 0 {
            self.deadlines.remove(&(call.deadline, id.slot));
            call.deadline = 0;
        }
        Some(call)
    }

    /// Makes a call count under these limits too, once under each. False: the call is not there, or one of them is
    /// full.
    pub(crate) fn count(&mut self, key: u64, claims: &[Claim]) -> bool {
        let Some(call) = self.get(key) else { return false };
        let more: Vec<Claim> = claims.iter().filter(|claim| !call.counts_to_its_end(claim)).cloned().collect();
        let taken: Vec<Claim> = more.iter().filter(|claim| !call.counts_under(claim)).cloned().collect();
        if let Err(full) = self.limits.take(&taken) {
            let call_id = shown(call.call_id());
            tracing::debug!(limit = %full.counted.name, %call_id, "failure passed over: its limit of calls is full");
            return false;
        }
        self.change(key, |call| call.count(&more, &taken));
        self.has_changed(key);
        true
    }

    /// Changes a call, if it is there, and takes it out if it is over then.
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
                was_tracked: call.tracked && call.stays,
                account: call.account,
                texts: call.texts,
            }));
        } else {
            self.set_deadline(key);
        }
        Some(result)
    }

    /// Returns the account of a call, if it has one, and the names of the call.
    pub(crate) fn account(&mut self, key: u64) -> Option<(&mut Account, CallNames<'_>)> {
        let Call { account, texts, .. } = self.get_mut(key)?;
        Some((account.as_deref_mut()?, names(texts)))
    }

    /// Takes the account of each call that is not kept, and returns the results of `make`.
    pub(crate) fn take_accounts<T>(&mut self, make: impl Fn(Account, CallNames<'_>) -> Option<T>) -> Vec<T> {
        let ids: Vec<Id> = self.places.iter().copied().collect();
        let take = |id| {
            let call = self.calls.get_mut(id).filter(|call| !call.kept)?;
            make(*call.account.take()?, names(&call.texts))
        };
        ids.into_iter().filter_map(take).collect()
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

    pub(super) fn set_deadline(&mut self, key: u64) {
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
    pub(crate) fn export(&mut self, now: Now, bucket: u8) -> Vec<Call> {
        let of_bucket = |call: &Call| call::bucket(call.call_hash) == bucket;
        let keys: Vec<u64> = self.calls.iter().filter(|(_, call)| of_bucket(call)).map(|(_, call)| call.key).collect();
        let mut taken: Vec<_> = keys.into_iter().filter_map(|key| self.take(key)).collect();
        taken.iter_mut().for_each(|call| call.turn(moment(now)));
        taken
    }

    /// Takes the limits of gateways and groups out of calls that move to another shard.
    pub(crate) fn export_led(calls: &mut [Call]) -> Vec<LedScopes> {
        let led = calls.iter_mut().map(|call| (call.key, call.take_led()));
        led.filter(|(_, led)| !led.is_empty()).collect()
    }

    /// Inserts calls that another shard exported. `led`: limits of gateways and groups of some of them, in the same order.
    pub(crate) fn import(&mut self, now: Now, calls: Vec<Call>, led: Vec<LedScopes>) {
        let mut led = led.into_iter().peekable();
        for mut call in calls {
            call.turn(moment(now));
            if let Some((_, led)) = led.next_if(|(key, _)| *key == call.key) {
                call.set_led(led);
            }
            self.put_back(call);
        }
    }

    /// Inserts a call that has counted before, here or elsewhere.
    pub(crate) fn put_back(&mut self, call: Call) {
        call.taken().for_each(|counted| self.limits.take_over(counted));
        self.put(call.key, call);
    }

    /// Releases memory, once a second at most.
    pub(crate) fn tidy(&mut self, now: u64) {
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

/// Returns a hash of the bits that a key and its contexts have in common.
const fn place_hash(key: u64) -> u64 {
    (key >> BELOW_KEY).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
