//! The requests of an agent: sent, their responses judged, each 2xx to an INVITE acknowledged.

use super::leg::Leg;
use super::task::Task;
use super::{Agent, number, user};
use strowger_core::dialog::Dialog;
use strowger_core::transaction::{ClientId, Outgoing};
use strowger_core::{Now, Outbox};
use strowger_message::{Message, Method};

/// How a request of ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failed(u16),
    Timeout,
    TransportError,
}

/// A request of ours and what it came to.
#[derive(Debug)]
pub(super) struct Sent {
    /// To whom: a whole URI.
    pub(super) to: String,
    pub(super) call_id: String,
    /// Past the outbound proxy, to the address in the URI.
    pub(super) direct: bool,
    /// ms after which it is cancelled.
    pub(super) cancel: Option<u64>,
    pub(super) id: Option<ClientId>,
    pub(super) ringing: bool,
    pub(super) cancelled: bool,
    pub(super) outcome: Option<Outcome>,
    pub(super) ended: bool,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Register,
    Call,
    Message,
    /// BYE of this leg.
    Bye(usize),
}

impl Sent {
    pub(super) fn new(kind: Kind, to: String, cancel: Option<u64>) -> Self {
        Self {
            to,
            call_id: String::new(),
            direct: false,
            cancel,
            id: None,
            ringing: false,
            cancelled: false,
            outcome: None,
            ended: false,
            kind,
        }
    }
}

impl Agent {
    /// Sends a request outside of dialogs.
    pub(super) fn start(&mut self, now: Now, at: usize, method: Method, cseq: u32, lines: &str, out: &mut Outbox) {
        let branch = self.branch();
        let (tag, number) = (self.random.u64(), self.random.u64());
        let sent = &self.sent[at];
        let call_id =
            if sent.call_id.is_empty() { format!("{number:016x}@{}", self.name) } else { sent.call_id.clone() };
        let uri = if method == Method::Register { format!("sip:{}", self.domain) } else { sent.to.clone() };
        let text = format!(
            "{method} {uri} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: <sip:{}@{}>;tag={tag:x}\r\nTo: <{}>\r\n\
             Call-ID: {call_id}\r\nCSeq: {cseq} {method}\r\nContact: {}{lines}\r\nContent-Length: 0\r\n\r\n",
            self.via(&branch),
            self.name,
            self.domain,
            sent.to,
            self.contact(),
        );
        let start = out.start();
        out.bytes.extend_from_slice(text.as_bytes());
        let range = start..out.bytes.len();
        let method = method.text();
        let target = if sent.direct { self.target(sent.to.as_bytes()) } else { None };
        let target = target.unwrap_or(self.outbound);
        let id = self.tx.send(now, range, branch.as_bytes(), method, target, 7, user(at), out);
        self.sent[at].id = Some(id);
        self.sent[at].call_id = call_id;
    }

    pub(super) fn response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) {
        let Outgoing::Deliver { id, tu, after_final } = self.tx.response(now, message, out) else { return };
        let at = number(tu);
        let status = message.status().expect("a response has one");
        if self.sent[at].id != Some(id) {
            return self.wrong("a response for another request".to_owned());
        }
        if status < 200 {
            if self.sent[at].outcome.is_some() {
                self.wrong(format!("{status} after the final response"));
            }
            self.sent[at].ringing = true;
            return;
        }
        let outcome = if status < 300 { Outcome::Success } else { Outcome::Failed(status) };
        if !after_final {
            self.ended(at, outcome);
        }
        if self.sent[at].kind == Kind::Call && status < 300 {
            self.accepted(now, at, message, out);
        }
    }

    /// A 2xx to our INVITE: each is acknowledged (RFC 3261 section 13.2.2.4).
    fn accepted(&mut self, now: Now, at: usize, message: &Message<'_>, out: &mut Outbox) {
        let tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default();
        let call_id = self.sent[at].call_id.clone();
        let known =
            self.legs.iter().position(|l| l.dialog.call_id() == call_id.as_bytes() && l.dialog.remote_tag() == tag);
        let leg = match known {
            Some(leg) => leg,
            None => {
                let mut dialog = match Dialog::caller(message, false) {
                    Ok(dialog) => dialog,
                    Err(e) => return self.wrong(format!("no dialog: {e:?}")),
                };
                dialog.confirm(Some(message));
                let branch = self.branch();
                let via = self.via(&branch);
                let mut ack = Vec::new();
                dialog.write_request(Method::Ack, 1, |text| text.extend_from_slice(via.as_bytes()), &mut ack);
                ack.extend_from_slice(b"Content-Length: 0\r\n\r\n");
                let hop = dialog.way().hop.to_vec();
                let Some(target) = self.target(&hop) else {
                    return self.wrong(format!("no way to {}", String::from_utf8_lossy(&hop)));
                };
                let first = !self.legs.iter().any(|l| l.dialog.call_id() == call_id.as_bytes());
                let leg = self.legs.len();
                self.legs.push(Leg { ack: Some((ack, target)), acknowledged: true, ..Leg::new(dialog) });
                // One too many, or one that was no longer wanted: at once.
                let hold = if first && !self.sent[at].cancelled { self.random.between(0, 90_000) } else { 0 };
                self.plan(now.mono + hold, Task::HangUp(leg));
                leg
            }
        };
        if let Some((ack, target)) = &self.legs[leg].ack {
            let start = out.start();
            out.bytes.extend_from_slice(ack);
            out.send(*target, start..out.bytes.len(), 0);
        }
    }

    /// A request of ours came to its end: once.
    pub(super) fn ended(&mut self, at: usize, outcome: Outcome) {
        let sent = &mut self.sent[at];
        if let Some(before) = sent.outcome.replace(outcome) {
            let kind = sent.kind;
            return self.wrong(format!("{kind:?} ended twice: {before:?}, {outcome:?}"));
        }
        // However the BYE ends, the dialog has ended (RFC 3261 section 15.1.1).
        if let Kind::Bye(leg) = sent.kind {
            self.legs[leg].ended = true;
            self.legs[leg].dialog.end();
        }
    }
}
