//! A user agent that follows a script: it registers, calls, answers, hangs up, and remembers how each thing ended.

use crate::proxy::nothing_left;
use crate::random::Random;
use crate::world::{Host, listener};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use strowger_core::dialog::Dialog;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{ClientId, Event, Incoming, Outgoing, ServerId, Transactions};
use strowger_core::{Arrival, Now, Outbox, Target, Transport};
use strowger_message::{Index, Limits, Message, Method, Uri, build};

/// What a user agent answers a call with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200 after so many ms.
    Accept(u64),
    /// This status after so many ms.
    Refuse(u16, u64),
    /// Rings for 300 s.
    Ring,
}

/// How a request of ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failed(u16),
    Timeout,
    TransportError,
}

/// What is to be done later.
#[derive(Clone, Copy, Debug)]
enum Task {
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

/// A request of ours and what it came to.
#[derive(Debug)]
struct Sent {
    /// To whom: a whole URI.
    to: String,
    call_id: String,
    /// Past the outbound proxy, to the address in the URI.
    direct: bool,
    /// ms after which it is cancelled.
    cancel: Option<u64>,
    id: Option<ClientId>,
    ringing: bool,
    cancelled: bool,
    outcome: Option<Outcome>,
    ended: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Register,
    Call,
    Message,
    /// BYE of this leg.
    Bye(usize),
}

/// A call that came in.
#[derive(Debug)]
struct Rung {
    server: ServerId,
    request: Vec<u8>,
    tag: String,
    answer: Answer,
    answered: bool,
}

/// One end of a dialog.
#[derive(Debug)]
struct Leg {
    dialog: Dialog,
    /// Of the caller: the ACK, to be sent for every 2xx.
    ack: Option<(Vec<u8>, Target)>,
    /// Of the callee: the call that it answers.
    rung: Option<usize>,
    ok: Vec<u8>,
    acknowledged: bool,
    wants_end: bool,
    bye: bool,
    ended: bool,
}

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
    /// Requests to somebody, of every kind, that nobody answered.
    pub unanswered: u64,
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
    }
}

pub struct Agent {
    name: String,
    domain: String,
    address: SocketAddr,
    transport: Transport,
    /// The first hop of requests outside a dialog.
    outbound: Target,
    random: Random,
    tx: Transactions,
    index: Index,
    events: Vec<Event>,
    tasks: BTreeMap<(u64, u64), Task>,
    count: u64,
    register_cseq: u32,
    /// What the next calls are answered with.
    answers: Vec<Answer>,
    sent: Vec<Sent>,
    rung: Vec<Rung>,
    legs: Vec<Leg>,
    tally: Tally,
    problem: Option<String>,
}

const T1: u64 = 500;
const T2: u64 = 4_000;

