//! A user agent that follows a script: it registers, calls, answers and hangs up, and records the outcome of each
//! request.

mod callee;
mod caller;
mod leg;
mod presence;
mod registration;
mod tally;
mod task;

pub use self::callee::CalleeAnswer;
use self::callee::IncomingCall;
pub use self::caller::SentOutcome;
use self::caller::{Sent, SentKind};
use self::leg::Leg;
pub use self::presence::Presence;
use self::registration::Registration;
pub use self::tally::{Called, InDialog, Tally};
use self::task::Task;
use crate::random::Random;
use crate::world::{Host, listener, listens_at, nothing_left};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use strowger_core::slots::Id;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Role, TransactionUser, Transactions};
use strowger_core::{Arrival, Flow, Now, Outbox, PeerName, Target, Transport};
use strowger_message::{Index, Limits, Message, Method, Uri};

/// Connection of a phone.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub address: SocketAddr,
    pub transport: Transport,
    /// True if the phone accepts connections.
    pub listens: bool,
    /// True if the phone asks to be reached over the connections that it makes (RFC 5923).
    pub alias: bool,
    /// True if the phone may be behind a translator and asks for responses to the source of its requests (RFC 3581).
    pub translated: bool,
    /// Name that its certificate proves, besides its address.
    pub proves: Option<PeerName>,
    /// Address of another phone that it claims to have.
    pub claims: Option<SocketAddr>,
}

impl Line {
    pub const fn new(address: SocketAddr, transport: Transport) -> Self {
        Self { address, transport, listens: true, alias: false, translated: false, proves: None, claims: None }
    }

    /// Returns whether the agent is reached only over a connection that it made itself.
    pub const fn is_one_way(&self) -> bool {
        self.transport.is_reliable() && !self.listens
    }
}

/// A user agent.
pub struct Agent {
    name: String,
    domain: String,
    line: Line,
    password: String,
    /// First hop of requests outside a dialog.
    outbound: Target,
    /// Server at which it registers.
    registrar: Target,
    random: Random,
    tx: Transactions,
    index: Index,
    events: Vec<Event>,
    tasks: BTreeMap<(u64, u64), Task>,
    count: u64,
    registration: Registration,
    presence: Presence,
    /// Answers to the next calls.
    answers: Vec<CalleeAnswer>,
    sent: Vec<Sent>,
    rung: Vec<IncomingCall>,
    legs: Vec<Leg>,
    tally: Tally,
    /// Number of starts of its process.
    process: u16,
    has_restarted: bool,
    restarts: bool,
    /// True if the agent repeats a call that failed, once, as the same call.
    redials: bool,
    /// True if no message is addressed to it: one that arrives was meant for another host.
    is_impostor: bool,
    problem: Option<String>,
}

/// Returns the transaction user of a sent request, by its number.
fn user(number: usize) -> TransactionUser {
    TransactionUser::new(Role::UserAgent(Id { slot: number as u32, generation: 1 }))
}

fn number(user: TransactionUser) -> usize {
    match user.role() {
        Role::UserAgent(id) => id.slot as usize,
        other => panic!("an agent has no other role: {other:?}"),
    }
}

const T1: u64 = 500;
const T2: u64 = 4_000;

impl Agent {
    /// Creates an agent; `server` is its registrar and outbound proxy.
    pub fn new(name: &str, domain: &str, line: Line, server: SocketAddr, seed: u64) -> Self {
        let transport = line.transport;
        let target = Target::new(transport, listener(transport), listens_at(server, transport));
        Self {
            name: name.to_owned(),
            domain: domain.to_owned(),
            line,
            password: name.to_owned(),
            outbound: target,
            registrar: target,
            random: Random::new(seed),
            tx: Transactions::new(TimerSettings::default(), [seed, 2]),
            index: Index::new(),
            events: Vec::new(),
            tasks: BTreeMap::new(),
            count: 0,
            registration: Registration::default(),
            presence: Presence::default(),
            answers: Vec::new(),
            sent: Vec::new(),
            rung: Vec::new(),
            legs: Vec::new(),
            tally: Tally::default(),
            process: 0,
            has_restarted: false,
            restarts: false,
            redials: Random::new(!seed).chance(150),
            is_impostor: false,
            problem: None,
        }
    }

    /// Registers the agent at this server, even if its outbound proxy is another server.
    pub fn register_with(&mut self, server: SocketAddr) {
        self.registrar.address = listens_at(server, self.line.transport);
    }

