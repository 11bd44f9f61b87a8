//! Allocations per message once warm: counted, none allowed.

use crate::template::Template;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_allocations::of_thread;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
use strowger_core::routing::{Identity, ListenerAddress, Request, Router};
use strowger_core::slots::Id;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Incoming, Role, TransactionUser, Transactions};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Transport, call};
use strowger_message::{Index, Limits, Message, Method, build};

const USER: TransactionUser = TransactionUser::new(Role::UserAgent(Id { slot: 9, generation: 1 }));

/// Runs relayed calls at 1,000 calls a second of simulated time: INVITE and BYE through a server and a client transaction each.
#[test]
fn warm_transactions_allocate_nothing() {
    let mut table = Transactions::new(TimerSettings::default(), [1, 2]);
    let (mut out, mut events, mut index) = (Outbox::new(), Vec::new(), Index::new());
    let arrival = Arrival {
        transport: Transport::Udp,
        listener: ListenerId(0),
        remote: "127.0.0.1:5070".parse().expect("an address"),
        flow: None,
    };
    let mut requests =
        [Template::new("INVITE sip:b@x SIP/2.0", "1 INVITE", 500), Template::new("BYE sip:b@x SIP/2.0", "2 BYE", 100)];
    let mut responses = [
        [Template::new("SIP/2.0 180 Ringing", "1 INVITE", 100), Template::new("SIP/2.0 200 OK", "1 INVITE", 400)],
        [Template::new("SIP/2.0 100 Trying", "2 BYE", 10), Template::new("SIP/2.0 200 OK", "2 BYE", 100)],
    ];
    let limits = Limits::default();
    let mut call = |number: u64, mono: u64| {
        let now = Now { mono, wall: 0 };
        for (which, method) in [b"INVITE".as_slice(), b"BYE"].into_iter().enumerate() {
            let bytes = requests[which].numbered(2 * number).bytes();
            index.parse(bytes, &limits).expect("well-formed");
            let message = Message::new(bytes, &index);
            let Incoming::Request(server) = table.request(now, &message, &arrival, number as u32, &mut out) else {
                panic!()
            };
            let branch = requests[which].branch();
            let bytes = requests[which].numbered(2 * number + 1).bytes();
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            let range = start..start + bytes.len();
            table.send(now, range, &bytes[branch], method, arrival.reply(), number as u32, USER, &mut out);
            for (n, status) in [[180, 200], [100, 200]][which].into_iter().enumerate() {
                let bytes = responses[which][n].numbered(2 * number + 1).bytes();
                index.parse(bytes, &limits).expect("well-formed");
                let outgoing = table.response(now, &Message::new(bytes, &index), &mut out);
                assert!(matches!(outgoing, Incoming::Response { tu: USER, .. }));
                let start = out.start();
                out.bytes.extend_from_slice(bytes);
                assert!(table.respond(now, server, status, start..start + bytes.len(), &mut out));
            }
        }
        out.clear();
        table.poll(now, &mut out, &mut events);
        let _ = table.deadline();
        events.clear();
        out.clear();
    };
    // Warm: past the 32 s that the longest transaction lives.
    for number in 0..45_000 {
        call(number, number);
    }
    let before = of_thread();
    for number in 45_000..65_000 {
        call(number, number);
    }
    let allocations = of_thread() - before;
    let counts = table.counts();
    assert_eq!(allocations, 0, "{counts:?}");
    assert!(counts.servers > 60_000 && table.timers_waiting() > 100_000, "{counts:?}");
}

/// Messages of one call through the real proxy, and the part of the shard around the proxy: INVITE, 100, 180, 200, ACK,
/// BYE, 200.
struct Relay {
    now: Now,
    tx: Transactions,
    proxy: Proxy,
    out: Outbox,
    events: Vec<Event>,
    index: Index,
    sent: Vec<u8>,
    text: Vec<u8>,
}

impl Relay {
    fn new() -> Self {
        let bound: SocketAddr = "127.0.0.1:5060".parse().expect("an address");
        let sent_by = bound.to_string().into_bytes().into();
        let listeners = vec![ListenerAddress { transport: Transport::Udp, bound, sent_by, network: 0 }];
        let identity = Arc::new(Identity::new(listeners, ["x"], &[]));
        let router = Arc::new(Router::new(identity, b"secret", 86_400));
        Self {
            now: Now { mono: 1_000, wall: 1_700_000_000_000 },
            tx: Transactions::new(TimerSettings::default(), [1, 2]),
            proxy: Proxy::new(router, ProxySettings::default(), Entropy::new([1; 32])),
            out: Outbox::new(),
            events: Vec::new(),
            index: Index::new(),
            sent: Vec::new(),
            text: Vec::new(),
        }
    }

