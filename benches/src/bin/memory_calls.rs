//! Memory per relayed call that has just ended: `memory_calls [CALLS]`, 200,000 by default.
//!
//! Each call is INVITE, 100, 180, 200, ACK, BYE, 200 by UDP through the real proxy and its transactions, messages of
//! the usual size, all calls within four seconds of simulated time, so that all remains of a call are still there. PSS
//! is read from `/proc/self/smaps_rollup` before and after, so waste of the allocator counts; after another 40 s it is
//! read again. Exit code 1 when a call costs more than 2,500 bytes or any of it stays.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use strowger_benches::memory::pss;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
use strowger_core::routing::{Identity, ListenerAddress, Request, Router};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Incoming, Role, Transactions};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Target, Transport, call};
use strowger_message::{Index, Limits, Message, Method, build};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    fn mi_collect(force: bool);
}

const MOST: u64 = 2_500;
const AIM: u64 = 1_800;
/// Memory that may stay for good, over all calls: the buffers of a shard.
const REST: u64 = 8 << 20;

/// The proxy and its environment in a shard.
struct Shard {
    now: Now,
    tx: Transactions,
    proxy: Proxy,
    out: Outbox,
    events: Vec<Event>,
    index: Index,
    sent: Vec<u8>,
}

const CALLER: &str = "127.0.0.1:5070";
const CALLEE: &str = "127.0.0.1:5080";

fn arrival(address: &str) -> Arrival {
    let remote: SocketAddr = address.parse().expect("an address");
    Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None }
}

impl Shard {
    fn new() -> Self {
        let bound: SocketAddr = "127.0.0.1:5060".parse().expect("an address");
        let sent_by = bound.to_string().into_bytes().into();
        let listeners = vec![ListenerAddress { transport: Transport::Udp, bound, sent_by, network: 0 }];
        let identity = Arc::new(Identity::new(listeners, ["example.com"], &[]));
        let router = Arc::new(Router::new(identity, b"secret", 86_400));
        Self {
            now: Now { mono: 1_000, wall: 1_700_000_000_000 },
            tx: Transactions::new(TimerSettings::default(), [1, 2]),
            proxy: Proxy::new(router, ProxySettings::default(), Entropy::new([1; 32])),
            out: Outbox::new(),
            events: Vec::new(),
            index: Index::new(),
            sent: Vec::new(),
        }
    }

    /// Passes a request of the caller to the callee; the message for the callee stays in `sent`.
    fn request(&mut self, text: &str) {
        let arrival = arrival(CALLER);
        self.index.parse(text.as_bytes(), &Limits::default()).expect("well-formed");
        let message = Message::new(text.as_bytes(), &self.index);
        let hash = call::hash(1, message.call_id().expect("well-formed").text);
        let request = Request::of(message, &arrival, hash).expect("complete");
        let target: Target = arrival_of_callee();
        let id = match self.tx.request(self.now, &message, &arrival, hash, &mut self.out) {
            Incoming::Request(id) => id,
            Incoming::Ack => {
                let routing = self.proxy.router().route(self.now, &request);
                let candidate = Candidate { targets: &[target], ..Candidate::default() };
                return self.proxy.forward_ack(
                    &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
                    &request,
                    &routing,
                    &candidate,
                );
            }
            other => panic!("{other:?}"),
        };
        if request.method == Method::Invite {
            let start = self.out.start();
            build::respond(&message, 100, None, None, &mut self.out.bytes).finish(b"");
            let range = start..self.out.bytes.len();
            self.tx.respond(self.now, id, 100, range, &mut self.out);
        }
        let routing = self.proxy.router().route(self.now, &request);
        let targets = [target];
        let candidate = Candidate { uri: Some(b"sip:bob@127.0.0.1:5080"), targets: &targets, ..Candidate::default() };
        assert!(self.proxy.forward(
            &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
            &request,
            &routing,
            id,
            &[candidate],
            &Plan::default()
        ));
        let send = *self.out.sends().last().expect("it was forwarded");
        self.sent.clear();
        self.sent.extend_from_slice(&self.out.bytes[send.range()]);
        self.round();
    }

