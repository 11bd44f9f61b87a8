//! Moves of pairs to the bridge of another shard or process.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::pair::{Pair, Side, Stage};
use super::referral::Named;
use super::{Bridge, BridgeEvent, PairKey, start_timer};
use crate::Now;
use crate::record::{Number, Recorded};
use crate::slots::Id;
use crate::timer::Stamp;
use crate::user_agent::{CallKey, IncomingKey, MovedCalls};

/// Pairs that one bridge hands to another, without their calls, and the events that were not taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BridgeRecord {
    /// Pairs with their keys. Their moments are remaining milliseconds.
    pairs: Vec<(Id, Pair)>,
    events: VecDeque<BridgeEvent>,
}

impl BridgeRecord {
    /// Tells whether the record has no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

impl Recorded for BridgeRecord {
    fn numbers(&mut self, _: &mut dyn FnMut(Number<'_>)) {}
}

impl Bridge {
    /// Removes and returns the pairs with a call for which `is_of` is true, and their events. Both calls of a pair must move. If only
    /// one moves, the importing bridge ends it, and the owner of the agent must end the other one. Take the events of ended pairs before.
    pub fn export(&mut self, now: Now, is_of: impl Fn(CallKey) -> bool) -> BridgeRecord {
        let has_moved = |pair: &Pair| calls(pair).any(|(call, _)| is_of(call));
        let ids: Vec<Id> = self.pairs.iter().filter(|(_, pair)| has_moved(pair)).map(|(id, _)| id).collect();
        let mut record = BridgeRecord::default();
        for id in ids {
            let Some(mut pair) = self.pairs.remove(id) else { continue };
            self.timers.stop(&mut pair.timer.0);
            pair.timer = (Stamp::NONE, None);
            pair.untils_mut().for_each(|until| *until = until.saturating_sub(now.mono));
            for (call, _) in calls(&pair) {
                self.index.calls.remove(&call);
            }
            for carried in &pair.carried {
                self.index.requests.remove(&carried.sent);
            }
            record.pairs.push((id, pair));
        }
        let is_moving = |event: &BridgeEvent| record.pairs.iter().any(|(id, _)| PairKey(*id) == event.pair());
        let (events, staying) = std::mem::take(&mut self.events).into_iter().partition(is_moving);
        self.events = staying;
        record.events = events;
        record
    }

    /// Returns a copy of a pair for the next process, without carried requests and transfers, which end with this process. `None` unless
    /// both calls are up, and no change of the session, of its places or of a party is open or due.
    pub fn keep(&self, pair: PairKey) -> Option<BridgeRecord> {
        let kept = self.pairs.get(pair.0)?.at_rest()?;
        Some(BridgeRecord { pairs: vec![(pair.0, kept)], events: VecDeque::new() })
    }

    /// Adds the pairs that another bridge exported, after their calls ([`UserAgent::import`](crate::user_agent::UserAgent::import),
    /// which returned `moved`). Returns the old and new key of each.
    pub fn import(&mut self, now: Now, record: BridgeRecord, moved: &MovedCalls) -> Vec<(PairKey, PairKey)> {
        let mut keys = BTreeMap::new();
        for (old, mut pair) in record.pairs {
            pair.untils_mut().for_each(|until| *until = until.saturating_add(now.mono));
            pair.take_keys(moved);
            let (calls, sent): (Vec<_>, Vec<_>) =
                (calls(&pair).collect(), pair.carried.iter().map(|carried| carried.sent).collect());
            let id = self.pairs.insert(pair);
            self.index.calls.extend(calls.into_iter().map(|(call, side)| (call, (id, side))));
            self.index.requests.extend(sent.into_iter().map(|sent| (sent, id)));
            if let Some(pair) = self.pairs.get_mut(id) {
                start_timer(&mut self.timers, id, pair);
            }
            keys.insert(PairKey(old), PairKey(id));
        }
        for key in keys.values() {
            let transfers = self.pairs.get_mut(key.0).into_iter().flat_map(|pair| &mut pair.transfers);
            for transfer in transfers {
                transfer.named = match transfer.named.take() {
                    Some(Named::Here(old, side)) => keys.get(&PairKey(old)).map(|key| Named::Here(key.0, side)),
                    named => named,
                };
            }
        }
        let events = record.events.into_iter().filter_map(|event| Some((*keys.get(&event.pair())?, event)));
        self.events.extend(events.map(|(key, event)| event.of(key)));
        keys.into_iter().collect()
    }
}

/// Key that names no request.
const NOBODY: IncomingKey = IncomingKey::from_u64(0);

/// Returns the calls of a pair with their sides.
fn calls(pair: &Pair) -> impl Iterator<Item = (CallKey, Side)> + use<> {
    let old = pair.replaced.as_ref().map(|replaced| (replaced.old.call, replaced.side));
    let calls = [(pair.near.call, Side::Near), (pair.far.call, Side::Far)];
    calls.into_iter().chain(old).filter_map(|(call, side)| Some((call?, side)))
}

impl Pair {
    /// Returns the copy of [`Bridge::keep`], whose descriptions skip a version.
    fn at_rest(&self) -> Option<Self> {
        let is_up = self.stage == Stage::Up && self.invite.is_confirmed && self.replaced.is_none();
        let is_displaced = self.near.is_displaced || self.far.is_displaced;
        if !is_up || is_displaced || self.exchange.is_some() || !self.waiting.is_empty() || self.renewal.is_some() {
            return None;
        }
        let (mut near, mut far) = (self.near.clone(), self.far.clone());
        near.media.state.skip_version();
        far.media.state.skip_version();
        Some(Self {
            near,
            far,
            stage: Stage::Up,
            invite: self.invite.clone(),
            forks: self.forks.clone(),
            exchange: None,
            waiting: VecDeque::new(),
            carried: Vec::new(),
            renewal: None,
            transfers: Vec::new(),
            expected: None,
            replaced: None,
            streams: self.streams.clone(),
            timer: (Stamp::NONE, None),
        })
    }

    /// Replaces the keys of the old agent.
    fn take_keys(&mut self, moved: &MovedCalls) {
        for leg in [&mut self.near, &mut self.far] {
            let Some(old) = leg.call else { continue };
            leg.call = moved.call(old);
            if leg.call.is_none() {
                self.stage = Stage::Torn;
            }
        }
        if let Some(replaced) = &mut self.replaced {
            replaced.old.call = replaced.old.call.and_then(|old| moved.call(old));
        }
        self.transfers.retain_mut(|transfer| {
            let old = transfer.request;
            transfer.request = old.and_then(|old| moved.request(old));
            transfer.request.is_some() == old.is_some()
        });
        self.carried.retain_mut(|carried| {
            // A request whose sender no longer waits has no key.
            carried.asked = moved.incoming(carried.asked).unwrap_or(NOBODY);
            moved.request(carried.sent).map(|sent| carried.sent = sent).is_some()
        });
    }
}
