//! The two telephones: one user agent on two sockets, driven by a shard of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::Context;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{AccountKey, CallKey, Ending, Endpoint, Event, Invite, Register, Settings};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_net::{Listener, Net, Node, Service, Settings as NetSettings, Shards};

use super::server::DOMAIN;

/// Name and password: first the caller, then the callee, each at the listener of its place here.
pub(super) const USERS: [(&str, &str); 2] = [("alice", "wonderland"), ("bob", "builder")];

/// Seconds that a phone asks the registrar for.
const EXPIRES: u32 = 3_600;

/// What each phone says it would like to hear, and where. Nothing is ever sent there: the demo is about signalling.
const SDP: &[u8] =
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0 8\r\n";

/// Who sends or gets a message.
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

/// What the phones are asked to do, one thing after another.
#[derive(Debug)]
pub(super) enum Order {
    /// This user's phone registers.
    Register(usize),
    /// The caller calls the callee.
    Call,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum News {
    /// The registrar's last word, and the messages that led to it.
    Registered(Result<u32, u16>, Vec<Step>),
    /// The call is over, or was given up.
    Called(Call, Vec<Step>),
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

/// Milliseconds from the 180 to the 200, and from the 200 to the BYE.
const RING: u64 = 400;
const HOLD: u64 = 2_000;

/// How long the end of the call is waited for, milliseconds: an INVITE and a BYE that nobody answers take 32 s each
/// (64 times T1, RFC 3261 section 17.1).
const PATIENCE: u64 = 66_000;

/// The stations of the call.
#[derive(Debug, Default)]
pub(super) struct Call {
    answered: bool,
    /// Its ACK reached the callee.
    confirmed: bool,
    /// Its BYE was answered.
    ended: bool,
    /// Its BYE reached the callee.
    taken_down: bool,
    /// The status that refused it; 408: no answer came.
    pub refused: Option<u16>,
}

impl Call {
    /// It went through all of them.
    pub(super) const fn succeeded(&self) -> bool {
        self.answered && self.confirmed && self.ended && self.taken_down
    }
}

/// Starts the phones.
///
/// # Errors
/// No socket, no thread, no randomness.
pub(super) fn start(server: SocketAddr, news: Sender<News>) -> anyhow::Result<Node<Phones>> {
    let settings = NetSettings { shards: Shards::Fixed(1), ..NetSettings::default() };
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
    let node = net.spawn(move |_, _| {
        // The callee rings at once, which spares its own 100.
        let settings =
            Settings { name: b"Strowger demo".to_vec(), trying: false, registration_retry: 0, ..Settings::default() };
        let mut endpoint = Endpoint::new(identity.clone(), settings, Entropy::new(seed), call_secret);
        let mut account =
            |(name, password): (&str, &str)| endpoint.agent.add_account(name.as_bytes(), password.as_bytes());
        let (registering, calling) = (USERS.map(&mut account), account(USERS[0]));
        Phones {
            endpoint,
            registering,
            calling_as: calling,
            server,
            news: news.clone(),
            steps: None,
            until: None,
            call: Call::default(),
            calling: None,
            called: false,
            deeds: BinaryHeap::new(),
        }
    })?;
    node.handle().services().spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            let _ = interrupted.send(News::Interrupted);
        }
    });
    Ok(node)
}

/// Something that a phone does when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Answer,
    HangUp,
}

/// Both phones.
pub(super) struct Phones {
    endpoint: Endpoint,
    /// Accounts know the last challenge that they answered. What a phone tells the registrar is nothing for its callee, so
    /// calls have an account of their own.
    registering: [AccountKey; 2],
    calling_as: AccountKey,
    server: SocketAddr,
    news: Sender<News>,
    /// Messages, while they are recorded.
    steps: Option<Vec<Step>>,
    /// While there is a call: when it is given up, ms.
    until: Option<u64>,
    call: Call,
    /// The call at the caller, and whether it is open at the callee.
    calling: Option<CallKey>,
    called: bool,
    /// By their time, the earliest first.
    deeds: BinaryHeap<Reverse<(u64, Deed, CallKey)>>,
}

impl Phones {
    fn target(&self, phone: usize) -> Target {
        Target::new(Transport::Udp, ListenerId(phone as u16), self.server)
    }

    /// Lets the user agent do something, and records what it sends.
    fn with(&mut self, out: &mut Outbox, act: impl FnOnce(&mut Self, &mut Outbox)) {
        let before = out.sends().len();
        act(self, out);
        if let Some(steps) = &mut self.steps {
            let at = Instant::now();
            steps.extend(out.sends()[before..].iter().map(|send| Step {
                at,
                from: Party::at(send.target.listener),
                to: Party::Server,
                bytes: out.bytes[send.range()].to_vec(),
            }));
        }
    }

