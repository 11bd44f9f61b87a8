//! Laws of each step of an engine: each call has one beginning and one end in the log, and a notice reports the fate of
//! a forwarded request once, when it happens.

use crate::laws::recent::Recent;
use crate::log::Line;
use crate::noise;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use strowger_calls::{NO_CALL, begins_call};
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::proxy::{Choice, Question, Report};
use strowger_core::{Arrival, Outbox};
use strowger_message::{Index, Limits, Message, Method};

/// Input of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    Message(&'a Arrival, &'a [u8]),
    /// An answer, or a record of another shard.
    Other,
    /// A message was not sent, or its connection ended.
    Unsent,
    Timer,
}

/// Log lines of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    begun: u32,
    /// Number of answered, cancelled or failed lines.
    concluded: u32,
    answered: u32,
    ended: u32,
    /// True if the call's caller was challenged, and may not have returned.
    challenged: bool,
    is_doubled: bool,
    /// True if the call's CANCEL was answered.
    cancelled: bool,
}

impl Lines {
    /// Returns the number of expected log lines of the call. Two calls that are not concluded count as one; when
    /// answered, each has its callee's tag.
    fn open(&self) -> usize {
        usize::from(self.begun > self.concluded) + self.answered.saturating_sub(self.ended) as usize
    }
}

/// Notices about the requests of one context since they were forwarded. Two requests share one if their caller returns
/// with credentials, or if the server before this one has restarted and sends the INVITE of a call again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NoticeCounts {
    /// Notices of a first response; each has its time.
    signs: u32,
    /// Branches that failed, except those of failed requests.
    lost: u32,
    concluded: u32,
    ended: u32,
}

/// A forwarded INVITE outside of dialogs, by the branch of its arrival.
#[derive(Clone, Copy, Debug, Default)]
struct Forwarded {
    branches: u32,
    /// First final response.
    status: u16,
    /// True if the INVITE's CANCEL was answered.
    cancelled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Observer {
    index: Index,
    calls: Recent<Lines>,
    /// Number of calls without a logged end.
    open: usize,
    told: HashMap<u64, NoticeCounts>,
    /// Number of forwarded INVITEs by Call-ID and caller's tag.
    invites: HashMap<Vec<u8>, u32>,
    /// First final response to each of them with its CSeq, by Call-ID.
    finals: HashMap<Vec<u8>, Vec<(u32, u16)>>,
    forwarded: Recent<Forwarded>,
    /// Branches of the forwarded INVITEs.
    branches: Recent<()>,
    /// Number of these, and number of reported ends.
    begun: usize,
    ended: usize,
    /// Forwarded requests of every kind, by branch and method of arrival, and their number.
    requests: Recent<()>,
    count: usize,
    /// Requests over streams, forwarded or not yet: a copy may wait behind the first.
    came: Recent<()>,
    /// Copies of them: a transaction may have ended, and then a copy is another request.
    copies: usize,
}

/// Messages about forwarded INVITEs that an engine has just sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct SentCounts {
    rang: u32,
    answered: u32,
    exhausted: Vec<Forwarded>,
    cancelled: u32,
}

impl PartialEq for Forwarded {
    fn eq(&self, other: &Self) -> bool {
        self.branches == other.branches
    }
}

impl Eq for Forwarded {}

impl Observer {
    /// Returns the least and greatest number of forwarded requests.
    pub(super) fn requests(&self) -> (usize, usize) {
        (self.count, self.count + self.copies)
    }

    /// Checks a step of an engine: its messages, notices and log lines.
    ///
    /// # Errors
    /// A contradiction.
    pub(super) fn watch(
        &mut self,
        now: u64,
        input: Input<'_>,
        out: &Outbox,
        reports: &[Report],
        lines: &[Line],
    ) -> Result<(), String> {
        self.turn(now);
        lines.iter().try_for_each(|line| self.log(line))?;
        self.count_copy(input);
        let said = self.read(input, out);
        if said == SentCounts::default() && reports.is_empty() {
            return Ok(());
        }
        self.compare(input, out, &said, reports).map_err(|e| format!("{e}\nafter {}\ntold: {reports:?}", show(input)))
    }

    fn turn(&mut self, now: u64) {
        self.calls.turn(now);
        self.forwarded.turn(now);
        self.branches.turn(now);
        self.requests.turn(now);
        self.came.turn(now);
    }

