//! A user agent that follows a script: it registers, calls, answers, hangs up, and remembers how each thing ended.

mod callee;
mod caller;
mod leg;
mod tally;
mod task;

pub use self::callee::Answer;
use self::callee::Rung;
pub use self::caller::Outcome;
use self::caller::{Kind, Sent};
use self::leg::Leg;
pub use self::tally::Tally;
use self::task::Task;
use crate::random::Random;
use crate::world::{Host, listener, nothing_left};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use strowger_core::slots::Id;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Role, TransactionUser, Transactions};
use strowger_core::{Arrival, Now, Outbox, Target, Transport};
use strowger_message::{Index, Limits, Message, Method, Uri};

/// The user agent.
pub struct Agent {
    name: String,
    domain: String,
    address: SocketAddr,
    transport: Transport,
    password: String,
    /// It may be behind a translator, and asks for answers to where its requests come from (RFC 3581).
    translated: bool,
    /// The first hop of requests outside a dialog.
    outbound: Target,
    random: Random,
    tx: Transactions,
    index: Index,
    events: Vec<Event>,
    tasks: BTreeMap<(u64, u64), Task>,
    count: u64,
    register_cseq: u32,
    /// Tag of From of each REGISTER; empty: each has its own.
    register_tag: String,
    /// What the next calls are answered with.
    answers: Vec<Answer>,
    sent: Vec<Sent>,
    rung: Vec<Rung>,
    legs: Vec<Leg>,
    tally: Tally,
    problem: Option<String>,
}

/// What was sent, by its number, as the user of a transaction.
fn user(number: usize) -> TransactionUser {
    TransactionUser::new(Role::UserAgent, Id { slot: number as u32, generation: 1 })
}

fn number(user: TransactionUser) -> usize {
    user.id(Role::UserAgent).expect("an agent has no other").slot as usize
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
            password: name.to_owned(),
            translated: false,
            outbound: Target::new(transport, listener(transport), outbound),
            random: Random::new(seed),
            tx: Transactions::new(TimerSettings::default(), [seed, 2]),
            index: Index::new(),
            events: Vec::new(),
            tasks: BTreeMap::new(),
            count: 0,
            register_cseq: 0,
            register_tag: String::new(),
            answers: Vec::new(),
            sent: Vec::new(),
            rung: Vec::new(),
            legs: Vec::new(),
            tally: Tally::default(),
            problem: None,
        }
    }

    /// It tries a password that is wrong, in requests of one sender or of many.
    pub fn set_wrong_password(&mut self, is_one_sender: bool) {
        self.password.push('?');
        self.register_tag = if is_one_sender { "guess".to_owned() } else { String::new() };
    }

    /// Its password is not that of the user whom it says to be.
    pub fn guesses(&self) -> bool {
        self.password != self.name
    }

    pub fn set_translated(&mut self) {
        self.translated = true;
    }

    /// Registers this name at this moment, or takes the registration back with 0 seconds.
    pub fn plan_register(&mut self, at: u64, seconds: u32) {
        self.plan(at, Task::Register { seconds });
    }

    /// Calls `user` at this moment, and cancels after `cancel` ms if no one has answered by then.
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

    /// One of the calls goes where no host is.
    pub fn calls_nobody(&self) -> bool {
        self.sent.iter().any(|s| s.to.contains("void"))
    }

    pub fn transactions(&self) -> &Transactions {
        &self.tx
    }

    /// How the calls ended, in the order of planning.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<Outcome>> {
        self.sent.iter().filter(|s| s.kind == Kind::Call && !s.challenged).map(|s| s.outcome)
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
        let rport = if self.translated { ";rport" } else { "" };
        format!("SIP/2.0/{} {}{rport};branch={branch}", self.transport.via(), self.address)
    }

    fn contact(&self) -> String {
        let parameter = if self.transport == Transport::Tcp { ";transport=tcp" } else { "" };
        format!("<sip:{}@{}{parameter}>", self.name, self.address)
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
        self.sent.push(Sent::new(Kind::Bye(at), String::new(), None));
        let at = self.sent.len() - 1;
        match self.target(&hop) {
            Some(target) => {
                let id = self.tx.send(now, range, branch.as_bytes(), b"BYE", target, 7, user(at), out);
                self.sent[at].id = Some(id);
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
        Some(Target::new(transport, listener(transport), address))
    }

    fn events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Timeout { tu, .. } => self.ended(number(tu), Outcome::Timeout),
                Event::ClientTransportError { tu, .. } => self.ended(number(tu), Outcome::TransportError),
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
                // Of a proxy.
                Event::TimerC { .. } | Event::TryingDue { .. } => (),
            }
        }
        self.events = events;
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