    /// Makes the agent try a wrong password, in requests of one sender or of many.
    pub fn set_wrong_password(&mut self, is_one_sender: bool) {
        self.password.push('?');
        self.registration.tag = if is_one_sender { "guess".to_owned() } else { String::new() };
        self.registration.tries_again = false;
    }

    /// Returns whether the agent uses the name of another user, whose password it does not know.
    pub fn guesses(&self) -> bool {
        self.password.ends_with('?')
    }

    /// Declares that no request is addressed to it.
    pub const fn set_impostor(&mut self) {
        self.is_impostor = true;
    }

    /// Calls `user` at this moment, and cancels after `cancel` ms if the call is not answered by then.
    pub fn plan_call(&mut self, at: u64, to: &str, cancel: Option<u64>) {
        self.sent.push(Sent::new(SentKind::Call, to.to_owned(), cancel));
        self.plan(at, Task::Call(self.sent.len() - 1));
    }

    /// Calls the address in this URI without a proxy.
    pub fn plan_direct_call(&mut self, at: u64, to: &str) {
        self.plan_call(at, to, None);
        self.sent.last_mut().expect("it was just planned").direct = true;
    }

    /// Sends a MESSAGE.
    pub fn plan_message(&mut self, at: u64, to: &str) {
        self.sent.push(Sent::new(SentKind::Message, to.to_owned(), None));
        self.plan(at, Task::Message(self.sent.len() - 1));
    }

    /// Plans `count` messages of one Call-ID and tag, all sent at this moment.
    pub fn plan_messages(&mut self, at: u64, to: &str, count: u32) {
        let (tag, call_id) = (format!("{:x}", self.random.u64()), format!("{:016x}@{}", self.random.u64(), self.name));
        for n in 0..count {
            self.plan_message(at, to);
            let sent = self.sent.last_mut().expect("it was just planned");
            // Leaves room for retries with credentials.
            sent.cseq = 1 + 10 * n;
            (sent.tag, sent.call_id) = (tag.clone(), call_id.clone());
        }
    }

    /// Plans a restart of the agent's process at this moment: the agent forgets its calls.
    pub fn plan_restart(&mut self, at: u64) {
        self.restarts = true;
        self.plan(at, Task::Restart);
    }

    /// Plans a change of the agent's password at this moment.
    pub fn plan_password(&mut self, at: u64, version: u32) {
        self.plan(at, Task::Password(version));
    }

