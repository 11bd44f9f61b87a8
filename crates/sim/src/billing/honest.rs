//! Honest parties: a gateway and phones. Each records when it could receive media, and from whom.

mod calls;
mod client;

use super::text::{Received, response};
use super::{Outgoing, T2, Tasks};
use crate::random::Random;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Behaviour of a party where RFC 3261 leaves a choice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manners {
    /// True if the agent treats an INVITE within an unknown dialog as a new call (RFC 3261 section 12.2.2).
    pub(super) revives: bool,
    /// Requests within dialogs that it refuses with 503, or with 483 like a proxy before it, in thousandths.
    pub(super) overload: u64,
    /// Longest times until it answers, and until it hangs up, in milliseconds.
    pub(super) answers_within: u64,
    pub(super) lasts: u64,
    /// Seconds of the session timer that it requests in an answer; 0 for none.
    pub(super) session: u64,
}

/// Reason of the end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The agent received a BYE with this branch.
    Bye { branch: String, by_server: bool, astray: bool },
    /// The agent sent a BYE.
    Own,
}

/// Note of a party: the period in which it could receive media in a dialog.
#[derive(Clone, Debug)]
pub(super) struct SessionNote {
    pub(super) call_id: String,
    pub(super) own_tag: String,
    pub(super) peer_tag: String,
    pub(super) is_callee: bool,
    /// Value of the header that identifies the INVITE in records.
    pub(super) try_: String,
    pub(super) began: u64,
    pub(super) ended: Option<(u64, SessionEnd)>,
    /// Branches of BYEs that it refused.
    pub(super) refused: Vec<String>,
    /// Times at which it refused a BYE of the server.
    pub(super) defied: Vec<u64>,
    /// True if the caller chose its tag: the INVITE had one.
    pub(super) is_revived: bool,
}

/// One end of a dialog with media.
#[derive(Debug)]
struct Session {
    /// Index of its note.
    note: usize,
    /// Value of From in requests of this party.
    own: String,
    peer: String,
    target: String,
    routes: Vec<String>,
    own_cseq: u32,
    peer_cseq: u32,
    /// Callee: the 2xx, repeated until it is acknowledged. Caller: the ACK.
    last: String,
    acknowledged: bool,
    /// Expiry of its session timer, if it has one.
    expires: Option<u64>,
    is_refresher: bool,
}

/// An INVITE that rings.
#[derive(Debug)]
struct IncomingCall {
    invite: Received,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Answer(usize),
    /// Sends the 2xx of a session again; time until the next one.
    Again(usize, u64),
    /// No ACK for 64*T1.
    NoAck(usize),
    HangUp(usize),
    Refresh(usize),
    /// The session timer may have expired.
    Expire(usize),
    /// Sends a request again; time until the next one.
    Resend(usize, u64),
    Call(usize),
}

/// An honest party.
pub(super) struct Honest {
    name: &'static str,
    pub(super) address: SocketAddr,
    manners: Manners,
    random: Random,
    tasks: Tasks<Task>,
    /// URIs of its calls.
    calls: Vec<String>,
    rung: Vec<IncomingCall>,
    sessions: Vec<Session>,
    sent: Vec<client::Sent>,
    /// Final responses by branch and method.
    answered: HashMap<String, String>,
    count: u32,
    pub(super) notes: Vec<SessionNote>,
}

