//! Messages of no open call.

use super::Traffic;
use crate::engine::call::CallKind;
use strowger_core::{Arrival, Outbox};
use strowger_measure::Counter;
use strowger_message::Method;

impl Traffic {
    /// Handles a message that belongs to no open call.
    #[cold]
    pub(super) fn stray(&mut self, hash: u64, name: &[u8], arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.dead.knows(hash) {
            self.shard.recorder.dead_call(bytes.len());
            self.shard.stats.dead_call += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            if self.shard.watch.is_some() {
                let message = String::from_utf8_lossy(bytes).into_owned();
                self.shard.warn(format_args!(
                    "Received message for a call that is already terminated, Call-ID '{id}': {message}"
                ));
            }
            return;
        }
        let request = bytes.first() != Some(&b'S') || !bytes.starts_with(b"SIP/2.0");
        if self.out_of_call.is_some() && request && self.disown(hash, arrival, bytes, out) {
            return;
        }
        if self.out_of_call.is_some() && request {
            self.shard.recorder.count(Counter::AutoAnswered, 1);
            self.shard.stats.auto_answered += 1;
            let method = String::from_utf8_lossy(bytes.split(|&b| b == b' ').next().unwrap_or_default()).into_owned();
            self.shard.warn(format_args!("Received out-of-call {method} message, using the out-of-call scenario"));
            return self.accept(hash, CallKind::OutOfCall, name, arrival, bytes, out);
        }
        let method = bytes.iter().position(|&b| b == b' ').map_or(Method::Other, |end| Method::of(&bytes[..end]));
        let polite = matches!(method, Method::Info | Method::Notify | Method::Options | Method::Update);
        if self.shard.run.behaviour.auto_answer && polite {
            self.shard.recorder.count(Counter::AutoAnswered, 1);
            self.shard.stats.auto_answered += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            self.shard.warn(format_args!(
                "Automatic response mode for an unexpected INFO, NOTIFY, OPTIONS or UPDATE for call: {id}"
            ));
            return self.accept(hash, CallKind::Passing, name, arrival, bytes, out);
        }
        self.shard.recorder.out_of_call(bytes.len());
        self.shard.stats.out_of_call += 1;
        let message = String::from_utf8_lossy(bytes).into_owned();
        self.shard.warn(format_args!("Discarding message which can't be mapped to a known SIPp call:\n{message}"));
    }
}
