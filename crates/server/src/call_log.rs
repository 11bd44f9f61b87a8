//! Calls in the log: begun, answered, ended, and those that came to nothing.
//!
//! A call is logged whole or not at all: `log.calls_per_minute` decides when it begins. What is needed to go on, its beginning and
//! the moment of its answer, stands in a table of the shard until it ends.
//!
//! A peer chooses all that it writes. So a call is known by its dialog, Call-ID and both tags (RFC 3261 section 12), and until it is
//! answered by what its INVITE has of that; who its parties are says the INVITE alone, and that it ends a BYE that our own route token lets
//! through.

use crate::engine::Engine;
use crate::handling::Handling;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use strowger_core::proxy::NoticeEvent;
use strowger_core::routing::Request;
use strowger_core::shown::{LONGEST, shown};
use strowger_core::{Now, Outbox, call};
use strowger_message::Message;
use tracing::level_filters::LevelFilter;

/// A call that is logged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedCall {
    call_hash: u32,
    /// From and To of its INVITE, as far as a line shows them.
    caller: Box<[u8]>,
    callee: Box<[u8]>,
    /// [`Now::mono`] of its INVITE, negative if that came before this process began; on its way to another shard the milliseconds since.
    began: i64,
    /// Its 2xx, if there is one.
    answer: Option<CallAnswer>,
    /// The caller has cancelled it.
    cancelled: bool,
    /// A server behind this one has asked for credentials: the INVITE comes again.
    challenged: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CallAnswer {
    /// When it went upstream: as `began`.
    at: i64,
    status: u16,
}

impl LoggedCall {
    /// Makes ages of its moments, and moments of its ages.
    fn turn(&mut self, now: Now) {
        for at in [&mut self.began].into_iter().chain(self.answer.as_mut().map(|answer| &mut answer.at)) {
            *at = moment(now).saturating_sub(*at);
        }
    }

    fn begun(request: &Request<'_>, now: Now) -> Self {
        let (caller, callee) = parties(request);
        let start = |text: &[u8]| Box::from(&text[..text.len().min(LONGEST + 1)]);
        let (caller, callee) = (start(caller), start(callee));
        let call_hash = request.call_hash;
        Self { call_hash, caller, callee, began: moment(now), answer: None, cancelled: false, challenged: false }
    }
}

/// The calls of one shard that are logged and have not ended.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    /// By a hash of the dialog, the same in all shards; before an answer without the callee's tag.
    calls: HashMap<u64, LoggedCall, foldhash::fast::FixedState>,
    /// [`Now::mono`] of the last look for calls of which nothing was heard for too long.
    swept: u64,
}

/// The context of calls that are not logged, whose set-up is measured all the same. No hash of a dialog is this one, but by a chance of
/// one in 2^64, and then a line is missing.
const NOT_LOGGED: u64 = u64::MAX;

/// How often at most, in milliseconds, calls are looked for that have lasted too long.
const SWEEP: u64 = 60_000;

impl CallLog {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Takes out the calls of a bucket.
    pub(crate) fn export(&mut self, now: Now, bucket: u8) -> Vec<(u64, LoggedCall)> {
        let mut calls: Vec<_> = self.calls.extract_if(|_, entry| call::bucket(entry.call_hash) == bucket).collect();
        calls.iter_mut().for_each(|(_, entry)| entry.turn(now));
        calls
    }

    pub(crate) fn import(&mut self, now: Now, mut calls: Vec<(u64, LoggedCall)>) {
        calls.iter_mut().for_each(|(_, entry)| entry.turn(now));
        self.calls.extend(calls);
    }
}

