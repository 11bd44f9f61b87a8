//! The two phones: one user agent on two sockets, with shards of its own. The state of a call or registration moves
//! with the bucket of its Call-ID.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::Context;
use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{
    AccountKey, CallKey, Ending, Endpoint, EndpointRecord, Event, Invite, MovedCalls, Register, RegistrationKey,
    UserAgentSettings, auto_answer,
};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_net::{Listener, Net, NetSettings, Node, Service};

use super::server::DOMAIN;

/// Names and passwords of the caller and of the callee. Each uses the listener with its index.
pub(super) const USERS: [(&str, &str); 2] = [("alice", "wonderland"), ("bob", "builder")];

/// Expiry in seconds that a phone requests.
const EXPIRES: u32 = 3_600;

/// Media that each phone offers to receive. Nothing is ever sent there: the demo is about signalling.
const SDP: &[u8] =
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0 8\r\n";

/// Sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Caller,
    Server,
    Callee,
}

impl Party {
    const fn at(listener: ListenerId) -> Self {
        if listener.0 == 0 { Self::Caller } else { Self::Callee }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Caller => USERS[0].0,
            Self::Server => "Strowger",
            Self::Callee => USERS[1].0,
        }
    }
}

/// A message as a phone sent or received it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub at: Instant,
    pub from: Party,
    pub to: Party,
    pub bytes: Vec<u8>,
}

/// Commands to the phones, one after another.
#[derive(Debug)]
pub(super) enum PhoneCommand {
    /// Registers the phone of this user.
    Register(usize),
    /// Makes the caller call the callee.
    Call,
}

/// Results of commands.
#[derive(Debug)]
pub(super) enum PhoneEvent {
    /// The final answer of the registrar, and the messages that led to it.
    Registered(Result<u32, u16>, Vec<Step>),
    /// The call is over or was given up. Carries its messages.
    Called(Call, Vec<Step>),
    /// Ctrl-C was pressed.
    Interrupted,
}

/// Milliseconds from the 180 to the 200, and from the 200 to the BYE.
const RING: u64 = 400;
const HOLD: u64 = 2_000;

/// Timeout of the end of the call in milliseconds: an INVITE and a BYE without an answer take 32 s each (64 times T1,
/// RFC 3261 section 17.1).
const PATIENCE: u64 = 66_000;

/// Progress of the call.
#[derive(Debug, Default)]
pub(super) struct Call {
    answered: bool,
    /// True when its ACK has reached the callee.
    confirmed: bool,
    /// True when its BYE was answered.
    ended: bool,
    /// True when its BYE has reached the callee.
    taken_down: bool,
    /// Status with which the call was refused; 408 if no response was received.
    pub refused: Option<u16>,
}

impl Call {
    /// Returns whether the call passed all steps.
    pub(super) const fn succeeded(&self) -> bool {
        self.answered && self.confirmed && self.ended && self.taken_down
    }
}

/// Starts the phones.
///
/// # Errors
/// No socket, no thread, no randomness.
pub(super) fn start(server: SocketAddr, news: Sender<PhoneEvent>) -> anyhow::Result<Node<Phones>> {
    start_with(NetSettings::default(), server, news)
}

fn start_with(settings: NetSettings, server: SocketAddr, news: Sender<PhoneEvent>) -> anyhow::Result<Node<Phones>> {
    let call_secret = settings.secret;
    let any = || Listener::new(Transport::Udp, SocketAddr::from(([127, 0, 0, 1], 0)));
    let net = Net::bind(settings, vec![any(), any()]).context("the phones find no port")?;
    let listener = |address: &SocketAddr| ListenerAddress {
        transport: Transport::Udp,
        bound: *address,
        sent_by: address.to_string().into_bytes().into(),
        network: 0,
    };
    let identity = Arc::new(Identity::new(net.addresses().iter().map(listener).collect(), [""; 0], &[]));
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).context("no randomness")?;
    let interrupted = news.clone();
    let node = net.spawn(move |shard, _| {
        // The callee rings immediately, so it need not send a 100.
        let settings = UserAgentSettings {
            name: b"Strowger demo".to_vec(),
            trying: false,
            registration_retry: 0,
            ..UserAgentSettings::default()
        };
        let mut endpoint = Endpoint::of_shard(identity.clone(), settings, &Entropy::new(seed), call_secret, shard);
        let mut account =
            |(name, password): (&str, &str)| endpoint.agent.add_account(name.as_bytes(), password.as_bytes());
        let (registering, calling) = (USERS.map(&mut account), account(USERS[0]));
        Phones { endpoint, registering, calling_as: calling, server, news: news.clone(), task: None }
    })?;
    node.handle().services().spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            let _ = interrupted.send(PhoneEvent::Interrupted);
        }
    });
    Ok(node)
}