    fn register(&mut self, now: Now, phone: usize, out: &mut Outbox) {
        self.steps = Some(Vec::new());
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
            agent.register(&mut round, &register).expect("the address is written right here");
        });
    }

    fn call(&mut self, now: Now, out: &mut Outbox) {
        let [from, to] = USERS.map(|(name, _)| format!("<sip:{name}@{DOMAIN}>"));
        let invite = Invite {
            from: from.as_bytes(),
            to: to.as_bytes(),
            uri: None,
            routes: b"",
            target: self.target(0),
            account: Some(self.calling_as),
            offer: SDP,
            headers: b"",
            call_id: b"",
        };
        let (agent, mut round) = self.endpoint.lend(now, out);
        self.calling = Some(agent.invite(&mut round, &invite).expect("the addresses are written right here"));
    }

    /// Does what is due, then what the user agent's news ask for.
    fn go_on(&mut self, now: Now, out: &mut Outbox) {
        while let Some(Reverse((at, deed, call))) = self.deeds.peek().copied()
            && at <= now.mono
        {
            self.deeds.pop();
            let (agent, mut round) = self.endpoint.lend(now, out);
            match deed {
                Deed::Answer => agent.answer(&mut round, call, SDP),
                Deed::HangUp => agent.hang_up(&mut round, call),
            }
        }
        while let Some(event) = self.endpoint.agent.event() {
            self.hear(now, event, out);
        }
    }

    fn hear(&mut self, now: Now, event: Event, out: &mut Outbox) {
        match event {
            Event::Registered { expires, .. } => self.registered(Ok(expires)),
            Event::RegistrationFailed { status, .. } => self.registered(Err(status)),
            Event::Invited { call, .. } => {
                self.called = true;
                let (agent, mut round) = self.endpoint.lend(now, out);
                agent.ring(&mut round, call, 180, b"");
                self.deeds.push(Reverse((now.mono + RING, Deed::Answer, call)));
            }
            Event::Answered { call, .. } => {
                self.call.answered = true;
                self.deeds.push(Reverse((now.mono + HOLD, Deed::HangUp, call)));
            }
            Event::Confirmed { .. } => self.call.confirmed = true,
            Event::Failed { call, status, .. } | Event::Redirected { call, status, .. } => {
                if self.calling == Some(call) {
                    self.calling = None;
                    self.call.refused = Some(status);
                } else {
                    self.called = false;
                }
            }
            Event::Ended { call, by } => {
                if self.calling == Some(call) {
                    self.calling = None;
                    self.call.ended = by == Ending::Local;
                } else {
                    self.called = false;
                    self.call.taken_down = by == Ending::Remote;
                }
            }
            _ => (),
        }
    }

    fn registered(&mut self, result: Result<u32, u16>) {
        // A refresh, much later, is no news.
        if let Some(steps) = self.steps.take() {
            let _ = self.news.send(News::Registered(result, steps));
        }
    }

    /// Tells the end of the call: nothing is under way any more, or it was waited for long enough.
    fn close(&mut self, now: Now) {
        let idle = self.calling.is_none() && !self.called;
        if self.until.is_some_and(|until| idle || until <= now.mono) {
            self.until = None;
            self.deeds.clear();
            (self.calling, self.called) = (None, false);
            let _ = self.news.send(News::Called(std::mem::take(&mut self.call), self.steps.take().unwrap_or_default()));
        }
    }
}

impl Service for Phones {
    type Answer = Order;
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if let Some(steps) = &mut self.steps {
            let to = Party::at(arrival.listener);
            steps.push(Step { at: Instant::now(), from: Party::Server, to, bytes: bytes.to_vec() });
        }
        self.with(out, |me, out| {
            me.endpoint.receive(now, arrival, bytes, out);
            me.go_on(now, out);
        });
        self.close(now);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.with(out, |me, out| {
            me.endpoint.poll(now, out);
            me.go_on(now, out);
        });
        self.close(now);
    }

    fn deadline(&mut self) -> Option<u64> {
        let deed = self.deeds.peek().map(|Reverse((at, ..))| *at);
        [self.endpoint.deadline(), deed, self.until].into_iter().flatten().min()
    }

    fn answered(&mut self, now: Now, order: Order, out: &mut Outbox) {
        match order {
            Order::Register(phone) => self.register(now, phone, out),
            Order::Call => {
                self.steps = Some(Vec::new());
                self.until = Some(now.mono + RING + HOLD + PATIENCE);
                self.with(out, |me, out| me.call(now, out));
            }
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.with(out, |me, out| {
            me.endpoint.failed(now, token, out);
            me.go_on(now, out);
        });
        self.close(now);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }

    fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
}
