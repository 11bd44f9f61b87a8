//! Calls in the log: begun, answered, ended, and those that came to nothing.
//!
//! A call is logged whole or not at all: `log.calls_per_minute` decides when it begins. What is needed to go on, its beginning and
//! the moment of its answer, stands in a table of the shard until it ends.

use crate::asked::Asked;
use crate::shard::Shard;
use hashbrown::HashMap;
use std::hash::{BuildHasher, Hasher};
use strowger_core::proxy::{Final, Request};
use strowger_core::{Now, Outbox, call};
use strowger_message::Message;
use strowger_net::shown::shown;

/// A call that is logged.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCall {
    call_hash: u32,
    /// Hash of the caller's tag.
    caller: u32,
    /// [`Now::mono`] of its INVITE.
    began: u64,
    /// Of its answer; 0: there is none yet.
    answered: u64,
    /// Status code of its answer.
    code: u16,
    /// The caller has cancelled it.
    cancelled: bool,
}

/// The calls of one shard that are logged and have not ended.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    /// By a hash of the Call-ID, the same in all shards.
    calls: HashMap<u64, LoggedCall, foldhash::fast::FixedState>,
    /// [`Now::mono`] of the last look for calls of which nothing was heard for too long.
    swept: u64,
}

/// How often at most, in milliseconds, calls are looked for that have lasted too long.
const SWEEP: u64 = 60_000;

impl CallLog {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Takes out the calls of a bucket.
    pub(crate) fn export(&mut self, bucket: u8) -> Vec<(u64, LoggedCall)> {
        self.calls.extract_if(|_, entry| call::bucket(entry.call_hash) == bucket).collect()
    }

    pub(crate) fn import(&mut self, calls: Vec<(u64, LoggedCall)>) {
        self.calls.extend(calls);
    }
}

