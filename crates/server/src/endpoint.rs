//! Calls that this server answers itself (endpoints): the caller hears itself, a test tone or an announcement, or is recorded.
//!
//! The user agent has the dialog of such a call, a media thread its session, and the table of calls its record, limits, place in lists
//! and end. This module joins the three:
//!
//! 1. The rules name an endpoint ([`crate::role::ServerRole::Endpoint`]). The engine takes free media ports, negotiates, enters the INVITE into the table
//!    of calls, and gives it to the user agent (`answering.rs`).
//! 2. Events of the user agent become notices for the table and orders to the media thread (`agent_events.rs`). The table ends a call by an
//!    order, which the user agent carries out.
//! 3. Events of the session come back from the media thread ([`crate::media_sessions`]).

mod agent_events;
mod answering;
mod kept;
mod remote_target;
mod session;
mod sound;

pub(crate) use self::agent_events::{PLAYED, UNRECORDED, cause_of_bye};
pub(crate) use self::sound::EndpointSound;

use self::session::{Description, EndpointSession};
use crate::media_sessions::{MediaSession, bucket_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use strowger_core::user_agent::{CallKey, MovedCalls, RequestKey};
use strowger_media::session::SessionKey;

/// Call of an endpoint, from its 200 on.
#[derive(Debug, Serialize, Deserialize)]
struct EndpointCall {
    /// Context of the notices about its INVITE.
    context: u64,
    /// Key in the table of calls; `None` if the table does not have the call.
    key: Option<u64>,
    /// Context of the BYE to the caller that the table has ordered.
    bye: Option<u64>,
    /// OPTIONS to the caller that the table has ordered, and its context.
    question: Option<(RequestKey, u64)>,
    /// Set once the table knows that the call ends.
    is_ending: bool,
    /// Set once its state is kept for the next process.
    is_kept: bool,
    session: EndpointSession,
}

/// INVITE that the user agent is about to take.
#[derive(Debug)]
struct Beginning {
    context: u64,
    key: Option<u64>,
    session: EndpointSession,
    description: Description,
}

/// Calls of endpoints in one shard.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    calls: BTreeMap<CallKey, EndpointCall>,
    /// Calls by their keys in the table of calls.
    keys: BTreeMap<u64, CallKey>,
    /// Calls by their sessions.
    sessions: BTreeMap<u64, CallKey>,
    beginning: Option<Beginning>,
}

/// Calls of endpoints that move with their bucket.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EndpointRecord {
    calls: Vec<(CallKey, EndpointCall)>,
}

impl EndpointRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Endpoints {
    /// Returns the call of a session.
    pub(crate) fn call_of_session(&self, session: SessionKey) -> Option<CallKey> {
        self.sessions.get(&session.0).copied()
    }

    /// Returns the session of the call with this key in the table of calls.
    pub(crate) fn session_of_call(&self, key: u64) -> Option<&MediaSession> {
        self.calls.get(self.keys.get(&key)?).map(|entry| &entry.session.media)
    }

    /// Returns the path of the file in which the call with this key in the table of calls is recorded.
    pub(crate) fn recording_of_call(&self, key: u64) -> Option<PathBuf> {
        self.calls.get(self.keys.get(&key)?)?.session.recording()
    }

    /// Returns a session, to change it.
    pub(crate) fn session_mut(&mut self, session: SessionKey) -> Option<&mut MediaSession> {
        self.calls.get_mut(self.sessions.get(&session.0)?).map(|entry| &mut entry.session.media)
    }

    fn insert(&mut self, call: CallKey, entry: EndpointCall) {
        self.keys.extend(entry.key.map(|key| (key, call)));
        self.sessions.insert(entry.session.media.key, call);
        self.calls.insert(call, entry);
    }

    fn remove(&mut self, call: CallKey) -> Option<EndpointCall> {
        let entry = self.calls.remove(&call)?;
        self.sessions.remove(&entry.session.media.key);
        if let Some(key) = entry.key.filter(|key| self.keys.get(key) == Some(&call)) {
            self.keys.remove(&key);
        }
        Some(entry)
    }

    /// Takes out the calls of this bucket.
    pub(crate) fn export(&mut self, bucket: u8) -> EndpointRecord {
        let is_of = |session: u64| bucket_of(SessionKey(session)) == bucket;
        let calls = self.calls.iter().filter(|(_, entry)| is_of(entry.session.media.key)).map(|(call, _)| *call);
        let calls: Vec<CallKey> = calls.collect();
        EndpointRecord { calls: calls.into_iter().filter_map(|call| Some((call, self.remove(call)?))).collect() }
    }

    /// Takes over the calls that another shard exported. `moved`: new keys of the user agent.
    pub(crate) fn import(&mut self, record: EndpointRecord, moved: &MovedCalls) {
        for (old, mut entry) in record.calls {
            let question = entry.question.and_then(|(request, context)| Some((moved.request(request)?, context)));
            entry.question = question;
            if let Some(call) = moved.call(old) {
                self.insert(call, entry);
            }
        }
    }
}