    fn request(&mut self, bytes: &[u8]) {
        let arrival = from("127.0.0.1:5070");
        self.index.parse(bytes, &Limits::default()).expect("well-formed");
        let message = Message::new(bytes, &self.index);
        let hash = call::hash(1, message.call_id().expect("well-formed").text);
        let request = Request::of(message, &arrival, hash).expect("complete");
        let target = from("127.0.0.1:5080").reply();
        let routing = self.proxy.router().route(self.now, &request);
        match self.tx.request(self.now, &message, &arrival, hash, &mut self.out) {
            Incoming::Request(id) => {
                if request.method == Method::Invite {
                    let start = self.out.start();
                    build::respond(&message, 100, None, None, &mut self.out.bytes).finish(b"");
                    let range = start..self.out.bytes.len();
                    self.tx.respond(self.now, id, 100, range, &mut self.out);
                }
                let targets = [target];
                let candidate = Candidate { targets: &targets, ..Candidate::default() };
                let candidates = [candidate];
                let (tx, out) = (&mut self.tx, &mut self.out);
                assert!(self.proxy.forward(
                    &mut Round { now: self.now, tx, out },
                    &request,
                    &routing,
                    id,
                    &candidates,
                    &Plan::default()
                ));
                let send = *self.out.sends().last().expect("it was forwarded");
                self.sent.clear();
                self.sent.extend_from_slice(&self.out.bytes[send.range()]);
            }
            Incoming::Ack => {
                let candidate = Candidate { targets: &[target], ..Candidate::default() };
                self.proxy.forward_ack(
                    &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
                    &request,
                    &routing,
                    &candidate,
                );
            }
            other => panic!("{other:?}"),
        }
        self.round();
    }

    fn answer(&mut self, status: u16) {
        self.text.clear();
        self.index.parse(&self.sent, &Limits::default()).expect("well-formed");
        let message = Message::new(&self.sent, &self.index);
        build::respond(&message, status, None, Some(b"t"), &mut self.text)
            .line(b"Contact", b"<sip:b@127.0.0.1:5080>")
            .finish(b"");
        self.index.parse(&self.text, &Limits::default()).expect("well-formed");
        let message = Message::new(&self.text, &self.index);
        let Incoming::Response { id, tu, .. } = self.tx.response(self.now, &message, &mut self.out) else { panic!() };
        let (arrival, tx, out) = (from("127.0.0.1:5080"), &mut self.tx, &mut self.out);
        if let Role::Proxy(context) = tu.role() {
            self.proxy.response(&mut Round { now: self.now, tx, out }, context, &message, &arrival, id);
        }
        self.round();
    }

    fn round(&mut self) {
        self.tx.poll(self.now, &mut self.out, &mut self.events);
        for event in self.events.drain(..) {
            if let Role::Proxy(context) = event.user().role() {
                self.proxy.event(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out }, context, &event);
            }
        }
        self.proxy.poll(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out });
        let _ = (self.tx.deadline(), self.proxy.deadline());
        self.out.clear();
    }
}

fn from(address: &str) -> Arrival {
    let remote = address.parse().expect("an address");
    Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None }
}

#[test]
fn a_warm_proxy_allocates_nothing() {
    let mut relay = Relay::new();
    let line = "sip:b@127.0.0.1:5080 SIP/2.0\r\nContact: <sip:a@127.0.0.1:5070>";
    let mut requests = [
        Template::new(&format!("INVITE {line}"), "1 INVITE", 300),
        Template::new(&format!("ACK {line}"), "1 ACK", 10),
        Template::new(&format!("BYE {line}"), "2 BYE", 100),
    ];
    let mut call = |number: u64| {
        relay.now = Now { mono: 1_000 + 2 * number, wall: 1_700_000_000_000 + 2 * number };
        // The ACK of a 2xx and the BYE are transactions of their own.
        relay.request(requests[0].numbered(3 * number).bytes());
        relay.answer(180);
        relay.answer(200);
        relay.request(requests[1].numbered(3 * number + 1).bytes());
        relay.request(requests[2].numbered(3 * number + 2).bytes());
        relay.answer(200);
    };
    for number in 0..22_000 {
        call(number);
    }
    let before = of_thread();
    for number in 22_000..32_000 {
        call(number);
    }
    let allocations = of_thread() - before;
    assert_eq!(allocations, 0, "in 10,000 calls");
    assert!(relay.proxy.contexts() > 30_000 && relay.tx.counts().servers > 30_000);
}
