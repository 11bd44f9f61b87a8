//! Persisted calls: the state on disk when a process is killed, and its restoration.

use super::limits::RoutedCalls;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use strowger_calls::{Call, CallView, read_kept};
use strowger_core::{Now, Outbox};
use strowger_message::{Index, Limits, Message, Method};
use strowger_server::engine::Effect;
use strowger_store::accounting::{Cdr, Row};

/// Time in ms for which the first change of a group waits for others.
pub(super) const INTERVAL: u64 = 100;

/// State of a call on disk.
#[derive(Debug)]
enum OnDisk {
    State(State),
    /// The call is over. Its rows, and the time of their removal.
    LastWords(Box<[u8]>, u64),
}

/// State of a call at a round, and the target to which it had been routed.
#[derive(Debug)]
struct State {
    bytes: Box<[u8]>,
    lead: Option<SocketAddr>,
}

#[derive(Debug)]
enum Change {
    State(State),
    Closed(Box<[u8]>),
    Removed,
}

/// Rows of calls that an earlier process had closed, and the time at which the stored rows are removed.
type LastWords = (Vec<Box<Row>>, Option<u64>);

/// Data that outlives the processes of a server.
#[derive(Debug, Default)]
pub(super) struct Kept {
    disk: BTreeMap<u64, OnDisk>,
    /// Last pending change of each call.
    pending: BTreeMap<u64, Change>,
    /// Time in ms for which the rows of a closed call stay stored.
    grace: u64,
    /// True if calls have records.
    has_records: bool,
    /// Call-IDs of calls that were ever on disk and whose record has not reached its table.
    owed: BTreeSet<String>,
    /// Calls that the current process has restored.
    restored: BTreeSet<String>,
    /// Times (ms since 1970) at which answers to INVITEs, and BYEs, left for the next hop, by Call-ID.
    answers: HashMap<Vec<u8>, Vec<u64>>,
    byes: HashMap<Vec<u8>, Vec<u64>>,
    index: Index,
}

impl Kept {
    pub(super) fn new(grace: u64, has_records: bool) -> Self {
        Self { grace, has_records, ..Self::default() }
    }

    /// Handles a change of a persisted call, with the current routing of calls. Returns whether a group begins with
    /// this change.
    ///
    /// # Errors
    /// A state cannot be read.
    pub(super) fn take(&mut self, now: Now, effect: Effect, led: &RoutedCalls) -> Result<bool, String> {
        let begins = self.pending.is_empty();
        match effect {
            Effect::PersistCall { call, state: bytes } => {
                let lead = match led.is_empty() {
                    true => None,
                    false => led.last(read(now, &bytes)?.call_id()),
                };
                self.pending.insert(call, Change::State(State { bytes, lead }));
            }
            Effect::FinishCall { call, rows } => _ = self.pending.insert(call, Change::Closed(rows)),
            Effect::DeleteCall { call } => _ = self.pending.insert(call, Change::Removed),
            _ => return Ok(false),
        }
        Ok(begins)
    }

    /// Writes the group of changes. Returns the time at which the rows of the calls that the group closed are removed.
    ///
    /// # Errors
    /// A state cannot be read.
    pub(super) fn commit(&mut self, now: Now) -> Result<Option<u64>, String> {
        let mut due = None;
        for (call, change) in std::mem::take(&mut self.pending) {
            match change {
                Change::State(state) => {
                    if self.has_records {
                        self.owed.insert(call_id(&read(now, &state.bytes)?));
                    }
                    self.disk.insert(call, OnDisk::State(state));
                }
                Change::Closed(rows) => {
                    let until = now.mono + self.grace;
                    due = Some(until);
                    self.disk.insert(call, OnDisk::LastWords(rows, until));
                }
                Change::Removed => _ = self.disk.remove(&call),
            }
        }
        Ok(due)
    }

    /// Removes stored rows of closed calls whose time is over.
    pub(super) fn remove_last_words(&mut self, now: Now) {
        self.disk.retain(|_, left| !matches!(left, OnDisk::LastWords(_, until) if *until <= now.mono));
    }

    /// Returns the stored rows of calls that the previous process had closed, and their new expiry.
    ///
    /// # Errors
    /// The stored bytes are not rows.
    pub(super) fn last_words(&mut self, now: Now) -> Result<LastWords, String> {
        let (mut all, mut due) = (Vec::new(), None);
        for left in self.disk.values_mut() {
            let OnDisk::LastWords(rows, until) = left else { continue };
            all.extend(Row::read_all(rows).ok_or("kept calls: last words are no rows")?);
            *until = now.mono + self.grace;
            due = Some(*until);
        }
        Ok((all, due))
    }