impl Shard {
    /// An INVITE outside a dialog was forwarded.
    pub(crate) fn log_call_begun(&mut self, asked: &Asked<'_, '_>) {
        let shared = self.shared.clone();
        let lines = &shared.call_lines;
        if !lines.is_on() || !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let (request, now) = (asked.request, asked.now.mono);
        let key = self.hash_of_call(request.call_id);
        if let Some(entry) = self.call_log.calls.get(&key) {
            // With credentials for somebody behind us, or the same call once more on its way.
            if entry.answered == 0 {
                self.watch(asked);
            }
            return;
        }
        self.forget_calls(now);
        // Each shard has its share.
        let most = shared.config.log.open_calls.div_ceil(shared.counters.len());
        let stranger = !asked.found.authenticated;
        let may_log = if stranger { lines.may_log_of_anyone(now) } else { lines.may_log(now) };
        if !may_log {
            return;
        }
        if self.call_log.len() >= most {
            self.counters().calls_unlogged.one();
            return;
        }
        let caller = self.hash_of_tag(request.from_tag);
        let entry =
            LoggedCall { call_hash: request.call_hash, caller, began: now, answered: 0, code: 0, cancelled: false };
        self.call_log.calls.insert(key, entry);
        self.watch(asked);
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
            authenticated = !stranger,
            call_id = %shown(request.call_id),
            "call begun"
        );
    }

    fn watch(&mut self, asked: &Asked<'_, '_>) {
        if let Some(server) = asked.server {
            self.proxy.watch(server, &self.transactions);
        }
    }

    /// A CANCEL came for an INVITE.
    pub(crate) fn log_cancel(&mut self, request: &Request<'_>) {
        let key = self.hash_of_call(request.call_id);
        if let Some(entry) = self.call_log.calls.get_mut(&key) {
            entry.cancelled = true;
        }
    }

    /// A BYE was forwarded.
    pub(crate) fn log_call_ended(&mut self, asked: &Asked<'_, '_>) {
        if self.call_log.calls.is_empty() {
            return;
        }
        let request = asked.request;
        let key = self.hash_of_call(request.call_id);
        let Some(entry) = self.call_log.calls.remove(&key) else { return };
        let (from, to) = parties(request);
        let by_caller = self.hash_of_tag(request.from_tag) == entry.caller;
        let (by, caller, callee) = if by_caller { ("caller", from, to) } else { ("callee", to, from) };
        let answered = entry.answered > 0;
        let seconds = asked.now.mono.saturating_sub(entry.answered) as f64 / 1000.0;
        tracing::info!(
            caller = %shown(caller),
            callee = %shown(callee),
            %by,
            code = answered.then_some(entry.code),
            seconds = answered.then_some(seconds),
            call_id = %shown(request.call_id),
            "call ended"
        );
    }

    /// Logs what became of INVITEs whose final responses are in the outbox.
    pub(crate) fn log_finals(&mut self, now: Now, out: &Outbox) {
        if self.proxy.finals().is_empty() {
            return;
        }
        let mut finals = std::mem::take(self.proxy.finals());
        for found in finals.drain(..) {
            self.log_final(now, &found, out);
        }
        *self.proxy.finals() = finals;
    }

    fn log_final(&mut self, now: Now, found: &Final, out: &Outbox) {
        let Some(bytes) = out.bytes.get(found.bytes.clone()) else { return };
        let mut index = std::mem::take(&mut self.index);
        if index.parse(bytes, &self.shared.limits).is_ok() {
            self.log_outcome(now, found.status, &Message::new(bytes, &index));
        }
        self.index = index;
    }

    fn log_outcome(&mut self, now: Now, code: u16, message: &Message<'_>) {
        let (Ok(call_id), Ok(from), Ok(to)) = (message.call_id(), message.from(), message.to()) else { return };
        let key = self.hash_of_call(call_id.text);
        let Some(entry) = self.call_log.calls.get_mut(&key).filter(|entry| entry.answered == 0) else { return };
        // The caller tries again with credentials.
        if matches!(code, 401 | 407) {
            return;
        }
        let (caller, callee, call_id) = (shown(from.addr.uri_text), shown(to.addr.uri_text), shown(call_id.text));
        let seconds = now.mono.saturating_sub(entry.began) as f64 / 1000.0;
        if code < 300 {
            (entry.answered, entry.code) = (now.mono.max(1), code);
            tracing::info!(%caller, %callee, code, seconds, %call_id, "call answered");
            // Its BYE will not come by.
            if !self.shared.config.proxy.record_route {
                self.call_log.calls.remove(&key);
            }
            return;
        }
        let event = if entry.cancelled && code == 487 { "call cancelled" } else { "call failed" };
        self.call_log.calls.remove(&key);
        tracing::info!(%caller, %callee, code, seconds, %call_id, "{event}");
    }

    /// Calls whose end never came.
    fn forget_calls(&mut self, now: u64) {
        let longest = self.shared.config.log.longest_call.as_millis() as u64;
        if now < self.call_log.swept + SWEEP.min(longest / 2) {
            return;
        }
        self.call_log.swept = now;
        let before = self.call_log.len();
        self.call_log.calls.retain(|_, entry| now.saturating_sub(entry.began) < longest);
        self.counters().calls_forgotten.add((before - self.call_log.len()) as u64);
    }

    /// The same in all shards, and known to no peer.
    fn hash_of_call(&self, call_id: &[u8]) -> u64 {
        let seed = u64::from_le_bytes(self.shared.seed[16..24].try_into().expect("eight of thirty-two bytes"));
        let mut hasher = foldhash::quality::FixedState::with_seed(seed).build_hasher();
        hasher.write(call_id);
        hasher.finish()
    }

    fn hash_of_tag(&self, tag: &[u8]) -> u32 {
        self.hash_of_call(tag) as u32
    }
}

/// What From and To of a request name.
fn parties<'a>(request: &Request<'a>) -> (&'a [u8], &'a [u8]) {
    (request.essentials.from.addr.uri_text, request.essentials.to.addr.uri_text)
}