/// An action of a phone at a set time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Answer,
    HangUp,
}

/// The parts of both phones in this shard.
pub(super) struct Phones {
    endpoint: Endpoint,
    /// Accounts remember the last challenge that they answered. Calls have accounts of their own, because the callee
    /// must not see the credentials of a phone for the registrar.
    registering: [AccountKey; 2],
    calling_as: AccountKey,
    server: SocketAddr,
    news: Sender<PhoneEvent>,
    task: Option<Task>,
}

/// The command in progress, in the shard that has its Call-ID.
pub(super) struct Task {
    /// Messages so far.
    steps: Vec<Step>,
    what: What,
}

enum What {
    Registration(RegistrationKey),
    Call(CallTask),
}

struct CallTask {
    stations: Call,
    /// The call at the caller, and at the callee.
    caller: Option<CallKey>,
    callee: Option<CallKey>,
    /// Time at which it is given up, in milliseconds.
    until: u64,
    /// Actions, the earliest first.
    actions: BinaryHeap<Reverse<(u64, Action, CallKey)>>,
}

impl Task {
    /// Returns whether the task moves with the contents of this record.
    fn is_in(&self, record: &EndpointRecord) -> bool {
        match &self.what {
            What::Registration(key) => record.has_registration(*key),
            What::Call(call) => [call.caller, call.callee].into_iter().flatten().any(|key| record.has_call(key)),
        }
    }

    /// Replaces the keys of the task by those of another shard.
    fn moved(mut self, keys: &MovedCalls) -> Self {
        match &mut self.what {
            What::Registration(key) => *key = keys.registration(*key).unwrap_or(*key),
            What::Call(call) => {
                call.caller = call.caller.and_then(|key| keys.call(key));
                call.callee = call.callee.and_then(|key| keys.call(key));
                let actions = std::mem::take(&mut call.actions).into_iter();
                call.actions = actions
                    .filter_map(|Reverse((at, action, key))| Some(Reverse((at, action, keys.call(key)?))))
                    .collect();
            }
        }
        self
    }
}

/// State that moves to another shard.
pub(super) struct Record {
    endpoint: EndpointRecord,
    task: Option<Task>,
}

impl Phones {
    fn target(&self, phone: usize) -> Target {
        Target::new(Transport::Udp, ListenerId(phone as u16), self.server)
    }

    /// Runs an action of the user agent and records the messages that it sends.
    fn with(&mut self, out: &mut Outbox, act: impl FnOnce(&mut Self, &mut Outbox)) {
        let before = out.sends().len();
        act(self, out);
        if let Some(task) = &mut self.task {
            let at = Instant::now();
            task.steps.extend(out.sends()[before..].iter().map(|send| Step {
                at,
                from: Party::at(send.target.listener),
                to: Party::Server,
                bytes: out.bytes[send.range()].to_vec(),
            }));
        }
    }

    fn register(&mut self, now: Now, phone: usize, out: &mut Outbox) {
        self.with(out, |me, out| {
            let (aor, registrar) = (format!("sip:{}@{DOMAIN}", USERS[phone].0), format!("sip:{DOMAIN}"));
            let register = Register {
                aor: aor.as_bytes(),
                registrar: registrar.as_bytes(),
                routes: b"",
                target: me.target(phone),
                account: Some(me.registering[phone]),
                expires: EXPIRES,
                headers: b"",
            };
            let (agent, mut round) = me.endpoint.lend(now, out);
            let key = agent.register(&mut round, &register).expect("the address is written right here");
            me.task = Some(Task { steps: Vec::new(), what: What::Registration(key) });
        });
    }