impl Engine {
    /// An INVITE outside a dialog is forwarded. Returns under which context what becomes of it is heard: that of a call
    /// that is logged, or [`NOT_LOGGED`].
    pub(crate) fn log_call_begun(&mut self, handling: &Handling<'_, '_>) -> u64 {
        let shared = self.shared.clone();
        let lines = &shared.call_lines;
        if !lines.is_on() || LevelFilter::current() < LevelFilter::INFO {
            return NOT_LOGGED;
        }
        let (request, now) = (handling.request, handling.now);
        let key = self.hash_of_dialog(request.call_id, request.from_tag, b"");
        let open = self.call_log.calls.get_mut(&key);
        let is_open = open.is_some();
        // With credentials for a server behind us, or the same call once more on its way.
        if let Some(entry) = open
            && (std::mem::take(&mut entry.challenged) || self.policy.router.has_been_here(request))
        {
            return key;
        }
        self.forget_calls(now);
        // Each shard has its share.
        let most = self.policy.config.log.open_calls.div_ceil(shared.counters.len());
        let authenticated = handling.progress.proof.authenticated;
        let may_log = if authenticated { lines.may_log(now.mono) } else { lines.may_log_of_unproven(now.mono) };
        if !may_log || !is_wanted() {
            return NOT_LOGGED;
        }
        // Callers without a password leave room to those with one.
        let most = if authenticated { most } else { most.div_ceil(2) };
        if self.call_log.len() >= most {
            self.counters().calls_unlogged.one();
            return NOT_LOGGED;
        }
        // A second call of the same Call-ID and tag, which no caller makes by chance, is not told from the first by its end.
        if !is_open {
            self.call_log.calls.insert(key, LoggedCall::begun(request, now));
        }
        let (caller, callee) = parties(request);
        let uri = request.message.request_uri();
        // Most callers write the same twice.
        let uri = (uri != callee).then(|| tracing::field::display(shown(uri)));
        tracing::info!(
            caller = %shown(caller),
            callee = %shown(callee),
            uri,
            source = %request.arrival.remote,
            transport = %request.arrival.transport.text(),
            authenticated,
            call_id = %shown(request.call_id),
            "call begun"
        );
        if is_open { NOT_LOGGED } else { key }
    }

    /// A BYE was forwarded.
    pub(crate) fn log_call_ended(&mut self, handling: &Handling<'_, '_>) {
        // Outside of its dialog a BYE ends no call.
        if self.call_log.calls.is_empty() || !handling.progress.proof.in_dialog {
            return;
        }
        let request = handling.request;
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        let of_caller = [self.hash_of_dialog(call_id, from, to), self.hash_of_dialog(call_id, from, b"")];
        let of_callee = self.hash_of_dialog(call_id, to, from);
        let calls = &mut self.call_log.calls;
        let by_caller = of_caller.iter().find_map(|key| calls.remove(key)).map(|entry| ("caller", entry));
        let Some((by, entry)) = by_caller.or_else(|| Some(("callee", calls.remove(&of_callee)?))) else { return };
        let seconds = entry.answer.map(|answer| seconds_since(answer.at, handling.now));
        tracing::info!(
            caller = %shown(&entry.caller),
            callee = %shown(&entry.callee),
            %by,
            code = entry.answer.map(|answer| answer.status),
            seconds,
            call_id = %shown(request.call_id),
            "call ended"
        );
    }

    /// Logs what became of INVITEs whose final responses are in the outbox.
    pub(crate) fn hear_notices(&mut self, now: Now, out: &Outbox) {
        if self.proxy.notices().is_empty() {
            return;
        }
        let mut notices = std::mem::take(self.proxy.notices());
        if let Some(heard) = &mut self.heard {
            heard.extend_from_slice(&notices);
        }
        for notice in notices.drain(..) {
            if let NoticeEvent::Rang { after, .. } | NoticeEvent::Answered { after, .. } = &notice.event
                && let Some(milliseconds) = after
            {
                self.shared.durations[self.number].call_setup.observe(u64::from(*milliseconds) * 1_000);
            }
            match notice.event {
                NoticeEvent::Answered { status, bytes, .. } | NoticeEvent::Exhausted { status, bytes }
                    if notice.context != NOT_LOGGED =>
                {
                    self.log_final(now, notice.context, status, out.bytes.get(bytes).unwrap_or_default());
                }
                NoticeEvent::Cancelled => {
                    if let Some(entry) = self.call_log.calls.get_mut(&notice.context) {
                        entry.cancelled = true;
                    }
                }
                // No plan asks.
                NoticeEvent::Failing { .. } => (),
                NoticeEvent::Rang { .. }
                | NoticeEvent::Answered { .. }
                | NoticeEvent::Exhausted { .. }
                | NoticeEvent::Refused { .. }
                | NoticeEvent::TimedOut { .. }
                | NoticeEvent::Ended => (),
            }
        }
        *self.proxy.notices() = notices;
    }

