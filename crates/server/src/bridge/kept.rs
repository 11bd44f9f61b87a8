//! Bridged calls over a restart.

use super::{BridgedCall, BridgedLeg, BridgedRecord, Bridges};
use crate::media_sessions::SessionPorts;
use strowger_core::b2bua::bridge::PairKey;
use strowger_core::user_agent::CallKey;

/// Bridged call for the next process.
pub(crate) struct KeptBridge {
    /// Calls of the user agent.
    pub(crate) legs: [CallKey; 2],
    /// Call-ID of the far one.
    pub(crate) far_call_id: Vec<u8>,
    /// Copy of the call and its pair.
    pub(crate) record: BridgedRecord,
}

impl BridgedCall {
    /// Returns a copy without orders of the table of calls, which repeats them.
    fn kept(&self) -> Self {
        let leg = |leg: &BridgedLeg| {
            let BridgedLeg { source, may_refer, .. } = *leg;
            BridgedLeg { source, may_refer, heard: leg.heard.clone(), ..BridgedLeg::default() }
        };
        Self {
            far_call_id: self.far_call_id.clone(),
            key: self.key,
            near: leg(&self.near),
            far: leg(&self.far),
            is_answered: self.is_answered,
            is_kept: true,
            ended: None,
            session: self.session.clone(),
            near_places: self.near_places.clone(),
            streams: self.streams.clone(),
            entered: self.entered.clone(),
        }
    }

    /// Tells whether a leg has ended, or is being ended.
    const fn is_ending(&self) -> bool {
        self.ended.is_some() || self.near.bye.is_some() || self.far.bye.is_some()
    }
}

impl BridgedRecord {
    /// Gives the session of a call of an earlier process its key and its ports.
    pub(crate) fn succeed(&mut self, key: u64, ports: &SessionPorts) {
        self.calls.iter_mut().for_each(|(_, call)| call.session.succeed(key, ports.clone()));
    }
}

impl Bridges {
    /// Returns the pair of the call with this key in the table of calls.
    pub(crate) fn pair_of_key(&self, key: u64) -> Option<PairKey> {
        self.keys.get(&key).copied()
    }

    /// Returns a call for the next process; `None` unless both legs are up, and no description is on its way.
    pub(crate) fn keep(&self, pair: PairKey) -> Option<KeptBridge> {
        let call = self.calls.get(&pair).filter(|call| !call.is_ending())?;
        call.session.open()?;
        let (Some(near), Some(far)) = self.bridge.calls(pair)? else { return None };
        let record = BridgedRecord::of_call(self.bridge.keep(pair)?, pair, call.kept());
        Some(KeptBridge { legs: [near, far], far_call_id: call.far_call_id.clone(), record })
    }

    /// Notes that the state of a call is kept.
    pub(crate) fn note_kept(&mut self, pair: PairKey) {
        self.calls.get_mut(&pair).into_iter().for_each(|call| call.is_kept = true);
    }

    /// Returns the calls that the next process does not continue: their pairs, keys in the table of calls, and whether they are ending. A party that
    /// is left alone in a transfer has no key: the call of the table may be over.
    pub(crate) fn unkept(&self) -> impl Iterator<Item = (PairKey, Option<u64>, bool)> {
        let unkept = self.calls.iter().filter(|(_, call)| !call.is_kept);
        unkept.map(|(pair, call)| {
            let is_alone = self.bridge.is_alone(*pair);
            (*pair, call.key.filter(|_| !is_alone), call.is_ending() && !is_alone)
        })
    }
}
