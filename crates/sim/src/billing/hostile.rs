//! The account that tries to talk without a record. It controls two phones.

mod acts;
mod answers;

use super::text::{Received, Request, response, uri};
use super::{DOMAIN, MALLORYS, Outgoing, PASSWORD, T1, Tasks};
use crate::random::Random;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Habits of the account in one world, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// Share of 2xx that it acknowledges.
    pub(super) acknowledges: u64,
    /// Share of requests that it answers at all.
    pub(super) answers: u64,
    /// Share of requests that it answers correctly.
    pub(super) is_right: u64,
    /// Share of its requests with a forged header.
    pub(super) forges: u64,
}

/// One end of a dialog of this account.
#[derive(Clone, Debug)]
struct Leg {
    call_id: String,
    /// Value of From in its requests.
    own: String,
    peer: String,
    target: String,
    routes: Vec<String>,
    cseq: u32,
    /// Number of the leg's phone.
    phone: usize,
    /// True if the leg sent or received a BYE.
    is_over: bool,
}

/// A request of this account.
#[derive(Clone, Debug)]
struct Sent {
    request: Request,
    phone: usize,
    copies: u32,
    is_heard: bool,
    is_over: bool,
    /// True if a CANCEL follows the first provisional response.
    cancels: bool,
}

#[derive(Clone, Debug)]
enum Task {
    Act,
    Register,
    Resend(usize),
    /// Ends a leg in a random way.
    End(usize),
    /// Sends a response of a phone.
    Say(usize, String),
}

/// The account.
pub(super) struct Hostile {
    habits: Habits,
    random: Random,
    tasks: Tasks<Task>,
    legs: Vec<Leg>,
    sent: Vec<Sent>,
    answered: HashMap<String, String>,
    /// Counter of its INVITEs, branches and tags.
    count: u32,
    /// URIs of its calls.
    callees: Vec<String>,
    /// Time until which it acts.
    until: u64,
    /// Number of times for each act.
    pub(super) acts: HashMap<&'static str, u64>,
}