    fn count_copy(&mut self, input: Input<'_>) {
        let Input::Message(Arrival { flow: Some(_), .. }, bytes) = input else { return };
        if self.index.parse(bytes, &Limits::default()).is_ok() {
            let message = Message::new(bytes, &self.index);
            let branch = message.via().ok().and_then(|via| via.branch).unwrap_or_default();
            let request = [branch, message.method_text()].join(&b' ');
            self.copies += usize::from(message.is_request() && self.came.insert(request, ()).is_some());
        }
    }

    fn log(&mut self, line: &Line) -> Result<(), String> {
        let lines = self.calls.of(line.call_id.clone().into_bytes());
        let before = lines.open();
        match &line.event[..] {
            "call begun" => {
                // Two concurrent calls have one Call-ID and tag if a server before this one has restarted; then only
                // one end is logged.
                lines.is_doubled |= lines.begun > lines.concluded;
                lines.begun += 1;
            }
            "call answered" => (lines.concluded, lines.answered) = (lines.concluded + 1, lines.answered + 1),
            "call failed" | "call cancelled" => lines.concluded += 1,
            "call ended" => lines.ended += 1,
            _ => (),
        }
        self.open = self.open + lines.open() - before;
        let is_right = line.code != 487 || !lines.cancelled || line.event == "call cancelled";
        match !is_right || lines.concluded > lines.begun || lines.ended > lines.begun {
            true => Err(format!("{} in the log: {} {lines:?}", line.call_id, line.event)),
            false => Ok(()),
        }
    }

    /// Collects the messages about forwarded INVITEs.
    fn read(&mut self, input: Input<'_>, out: &Outbox) -> SentCounts {
        let mut said = SentCounts::default();
        let mut index = std::mem::take(&mut self.index);
        let is_repeated = matches!(input, Input::Message(_, bytes) if bytes.starts_with(b"INVITE "));
        for send in out.sends().iter().filter(|send| !noise::is_source(send.target.address)) {
            let bytes = &out.bytes[send.range()];
            if index.parse(bytes, &Limits::default()).is_err() {
                continue;
            }
            let message = Message::new(bytes, &index);
            let Ok(cseq) = message.cseq() else { continue };
            let mut vias = message.vias().flatten();
            let (Some(own), below) = (vias.next(), vias.next()) else { continue };
            let own = own.branch.unwrap_or_default();
            match message.status() {
                None => {
                    let below = below.and_then(|via| via.branch).unwrap_or_default();
                    let is_request = !matches!(cseq.method, Method::Ack | Method::Cancel) && !below.is_empty();
                    if is_request {
                        let before = self.requests.insert([below, cseq.method_text].join(&b' '), ());
                        self.count += usize::from(before.is_none());
                    }
                    let is_dialog = message.to().is_ok_and(|to| to.tag.is_some());
                    if cseq.method == Method::Invite
                        && is_request
                        && !is_dialog
                        && self.branches.insert(own.to_vec(), ()).is_none()
                    {
                        let invite = self.forwarded.of(below.to_vec());
                        invite.branches += 1;
                        if invite.branches == 1 {
                            self.begun += 1;
                            *self.invites.entry(caller_of(&message)).or_default() += 1;
                        }
                    }
                }
                Some(200) if cseq.method == Method::Cancel => {
                    if let Some(invite) = self.forwarded.get_mut(own).filter(|invite| !invite.cancelled) {
                        invite.cancelled = true;
                        if let Ok(call_id) = message.call_id() {
                            self.calls.of(call_id.text.to_vec()).cancelled = true;
                        }
                        said.cancelled += 1;
                    }
                }
                Some(status) if cseq.method == Method::Invite => {
                    if matches!(status, 401 | 407)
                        && let Ok(call_id) = message.call_id()
                    {
                        self.calls.of(call_id.text.to_vec()).challenged = true;
                    }
                    let Some(invite) = self.forwarded.get_mut(own) else { continue };
                    if status >= 200
                        && invite.status == 0
                        && let Ok(call_id) = message.call_id()
                    {
                        self.finals.entry(call_id.text.to_vec()).or_default().push((cseq.number, status));
                    }
                    match status {
                        101..200 if !is_repeated => said.rang += 1,
                        200..300 if invite.status == 0 => (invite.status, said.answered) = (status, said.answered + 1),
                        300.. if invite.status == 0 => {
                            invite.status = status;
                            said.exhausted.push(*invite);
                        }
                        _ => (),
                    }
                }
                Some(_) => (),
            }
        }
        self.index = index;
        said
    }

