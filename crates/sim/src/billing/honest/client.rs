//! Requests of an honest party, and their responses.

use super::{Honest, Outgoing, Session, SessionEnd, SessionNote, Task};
use crate::billing::ledger::TRY;
use crate::billing::text::{Received, Request, tag};
use crate::billing::{DOMAIN, PASSWORD, T1, T2};

/// A request of this party.
#[derive(Debug)]
pub(super) struct Sent {
    request: Request,
    /// Session of the request.
    session: Option<usize>,
    began: u64,
    /// True if a provisional or final response has arrived.
    is_heard: bool,
    is_over: bool,
    try_: String,
}

impl Honest {
    /// Plans a call to this address at this moment.
    pub(in crate::billing) fn plan_call(&mut self, at: u64, to: &str) {
        self.calls.push(to.to_owned());
        self.tasks.plan(at, Task::Call(self.calls.len() - 1));
    }

    /// Returns whether the agent began a call with this tag.
    pub(super) fn has_called_as(&self, own: &str) -> bool {
        self.sent.iter().any(|sent| sent.request.method == "INVITE" && tag(&sent.request.from) == own)
    }

    pub(super) fn call(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        let (to, tag, number) = (self.calls[at].clone(), self.new_tag(), self.random.u64());
        let try_ = format!("{}{at}", self.name);
        let request = Request {
            method: "INVITE".to_owned(),
            uri: to.clone(),
            from: format!("<sip:{}@{DOMAIN}>;tag={tag}", self.name),
            to: format!("<{to}>"),
            call_id: format!("{number:x}@{}", self.name),
            cseq: 1,
            lines: format!("{}{TRY}: {try_}\r\n", self.contact()),
            ..Request::default()
        };
        self.begin(now, request, None, try_, out);
    }

    fn begin(&mut self, now: u64, mut request: Request, session: Option<usize>, try_: String, out: &mut Vec<Outgoing>) {
        request.via = self.address.to_string();
        if request.branch.is_empty() {
            request.branch = self.new_branch();
        }
        self.send(request.text(), out);
        self.sent.push(Sent { request, session, began: now, is_heard: false, is_over: false, try_ });
        self.tasks.plan(now + T1, Task::Resend(self.sent.len() - 1, T1));
    }

    fn new_branch(&mut self) -> String {
        self.count += 1;
        format!("z9hG4bK{}{}-{:x}", self.name, self.count, self.random.u64())
    }

    pub(super) fn resend(&mut self, now: u64, at: usize, pause: u64, out: &mut Vec<Outgoing>) {
        let sent = &mut self.sent[at];
        let is_invite = sent.request.method == "INVITE";
        if sent.is_over || (is_invite && sent.is_heard) {
            return;
        }
        if now >= sent.began + 64 * T1 {
            sent.is_over = true;
            return;
        }
        self.send(self.sent[at].request.text(), out);
        let pause = if is_invite { 2 * pause } else { (2 * pause).min(T2) };
        self.tasks.plan(now + pause, Task::Resend(at, pause));
    }

    /// Sends a request within a session.
    fn within(&mut self, now: u64, at: usize, method: &str, lines: &str, out: &mut Vec<Outgoing>) {
        let session = &mut self.sessions[at];
        session.own_cseq += 1;
        let request = Request {
            method: method.to_owned(),
            uri: session.target.clone(),
            from: session.own.clone(),
            to: session.peer.clone(),
            call_id: self.notes[session.note].call_id.clone(),
            cseq: session.own_cseq,
            routes: session.routes.clone(),
            lines: lines.to_owned(),
            ..Request::default()
        };
        self.begin(now, request, Some(at), String::new(), out);
    }

    pub(super) fn hang_up(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        if self.is_open(at) {
            self.end(now, at, SessionEnd::Own);
            self.within(now, at, "BYE", "", out);
        }
    }

    /// Refreshes a session when half of its interval is over.
    pub(super) fn refresh(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        let session = &self.sessions[at];
        if self.is_open(at) && session.is_refresher && session.expires.is_some_and(|expires| expires > now) {
            let lines = format!(
                "{}Supported: timer\r\nSession-Expires: {};refresher=uac\r\n",
                self.contact(),
                self.manners.session.max(90)
            );
            self.within(now, at, "UPDATE", &lines, out);
        }
    }