    /// Sets the answers to incoming calls, in order; after the last one the agent accepts each call after a second.
    pub fn will_answer(&mut self, answers: Vec<CalleeAnswer>) {
        self.answers = answers;
        self.answers.reverse();
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn address(&self) -> SocketAddr {
        self.line.address
    }

    pub const fn line(&self) -> &Line {
        &self.line
    }

    pub const fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Returns whether the agent's process restarts at some moment.
    pub const fn restarts(&self) -> bool {
        self.restarts
    }

    /// Returns whether one of the agent's calls goes to an address without a host, or to a wrong host.
    pub fn calls_where_no_phone_is(&self) -> bool {
        self.sent.iter().any(|s| s.to.contains("void") || s.to.contains("desk"))
    }

    pub const fn transactions(&self) -> &Transactions {
        &self.tx
    }

    fn plan(&mut self, at: u64, task: Task) {
        self.count += 1;
        self.tasks.insert((at, self.count), task);
    }

    fn wrong(&mut self, what: String) {
        let name = &self.name;
        self.problem.get_or_insert_with(|| format!("{name}: {what}"));
    }

    /// Returns the host that the agent writes into its own URIs. A browser, or a phone on a connection, writes a host
    /// that cannot be reached.
    fn host(&self) -> String {
        match self.line.transport {
            Transport::Ws => format!("{}.invalid", self.line.address.ip().to_string().replace('.', "-")),
            _ => self.line.claims.unwrap_or(self.line.address).to_string(),
        }
    }

    fn via(&self, branch: &str) -> String {
        let rport = if self.line.translated { ";rport" } else { "" };
        let alias = if self.line.alias { ";alias" } else { "" };
        format!("SIP/2.0/{} {}{rport}{alias};branch={branch}", self.line.transport.via(), self.host())
    }

    fn contact(&self) -> String {
        let parameter = match self.line.transport {
            Transport::Udp => String::new(),
            other => format!(";transport={}", other.uri_text()),
        };
        format!("<sip:{}@{}{parameter}>", self.name, self.host())
    }

    fn branch(&mut self) -> String {
        format!("z9hG4bK{:016x}", self.random.u64())
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
        let hop = leg.dialog.request_route().hop.to_vec();
        self.sent.push(Sent { started: now.mono, ..Sent::new(SentKind::Bye(at), String::new(), None) });
        let at = self.sent.len() - 1;
        match self.target(&hop) {
            Some(target) => {
                let id = self.tx.send(now, range, branch.as_bytes(), b"BYE", target, 7, user(at), out);
                self.sent[at].id = Some(id);
            }
            None => self.wrong(format!("no way to {}", String::from_utf8_lossy(&hop))),
        }
    }

    /// Returns the target of a URI with an address.
    fn target(&self, uri: &[u8]) -> Option<Target> {
        let uri = Uri::parse(uri).ok()?;
        let uri = uri.sip()?;
        let transport = uri.params.transport().and_then(Transport::of).unwrap_or(Transport::Udp);
        let address = SocketAddr::new(uri.host.ip()?, uri.port.unwrap_or_else(|| transport.default_port()));
        Some(Target::new(transport, listener(transport), address))
    }

    fn events(&mut self, now: Now) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Timeout { tu, .. } => self.ended(now, number(tu), SentOutcome::Timeout),
                Event::ClientTransportError { tu, .. } => self.ended(now, number(tu), SentOutcome::TransportError),
                Event::ClientEnded { tu, .. } => {
                    let sent = &mut self.sent[number(tu)];
                    if sent.ended || sent.outcome.is_none() {
                        let text = format!("{sent:?} ended without outcome, or twice");
                        self.wrong(text);
                    } else {
                        sent.ended = true;
                    }
                }
                Event::ServerTransportError { .. } | Event::NoAck { .. } | Event::ServerEnded { .. } => (),
                // Only proxies have these events.
                Event::TimerC { .. } | Event::TryingDue { .. } => (),
            }
        }
        self.events = events;
    }

    /// Restarts the agent's process.
    fn restart(&mut self, now: Now) {
        self.process += 1;
        self.has_restarted = true;
        self.lost_connection(now);
        self.tx = Transactions::new(TimerSettings::default(), [self.random.u64(), 2]);
        for sent in self.sent.iter_mut().filter(|sent| sent.id.is_some() && !sent.ended) {
            sent.outcome.get_or_insert(SentOutcome::Forgotten);
            sent.ended = true;
        }
        self.rung.iter_mut().for_each(|rung| (rung.answered, rung.forgotten) = (true, true));
        self.legs.iter_mut().for_each(|leg| (leg.bye, leg.ended, leg.forgotten) = (true, true, true));
        self.tasks.retain(|_, task| !task.is_of_call());
        self.register_again(now);
    }
}

impl Host for Agent {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let mut index = std::mem::take(&mut self.index);
        match index.parse(bytes, &Limits::default()) {
            Ok(()) => {
                let message = Message::new(bytes, &index);
                if message.is_request() && self.is_impostor {
                    self.wrong(format!("not meant for it: {}", String::from_utf8_lossy(bytes)));
                } else if message.is_request() {
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
        self.events(now);
    }

    fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let before = out.sends().len();
        self.tx.cut_off(now, token, out, &mut self.events);
        // A REGISTER is sent once more, over a new connection.
        if out.sends()[before..].iter().any(|send| out.bytes[send.range()].starts_with(b"REGISTER ")) {
            self.presence.registers(now.mono);
        }
        self.events(now);
    }

    fn closed(&mut self, now: Now, _flow: Flow, _out: &mut Outbox) {
        self.lost_connection(now);
        self.register_again(now);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        while !self.has_restarted
            && let Some(entry) = self.tasks.first_entry().filter(|e| e.key().0 <= now.mono)
        {
            let task = entry.remove();
            self.task(now, task, out);
        }
        self.tx.poll(now, out, &mut self.events);
        self.events(now);
    }

    fn deadline(&mut self) -> Option<u64> {
        let task = self.tasks.keys().next().map(|(at, _)| *at);
        self.tx.deadline().into_iter().chain(task).min()
    }

    fn owner(&mut self) -> (u16, u16, u8) {
        (u16::MAX, self.process, 0)
    }

    fn takes(&self, target: &Target) -> bool {
        self.line.listens
            && target.transport == self.line.transport
            && (target.name.is_none() || target.name == self.line.proves)
    }

    fn has_restarted(&mut self) -> bool {
        std::mem::take(&mut self.has_restarted)
    }

    fn lost_connection(&mut self, now: Now) {
        self.presence.ends(now.mono);
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
