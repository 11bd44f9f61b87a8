//! Calls of endpoints over a restart.

use super::{EndpointCall, EndpointRecord, Endpoints};
use crate::engine::Effect;
use crate::media_sessions::SessionPorts;
use crate::policy::Policy;
use strowger_core::user_agent::CallKey;
use strowger_media::session::SessionKey;

impl EndpointRecord {
    /// Gives the session of a call of an earlier process its key and its ports.
    pub(crate) fn succeed(&mut self, key: u64, ports: &SessionPorts) {
        self.calls.iter_mut().for_each(|(_, entry)| entry.session.media.succeed(key, ports.clone()));
    }
}

impl Endpoints {
    /// Returns the call with this key in the table of calls.
    pub(crate) fn call_of_key(&self, key: u64) -> Option<CallKey> {
        self.keys.get(&key).copied()
    }

    /// Returns a copy of a call for the next process; `None` while a description waits for its answer, or the call ends.
    pub(crate) fn keep(&self, call: CallKey) -> Option<EndpointRecord> {
        let EndpointCall { context, key, is_ending, bye, session, .. } = self.calls.get(&call)?;
        if *is_ending || bye.is_some() {
            return None;
        }
        let (context, key, session) = (*context, *key, session.at_rest()?);
        let kept = EndpointCall { context, key, bye: None, question: None, is_ending: false, is_kept: true, session };
        Some(EndpointRecord { calls: vec![(call, kept)] })
    }

    /// Notes that the state of a call is kept.
    pub(crate) fn note_kept(&mut self, call: CallKey) {
        self.calls.get_mut(&call).into_iter().for_each(|entry| entry.is_kept = true);
    }

    /// Returns the calls that the next process does not continue: their keys in the table of calls, and whether they are ending.
    pub(crate) fn unkept(&self) -> impl Iterator<Item = (Option<u64>, bool)> {
        let unkept = self.calls.values().filter(|entry| !entry.is_kept);
        unkept.map(|entry| (entry.key, entry.is_ending || entry.bye.is_some()))
    }

    /// Opens the session of a call of an earlier process, whose ports are bound. Returns the order, and the key in the table of calls.
    pub(crate) fn reopen(&mut self, policy: &Policy, session: SessionKey) -> Option<(Option<Effect>, Option<u64>)> {
        let entry = self.calls.get_mut(self.sessions.get(&session.0)?)?;
        Some((entry.session.order(policy), entry.key))
    }

    /// Notes that the ports of a session could not be bound. Returns the key of its call in the table of calls.
    pub(crate) fn lose_ports(&mut self, session: SessionKey) -> Option<u64> {
        let entry = self.calls.get_mut(self.sessions.get(&session.0)?)?;
        entry.session.media.lose_ports();
        entry.key
    }
}
