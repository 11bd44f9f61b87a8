//! Timed tasks of an agent.

use super::callee::CalleeAnswer;
use super::{Agent, T2};
use crate::server::password;
use strowger_core::{Now, Outbox};
use strowger_message::Method;

/// Time in ms after which a caller gives up.
pub(super) const PATIENCE: u64 = 400_000;

/// A task to perform later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Register {
        seconds: u32,
    },
    /// Registers again: the connection or the state of a server was lost, or half of the time is over.
    Refresh {
        seconds: u32,
    },
    Restart,
    /// Changes its password.
    Password(u32),
    Call(usize),
    /// Repeats a call that was not answered.
    Redial(usize),
    Message(usize),
    Cancel(usize),
    Ring(usize),
    Answer(usize),
    /// Sends the 200 again; the time in ms until the next one.
    Again(usize, u64),
    /// No ACK for 64*T1 (RFC 3261 section 13.3.1.4).
    NoAck(usize),
    HangUp(usize),
}

impl Task {
    /// Returns whether the task belongs to a call that has begun.
    pub(super) const fn is_of_call(&self) -> bool {
        matches!(
            self,
            Self::Redial(_)
                | Self::Cancel(_)
                | Self::Ring(_)
                | Self::Answer(_)
                | Self::Again(..)
                | Self::NoAck(_)
                | Self::HangUp(_)
        )
    }
}

impl Agent {
    pub(super) fn task(&mut self, now: Now, task: Task, out: &mut Outbox) {
        match task {
            Task::Register { seconds } | Task::Refresh { seconds } => self.register(now, seconds, out),
            Task::Restart => self.restart(now),
            Task::Password(version) => self.password = password(&self.name, version),
            Task::Call(at) => {
                self.start(now, at, Method::Invite, out);
                // A caller does not wait for an answer for ever: the final response may be lost, and the transaction
                // alone has no limit (RFC 3261 section 17.1.1.2 has no timer in Proceeding).
                let patience = self.sent[at].cancel.unwrap_or(PATIENCE);
                self.plan(now.mono + patience, Task::Cancel(at));
            }
            Task::Redial(at) => self.redial(now, at, out),
            Task::Message(at) => self.start(now, at, Method::Message, out),
            Task::Cancel(at) => {
                let sent = &mut self.sent[at];
                if let (None, Some(id)) = (sent.outcome, sent.id) {
                    sent.cancelled = self.tx.cancel(now, id, None, out);
                    if !sent.cancelled {
                        self.wrong("an INVITE without final response that cannot be cancelled".to_owned());
                    }
                }
            }
            Task::Ring(at) => {
                if !self.rung[at].answered {
                    self.answer(now, at, 180, out);
                }
            }
            Task::Answer(at) => {
                if !self.rung[at].answered {
                    match self.rung[at].answer {
                        CalleeAnswer::Accept(_) => self.accept(now, at, out),
                        CalleeAnswer::Refuse(status, _) => _ = self.answer(now, at, status, out),
                        CalleeAnswer::Ring => _ = self.answer(now, at, 486, out),
                    }
                }
            }
            Task::Again(at, pause) => {
                let leg = &self.legs[at];
                if let (Some(rung), false, false) = (leg.rung, leg.acknowledged, leg.ended) {
                    let start = out.start();
                    out.bytes.extend_from_slice(&leg.ok);
                    let range = start..out.bytes.len();
                    if self.tx.respond(now, self.rung[rung].server, 200, range, out) {
                        let pause = (2 * pause).min(T2);
                        self.plan(now.mono + pause, Task::Again(at, pause));
                    }
                }
            }
            Task::NoAck(at) => {
                let leg = &mut self.legs[at];
                if !leg.acknowledged && !leg.ended {
                    leg.wants_end = true;
                    self.hang_up(now, at, out);
                }
            }
            Task::HangUp(at) => {
                let leg = &mut self.legs[at];
                leg.wants_end = true;
                // The callee sends no BYE before the ACK (RFC 3261 section 15).
                if leg.acknowledged && !leg.bye && !leg.ended {
                    self.hang_up(now, at, out);
                }
            }
        }
    }
}
