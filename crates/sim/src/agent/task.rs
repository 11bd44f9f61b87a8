//! What an agent does later, at its time.

use super::callee::Answer;
use super::caller::{Kind, Sent};
use super::{Agent, T2};
use strowger_core::{Now, Outbox};
use strowger_message::Method;

/// ms after which a caller gives up.
pub(super) const PATIENCE: u64 = 400_000;

/// What is to be done later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Register {
        seconds: u32,
    },
    Call(usize),
    Message(usize),
    Cancel(usize),
    Ring(usize),
    Answer(usize),
    /// Sends the 200 again and waits so many ms for the next time.
    Again(usize, u64),
    /// No ACK for 64*T1 (RFC 3261 section 13.3.1.4).
    NoAck(usize),
    HangUp(usize),
}

impl Agent {
    pub(super) fn task(&mut self, now: Now, task: Task, out: &mut Outbox) {
        match task {
            Task::Register { seconds } => {
                let mut sent = Sent::new(Kind::Register, format!("sip:{}@{}", self.name, self.domain), None);
                sent.call_id = format!("register@{}", self.name);
                sent.tag.clone_from(&self.register_tag);
                self.register_cseq += 1;
                sent.cseq = self.register_cseq;
                sent.lines = format!("Expires: {seconds}\r\n");
                self.sent.push(sent);
                self.start(now, self.sent.len() - 1, Method::Register, out);
            }
            Task::Call(at) => {
                self.start(now, at, Method::Invite, out);
                // No caller listens to ringing for ever: the final response may have been lost for good, and the
                // transaction alone would wait on (RFC 3261 section 17.1.1.2 has no timer in Proceeding).
                let patience = self.sent[at].cancel.unwrap_or(PATIENCE);
                self.plan(now.mono + patience, Task::Cancel(at));
            }
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
                        Answer::Accept(_) => self.accept(now, at, out),
                        Answer::Refuse(status, _) => _ = self.answer(now, at, status, out),
                        Answer::Ring => _ = self.answer(now, at, 480, out),
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
                // The callee says no BYE before the ACK came (RFC 3261 section 15).
                if leg.acknowledged && !leg.bye && !leg.ended {
                    self.hang_up(now, at, out);
                }
            }
        }
    }
}
