//! Requests of an agent, and checks of their responses; each 2xx to an INVITE is acknowledged.

use super::leg::Leg;
use super::task::{PATIENCE, Task};
use super::{Agent, number, user};
use strowger_core::dialog::Dialog;
use strowger_core::digest::{Challenge, ChallengeAnswer, Secret, strongest};
use strowger_core::transaction::{ClientId, Incoming};
use strowger_core::{Now, Outbox};
use strowger_message::{Message, Method, Name};

/// Outcome of a sent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentOutcome {
    Success,
    Failed(u16),
    Timeout,
    TransportError,
    /// The agent restarted before the call ended.
    Forgotten,
}

/// A sent request and its outcome.
#[derive(Debug)]
pub(super) struct Sent {
    /// Callee: a whole URI.
    pub(super) to: String,
    pub(super) call_id: String,
    /// True if the request bypasses the outbound proxy and goes to the address in the URI.
    pub(super) direct: bool,
    /// Time in ms after which it is cancelled.
    pub(super) cancel: Option<u64>,
    pub(super) id: Option<ClientId>,
    pub(super) ringing: bool,
    pub(super) cancelled: bool,
    pub(super) outcome: Option<SentOutcome>,
    /// Times of the first transmission and of the outcome.
    pub(super) started: u64,
    pub(super) finished: u64,
    pub(super) ended: bool,
    pub(super) kind: SentKind,
    pub(super) cseq: u32,
    /// Tag of From.
    pub(super) tag: String,
    /// Further header lines, with their ends.
    pub(super) lines: String,
    /// Number of challenges that led to it.
    pub(super) tries: u32,
    /// True if the request was challenged, and a request with credentials follows.
    pub(super) challenged: bool,
    /// True for the second attempt of a caller that was not answered.
    pub(super) is_redial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentKind {
    Register,
    Call,
    Message,
    /// BYE of this leg.
    Bye(usize),
}

impl Sent {
    pub(super) fn new(kind: SentKind, to: String, cancel: Option<u64>) -> Self {
        Self {
            to,
            call_id: String::new(),
            direct: false,
            cancel,
            id: None,
            ringing: false,
            cancelled: false,
            outcome: None,
            started: 0,
            finished: 0,
            ended: false,
            kind,
            cseq: 1,
            tag: String::new(),
            lines: String::new(),
            tries: 0,
            challenged: false,
            is_redial: false,
        }
    }

