//! Laws of ringing. The server remembers a callee that rang only as long as the branch to the callee may still answer.
//! A call whose INVITEs have final responses lasts as long as an answered dialog, not longer. Its counts under limits,
//! and its state for a record, last as long as the call.

use super::ServerHost;
use super::accounts::Written;
use super::observer::Input;
use crate::laws::recent::Recent;
use crate::noise;
use std::collections::{HashMap, HashSet};
use strowger_calls::CallView;
use strowger_core::{Now, Outbox};
use strowger_message::{Index, Limits, Message, Method};

/// Observations of a Call-ID.
#[derive(Debug, Default)]
struct Seen {
    /// Forwarded INVITEs, by the branch of arrival, with their final responses; 0 while there is none.
    invites: HashMap<Vec<u8>, u16>,
    /// Their targets, by our branch: whether a failure came from there and was acknowledged.
    branches: HashMap<Vec<u8>, bool>,
    /// Tags that rang, each with its branch.
    rang: HashSet<(Vec<u8>, Vec<u8>)>,
    /// True if the last one was challenged.
    is_challenged: bool,
}

/// Observations of one process.
#[derive(Debug, Default)]
pub(super) struct Ringing {
    index: Index,
    calls: Recent<Seen>,
    /// Call-IDs of answered calls in the list of each shard.
    answered: HashMap<usize, HashSet<Vec<u8>>>,
    /// Calls that have left it since.
    over: Vec<Vec<u8>>,
}

impl Ringing {
    /// Records the input and output of an engine.
    fn watch(&mut self, now: u64, input: Input<'_>, out: &Outbox) {
        self.calls.turn(now);
        let mut index = std::mem::take(&mut self.index);
        if let Input::Message(arrival, bytes) = input
            && !noise::is_source(arrival.remote)
            && may_say(bytes)
            && index.parse(bytes, &Limits::default()).is_ok()
        {
            self.came(&Message::new(bytes, &index));
        }
        for send in out.sends().iter().filter(|send| !noise::is_source(send.target.address)) {
            let bytes = &out.bytes[send.range()];
            if may_say(bytes) && index.parse(bytes, &Limits::default()).is_ok() {
                self.sent(&Message::new(bytes, &index));
            }
        }
        self.index = index;
    }

    fn came(&mut self, message: &Message<'_>) {
        let (Ok(call_id), Ok(via), Ok(to)) = (message.call_id(), message.via(), message.to()) else { return };
        let (Some(branch), Some(tag), Some(101..200)) = (via.branch, to.tag, message.status()) else { return };
        if let Some(seen) = self.calls.get_mut(call_id.text).filter(|seen| seen.branches.contains_key(branch)) {
            seen.rang.insert((tag.to_vec(), branch.to_vec()));
        }
    }

    fn sent(&mut self, message: &Message<'_>) {
        let (Ok(call_id), Ok(cseq), Ok(to)) = (message.call_id(), message.cseq(), message.to()) else { return };
        let mut branches = message.vias().flatten().map(|via| via.branch.unwrap_or_default());
        let (Some(top), below) = (branches.next(), branches.next()) else { return };
        match (message.status(), cseq.method, below) {
            (None, Method::Invite, Some(below)) if to.tag.is_none() => {
                let seen = self.calls.of(call_id.text.to_vec());
                if seen.branches.insert(top.to_vec(), false).is_none() {
                    seen.invites.entry(below.to_vec()).and_modify(|status| *status = 0).or_default();
                    seen.is_challenged = false;
                }
            }
            (None, Method::Ack, _) => {
                let of_call = self.calls.get_mut(call_id.text);
                of_call.and_then(|seen| seen.branches.get_mut(top)).into_iter().for_each(|ended| *ended = true);
            }
            (Some(status @ 200..), Method::Invite, _) => {
                let Some(seen) = self.calls.get_mut(call_id.text) else { return };
                if let Some(before) = seen.invites.get_mut(top).filter(|before| **before == 0) {
                    *before = status;
                    seen.is_challenged = matches!(status, 401 | 407);
                }
            }
            _ => (),
        }
    }

    /// Compares the list of a shard with the observations.
    fn compare(&mut self, shard: usize, calls: &[CallView]) -> Result<(), String> {
        for call in calls {
            let Some(seen) = self.calls.get(&call.call_id) else { continue };
            for dialog in call.dialogs.iter().filter(|dialog| dialog.answered.is_none()) {
                let mut ends = seen.rang.iter().filter(|(tag, _)| *tag == dialog.tag).peekable();
                let may_answer = |(_, branch): &(Vec<u8>, Vec<u8>)| seen.branches.get(branch) == Some(&false);
                if ends.peek().is_some() && !ends.any(may_answer) {
                    return Err(format!("a callee rings whose branch has ended: {call:?}"));
                }
            }
            let is_open = seen.is_challenged || seen.invites.values().any(|status| *status == 0);
            if call.answered.is_none() && !is_open {
                return Err(format!(
                    "a call goes on that has no answered dialog and no open INVITE: {call:?} {seen:?}"
                ));
            }
        }
        let answered = calls.iter().filter(|call| call.answered.is_some()).map(|call| call.call_id.clone()).collect();
        let before: HashSet<Vec<u8>> = self.answered.insert(shard, answered).unwrap_or_default();
        let has_left = |call_id: &Vec<u8>| calls.iter().all(|call| call.call_id != *call_id);
        self.over.extend(before.into_iter().filter(has_left));
        Ok(())
    }
}

/// Returns whether this message is an INVITE, a response to an INVITE, or an ACK.
fn may_say(bytes: &[u8]) -> bool {
    let is_of_invite = || bytes.windows(9).any(|part| part == b" INVITE\r\n");
    bytes.starts_with(b"INVITE ") || bytes.starts_with(b"ACK ") || bytes.starts_with(b"SIP/2.0 ") && is_of_invite()
}

impl ServerHost {
    /// Checks a step of a shard. `has_told`: whether the step had notices of forwarded requests.
    pub(super) fn check_ringing(&mut self, now: Now, shard: usize, input: Input<'_>, out: &Outbox, has_told: bool) {
        let process = &mut self.process;
        process.ringing.watch(now.mono, input, out);
        if self.is_moving {
            process.ringing.answered.clear();
            return;
        }
        if !has_told {
            return;
        }
        let calls = process.engines[shard].list_calls(now, 0, usize::MAX, None).calls;
        if let Err(problem) = process.ringing.compare(shard, &calls) {
            self.wrong(problem);
        }
    }

    /// Checks that the record of each answered call that has ended has reached the writer.
    pub(super) fn check_records(&mut self) {
        let written = Written::of(&self.settings);
        for call_id in std::mem::take(&mut self.process.ringing.over) {
            let call_id = String::from_utf8_lossy(&call_id).into_owned();
            let is_restored = self.kept.as_ref().is_some_and(|kept| kept.is_restored(&call_id));
            if written.cdr && !is_restored && !self.process.accounts.has_record(&call_id) {
                self.wrong(format!("accounting: {call_id} has ended, and has no record"));
            }
        }
    }
}