    fn call(&mut self, now: Now, out: &mut Outbox) {
        self.with(out, |me, out| {
            let [from, to] = USERS.map(|(name, _)| format!("<sip:{name}@{DOMAIN}>"));
            let invite = Invite {
                account: Some(me.calling_as),
                ..Invite::new(from.as_bytes(), to.as_bytes(), me.target(0), SDP)
            };
            let (agent, mut round) = me.endpoint.lend(now, out);
            let caller = agent.invite(&mut round, &invite).expect("the addresses are written right here");
            let call = CallTask {
                stations: Call::default(),
                caller: Some(caller),
                callee: None,
                until: now.mono + RING + HOLD + PATIENCE,
                actions: BinaryHeap::new(),
            };
            me.task = Some(Task { steps: Vec::new(), what: What::Call(call) });
        });
    }

    fn call_task(&mut self) -> Option<&mut CallTask> {
        match &mut self.task {
            Some(Task { what: What::Call(call), .. }) => Some(call),
            _ => None,
        }
    }

    /// Performs the actions that are due, then handles the events of the user agent.
    fn perform_due(&mut self, now: Now, out: &mut Outbox) {
        while let Some(call) = self.call_task()
            && let Some(Reverse((at, action, key))) = call.actions.peek().copied()
            && at <= now.mono
        {
            call.actions.pop();
            let (agent, mut round) = self.endpoint.lend(now, out);
            match action {
                Action::Answer => agent.answer(&mut round, key, SDP),
                Action::HangUp => agent.hang_up(&mut round, key),
            }
        }
        while let Some(event) = self.endpoint.agent.event() {
            self.hear(now, event, out);
        }
    }

    fn hear(&mut self, now: Now, event: Event, out: &mut Outbox) {
        let (agent, mut round) = self.endpoint.lend(now, out);
        auto_answer(agent, &mut round, &event);
        match event {
            Event::Registered { expires, .. } => return self.registered(Ok(expires)),
            Event::RegistrationFailed { status, .. } => return self.registered(Err(status)),
            Event::Invited { call, .. } => {
                agent.ring(&mut round, call, 180, b"");
            }
            _ => (),
        }
        let Some(task) = self.call_task() else { return };
        match event {
            Event::Invited { call, .. } => {
                task.callee = Some(call);
                task.actions.push(Reverse((now.mono + RING, Action::Answer, call)));
            }
            Event::Answered { call, .. } => {
                task.stations.answered = true;
                task.actions.push(Reverse((now.mono + HOLD, Action::HangUp, call)));
            }
            Event::Confirmed { .. } => task.stations.confirmed = true,
            Event::Failed { call, status, .. } | Event::Redirected { call, status, .. } => {
                if task.caller == Some(call) {
                    task.caller = None;
                    task.stations.refused = Some(status);
                } else {
                    task.callee = None;
                }
            }
            Event::Ended { call, by } => {
                if task.caller == Some(call) {
                    task.caller = None;
                    task.stations.ended = by == Ending::Local;
                } else {
                    task.callee = None;
                    task.stations.taken_down = by == Ending::Remote;
                }
            }
            _ => (),
        }
    }

    /// Reports the result of a registration, once: a refresh, much later, is not reported.
    fn registered(&mut self, result: Result<u32, u16>) {
        if let Some(task) = self.task.take_if(|task| matches!(task.what, What::Registration(_))) {
            let _ = self.news.send(PhoneEvent::Registered(result, task.steps));
        }
    }