    /// Handles a response.
    pub(super) fn hear(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        let status = said.status().unwrap_or_default();
        let is_meant = |sent: &Sent| sent.request.branch == said.branch() && sent.request.method == said.method();
        let Some(at) = self.sent.iter().position(is_meant) else { return };
        let sent = &mut self.sent[at];
        let was_over = sent.is_over;
        (sent.is_heard, sent.is_over) = (true, was_over || status >= 200);
        let is_invite = sent.request.method == "INVITE";
        match status {
            200..300 if is_invite => self.accepted(now, at, said, out),
            200..300 if sent.request.method == "UPDATE" && !was_over => {
                let (session, seconds) = (sent.session, said.session_expires());
                if let (Some(session), Some(seconds)) = (session, seconds) {
                    self.set_timer(now, session, seconds, said.line("Session-Expires").contains("uac"));
                }
            }
            300.. if is_invite => {
                let request = sent.request.clone();
                let ack = Request {
                    method: "ACK".to_owned(),
                    to: said.line("To").to_owned(),
                    lines: String::new(),
                    ..request.clone()
                };
                self.send(ack.text(), out);
                if status == 407 && !was_over && !request.lines.contains("Proxy-Authorization") {
                    let branch = self.new_branch();
                    let again = request.authorized(said, (self.name, PASSWORD), branch);
                    let try_ = self.sent[at].try_.clone();
                    if let Some(again) = again {
                        self.begin(now, Request { cseq: request.cseq + 1, ..again }, None, try_, out);
                    }
                }
            }
            // The peer has lost the dialog (RFC 3261 section 12.2.1.2).
            408 | 481 => {
                if let Some(session) = sent.session {
                    self.hang_up(now, session, out);
                }
            }
            _ => (),
        }
    }

    /// Handles a 2xx to an INVITE of this party. The first one creates a call; a further one is ended at once.
    fn accepted(&mut self, now: u64, at: usize, said: &Received, out: &mut Vec<Outgoing>) {
        let Sent { request, try_, .. } = &self.sent[at];
        let (own_tag, peer_tag) = (tag(&request.from).to_owned(), said.tag("To").to_owned());
        let is_known = |session: &Session| {
            let note = &self.notes[session.note];
            note.call_id == request.call_id && note.own_tag == own_tag && note.peer_tag == peer_tag
        };
        if let Some(known) = self.sessions.iter().find(|session| is_known(session)) {
            return self.send(known.last.clone(), out);
        }
        let (request, try_) = (request.clone(), try_.clone());
        let is_first = !self.notes.iter().any(|note| note.call_id == request.call_id);
        let mut routes = said.record_routes();
        routes.reverse();
        let ack = Request {
            method: "ACK".to_owned(),
            uri: said.contact().unwrap_or_else(|| request.uri.clone()),
            branch: self.new_branch(),
            to: said.line("To").to_owned(),
            routes: routes.clone(),
            lines: String::new(),
            ..request.clone()
        };
        self.send(ack.text(), out);
        self.notes.push(SessionNote {
            call_id: request.call_id.clone(),
            own_tag,
            peer_tag,
            is_callee: false,
            try_,
            began: now,
            ended: None,
            refused: Vec::new(),
            defied: Vec::new(),
            is_revived: false,
        });
        self.sessions.push(Session {
            note: self.notes.len() - 1,
            own: request.from,
            peer: said.line("To").to_owned(),
            target: ack.uri.clone(),
            routes,
            own_cseq: request.cseq,
            peer_cseq: 0,
            last: ack.text(),
            acknowledged: true,
            expires: None,
            is_refresher: false,
        });
        let session = self.sessions.len() - 1;
        let lasts = if is_first { self.random.between(0, self.manners.lasts) } else { 0 };
        self.tasks.plan(now + lasts, Task::HangUp(session));
        if let Some(seconds) = said.session_expires() {
            self.set_timer(now, session, seconds, said.line("Session-Expires").contains("uac"));
        }
    }
}