    /// Returns a copy with the same Call-ID and tag and the next CSeq (RFC 3261 section 8.1.3.5), without header lines
    /// of these names.
    fn again(&self, without: &[&str]) -> Self {
        let mut again = Self::new(self.kind, self.to.clone(), self.cancel);
        (again.direct, again.cseq, again.is_redial) = (self.direct, self.cseq + 1, self.is_redial);
        (again.call_id, again.tag) = (self.call_id.clone(), self.tag.clone());
        let stays = |line: &&str| !without.iter().any(|name| line.starts_with(name));
        again.lines = self.lines.split_inclusive("\r\n").filter(stays).collect();
        again
    }
}

impl Agent {
    /// Sends a request outside of dialogs.
    pub(super) fn start(&mut self, now: Now, at: usize, method: Method, out: &mut Outbox) {
        let branch = self.branch();
        let (tag, number) = (self.random.u64(), self.random.u64());
        if method == Method::Register {
            self.presence.registers(now.mono);
        }
        let sent = &mut self.sent[at];
        sent.started = now.mono;
        if sent.tag.is_empty() {
            sent.tag = format!("{tag:x}");
        }
        if sent.call_id.is_empty() {
            sent.call_id = format!("{number:016x}@{}", self.name);
        }
        let Sent { tag, call_id, cseq, lines, .. } = &self.sent[at];
        let sent = &self.sent[at];
        let uri = self.request_uri(at, method);
        let text = format!(
            "{method} {uri} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: <sip:{}@{}>;tag={tag}\r\nTo: <{}>\r\n\
             Call-ID: {call_id}\r\nCSeq: {cseq} {method}\r\nContact: {}\r\n{lines}Content-Length: 0\r\n\r\n",
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
        let first_hop = if method == Method::Register.text() { self.registrar } else { self.outbound };
        let target = target.unwrap_or(first_hop);
        let id = self.tx.send(now, range, branch.as_bytes(), method, target, 7, user(at), out);
        self.sent[at].id = Some(id);
    }

    /// Sends the same request again with the answer to this challenge. Returns false if there is no challenge, or it
    /// was answered before.
    fn authorize(&mut self, now: Now, at: usize, message: &Message<'_>, out: &mut Outbox) -> bool {
        const TRIES: u32 = 2;
        let sent = &self.sent[at];
        let (name, line) = match message.status() {
            Some(401) => (Name::WwwAuthenticate, "Authorization"),
            Some(407) => (Name::ProxyAuthenticate, "Proxy-Authorization"),
            _ => return false,
        };
        let method = match sent.kind {
            SentKind::Register => Method::Register,
            SentKind::Call => Method::Invite,
            SentKind::Message => Method::Message,
            SentKind::Bye(_) => return false,
        };
        if sent.tries == TRIES || sent.cancelled {
            return false;
        }
        let challenges: Vec<Challenge<'_>> =
            message.headers(name).filter_map(|value| Challenge::parse(value).ok()).collect();
        let Some(challenge) = strongest(&challenges) else { return false };
        let uri = self.request_uri(at, method);
        let answer = ChallengeAnswer {
            user: self.name.as_bytes(),
            secret: Secret::Password(self.password.as_bytes()),
            method: method.text(),
            uri: uri.as_bytes(),
            body: b"",
            cnonce: b"0a4f113b",
            nc: 1,
        };
        let mut credentials = Vec::new();
        if answer.write(challenge, &mut credentials).is_err() {
            return false;
        }
        let sent = &mut self.sent[at];
        sent.challenged = true;
        let mut again = sent.again(&[line]);
        again.tries = sent.tries + 1;
        again.lines += &format!("{line}: {}\r\n", String::from_utf8_lossy(&credentials));
        if sent.kind == SentKind::Register {
            self.registration.cseq += 1;
            again.cseq = self.registration.cseq;
        }
        self.send_again(now, again, method, out);
        true
    }

    /// Calls again, as a new attempt.
    pub(super) fn redial(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let again = self.sent[at].again(&["Authorization", "Proxy-Authorization"]);
        self.send_again(now, Sent { is_redial: true, ..again }, Method::Invite, out);
    }

    fn send_again(&mut self, now: Now, again: Sent, method: Method, out: &mut Outbox) {
        let (is_call, patience) = (again.kind == SentKind::Call, again.cancel.unwrap_or(PATIENCE));
        self.sent.push(again);
        let at = self.sent.len() - 1;
        self.start(now, at, method, out);
        if is_call {
            self.plan(now.mono + patience, Task::Cancel(at));
        }
    }

    fn request_uri(&self, at: usize, method: Method) -> String {
        if method == Method::Register { format!("sip:{}", self.domain) } else { self.sent[at].to.clone() }
    }

    pub(super) fn response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) {
        let Incoming::Response { id, tu, after_final } = self.tx.response(now, message, out) else { return };
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
        let outcome = if status < 300 { SentOutcome::Success } else { SentOutcome::Failed(status) };
        if !after_final {
            self.ended(now, at, outcome);
            if self.authorize(now, at, message, out) {
                return;
            }
            if self.sent[at].kind == SentKind::Register {
                self.registered(now, at);
            }
            let sent = &self.sent[at];
            if self.redials && sent.kind == SentKind::Call && status >= 300 && !sent.cancelled && !sent.is_redial {
                // During the transactions of the first attempt, or after them.
                let pause = self.random.between(0, 40_000);
                self.plan(now.mono + pause, Task::Redial(at));
            }
        }
        if self.sent[at].kind == SentKind::Call && status < 300 {
            self.accepted(now, at, message, out);
        }
    }

    /// Handles a 2xx to an INVITE: each is acknowledged (RFC 3261 section 13.2.2.4).
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
                dialog.write_request(
                    Method::Ack,
                    self.sent[at].cseq,
                    |text| text.extend_from_slice(via.as_bytes()),
                    &mut ack,
                );
                ack.extend_from_slice(b"Content-Length: 0\r\n\r\n");
                let hop = dialog.request_route().hop.to_vec();
                let Some(target) = self.target(&hop) else {
                    return self.wrong(format!("no way to {}", String::from_utf8_lossy(&hop)));
                };
                let first = !self.legs.iter().any(|l| l.dialog.call_id() == call_id.as_bytes());
                let leg = self.legs.len();
                self.legs.push(Leg { ack: Some((ack, target)), acknowledged: true, ..Leg::new(dialog) });
                // A surplus or cancelled call ends at once.
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

    /// Records the outcome of a request, once.
    pub(super) fn ended(&mut self, now: Now, at: usize, outcome: SentOutcome) {
        let sent = &mut self.sent[at];
        sent.finished = now.mono;
        if let Some(before) = sent.outcome.replace(outcome) {
            let kind = sent.kind;
            return self.wrong(format!("{kind:?} ended twice: {before:?}, {outcome:?}"));
        }
        // The dialog ends however the BYE ends (RFC 3261 section 15.1.1).
        if let SentKind::Bye(leg) = sent.kind {
            self.legs[leg].ended = true;
            self.legs[leg].dialog.end();
        }
        let is_lost = matches!(outcome, SentOutcome::Timeout | SentOutcome::TransportError);
        if is_lost && self.sent[at].kind == SentKind::Register {
            self.registered(now, at);
        }
    }
}