impl Agent {
    pub fn new(
        name: &str,
        domain: &str,
        address: SocketAddr,
        transport: Transport,
        outbound: SocketAddr,
        seed: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            domain: domain.to_owned(),
            address,
            transport,
            outbound: Target { transport, listener: listener(transport), address: outbound, flow: None },
            random: Random::new(seed),
            tx: Transactions::new(TimerSettings::default(), [seed, 2]),
            index: Index::new(),
            events: Vec::new(),
            tasks: BTreeMap::new(),
            count: 0,
            register_cseq: 0,
            answers: Vec::new(),
            sent: Vec::new(),
            rung: Vec::new(),
            legs: Vec::new(),
            tally: Tally::default(),
            problem: None,
        }
    }

    /// Registers this name at this moment, or takes the registration back with 0 seconds.
    pub fn plan_register(&mut self, at: u64, seconds: u32) {
        self.plan(at, Task::Register { seconds });
    }

    /// Calls `user` at this moment, and cancels after `cancel` ms if nobody has answered by then.
    pub fn plan_call(&mut self, at: u64, to: &str, cancel: Option<u64>) {
        self.sent.push(Sent::new(Kind::Call, to.to_owned(), cancel));
        self.plan(at, Task::Call(self.sent.len() - 1));
    }

    /// Calls the address in this URI without a proxy.
    pub fn plan_direct_call(&mut self, at: u64, to: &str) {
        self.plan_call(at, to, None);
        self.sent.last_mut().expect("it was just planned").direct = true;
    }

    /// Sends a MESSAGE.
    pub fn plan_message(&mut self, at: u64, to: &str) {
        self.sent.push(Sent::new(Kind::Message, to.to_owned(), None));
        self.plan(at, Task::Message(self.sent.len() - 1));
    }

    /// What the calls that come are answered with, in order; when none is left, accepted after a second.
    pub fn will_answer(&mut self, answers: Vec<Answer>) {
        self.answers = answers;
        self.answers.reverse();
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One of the calls goes where nobody is.
    pub fn calls_nobody(&self) -> bool {
        self.sent.iter().any(|s| s.to.contains("void"))
    }

    pub fn transactions(&self) -> &Transactions {
        &self.tx
    }

    /// How the calls ended, in the order of planning.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<Outcome>> {
        self.sent.iter().filter(|s| s.kind == Kind::Call).map(|s| s.outcome)
    }

    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        for sent in &self.sent {
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

    fn plan(&mut self, at: u64, task: Task) {
        self.count += 1;
        self.tasks.insert((at, self.count), task);
    }

    fn wrong(&mut self, what: String) {
        let name = &self.name;
        self.problem.get_or_insert_with(|| format!("{name}: {what}"));
    }

    fn via(&self, branch: &str) -> String {
        format!("SIP/2.0/{} {};branch={branch}", self.transport.via(), self.address)
    }

    fn contact(&self) -> String {
        let parameter = if self.transport == Transport::Tcp { ";transport=tcp" } else { "" };
        format!("<sip:{}@{}{parameter}>", self.name, self.address)
    }

    fn branch(&mut self) -> String {
        format!("z9hG4bK{:016x}", self.random.u64())
    }

    /// Sends a request outside of dialogs.
    fn start(&mut self, now: Now, at: usize, method: Method, cseq: u32, lines: &str, out: &mut Outbox) {
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
        let id = self.tx.send(now, range, branch.as_bytes(), method, target, 7, at as u64 + 1, out);
        self.sent[at].id = Some(id);
        self.sent[at].call_id = call_id;
    }

    fn task(&mut self, now: Now, task: Task, out: &mut Outbox) {
        match task {
            Task::Register { seconds } => {
                let mut sent = Sent::new(Kind::Register, format!("sip:{}@{}", self.name, self.domain), None);
                sent.call_id = format!("register@{}", self.name);
                self.sent.push(sent);
                self.register_cseq += 1;
                let lines = format!(";expires={seconds}");
                self.start(now, self.sent.len() - 1, Method::Register, self.register_cseq, &lines, out);
            }
            Task::Call(at) => {
                self.start(now, at, Method::Invite, 1, "", out);
                // Nobody listens to ringing for ever: the final response may have been lost for good, and the
                // transaction alone would wait on (RFC 3261 section 17.1.1.2 has no timer in Proceeding).
                let patience = self.sent[at].cancel.unwrap_or(400_000);
                self.plan(now.mono + patience, Task::Cancel(at));
            }
            Task::Message(at) => self.start(now, at, Method::Message, 1, "", out),
            Task::Cancel(at) => {
                let sent = &mut self.sent[at];
                if let (None, Some(id)) = (sent.outcome, sent.id) {
                    sent.cancelled = self.tx.cancel(now, id, out);
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

    fn answer(&mut self, now: Now, at: usize, status: u16, out: &mut Outbox) -> Vec<u8> {
        let rung = &mut self.rung[at];
        rung.answered = status >= 200;
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

    fn accept(&mut self, now: Now, at: usize, out: &mut Outbox) {
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

    fn hang_up(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let branch = self.branch();
        let via = self.via(&branch);
        let leg = &mut self.legs[at];
        leg.bye = true;
        let cseq = leg.dialog.next_cseq(1);
        let start = out.start();
        leg.dialog.write_request(Method::Bye, cseq, |text| text.extend_from_slice(via.as_bytes()), &mut out.bytes);
        out.bytes.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        let range = start..out.bytes.len();
        let hop = leg.dialog.way().hop.to_vec();
        self.sent.push(Sent::new(Kind::Bye(at), String::new(), None));
        let owner = self.sent.len() as u64;
        match self.target(&hop) {
            Some(target) => {
                let id = self.tx.send(now, range, branch.as_bytes(), b"BYE", target, 7, owner, out);
                self.sent[owner as usize - 1].id = Some(id);
            }
            None => self.wrong(format!("no way to {}", String::from_utf8_lossy(&hop))),
        }
    }

    /// Where a URI with an address in it leads.
    fn target(&self, uri: &[u8]) -> Option<Target> {
        let uri = Uri::parse(uri).ok()?;
        let uri = uri.sip()?;
        let transport = uri.params.transport().and_then(Transport::of).unwrap_or(Transport::Udp);
        let address = SocketAddr::new(uri.host.ip()?, uri.port.unwrap_or_else(|| transport.default_port()));
        Some(Target { transport, listener: listener(transport), address, flow: None })
    }

    fn request(&mut self, now: Now, message: Message<'_>, arrival: &Arrival, out: &mut Outbox) {
        let of_dialog = |legs: &[Leg]| {
            let (from, to) = (message.from().ok()?.tag?, message.to().ok()?.tag?);
            let call_id = message.call_id().ok()?.text;
            legs.iter().position(|l| l.dialog.is(call_id, to, from))
        };
        let id = match self.tx.request(now, &message, arrival, 7, out) {
            Incoming::New(id) => id,
            Incoming::Absorbed | Incoming::Full => return,
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
            _ => self.simple(now, &message, id, 405, out),
        }
    }

    fn invited(&mut self, now: Now, message: &Message<'_>, id: ServerId, out: &mut Outbox) {
        let via = message.via().ok().and_then(|v| v.branch).unwrap_or_default();
        let again = self.rung.iter().any(|r| {
            let mut index = Index::new();
            index.parse(&r.request, &Limits::default()).expect("it was read before");
            Message::new(&r.request, &index).via().ok().and_then(|v| v.branch) == Some(via)
        });
        if again {
            self.wrong("one INVITE made two transactions".to_owned());
        }
        let answer = self.answers.pop().unwrap_or(Answer::Accept(1_000));
        let tag = format!("{:x}", self.random.u64());
        self.rung.push(Rung { server: id, request: message.bytes().to_vec(), tag, answer, answered: false });
        let at = self.rung.len() - 1;
        if self.random.chance(500) {
            self.answer(now, at, 100, out);
        }
        let rings = self.random.between(0, 3_000);
        let (ring, answer) = match answer {
            Answer::Accept(ms) | Answer::Refuse(_, ms) => (rings <= ms, ms),
            Answer::Ring => (true, 300_000),
        };
        if ring {
            self.plan(now.mono + rings, Task::Ring(at));
        }
        self.plan(now.mono + answer, Task::Answer(at));
    }

    fn simple(&mut self, now: Now, message: &Message<'_>, id: ServerId, status: u16, out: &mut Outbox) {
        let start = out.start();
        build::respond(message, status, None, Some(b"agent"), &mut out.bytes).finish(b"");
        let range = start..out.bytes.len();
        self.tx.respond(now, id, status, range, out);
    }

    fn response(&mut self, now: Now, message: &Message<'_>, out: &mut Outbox) {
        let Outgoing::Deliver { id, owner, after_final } = self.tx.response(now, message, out) else { return };
        let at = owner as usize - 1;
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
    fn ended(&mut self, at: usize, outcome: Outcome) {
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

    fn events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Timeout { owner, .. } => self.ended(owner as usize - 1, Outcome::Timeout),
                Event::ClientTransportError { owner, .. } => self.ended(owner as usize - 1, Outcome::TransportError),
                Event::ClientEnded { owner, .. } => {
                    let sent = &mut self.sent[owner as usize - 1];
                    if sent.ended || sent.outcome.is_none() {
                        let text = format!("{sent:?} ended without outcome, or twice");
                        self.wrong(text);
                    } else {
                        sent.ended = true;
                    }
                }
                Event::ServerTransportError { .. } | Event::NoAck { .. } | Event::ServerEnded { .. } => (),
            }
        }
        self.events = events;
    }
}

impl Sent {
    fn new(kind: Kind, to: String, cancel: Option<u64>) -> Self {
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

impl Leg {
    fn new(dialog: Dialog) -> Self {
        Self {
            dialog,
            ack: None,
            rung: None,
            ok: Vec::new(),
            acknowledged: false,
            wants_end: false,
            bye: false,
            ended: false,
        }
    }
}

impl Host for Agent {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let mut index = std::mem::take(&mut self.index);
        match index.parse(bytes, &Limits::default()) {
            Ok(()) => {
                let message = Message::new(bytes, &index);
                if message.is_request() {
                    self.request(now, message, arrival, out);
                } else {
                    self.response(now, &message, out);
                }
            }
            Err(e) => self.wrong(format!("{e}: {}", String::from_utf8_lossy(bytes))),
        }
        self.index = index;
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.tx.failed(now, token, out, &mut self.events);
        self.events();
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        while let Some(entry) = self.tasks.first_entry().filter(|e| e.key().0 <= now.mono) {
            let task = entry.remove();
            self.task(now, task, out);
        }
        self.tx.poll(now, out, &mut self.events);
        self.events();
    }

    fn deadline(&mut self) -> Option<u64> {
        let task = self.tasks.keys().next().map(|(at, _)| *at);
        self.tx.deadline().into_iter().chain(task).min()
    }

    fn check(&self) -> Result<(), String> {
        match &self.problem {
            None => Ok(()),
            Some(problem) => Err(problem.clone()),
        }
    }

    fn leftovers(&self) -> Result<(), String> {
        nothing_left(&self.name, &self.tx)?;
        for sent in &self.sent {
            if sent.outcome.is_none() || !sent.ended {
                return Err(format!("{}: without end: {sent:?}", self.name));
            }
        }
        if let Some(rung) = self.rung.iter().find(|r| !r.answered) {
            return Err(format!("{}: never answered: {rung:?}", self.name));
        }
        if let Some(leg) = self.legs.iter().find(|l| !l.ended) {
            return Err(format!("{}: a dialog never ended: {leg:?}", self.name));
        }
        Ok(())
    }
}