    fn log_final(&mut self, now: Now, key: u64, status: u16, bytes: &[u8]) {
        let mut index = std::mem::take(&mut self.index);
        if index.parse(bytes, &self.policy.limits).is_ok() {
            self.log_outcome(now, key, status, &Message::new(bytes, &index));
        }
        self.index = index;
    }

    fn log_outcome(&mut self, now: Now, key: u64, code: u16, message: &Message<'_>) {
        let (Ok(call_id), Ok(from), Ok(to)) = (message.call_id(), message.from(), message.to()) else { return };
        let call_id = call_id.text;
        let (caller_tag, callee_tag) = (from.tag.unwrap_or_default(), to.tag.unwrap_or_default());
        // The caller tries again with credentials.
        if matches!(code, 401 | 407) {
            if let Some(entry) = self.call_log.calls.get_mut(&key) {
                entry.challenged = true;
            }
            return;
        }
        let Some(mut entry) = self.call_log.calls.remove(&key) else { return };
        let is_answered = code < 300;
        let event = match code {
            ..300 => "call answered",
            487 if entry.cancelled => "call cancelled",
            _ => "call failed",
        };
        let seconds = seconds_since(entry.began, now);
        tracing::info!(
            caller = %shown(&entry.caller),
            callee = %shown(&entry.callee),
            code,
            seconds,
            call_id = %shown(call_id),
            "{event}"
        );
        // Otherwise its BYE will not come by.
        if is_answered && self.policy.config.proxy.record_route {
            entry.answer = Some(CallAnswer { at: moment(now), status: code });
            let key = self.hash_of_dialog(call_id, caller_tag, callee_tag);
            self.call_log.calls.insert(key, entry);
        }
    }

    /// Calls whose end never came.
    fn forget_calls(&mut self, now: Now) {
        let longest = self.policy.config.log.longest_call.as_millis() as u64;
        if now.mono < self.call_log.swept + SWEEP.min(longest / 2) {
            return;
        }
        self.call_log.swept = now.mono;
        let before = self.call_log.len();
        self.call_log.calls.retain(|_, entry| moment(now).saturating_sub(entry.began) < longest as i64);
        self.counters().calls_forgotten.add((before - self.call_log.len()) as u64);
    }

    /// The same in all shards, and known to no peer.
    fn hash_of_dialog(&self, call_id: &[u8], caller: &[u8], callee: &[u8]) -> u64 {
        let seed = u64::from_le_bytes(self.shared.seed[16..24].try_into().expect("eight of thirty-two bytes"));
        let mut hasher = foldhash::quality::FixedState::with_seed(seed).build_hasher();
        for part in [call_id, caller, callee] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    }
}

const fn moment(now: Now) -> i64 {
    now.mono.cast_signed()
}

fn seconds_since(at: i64, now: Now) -> f64 {
    moment(now).saturating_sub(at) as f64 / 1000.0
}

/// Whether the log takes lines about calls.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}

/// What From and To of a request name.
fn parties<'a>(request: &Request<'a>) -> (&'a [u8], &'a [u8]) {
    (request.mandatory.from.addr.uri_text, request.mandatory.to.addr.uri_text)
}