    fn compare(&mut self, input: Input<'_>, out: &Outbox, said: &SentCounts, reports: &[Report]) -> Result<(), String> {
        let (mut rang, mut answered, mut exhausted, mut cancelled, mut refused) = (0, 0, 0, 0, 0);
        let (status, remote) = self.came(input);
        for report in reports {
            let Notice { context, event } = match report {
                Report::Notice(notice) if begins_call(notice.context) => notice,
                // `limits.rs` has the laws of the other notices.
                Report::Question(Question { context, choice: Choice::Failing { plan: None, .. }, .. })
                    if begins_call(*context) =>
                {
                    return Err("no plan asks as a whole".to_owned());
                }
                _ => continue,
            };
            let is_own = *context != NO_CALL;
            let requests = match event {
                NoticeEvent::Rang { bytes, .. }
                | NoticeEvent::Answered { bytes, .. }
                | NoticeEvent::Exhausted { bytes, .. } => self.requests_of(out.bytes.get(bytes.clone())),
                _ => 0,
            };
            let told = self.told.entry(*context).or_default();
            match event {
                NoticeEvent::Answered { status, bytes, first: false, .. } => {
                    says(out.bytes.get(bytes.clone()), *status)?;
                    continue;
                }
                NoticeEvent::Rang { status, bytes, after, .. } | NoticeEvent::Answered { status, bytes, after, .. } => {
                    let is_answer = matches!(event, NoticeEvent::Answered { .. });
                    (rang, answered) = (rang + u32::from(!is_answer), answered + u32::from(is_answer));
                    says(out.bytes.get(bytes.clone()), *status)?;
                    told.concluded += u32::from(is_answer);
                    told.signs += u32::from(after.is_some());
                    if is_own && (told.signs == 0 || told.signs > requests) {
                        return Err("the first sign of an answer is told once".to_owned());
                    }
                }
                NoticeEvent::Exhausted { status, bytes } => {
                    says(out.bytes.get(bytes.clone()), *status)?;
                    told.concluded += 1;
                    let branches = said.exhausted.get(exhausted).map_or(0, |invite| invite.branches);
                    if is_own && told.lost < branches {
                        return Err(format!("{} of {branches} branches were told of", told.lost));
                    }
                    told.lost = told.lost.saturating_sub(branches);
                    exhausted += 1;
                }
                NoticeEvent::Refused { status: said, by } => {
                    told.lost += 1;
                    refused += 1;
                    let is_heard = status == Some(*said);
                    if is_heard && remote.is_some() && by.map(|by| by.address.ip()) != remote {
                        return Err(format!("refused by {by:?}, not by who sent it"));
                    }
                    // Some responses cannot be forwarded, and some requests could not be sent.
                    if !is_heard && !matches!(said, 502 | 503) {
                        return Err(format!("refused with {said}, which did not come"));
                    }
                }
                NoticeEvent::TimedOut { .. } => told.lost += 1,
                // `ringing.rs` has the laws of these notices.
                NoticeEvent::BranchEnded { .. } => (),
                NoticeEvent::Cancelled => cancelled += 1,
                NoticeEvent::Abandoned => told.concluded += 1,
                NoticeEvent::HungUp { .. } => return Err("a proxy anchors no call".to_owned()),
                NoticeEvent::Ended => {
                    self.ended += 1;
                    told.ended += 1;
                    if is_own && told.concluded < told.ended {
                        return Err(format!("a request ended that was not concluded: {told:?}"));
                    }
                    continue;
                }
            }
            if is_own && requests > 0 && told.concluded > requests {
                return Err("a request was concluded twice".to_owned());
            }
        }
        let is_message = matches!(input, Input::Message(..));
        match () {
            () if rang != said.rang => Err(format!("{} provisional responses, and {rang} are told", said.rang)),
            () if answered != said.answered => Err(format!("{} answers, and {answered} are told", said.answered)),
            () if exhausted != said.exhausted.len() => {
                Err(format!("{} failures, and {exhausted} are told", said.exhausted.len()))
            }
            () if cancelled < said.cancelled => Err(format!("{} CANCELs, and {cancelled} are told", said.cancelled)),
            () if is_message && refused > 1 => Err("one response is told of twice".to_owned()),
            () => Ok(()),
        }
    }

