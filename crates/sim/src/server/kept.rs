//! Calls that are kept between processes: what stands on disk when one is killed, and what must come of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use strowger_accounting::Cdr;
use strowger_core::{Now, Outbox};
use strowger_message::{Index, Limits, Message, Method};
use strowger_server::calls::{Call, CallView, read_kept};
use strowger_server::engine::Effect;

/// How long the first change of a group waits for others, ms.
pub(super) const INTERVAL: u64 = 100;

/// What outlives the processes of a server.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The state of each call.
    disk: BTreeMap<u64, Box<[u8]>>,
    /// The last change of each call that waits for its group; none: its state is removed.
    pending: BTreeMap<u64, Option<Box<[u8]>>>,
    /// Of calls that processes went on with, those whose record is to come still.
    owed: BTreeSet<String>,
    /// Calls that the process of now went on with.
    restored: BTreeSet<String>,
    /// When answers to INVITEs, and BYEs, left for the next hop, by Call-ID: ms since 1970.
    answers: HashMap<Vec<u8>, Vec<u64>>,
    byes: HashMap<Vec<u8>, Vec<u64>>,
    index: Index,
}

impl Kept {
    /// A change of what is kept. Whether a group begins with it.
    pub(super) fn take(&mut self, effect: Effect) -> bool {
        let begins = self.pending.is_empty();
        match effect {
            Effect::Keep { call, state } => self.pending.insert(call, Some(state)),
            Effect::Close { call, .. } | Effect::Forget { call } => self.pending.insert(call, None),
            _ => return false,
        };
        begins
    }

    /// The group is written.
    pub(super) fn commit(&mut self) {
        for (call, state) in std::mem::take(&mut self.pending) {
            match state {
                Some(state) => self.disk.insert(call, state),
                None => self.disk.remove(&call),
            };
        }
    }

    /// The process was killed: its last group is on disk, or lost.
    pub(super) fn is_killed(&mut self, is_written: bool) {
        if is_written {
            self.commit();
        }
        self.pending.clear();
    }

    /// A call that was answered longer ago than a group waits is on disk.
    ///
    /// # Errors
    /// Which is not.
    pub(super) fn check(&self, calls: &[CallView]) -> Result<(), String> {
        let is_old = |call: &&CallView| call.answered.is_some_and(|ms| ms > INTERVAL);
        match calls.iter().filter(is_old).find(|call| !self.disk.contains_key(&call.id)) {
            Some(call) => Err(format!("kept calls: one that was answered is not on disk: {call:?}")),
            None => Ok(()),
        }
    }

    /// The calls with which the next process goes on.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) fn calls(&self, now: Now) -> Result<Vec<Call>, String> {
        let read = |state: &[u8]| read_kept(now, state).map_err(|error| format!("kept calls: {error}"));
        self.disk.values().map(|state| read(state)).collect()
    }

    /// A process went on with these.
    pub(super) fn restored(&mut self, calls: &[Call], writes_cdr: bool) {
        let call_id = |call: &Call| String::from_utf8_lossy(call.call_id()).into_owned();
        self.restored = calls.iter().map(call_id).collect();
        if writes_cdr {
            self.owed.extend(self.restored.iter().cloned());
        }
    }

    pub(super) fn is_restored(&self, call_id: &str) -> bool {
        self.restored.contains(call_id)
    }

    /// What an engine sends.
    pub(super) fn watch(&mut self, now: Now, out: &Outbox) {
        for send in out.sends() {
            let bytes = &out.bytes[send.range()];
            let is_answer = bytes.starts_with(b"SIP/2.0 2");
            if !(is_answer || bytes.starts_with(b"BYE ")) || self.index.parse(bytes, &Limits::default()).is_err() {
                continue;
            }
            let message = Message::new(bytes, &self.index);
            let (Ok(cseq), Ok(call_id)) = (message.cseq(), message.call_id()) else { continue };
            if !is_answer || cseq.method == Method::Invite {
                let moments = if is_answer { &mut self.answers } else { &mut self.byes };
                moments.entry(call_id.text.to_vec()).or_default().push(now.wall);
            }
        }
    }

    /// A record leaves: its moments are those of its messages, whichever process saw them.
    ///
    /// # Errors
    /// They are not.
    pub(super) fn check_cdr(&mut self, cdr: &Cdr) -> Result<(), String> {
        self.owed.remove(&cdr.call_id);
        let was = |of: &HashMap<Vec<u8>, Vec<u64>>, at: u64| {
            of.get(cdr.call_id.as_bytes()).is_some_and(|moments| moments.contains(&at))
        };
        let by_party = matches!(&*cdr.ended_by, "caller" | "callee");
        match (cdr.answer, cdr.end) {
            (Some(answer), _) if !was(&self.answers, answer) => Err("it was not answered then".into()),
            (Some(_), Some(end)) if by_party && !was(&self.byes, end) => Err("no BYE left then".into()),
            _ => Ok(()),
        }
    }

    /// Nothing is under way.
    ///
    /// # Errors
    /// What is kept of calls that have ended, and which record never came.
    pub(super) fn leftovers(&self) -> Result<(), String> {
        match (self.disk.len(), self.pending.len(), self.owed.first()) {
            (0, 0, None) => Ok(()),
            (disk, pending, owed) => Err(format!(
                "kept calls: {disk} are on disk, and {pending} changes wait, of calls that have ended; without a record is {owed:?}"
            )),
        }
    }
}
