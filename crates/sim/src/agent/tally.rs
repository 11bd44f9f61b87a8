//! Counts of an agent, or of all agents of a world.

use super::callee::{CalleeAnswer, IncomingCall};
use super::caller::{Sent, SentKind, SentOutcome};
use super::{Agent, T1};
use strowger_message::scan;

/// Outcome counts of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub calls: u64,
    pub success: u64,
    pub failed: u64,
    pub timeouts: u64,
    pub transport_errors: u64,
    pub cancelled: u64,
    /// Dialogs whose callee received the ACK.
    pub acknowledged: u64,
    /// Dialogs whose callee received no ACK.
    pub unacknowledged: u64,
    pub messages: u64,
    /// Requests to another agent, of every kind, without a response.
    pub unanswered: u64,
    /// Requests with a right password that were challenged again and repeated; without those that the phone's own next
    /// REGISTER overtook.
    pub challenged_again: u64,
    /// Number of these that left before a REGISTER of their sender was confirmed.
    pub unregistered_again: u64,
    /// Requests within a call that a server refused as if the dialog did not exist.
    pub refused_in_call: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.success += other.success;
        self.failed += other.failed;
        self.timeouts += other.timeouts;
        self.transport_errors += other.transport_errors;
        self.cancelled += other.cancelled;
        self.acknowledged += other.acknowledged;
        self.unacknowledged += other.unacknowledged;
        self.messages += other.messages;
        self.unanswered += other.unanswered;
        self.challenged_again += other.challenged_again;
        self.unregistered_again += other.unregistered_again;
        self.refused_in_call += other.refused_in_call;
    }
}

/// A completed request of an agent: callee, times and outcome.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    /// Called URI.
    pub to: &'a str,
    /// User in the URI.
    pub user: &'a str,
    pub outcome: SentOutcome,
    pub started: u64,
    pub finished: u64,
}

/// A completed BYE.
#[derive(Clone, Copy, Debug)]
pub struct InDialog<'a> {
    pub call_id: &'a [u8],
    /// Tag of the other party.
    pub remote_tag: &'a [u8],
    pub outcome: SentOutcome,
    pub started: u64,
    pub finished: u64,
}

impl Agent {
    /// Returns the calls and messages of the agent. A retry with credentials replaces the challenged request.
    pub fn called(&self) -> impl Iterator<Item = Called<'_>> {
        let sent =
            self.sent.iter().filter(|sent| matches!(sent.kind, SentKind::Call | SentKind::Message) && !sent.challenged);
        sent.filter_map(|sent| {
            let user = sent.to.strip_prefix("sip:")?.split('@').next()?;
            let Sent { outcome: Some(outcome), started, finished, to, .. } = sent else { return None };
            Some(Called { to, user, outcome: *outcome, started: *started, finished: *finished })
        })
    }

    /// Returns the BYEs of the agent.
    pub fn hung_up(&self) -> impl Iterator<Item = InDialog<'_>> {
        self.sent.iter().filter_map(|sent| {
            let (SentKind::Bye(leg), Some(outcome)) = (sent.kind, sent.outcome) else { return None };
            let dialog = &self.legs[leg].dialog;
            let (started, finished) = (sent.started, sent.finished);
            Some(InDialog { call_id: dialog.call_id(), remote_tag: dialog.remote_tag(), outcome, started, finished })
        })
    }

    /// Returns whether the agent may have caused this status of a call: it answers so, or does not answer for long.
    pub fn has_answered(&self, status: u16) -> bool {
        self.rung.iter().any(|rung| match rung.answer {
            CalleeAnswer::Refuse(said, _) => said == status,
            CalleeAnswer::Ring => status == 408,
            CalleeAnswer::Accept(_) => false,
        })
    }

    /// Returns whether the agent has the end of this call with this tag.
    pub fn is_party(&self, call_id: &[u8], tag: &[u8]) -> bool {
        self.legs.iter().any(|leg| leg.dialog.call_id() == call_id && leg.dialog.local_tag() == tag)
    }

    /// Returns the Call-ID of each answered call, with the earliest time at which a CANCEL could arrive, and the time
    /// of the answer.
    pub fn taken(&self) -> impl Iterator<Item = (Vec<u8>, u64, u64)> {
        let taken = |rung: &IncomingCall| {
            let (rang, accepted) = (rung.rang_at?, rung.accepted_at?);
            let call_id = scan::call_id(&rung.request).map(|at| rung.request[at].to_vec())?;
            Some((call_id, rang, accepted))
        };
        self.rung.iter().filter_map(taken)
    }

    /// Returns the number of the agent's passwords that a server rejected, and that a server accepted.
    pub fn judged(&self) -> (usize, usize) {
        let count =
            |outcome: SentOutcome| self.sent.iter().filter(|s| s.tries > 0 && s.outcome == Some(outcome)).count();
        (count(SentOutcome::Failed(401)), count(SentOutcome::Success))
    }

    /// Returns whether the agent sent its next REGISTER before the answer to this one, which RFC 3261 section 10.2
    /// forbids. If a copy of this REGISTER arrives after the next one, its credentials have been used already, and the
    /// bindings belong to the next one.
    fn is_overtaken(&self, sent: &Sent) -> bool {
        let is_next = |next: &Sent| {
            next.kind == SentKind::Register && next.tries > 0 && next.cseq > sent.cseq && next.started < sent.finished
        };
        let is_copied = !self.line.transport.is_reliable() && sent.finished >= sent.started + T1;
        sent.kind == SentKind::Register && is_copied && self.sent.iter().any(is_next)
    }

    /// Returns whether the request is a REGISTER, or a REGISTER was confirmed before the request left.
    fn is_of_registered(&self, sent: &Sent) -> bool {
        let is_confirmed = |other: &Sent| {
            other.kind == SentKind::Register
                && other.outcome == Some(SentOutcome::Success)
                && other.finished <= sent.started
        };
        sent.kind == SentKind::Register || self.sent.iter().any(is_confirmed)
    }

    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        let is_again = |sent: &&Sent| sent.challenged && sent.tries > 0 && !self.is_overtaken(sent);
        let again: Vec<&Sent> = self.sent.iter().filter(is_again).collect();
        tally.challenged_again = again.len() as u64;
        tally.unregistered_again = again.iter().filter(|sent| !self.is_of_registered(sent)).count() as u64;
        for sent in self.sent.iter().filter(|sent| !sent.challenged) {
            let is_refused = matches!(sent.outcome, Some(SentOutcome::Failed(403 | 404 | 407 | 482 | 483)));
            tally.refused_in_call += u64::from(is_refused && matches!(sent.kind, SentKind::Bye(_)));
            let nobody = sent.to.contains("void");
            tally.unanswered += u64::from(sent.outcome == Some(SentOutcome::Timeout) && !nobody);
            match (sent.kind, sent.outcome) {
                (SentKind::Call, Some(outcome)) => {
                    tally.calls += 1;
                    tally.cancelled += u64::from(sent.cancelled);
                    match outcome {
                        SentOutcome::Success => tally.success += 1,
                        SentOutcome::Failed(_) => tally.failed += 1,
                        SentOutcome::Timeout => tally.timeouts += 1,
                        SentOutcome::TransportError => tally.transport_errors += 1,
                        SentOutcome::Forgotten => (),
                    }
                }
                (SentKind::Message, Some(SentOutcome::Success)) => tally.messages += 1,
                _ => (),
            }
        }
        for leg in self.legs.iter().filter(|l| l.rung.is_some() && !l.forgotten) {
            if leg.acknowledged { tally.acknowledged += 1 } else { tally.unacknowledged += 1 }
        }
        tally
    }
}