impl Hostile {
    pub(super) fn new(habits: Habits, callees: Vec<String>, until: u64, random: Random) -> Self {
        let mut tasks = Tasks::default();
        tasks.plan(1_000, Task::Register);
        tasks.plan(2_000, Task::Act);
        Self {
            habits,
            random,
            tasks,
            legs: Vec::new(),
            sent: Vec::new(),
            answered: HashMap::new(),
            count: 0,
            callees,
            until,
            acts: HashMap::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.tasks.deadline()
    }

    pub(super) fn wake(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        while let Some(task) = self.tasks.due(now) {
            match task {
                Task::Act => {
                    self.act(now, out);
                    let next = now + self.random.between(100, 8_000);
                    if next < self.until {
                        self.tasks.plan(next, Task::Act);
                    }
                }
                Task::Register => (0..2).for_each(|phone| self.register(now, phone, out)),
                Task::Resend(at) => {
                    let sent = &mut self.sent[at];
                    if !sent.is_heard && !sent.is_over && sent.copies < 4 {
                        sent.copies += 1;
                        let (text, pause) = (sent.request.text(), T1 << sent.copies);
                        out.push((MALLORYS[sent.phone], text));
                        self.tasks.plan(now + pause, Task::Resend(at));
                    }
                }
                Task::End(at) => self.end(now, at, out),
                Task::Say(phone, text) => out.push((MALLORYS[phone], text)),
            }
        }
    }

    pub(super) fn receive(&mut self, now: u64, at: SocketAddr, said: &Received, out: &mut Vec<Outgoing>) {
        let phone = usize::from(at == MALLORYS[1]);
        match said.status() {
            Some(status) => self.hear(now, status, said, out),
            None => self.take(now, phone, said, out),
        }
    }

    fn number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    fn contact_of(phone: usize) -> String {
        format!("<sip:mallory@{}>", MALLORYS[phone])
    }

    /// Registers a phone: the first as the account, the second sometimes too.
    fn register(&mut self, now: u64, phone: usize, out: &mut Vec<Outgoing>) {
        if phone == 1 && self.random.chance(500) {
            return;
        }
        let n = self.number();
        let aor = format!("<sip:mallory@{DOMAIN}>");
        let request = Request {
            method: "REGISTER".to_owned(),
            uri: format!("sip:{DOMAIN}"),
            from: format!("{aor};tag=r{n}"),
            to: aor,
            call_id: format!("register{phone}"),
            cseq: n,
            lines: format!("Contact: {}\r\nExpires: 3600\r\n", Self::contact_of(phone)),
            ..Request::default()
        };
        self.begin(now, phone, request, out);
    }

    /// Sends a request, and copies of it until a response arrives. Returns its index.
    fn begin(&mut self, now: u64, phone: usize, mut request: Request, out: &mut Vec<Outgoing>) -> usize {
        request.via = MALLORYS[phone].to_string();
        if request.branch.is_empty() {
            let (n, salt) = (self.number(), self.random.u64());
            request.branch = format!("z9hG4bKm{n}-{salt:x}");
        }
        out.push((MALLORYS[phone], request.text()));
        let sent = Sent { request, phone, copies: 0, is_heard: false, is_over: false, cancels: false };
        self.sent.push(sent);
        self.tasks.plan(now + T1, Task::Resend(self.sent.len() - 1));
        self.sent.len() - 1
    }

    /// Handles a response to a request of this account.
    fn hear(&mut self, now: u64, status: u16, said: &Received, out: &mut Vec<Outgoing>) {
        let is_meant = |sent: &Sent| sent.request.branch == said.branch() && sent.request.method == said.method();
        let Some(at) = self.sent.iter().position(is_meant) else { return };
        let sent = &mut self.sent[at];
        let was_over = sent.is_over;
        (sent.is_heard, sent.is_over) = (true, was_over || status >= 200);
        let (request, phone) = (sent.request.clone(), sent.phone);
        let is_invite = request.method == "INVITE";
        if status < 200 {
            if is_invite && std::mem::take(&mut sent.cancels) {
                let cancel = Request { method: "CANCEL".to_owned(), lines: String::new(), ..request };
                self.begin(now, phone, cancel, out);
            }
            return;
        }
        if status >= 300 {
            if is_invite {
                let (method, to) = ("ACK".to_owned(), said.line("To").to_owned());
                let ack = Request { method, to, lines: String::new(), ..request.clone() };
                out.push((MALLORYS[phone], ack.text()));
            }
            if status == 407 && !was_over && !request.lines.contains("Proxy-Authorization") {
                let branch = format!("z9hG4bKa{}-{:x}", self.number(), self.random.u64());
                let again = request.authorized(said, ("mallory", PASSWORD), branch);
                if let Some(mut again) = again {
                    // With this line the server treats the request as a request outside of its dialog.
                    if again.method == "BYE" {
                        again.lines += "X-Astray: 1\r\n";
                    }
                    self.begin(now, phone, Request { cseq: request.cseq.saturating_add(1), ..again }, out);
                }
            }
            return;
        }
        if !was_over && matches!(&*request.method, "INVITE" | "SUBSCRIBE" | "REFER" | "NOTIFY" | "MESSAGE") {
            self.learn(now, phone, &request, said);
        }
        if is_invite && self.random.chance(self.habits.acknowledges) {
            let mut routes = said.record_routes();
            routes.reverse();
            let (uri, to) = (said.contact().unwrap_or_default(), said.line("To").to_owned());
            let branch = format!("{}ack{}", request.branch, self.number());
            let ack = Request { method: "ACK".to_owned(), uri, to, branch, routes, lines: String::new(), ..request };
            out.push((MALLORYS[phone], ack.text()));
        }
    }

    /// Records a dialog from a 2xx.
    fn learn(&mut self, now: u64, phone: usize, request: &Request, said: &Received) {
        let peer = said.line("To").to_owned();
        let known = self
            .legs
            .iter()
            .position(|leg| leg.call_id == request.call_id && leg.own == request.from && leg.peer == peer);
        let mut routes = said.record_routes();
        routes.reverse();
        let Some(target) = said.contact() else { return };
        match known {
            Some(at) => self.legs[at].cseq = self.legs[at].cseq.max(request.cseq),
            None => {
                let leg = Leg {
                    call_id: request.call_id.clone(),
                    own: request.from.clone(),
                    peer,
                    target,
                    routes,
                    cseq: request.cseq,
                    phone,
                    is_over: false,
                };
                self.legs.push(leg);
                if request.method == "INVITE" {
                    let lasts = self.random.between(0, 40_000);
                    self.tasks.plan(now + lasts, Task::End(self.legs.len() - 1));
                }
            }
        }
    }
}
