//! Law of failed targets: a next hop that has failed is tried after the other next hops of its name until its time is
//! over. Then one request tries this next hop again, at its usual place in the order.

use crate::laws::recent::Recent;
use std::collections::HashMap;
use strowger_core::{Outbox, Target, Transport};
use strowger_message::{Index, Limits, Message, Method, Name};

/// Identity of a target of a name. Those of plain transports are omitted, because requests go there by address too.
type Key = (Transport, std::net::SocketAddr, strowger_core::PeerName);

#[derive(Clone, Copy, Debug)]
struct Failed {
    until: u64,
    is_tried: bool,
}

/// A target that no request tries again for this multiple of its time is forgotten, or soon will be.
const FORGOTTEN: u64 = 10;

/// Knowledge of one process about the targets of secure transports.
#[derive(Debug, Default)]
pub(super) struct FailedTargets {
    index: Index,
    /// Time in ms for which a target is set aside.
    time: u64,
    failed: HashMap<Key, Failed>,
    /// Last target of each message, by token.
    sent: HashMap<u64, Key>,
    /// Target of each sent request, by branch.
    branches: Recent<Key>,
    /// Targets tried for each received request.
    tried: Recent<Vec<Key>>,
    /// True if failures may be missed: requests continued in another shard, where the network does not report them.
    pub(super) is_blind: bool,
}

const fn key(target: &Target) -> Option<Key> {
    match target.name {
        Some(name) => Some((target.transport, target.address, name)),
        None => None,
    }
}

impl FailedTargets {
    pub(super) fn new(time: u64) -> Self {
        Self { time, ..Self::default() }
    }

    fn is_aside(&self, key: &Key, now: u64) -> bool {
        self.failed.get(key).is_some_and(|failed| failed.until > now)
    }

    /// Records that an engine learned that its message with this token was not sent.
    pub(super) fn fails(&mut self, token: u64, now: u64) {
        let Some(key) = self.sent.get(&token) else { return };
        let before = self.failed.get(key).copied();
        if before.is_none_or(|failed| failed.until <= now || failed.is_tried) {
            self.failed.insert(*key, Failed { until: now + self.time, is_tried: false });
        }
    }

    /// Records a received message.
    pub(super) fn came(&mut self, bytes: &[u8]) {
        if self.failed.is_empty() || !bytes.starts_with(b"SIP/2.0 ") {
            return;
        }
        if self.index.parse(bytes, &Limits::default()).is_err() {
            return;
        }
        let message = Message::new(bytes, &self.index);
        let branch = message.via().ok().and_then(|via| via.branch).unwrap_or_default();
        let is_refusal = message.status() == Some(503) && message.has(Name::RetryAfter);
        if let Some(key) = self.branches.get(branch).filter(|_| !is_refusal) {
            self.failed.remove(key);
        }
    }

    /// Checks the messages that a shard sends. `targets` has the targets of a name; `token` converts a token of this
    /// shard to a token of the process.
    ///
    /// # Errors
    /// A request goes to a target that is set aside although another is left, or first to another although the time of
    /// this one is over.
    pub(super) fn sends(
        &mut self,
        now: u64,
        out: &Outbox,
        targets: &[(Transport, std::net::SocketAddr)],
        token: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        self.branches.turn(now);
        self.tried.turn(now);
        self.failed.retain(|_, failed| failed.until + (FORGOTTEN - 1) * self.time > now);
        for send in out.sends() {
            let Some(to) = key(&send.target) else { continue };
            self.sent.insert(token(send.token), to);
            let bytes = &out.bytes[send.range()];
            let mut index = std::mem::take(&mut self.index);
            let result = match index.parse(bytes, &Limits::default()) {
                Ok(()) => self.goes(now, to, &Message::new(bytes, &index), targets),
                Err(_) => Ok(()),
            };
            self.index = index;
            result?;
        }
        Ok(())
    }

    fn goes(
        &mut self,
        now: u64,
        to: Key,
        message: &Message<'_>,
        targets: &[(Transport, std::net::SocketAddr)],
    ) -> Result<(), String> {
        // The order does not matter for these: an ACK has no response, and a CANCEL goes where its INVITE went.
        if !message.is_request() || matches!(message.method(), Some(Method::Ack | Method::Cancel)) {
            return Ok(());
        }
        let mut vias = message.vias().filter_map(|via| via.ok()?.branch);
        let (Some(own), Some(below)) = (vias.next(), vias.next()) else { return Ok(()) };
        if self.branches.insert(own.to_vec(), to).is_some() {
            return Ok(());
        }
        let request = [below, message.method_text()].join(&b' ');
        let mut tried = self.tried.get(&request).cloned().unwrap_or_default();
        let others = targets.iter().map(|(transport, address)| (*transport, *address, to.2));
        let left =
            others.filter(|other| *other != to && !tried.contains(other)).find(|other| !self.is_aside(other, now));
        if self.is_aside(&to, now)
            && !self.is_blind
            && let Some(other) = left
        {
            return Err(format!("{} is set aside and was tried, {} was left", to.1, other.1));
        }
        let is_known = targets.contains(&(to.0, to.1));
        let before = targets.iter().map(|(transport, address)| (*transport, *address, to.2)).filter(|_| is_known);
        let passed = before.take_while(|before| *before != to).find(|before| !self.is_aside(before, now));
        if let Some(passed) = passed.filter(|_| tried.is_empty() && !self.is_blind) {
            return Err(format!("{} is not set aside, and {} was tried first", passed.1, to.1));
        }
        if let Some(failed) = self.failed.get_mut(&to).filter(|failed| failed.until <= now && tried.is_empty()) {
            (failed.until, failed.is_tried) = (now + self.time, true);
        }
        tried.push(to);
        self.tried.insert(request, tried);
        Ok(())
    }
}