    /// Records a kill. `is_written`: whether the last group is on disk; otherwise it is lost.
    ///
    /// # Errors
    /// As [`Kept::commit`].
    pub(super) fn on_kill(&mut self, now: Now, is_written: bool) -> Result<(), String> {
        if is_written {
            self.commit(now)?;
        }
        self.pending.clear();
        Ok(())
    }

    /// Checks that each call is on disk if it was answered longer ago than a group waits.
    ///
    /// # Errors
    /// A call that is not on disk.
    pub(super) fn check(&self, calls: &[CallView]) -> Result<(), String> {
        let is_old = |call: &&CallView| call.answered.is_some_and(|ms| ms > INTERVAL);
        let is_kept = |call: &CallView| matches!(self.disk.get(&call.id), Some(OnDisk::State(_)));
        match calls.iter().filter(is_old).find(|call| !is_kept(call)) {
            Some(call) => Err(format!("kept calls: one that was answered is not on disk: {call:?}")),
            None => Ok(()),
        }
    }

    /// Returns the calls that the next process restores, and the routing of these calls.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) fn calls(&self, now: Now) -> Result<(Vec<Call>, RoutedCalls), String> {
        let (mut calls, mut last) = (Vec::new(), HashMap::new());
        for left in self.disk.values() {
            let OnDisk::State(state) = left else { continue };
            let call = read(now, &state.bytes)?;
            if let Some(lead) = state.lead {
                last.insert(call.call_id().to_vec(), lead);
            }
            calls.push(call);
        }
        Ok((calls, RoutedCalls::of(last)))
    }

    /// Records that a process restored these calls.
    pub(super) fn restored(&mut self, calls: &[Call]) {
        self.restored = calls.iter().map(call_id).collect();
        if self.has_records {
            self.owed.extend(self.restored.iter().cloned());
        }
    }

    /// Records that a row has reached its table.
    pub(super) fn on_row_written(&mut self, row: &Row) {
        if let Row::Cdr(cdr) = row {
            self.owed.remove(&cdr.call_id);
        }
    }

    pub(super) fn is_restored(&self, call_id: &str) -> bool {
        self.restored.contains(call_id)
    }

    /// Records the messages that an engine sends.
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

    /// Checks that the times of an accounting record are those of its messages, whether this process or an earlier one
    /// sent them.
    ///
    /// # Errors
    /// The times differ.
    pub(super) fn check_cdr(&self, cdr: &Cdr) -> Result<(), String> {
        let was = |of: &HashMap<Vec<u8>, Vec<u64>>, at: u64| {
            of.get(cdr.call_id.as_bytes()).is_some_and(|moments| moments.contains(&at))
        };
        let by_party = matches!(&*cdr.ended_by, "caller" | "callee");
        match (cdr.answer, cdr.end) {
            (Some(answer), _) if !was(&self.answers, answer) => Err("it was not answered then".into()),
            (Some(_), Some(end)) if by_party && !self.has_bye_before(cdr, end) => Err("no BYE left then".into()),
            _ => Ok(()),
        }
    }

    /// Returns whether a BYE left at this moment, or so long before that the transaction of the BYE may have ended at
    /// this moment.
    fn has_bye_before(&self, cdr: &Cdr, end: u64) -> bool {
        let byes = self.byes.get(cdr.call_id.as_bytes());
        byes.is_some_and(|moments| moments.iter().any(|at| (*at..=at + 33_000).contains(&end)))
    }

    /// Checks that nothing is left when no work is in progress.
    ///
    /// # Errors
    /// Ended calls that are still persisted, or a record that never came.
    pub(super) fn leftovers(&self) -> Result<(), String> {
        match (self.disk.len(), self.pending.len(), self.owed.first()) {
            (0, 0, None) => Ok(()),
            (disk, pending, owed) => Err(format!(
                "kept calls: {disk} are on disk, and {pending} changes wait, of calls that have ended; without a record in its table is {owed:?}"
            )),
        }
    }
}

fn read(now: Now, state: &[u8]) -> Result<Call, String> {
    read_kept(now, state).map_err(|error| format!("kept calls: {error}"))
}

fn call_id(call: &Call) -> String {
    String::from_utf8_lossy(call.call_id()).into_owned()
}
