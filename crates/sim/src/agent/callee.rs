//! Requests to an agent: calls, answered by script, and the requests within them.

use super::Agent;
use super::T1;
use super::leg::Leg;
use super::task::Task;
use strowger_core::dialog::Dialog;
use strowger_core::transaction::{Incoming, ServerId};
use strowger_core::{Arrival, Now, Outbox, via};
use strowger_message::{Index, Limits, Message, Method, build};

/// Answer of a user agent to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalleeAnswer {
    /// 200 after this time in ms.
    Accept(u64),
    /// This status after this time in ms.
    Refuse(u16, u64),
    /// Rings for 300 s.
    Ring,
}

/// An incoming call.
#[derive(Debug)]
pub(super) struct IncomingCall {
    pub(super) server: ServerId,
    pub(super) request: Vec<u8>,
    pub(super) tag: String,
    pub(super) answer: CalleeAnswer,
    pub(super) answered: bool,
    /// True if the call's agent has restarted and forgotten it.
    pub(super) forgotten: bool,
    /// Times of the first provisional response and of the 200.
    pub(super) rang_at: Option<u64>,
    pub(super) accepted_at: Option<u64>,
}

impl Agent {
    pub(super) fn request(&mut self, now: Now, message: Message<'_>, arrival: &Arrival, out: &mut Outbox) {
        let of_dialog = |legs: &[Leg]| {
            let (from, to) = (message.from().ok()?.tag?, message.to().ok()?.tag?);
            let call_id = message.call_id().ok()?.text;
            legs.iter().position(|l| !l.forgotten && l.dialog.is(call_id, to, from))
        };
        let id = match self.tx.request(now, &message, arrival, 7, out) {
            Incoming::Request(id) => {
                if let Ok(top) = message.via() {
                    self.tx.set_reply(id, via::reply_target(&top, arrival));
                }
                id
            }
            Incoming::Absorbed | Incoming::Full | Incoming::Unmatched | Incoming::Response { .. } => return,
            Incoming::Ack => {
                if let Some(at) = of_dialog(&self.legs) {
                    let leg = &mut self.legs[at];
                    leg.acknowledged = true;
                    if leg.wants_end && !leg.bye && !leg.ended {
                        self.hang_up(now, at, out);
                    }
                }
                return;
            }
            Incoming::Cancel { cancel, invite } => {
                self.simple(now, &message, cancel, if invite.is_some() { 200 } else { 481 }, out);
                let rung = self.rung.iter().position(|r| Some(r.server) == invite && !r.answered);
                if let Some(at) = rung {
                    self.answer(now, at, 487, out);
                }
                return;
            }
        };
        match message.method() {
            Some(Method::Invite) => self.invited(now, &message, id, out),
            Some(Method::Bye) => {
                let Some(at) = of_dialog(&self.legs) else { return self.simple(now, &message, id, 481, out) };
                let leg = &mut self.legs[at];
                match leg.dialog.receive(&message) {
                    Ok(()) => {
                        leg.ended = true;
                        leg.dialog.end();
                        self.simple(now, &message, id, 200, out);
                    }
                    Err(fault) => self.simple(now, &message, id, fault.status(), out),
                }
            }
            Some(Method::Message) => self.simple(now, &message, id, 200, out),
            // The answer shows whether the dialog exists (RFC 3261 sections 11.2 and 12.2.2).
            Some(Method::Options) => {
                let lives = of_dialog(&self.legs).is_some_and(|at| !self.legs[at].ended && !self.legs[at].bye);
                self.simple(now, &message, id, if lives { 200 } else { 481 }, out);
            }
            _ => self.simple(now, &message, id, 405, out),
        }
    }

    fn invited(&mut self, now: Now, message: &Message<'_>, id: ServerId, out: &mut Outbox) {
        let via = message.via().ok().and_then(|v| v.branch).unwrap_or_default();
        let again = self.rung.iter().filter(|r| !r.forgotten).any(|r| {
            let mut index = Index::new();
            index.parse(&r.request, &Limits::default()).expect("it was read before");
            Message::new(&r.request, &index).via().ok().and_then(|v| v.branch) == Some(via)
        });
        if again {
            self.wrong("one INVITE made two transactions".to_owned());
        }
        let answer = self.answers.pop().unwrap_or(CalleeAnswer::Accept(1_000));
        let tag = format!("{:x}", self.random.u64());
        self.rung.push(IncomingCall {
            server: id,
            request: message.bytes().to_vec(),
            tag,
            answer,
            answered: false,
            forgotten: false,
            rang_at: None,
            accepted_at: None,
        });
        let at = self.rung.len() - 1;
        if self.random.chance(500) {
            self.answer(now, at, 100, out);
        }
        let rings = self.random.between(0, 3_000);
        let (ring, answer) = match answer {
            CalleeAnswer::Accept(ms) | CalleeAnswer::Refuse(_, ms) => (rings <= ms, ms),
            CalleeAnswer::Ring => (true, 300_000),
        };
        if ring {
            self.plan(now.mono + rings, Task::Ring(at));
        }
        self.plan(now.mono + answer, Task::Answer(at));
    }

    pub(super) fn answer(&mut self, now: Now, at: usize, status: u16, out: &mut Outbox) -> Vec<u8> {
        let rung = &mut self.rung[at];
        rung.answered = status >= 200;
        if status < 200 {
            rung.rang_at.get_or_insert(now.mono);
        } else if status < 300 {
            rung.accepted_at = Some(now.mono);
        }
        let (server, tag, request) = (rung.server, rung.tag.clone(), std::mem::take(&mut rung.request));
        let contact = self.contact();
        let mut index = Index::new();
        index.parse(&request, &Limits::default()).expect("it was read before");
        let message = Message::new(&request, &index);
        let start = out.start();
        let mut builder =
            build::respond(&message, status, None, (status > 100).then_some(tag.as_bytes()), &mut out.bytes);
        if status < 300 {
            builder = builder.line(b"Contact", contact.as_bytes()).copy(&message, strowger_message::Name::RecordRoute);
        }
        builder.finish(b"");
        let range = start..out.bytes.len();
        let bytes = out.bytes[range.clone()].to_vec();
        if !self.tx.respond(now, server, status, range, out) {
            self.wrong(format!("{status} could not be answered"));
        }
        self.rung[at].request = request;
        bytes
    }

    pub(super) fn accept(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let ok = self.answer(now, at, 200, out);
        let request = self.rung[at].request.clone();
        let mut index = Index::new();
        index.parse(&request, &Limits::default()).expect("it was read before");
        let tag = self.rung[at].tag.clone();
        match Dialog::callee(&Message::new(&request, &index), tag.as_bytes(), false) {
            Ok(mut dialog) => {
                dialog.confirm(None);
                let leg = self.legs.len();
                self.legs.push(Leg { ok, rung: Some(at), ..Leg::new(dialog) });
                self.plan(now.mono + T1, Task::Again(leg, T1));
                self.plan(now.mono + 64 * T1, Task::NoAck(leg));
                let hold = self.random.between(0, 90_000);
                self.plan(now.mono + hold, Task::HangUp(leg));
            }
            Err(e) => self.wrong(format!("no dialog: {e:?}")),
        }
    }

    fn simple(&mut self, now: Now, message: &Message<'_>, id: ServerId, status: u16, out: &mut Outbox) {
        let start = out.start();
        build::respond(message, status, None, Some(b"agent"), &mut out.bytes).finish(b"");
        let range = start..out.bytes.len();
        self.tx.respond(now, id, status, range, out);
    }
}
