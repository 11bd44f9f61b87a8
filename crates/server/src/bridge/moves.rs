//! Moves of bridged calls with their bucket.

use super::transfer::Newcomer;
use super::{BridgedCall, Bridges};
use crate::media_sessions::bucket_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use strowger_core::Now;
use strowger_core::b2bua::bridge::{BridgeRecord, PairKey};
use strowger_core::record::{Number, Recorded};
use strowger_core::user_agent::{CallKey, MovedCalls};
use strowger_media::session::SessionKey;

/// Bridged calls that move with their bucket, without the calls of the user agent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BridgedRecord {
    bridge: BridgeRecord,
    pub(super) calls: Vec<(PairKey, BridgedCall)>,
    newcomers: Vec<(PairKey, Newcomer)>,
}

impl BridgedRecord {
    /// Creates the record of one call.
    pub(super) fn of_call(bridge: BridgeRecord, pair: PairKey, call: BridgedCall) -> Self {
        Self { bridge, calls: vec![(pair, call)], newcomers: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Recorded for BridgedRecord {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.bridge.numbers(show);
    }
}

impl Bridges {
    /// Takes out the calls of this bucket, before the calls of the user agent are taken out.
    pub(crate) fn export(&mut self, now: Now, bucket: u8) -> BridgedRecord {
        let is_of = |call: &BridgedCall| bucket_of(SessionKey(call.session.key)) == bucket;
        let pairs: BTreeSet<PairKey> =
            self.calls.iter().filter(|(_, call)| is_of(call)).map(|(pair, _)| *pair).collect();
        let legs = self.legs.iter().filter(|(_, (pair, _))| pairs.contains(pair)).map(|(leg, _)| *leg);
        let newcomers = self.newcomers.extract_if(.., |pair, _| pairs.contains(pair));
        let newcomers: Vec<(PairKey, Newcomer)> = newcomers.collect();
        let legs: BTreeSet<CallKey> = legs.chain(newcomers.iter().map(|(_, newcomer)| newcomer.call)).collect();
        let bridge = self.bridge.export(now, |call| legs.contains(&call));
        self.legs.retain(|leg, _| !legs.contains(leg));
        let calls = pairs.into_iter().filter_map(|pair| Some((pair, self.remove(pair)?))).collect();
        BridgedRecord { bridge, calls, newcomers }
    }

    /// Takes over the calls that another shard exported, after the calls of its user agent. `moved`: new keys of the user agent. Returns the pairs.
    pub(super) fn import(&mut self, now: Now, record: BridgedRecord, moved: &MovedCalls) -> Vec<PairKey> {
        let BridgedRecord { bridge, calls, newcomers } = record;
        let pairs: BTreeMap<PairKey, PairKey> = self.bridge.import(now, bridge, moved).into_iter().collect();
        for (old, mut call) in calls {
            for leg in [&mut call.near, &mut call.far] {
                leg.question = leg.question.and_then(|(request, context)| Some((moved.request(request)?, context)));
            }
            if let Some(pair) = pairs.get(&old) {
                self.insert(*pair, call);
            }
        }
        for (old, newcomer) in newcomers {
            if let (Some(pair), Some(call)) = (pairs.get(&old), moved.call(newcomer.call)) {
                // The old party keeps its leg until the new one has its answer.
                self.legs.remove(&call);
                self.newcomers.insert(*pair, newcomer.moved(call));
            }
        }
        pairs.into_values().collect()
    }
}
