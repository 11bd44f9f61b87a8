//! The numbers of an agent, or of all of a world.

use super::Agent;
use super::callee::Rung;
use super::caller::{Kind, Outcome};
use strowger_message::scan;

/// The numbers of a world that went well or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub calls: u64,
    pub success: u64,
    pub failed: u64,
    pub timeouts: u64,
    pub transport_errors: u64,
    pub cancelled: u64,
    /// Dialogs whose callee saw the ACK.
    pub acknowledged: u64,
    /// Dialogs whose callee waited in vain.
    pub unacknowledged: u64,
    pub messages: u64,
    /// Requests to another agent, of every kind, without an answer.
    pub unanswered: u64,
    /// Requests with a right password that were challenged all the same.
    pub challenged_again: u64,
    /// Requests within a call that a server refused, as if they belonged to none.
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
        self.refused_in_call += other.refused_in_call;
    }
}

impl Agent {
    /// Whom a server held for not registered when this agent called.
    pub fn called_in_vain(&self) -> impl Iterator<Item = &str> {
        let sent = self.sent.iter().filter(|sent| sent.outcome == Some(Outcome::Failed(480)));
        sent.filter_map(|sent| sent.to.strip_prefix("sip:")?.split('@').next())
    }

    /// The Call-ID of each call that it took, when a CANCEL could reach it first, and when it answered.
    pub fn taken(&self) -> impl Iterator<Item = (Vec<u8>, u64, u64)> {
        let taken = |rung: &Rung| {
            let (rang, accepted) = (rung.rang_at?, rung.accepted_at?);
            let call_id = scan::call_id(&rung.request).map(|at| rung.request[at].to_vec())?;
            Some((call_id, rang, accepted))
        };
        self.rung.iter().filter_map(taken)
    }

    /// How many of its passwords a server judged, and how many of those it took for right.
    pub fn judged(&self) -> (usize, usize) {
        let count = |outcome: Outcome| self.sent.iter().filter(|s| s.tries > 0 && s.outcome == Some(outcome)).count();
        (count(Outcome::Failed(401)), count(Outcome::Success))
    }

    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        tally.challenged_again = self.sent.iter().filter(|sent| sent.tries > 1).count() as u64;
        for sent in self.sent.iter().filter(|sent| !sent.challenged) {
            let is_refused = matches!(sent.outcome, Some(Outcome::Failed(403 | 404 | 407 | 480 | 482 | 483)));
            tally.refused_in_call += u64::from(is_refused && matches!(sent.kind, Kind::Bye(_)));
            let nobody = sent.to.contains("void");
            tally.unanswered += u64::from(sent.outcome == Some(Outcome::Timeout) && !nobody);
            match (sent.kind, sent.outcome) {
                (Kind::Call, Some(outcome)) => {
                    tally.calls += 1;
                    tally.cancelled += u64::from(sent.cancelled);
                    match outcome {
                        Outcome::Success => tally.success += 1,
                        Outcome::Failed(_) => tally.failed += 1,
                        Outcome::Timeout => tally.timeouts += 1,
                        Outcome::TransportError => tally.transport_errors += 1,
                    }
                }
                (Kind::Message, Some(Outcome::Success)) => tally.messages += 1,
                _ => (),
            }
        }
        for leg in self.legs.iter().filter(|l| l.rung.is_some()) {
            if leg.acknowledged { tally.acknowledged += 1 } else { tally.unacknowledged += 1 }
        }
        tally
    }
}