    /// Returns the number of forwarded INVITEs of the call of this response.
    fn requests_of(&mut self, bytes: Option<&[u8]>) -> u32 {
        match bytes.filter(|bytes| self.index.parse(bytes, &Limits::default()).is_ok()) {
            Some(bytes) => self.invites.get(&caller_of(&Message::new(bytes, &self.index))).copied().unwrap_or(0),
            None => 0,
        }
    }

    /// Returns the status and source of a received response to an INVITE.
    fn came(&mut self, input: Input<'_>) -> (Option<u16>, Option<IpAddr>) {
        let Input::Message(arrival, bytes) = input else { return (None, None) };
        if self.index.parse(bytes, &Limits::default()).is_err() {
            return (None, None);
        }
        let status = Message::new(bytes, &self.index).status();
        (status, status.map(|_| arrival.remote.ip()))
    }

    /// Checks the end of a world, when no work is in progress.
    ///
    /// # Errors
    /// A missing notice or log line.
    pub(super) fn leftovers(&self) -> Result<(), String> {
        let has_not_ended =
            |(context, told): &(&u64, &NoticeCounts)| **context != NO_CALL && told.ended != told.concluded;
        if let Some((context, told)) = self.told.iter().find(has_not_ended) {
            return Err(format!("the end of a request was not told: {context:x} {told:?}"));
        }
        if self.ended != self.begun {
            return Err(format!("{} INVITEs were forwarded, {} ends told", self.begun, self.ended));
        }
        let is_open = |lines: &&Lines| lines.begun != lines.concluded && !lines.challenged && !lines.is_doubled;
        match self.calls.iter().find(|(_, lines)| is_open(lines)) {
            Some((call_id, lines)) => Err(format!("{} in the log: {lines:?}", String::from_utf8_lossy(call_id))),
            None => Ok(()),
        }
    }

    /// Returns whether a final response with this status was sent to the caller with this Call-ID, whose INVITE was
    /// forwarded.
    pub(super) fn has_said(&self, call_id: &[u8], status: u16) -> bool {
        self.finals.get(call_id).is_some_and(|finals| finals.iter().any(|(_, said)| *said == status))
    }

    /// Returns for each Call-ID the number of forwarded INVITEs, the number of those that were challenged, and the
    /// number of further attempts of the caller that had another final response.
    pub(super) fn invites(&self) -> impl Iterator<Item = (&[u8], u32, u32, u32)> {
        let mut all: HashMap<&[u8], u32> = HashMap::new();
        for (caller, invites) in &self.invites {
            // The tag follows the last space.
            let call_id = caller.rsplitn(2, |byte| *byte == b' ').last().unwrap_or_default();
            *all.entry(call_id).or_default() += invites;
        }
        all.into_iter().map(|(call_id, invites)| {
            let finals = self.finals.get(call_id).map_or(&[][..], Vec::as_slice);
            let is_challenge = |status: u16| matches!(status, 401 | 407);
            let challenges = finals.iter().filter(|(_, status)| is_challenge(*status)).count();
            let tries = finals.iter().filter(|(_, status)| !is_challenge(*status)).map(|(cseq, _)| cseq);
            let tries: BTreeSet<_> = tries.collect();
            (call_id, invites, challenges as u32, tries.len() as u32)
        })
    }

    /// Returns the number of calls without a logged end.
    pub(super) const fn open(&self) -> usize {
        self.open
    }
}

/// Returns the Call-ID and the caller's tag of a message.
fn caller_of(message: &Message<'_>) -> Vec<u8> {
    let call_id = message.call_id().map_or(&b""[..], |id| id.text);
    let tag = message.from().ok().and_then(|from| from.tag).unwrap_or_default();
    [call_id, tag].join(&b' ')
}

fn says(bytes: Option<&[u8]>, status: u16) -> Result<(), String> {
    match bytes.is_some_and(|bytes| bytes.starts_with(format!("SIP/2.0 {status} ").as_bytes())) {
        true => Ok(()),
        false => Err(format!("the response that is told of is no {status}")),
    }
}

fn show(input: Input<'_>) -> String {
    match input {
        Input::Message(arrival, bytes) => format!("{}: {}", arrival.remote, String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    }
}