    /// Reports the end of the call when nothing is in progress any more, or after the timeout.
    fn close(&mut self, now: Now) {
        let is_over = |call: &CallTask| (call.caller.is_none() && call.callee.is_none()) || call.until <= now.mono;
        if self.call_task().is_some_and(|call| is_over(call))
            && let Some(Task { steps, what: What::Call(call) }) = self.task.take()
        {
            let _ = self.news.send(PhoneEvent::Called(call.stations, steps));
        }
    }
}

impl Service for Phones {
    type ShardMessage = PhoneCommand;
    type Record = Record;

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if let Some(task) = &mut self.task {
            let to = Party::at(arrival.listener);
            task.steps.push(Step { at: Instant::now(), from: Party::Server, to, bytes: bytes.to_vec() });
        }
        self.with(out, |me, out| {
            me.endpoint.receive(now, arrival, bytes, out);
            me.perform_due(now, out);
        });
        self.close(now);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.with(out, |me, out| {
            me.endpoint.poll(now, out);
            me.perform_due(now, out);
        });
        self.close(now);
    }

    fn deadline(&mut self) -> Option<u64> {
        let call = self
            .call_task()
            .map(|call| call.actions.peek().map_or(call.until, |Reverse((at, ..))| call.until.min(*at)));
        [self.endpoint.deadline(), call].into_iter().flatten().min()
    }

    fn answered(&mut self, now: Now, command: PhoneCommand, out: &mut Outbox) {
        match command {
            PhoneCommand::Register(phone) => self.register(now, phone, out),
            PhoneCommand::Call => self.call(now, out),
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.with(out, |me, out| {
            me.endpoint.failed(now, token, out);
            me.perform_due(now, out);
        });
        self.close(now);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, now: Now, bucket: u8) -> Vec<Record> {
        let endpoint = self.endpoint.export(now, BucketSet::of(|of| of == bucket));
        let task = self.task.take_if(|task| task.is_in(&endpoint));
        vec![Record { endpoint, task }]
    }

    fn import(&mut self, now: Now, record: Record, _: &mut Outbox) {
        let moved = self.endpoint.import(now, record.endpoint);
        if let Some(task) = record.task {
            self.task = Some(task.moved(&moved));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ladder;
    use super::super::server::DemoServer;
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use strowger_net::{Handle, Shards};

    fn settle(handle: &Handle<Phones>, shards: usize) {
        handle.set_shards(shards).unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while !handle.is_settled() {
            assert!(Instant::now() < patience, "buckets rest");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Changes the number of shards while the phones register, ring, talk and hang up.
    #[test]
    fn a_call_continues_while_shards_come_and_go() {
        let subject = DemoServer::start(&USERS).unwrap();
        let (tell, news) = channel();
        let settings = NetSettings { shards: Shards::Auto { most: 4 }, ..NetSettings::default() };
        let phones = start_with(settings, subject.udp(), tell).unwrap();
        let handle = phones.handle();
        let command = handle.mailbox(0);
        let soon = || news.recv_timeout(Duration::from_secs(60)).unwrap();
        for (phone, shards) in [(0, 4), (1, 1)] {
            command.send(PhoneCommand::Register(phone));
            settle(handle, shards);
            let PhoneEvent::Registered(result, steps) = soon() else { panic!("no registration") };
            assert_eq!(result, Ok(EXPIRES));
            assert!(ladder::rungs(&steps).len() >= 4, "REGISTER, 401, REGISTER, 200");
        }
        for _ in 0..3 {
            command.send(PhoneCommand::Call);
            let mut shards = [4, 1, 2, 3].into_iter().cycle();
            let (call, steps) = loop {
                settle(handle, shards.next().unwrap());
                match news.recv_timeout(Duration::from_millis(50)) {
                    Ok(PhoneEvent::Called(call, steps)) => break (call, steps),
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => (),
                }
            };
            assert!(call.succeeded(), "{call:?} {steps:#?}");
            let rungs = ladder::rungs(&steps);
            assert!(rungs.iter().any(|rung| rung.status == Some(180)) && rungs.len() >= 12, "{}", ladder::draw(&rungs));
        }
        assert!(handle.total().buckets_moved > 3 * 4 * 64);
    }
}