    /// Answers the last message as the callee.
    fn answer(&mut self, status: u16, body: &[u8]) {
        let mut text = Vec::new();
        self.index.parse(&self.sent, &Limits::default()).expect("well-formed");
        let message = Message::new(&self.sent, &self.index);
        build::respond(&message, status, None, Some(b"callee-tag-4711"), &mut text)
            .line(b"Contact", b"<sip:bob@127.0.0.1:5080;transport=UDP>")
            .line(b"Allow", b"INVITE, ACK, CANCEL, OPTIONS, BYE, REFER, NOTIFY, MESSAGE")
            .line(b"User-Agent", b"Softphone 4.2 build 77.10")
            .finish(body);
        self.index.parse(&text, &Limits::default()).expect("well-formed");
        let message = Message::new(&text, &self.index);
        let Incoming::Response { id, tu, .. } = self.tx.response(self.now, &message, &mut self.out) else {
            panic!("a response for what was sent")
        };
        if let Role::Proxy(context) = tu.role() {
            self.proxy.response(
                &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
                context,
                &message,
                &arrival(CALLEE),
                id,
            );
        }
        self.round();
    }

    /// Ends a round: sends all messages and runs the timers that are due.
    fn round(&mut self) {
        self.tx.poll(self.now, &mut self.out, &mut self.events);
        for event in self.events.drain(..) {
            if let Role::Proxy(context) = event.user().role() {
                self.proxy.event(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out }, context, &event);
            }
        }
        self.proxy.poll(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out });
        self.out.clear();
    }

    fn call(&mut self, n: u64) {
        let body = "v=0\r\no=alice 2890844526 2890844526 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                    m=audio 49172 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\n";
        let request = |method: &str, cseq: u32, to: &str, body: &str| {
            format!(
                "{method} sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};branch=z9hG4bK-{n:012}-{cseq}-{};rport\r\n\
                 Max-Forwards: 70\r\nFrom: Alice <sip:alice@example.com>;tag=a{n:010}\r\nTo: Bob <sip:bob@example.com>{to}\r\n\
                 Call-ID: {n:020}@abcdefghijklmno\r\nCSeq: {cseq} {method}\r\nContact: <sip:alice@{CALLER}>\r\n\
                 User-Agent: Softphone 4.2 build 77.10\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                method == "ACK",
                body.len()
            )
        };
        self.request(&request("INVITE", 1, "", body));
        self.answer(180, b"");
        self.answer(200, body.as_bytes());
        self.request(&request("ACK", 1, ";tag=callee-tag-4711", ""));
        self.request(&request("BYE", 2, ";tag=callee-tag-4711", ""));
        self.answer(200, b"");
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now.mono + ms;
        loop {
            let deadline = self.tx.deadline().into_iter().chain(self.proxy.deadline()).min();
            let Some(deadline) = deadline.filter(|&d| d <= until) else { break };
            self.now.mono = self.now.mono.max(deadline);
            self.round();
        }
        self.now.mono = until;
    }
}

fn arrival_of_callee() -> Target {
    arrival(CALLEE).reply()
}

fn main() -> ExitCode {
    let calls = std::env::args().nth(1).map_or(200_000, |n| n.parse().expect("the argument is a number"));
    let mut shard = Shard::new();
    shard.call(0);
    shard.pass(40_000);
    let before = pss();
    for n in 1..=calls {
        shard.now.mono += u64::from(n % (calls / 4_000).max(1) == 0);
        shard.call(n);
    }
    let counts = shard.tx.counts();
    assert_eq!(counts.servers + counts.clients, 4 * calls, "four transactions of each call");
    let own = shard.tx.memory() as u64 / calls;
    let each = pss().saturating_sub(before) / calls;
    shard.pass(45_000);
    let counts = shard.tx.counts();
    assert_eq!((counts.servers, counts.clients, shard.proxy.contexts()), (0, 0, 0));
    // The tables have freed their segments; mimalloc returns free pages to the kernel at its next opportunity. A server
    // requests this explicitly (or sets MIMALLOC_PURGE_DELAY=0), and so does this bench. SAFETY: the function takes no
    // pointer and may be called at any time.
    unsafe { mi_collect(true) };
    let rest = pss().saturating_sub(before);
    println!("{calls} calls just ended: {each} bytes each (transactions alone: {own}); most {MOST}, aim {AIM}");
    println!("after 45 s: {} kB left of {} kB", rest / 1024, each * calls / 1024);
    if each > MOST || rest > REST { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