impl Honest {
    pub(super) fn new(name: &'static str, address: SocketAddr, manners: Manners, random: Random) -> Self {
        Self {
            name,
            address,
            manners,
            random,
            tasks: Tasks::default(),
            calls: Vec::new(),
            rung: Vec::new(),
            sessions: Vec::new(),
            sent: Vec::new(),
            answered: HashMap::new(),
            count: 0,
            notes: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.tasks.deadline()
    }

    pub(super) fn wake(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        while let Some(task) = self.tasks.due(now) {
            match task {
                Task::Answer(at) => self.answer(now, at, out),
                Task::Again(at, pause) => {
                    let session = &self.sessions[at];
                    if !session.acknowledged && self.is_open(at) {
                        self.send(session.last.clone(), out);
                        let pause = (2 * pause).min(T2);
                        self.tasks.plan(now + pause, Task::Again(at, pause));
                    }
                }
                Task::NoAck(at) if self.sessions[at].acknowledged => (),
                Task::NoAck(at) | Task::HangUp(at) => self.hang_up(now, at, out),
                Task::Refresh(at) => self.refresh(now, at, out),
                Task::Expire(at) => {
                    if self.sessions[at].expires.is_some_and(|expires| expires <= now) {
                        self.hang_up(now, at, out);
                    }
                }
                Task::Resend(at, pause) => self.resend(now, at, pause, out),
                Task::Call(at) => self.call(now, at, out),
            }
        }
    }

    pub(super) fn receive(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        if said.status().is_some() {
            return self.hear(now, said, out);
        }
        let method = said.method();
        if method == "ACK" {
            let session = self.session_of(said);
            session.into_iter().for_each(|at| self.sessions[at].acknowledged = true);
            return;
        }
        if let Some(text) = self.answered.get(&format!("{}{method}", said.branch())) {
            return self.send(text.clone(), out);
        }
        match method {
            "INVITE" if said.tag("To").is_empty() => self.ring(now, said, out),
            "INVITE" => self.renew(now, said, out),
            "CANCEL" => self.cancel(said, out),
            "BYE" => self.take_bye(now, said, out),
            _ => self.take_other(now, said, out),
        }
    }

    fn send(&self, text: String, out: &mut Vec<Outgoing>) {
        out.push((self.address, text));
    }

    /// Sends a final response, and stores it for copies of the request.
    fn finally(&mut self, said: &Received, status: u16, lines: &str, out: &mut Vec<Outgoing>) {
        let tag = self.new_tag();
        let text = response(said, status, &tag, lines);
        self.answered.insert(format!("{}{}", said.branch(), said.method()), text.clone());
        self.send(text, out);
    }

    fn new_tag(&mut self) -> String {
        format!("{}{:x}", self.name, self.random.u64())
    }

    fn contact(&self) -> String {
        format!("Contact: <sip:{}@{}>\r\n", self.name, self.address)
    }

    fn is_open(&self, at: usize) -> bool {
        self.notes[self.sessions[at].note].ended.is_none()
    }

    /// Returns the open session of a request.
    fn session_of(&self, said: &Received) -> Option<usize> {
        let (call_id, own, peer) = (said.call_id(), said.tag("To"), said.tag("From"));
        (0..self.sessions.len()).find(|at| {
            let note = &self.notes[self.sessions[*at].note];
            self.is_open(*at) && note.call_id == call_id && note.own_tag == own && note.peer_tag == peer
        })
    }

    /// Ends the session: from now on no media of the session pass.
    fn end(&mut self, now: u64, at: usize, how: SessionEnd) {
        let note = self.sessions[at].note;
        self.notes[note].ended.get_or_insert((now, how));
    }

    fn take_bye(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        let Some(at) = self.session_of(said) else { return self.finally(said, 481, "", out) };
        let is_overloaded = self.random.chance(self.manners.overload);
        let refusal = match () {
            () if said.cseq() < self.sessions[at].peer_cseq => Some(500),
            () if said.has("Require") => Some(420),
            () if said.has("Content-Type") => Some(415),
            () if is_overloaded => Some(*self.random.pick(&[483, 503])),
            () => None,
        };
        if let Some(status) = refusal {
            let note = self.sessions[at].note;
            self.notes[note].refused.push(said.branch().to_owned());
            self.notes[note].defied.extend(said.is_of_server().then_some(now));
            return self.finally(said, status, "", out);
        }
        self.sessions[at].peer_cseq = said.cseq();
        let (branch, by_server) = (said.branch().to_owned(), said.is_of_server());
        self.end(now, at, SessionEnd::Bye { branch, by_server, astray: said.has("X-Astray") });
        self.finally(said, 200, "", out);
    }

    /// Handles any other request. A request within a dialog needs a session, unless it creates a dialog of its own.
    fn take_other(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        let method = said.method().to_owned();
        let contact = self.contact();
        if said.tag("To").is_empty() || matches!(&*method, "SUBSCRIBE" | "NOTIFY" | "REFER" | "MESSAGE") {
            let status = if matches!(&*method, "SUBSCRIBE" | "REFER") { 202 } else { 200 };
            return self.finally(said, status, &contact, out);
        }
        let Some(at) = self.session_of(said) else { return self.finally(said, 481, "", out) };
        if said.cseq() < self.sessions[at].peer_cseq {
            return self.finally(said, 500, "", out);
        }
        self.sessions[at].peer_cseq = said.cseq();
        let timer = if method == "UPDATE" { self.take_timer(now, at, said) } else { String::new() };
        if method == "UPDATE" {
            said.contact().into_iter().for_each(|contact| self.sessions[at].target = contact);
        }
        self.finally(said, 200, &(contact + &timer), out);
    }

    /// Accepts the session timer that a request offers. Returns the lines of the answer.
    fn take_timer(&mut self, now: u64, at: usize, said: &Received) -> String {
        let Some(seconds) = said.session_expires() else { return String::new() };
        let is_own = said.line("Session-Expires").contains("refresher=uas");
        self.set_timer(now, at, seconds, is_own);
        format!("Session-Expires: {seconds};refresher={}\r\n", if is_own { "uas" } else { "uac" })
    }

    /// Sets the time at which the session ends without a refresh.
    fn set_timer(&mut self, now: u64, at: usize, seconds: u64, is_own: bool) {
        // An interval below 90 s is no session timer (RFC 4028 section 5), and no call of these worlds lasts an hour.
        if !(90..3_600).contains(&seconds) {
            return;
        }
        let session = &mut self.sessions[at];
        (session.expires, session.is_refresher) = (Some(now + seconds * 1_000), is_own);
        self.tasks.plan(now + seconds * 1_000, Task::Expire(at));
        if is_own {
            self.tasks.plan(now + seconds * 500, Task::Refresh(at));
        }
    }
}
