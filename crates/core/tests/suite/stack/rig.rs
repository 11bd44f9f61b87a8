//! Shard with four roles on one stack: proxy, user agent, requests that wait, and pings.

use crate::text::Got;
use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use strowger_core::slots::Id;
use strowger_core::stack::{Incoming, Reading, Received, Role, Stack};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event as TransactionEvent, ServerId, TransactionUser};
use strowger_core::user_agent::{CallKey, Event, UserAgent, UserAgentSettings};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Target, Transport};
use strowger_message::respond;

pub(super) const SHARD: &str = "192.0.2.9:5060";
pub(super) const ALICE: &str = "192.0.2.1:5060";
pub(super) const BOB: &str = "192.0.2.2:5060";
pub(super) const SECRET: u32 = 3;
pub(super) const SDP: &[u8] = b"v=0\r\no=a 1 1 IN IP4 192.0.2.9\r\ns=-\r\nt=0 0\r\n";

/// Request that waits, and its server transaction.
pub(super) struct Waiting {
    pub(super) bytes: Vec<u8>,
    pub(super) server: ServerId,
}

/// Shard with four roles. Requests for `agent` go to the user agent, requests for `wait` are suspended, others are forwarded.
pub(super) struct Shard {
    pub(super) now: Now,
    pub(super) stack: Stack,
    pub(super) proxy: Proxy,
    pub(super) agent: UserAgent,
    pub(super) waiting: Vec<Waiting>,
    pub(super) out: Outbox,
    /// Received messages and events of transactions, by the role that got them.
    pub(super) log: Vec<String>,
}

/// Sent message and its target.
pub(super) type Sent = (SocketAddr, String);

impl Shard {
    pub(super) fn new() -> Self {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound: address(SHARD),
            sent_by: SHARD.as_bytes().into(),
            network: 0,
        };
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        let router = Arc::new(Router::new(identity.clone(), b"secret", 86_400));
        let settings = UserAgentSettings { trying: false, other_methods: true, ..UserAgentSettings::default() };
        Self {
            now: Now { mono: 1_000, wall: 1_700_000_000_000 },
            stack: Stack::new(TimerSettings::default(), [1, 2], Reading::new(SECRET)),
            proxy: Proxy::new(router, ProxySettings::default(), Entropy::new([1; 32])),
            agent: UserAgent::new(identity, settings, Entropy::new([2; 32]), SECRET, BucketSet::ALL),
            waiting: Vec::new(),
            out: Outbox::new(),
            log: Vec::new(),
        }
    }

    pub(super) fn receive(&mut self, from: &str, text: &str) -> Vec<Sent> {
        let arrival = arrival(from);
        let Self { now, stack, proxy, agent, waiting, out, log } = self;
        let (received, incoming, mut round) = stack.receive(*now, &arrival, text.as_bytes(), out);
        let round = &mut round;
        match (&received, incoming) {
            (Received::Request(request), Incoming::Request(server)) => {
                let user = request.uri.sip().and_then(|uri| uri.user);
                if user == Some(b"wait") {
                    log.push(format!("suspended {}", request.method));
                    let id = Id { slot: waiting.len() as u32, generation: 1 };
                    round.tx.set_user(server, TransactionUser::new(Role::Suspended(id)));
                    round.tx.expect_answer(round.now, server);
                    waiting.push(Waiting { bytes: request.message.bytes().to_vec(), server });
                } else if user == Some(b"agent") || agent.owns(request.call_id, request.to_tag, request.from_tag) {
                    log.push(format!("agent {}", request.method));
                    agent.take_request(round, request, server);
                } else {
                    log.push(format!("proxy {}", request.method));
                    let (router, target) = (proxy.router().clone(), next_hop(proxy, request));
                    let routing = router.route(round.now, request);
                    let candidates = [Candidate { targets: &[target], ..Candidate::default() }];
                    assert!(proxy.forward(round, request, &routing, server, &candidates, &Plan::default()));
                }
            }
            (Received::Request(request), Incoming::Ack) => {
                if agent.owns(request.call_id, request.to_tag, request.from_tag) {
                    log.push("agent ACK".to_owned());
                    agent.take_ack(round, request);
                } else {
                    log.push("proxy ACK".to_owned());
                    let (router, target) = (proxy.router().clone(), next_hop(proxy, request));
                    let routing = router.route(round.now, request);
                    let candidate = Candidate { targets: &[target], ..Candidate::default() };
                    proxy.forward_ack(round, request, &routing, &candidate);
                }
            }
            (Received::Request(request), Incoming::Cancel { cancel, invite }) => {
                let role = invite.map_or(Role::None, |invite| round.tx.user(invite).role());
                match (role, invite) {
                    (Role::Proxy(_), Some(invite)) => {
                        log.push("proxy CANCEL".to_owned());
                        answer(round, request, cancel, 200);
                        assert!(proxy.cancel(round, invite, &request.message));
                    }
                    (Role::Suspended(_), Some(invite)) => {
                        log.push("suspended CANCEL".to_owned());
                        answer(round, request, cancel, 200);
                        round.tx.abandon(round.now, invite);
                    }
                    _ => {
                        log.push("agent CANCEL".to_owned());
                        agent.take_cancel(round, request, cancel, invite);
                    }
                }
            }
            (Received::Response(response), Incoming::Response { id, tu, after_final }) => {
                let status = response.status().expect("a response");
                match tu.role() {
                    Role::Proxy(context) => {
                        log.push(format!("proxy {status}"));
                        proxy.response(round, context, response, &arrival, id);
                    }
                    Role::UserAgent(_) => {
                        log.push(format!("agent {status}"));
                        agent.take_response(round, &arrival, response, id, tu, after_final);
                    }
                    Role::Ping(_) => {
                        log.push(format!("ping {status}"));
                        round.tx.terminate(id);
                    }
                    other => panic!("{other:?} sends nothing"),
                }
            }
            (_, incoming) => log.push(format!("{incoming:?}")),
        }
        self.sent()
    }

    /// Gives the oldest suspended request to the user agent.
    pub(super) fn hand_over(&mut self, from: &str) -> Vec<Sent> {
        let arrival = arrival(from);
        let Waiting { bytes, server } = self.waiting.remove(0);
        let mut reader = self.stack.lend_reader();
        let request = reader.read_again(&arrival, &bytes, &self.stack.reading).expect("read before");
        self.agent.take_request(&mut self.stack.round(self.now, &mut self.out), &request, server);
        self.stack.return_reader(reader);
        self.sent()
    }

    /// Sends an OPTIONS to Bob as a ping.
    pub(super) fn ping(&mut self) -> Vec<Sent> {
        let target = Target::new(Transport::Udp, ListenerId(0), address(BOB));
        let user = TransactionUser::new(Role::Ping(Id { slot: 7, generation: 0 }));
        let start = self.out.start();
        self.out.bytes.extend_from_slice(request("OPTIONS", FAR, "ping", 1, "").as_bytes());
        let (range, branch) = (start..self.out.bytes.len(), b"z9hG4bKping1OPTIONS");
        self.stack.transactions.send(self.now, range, branch, b"OPTIONS", target, 0, user, &mut self.out);
        self.sent()
    }

    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut UserAgent, &mut Round<'_>) -> T) -> (T, Vec<Sent>) {
        let done = act(&mut self.agent, &mut self.stack.round(self.now, &mut self.out));
        (done, self.sent())
    }

    /// Lets this number of milliseconds pass.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<Sent> {
        let until = self.now.mono + ms;
        while let Some(due) = self.deadline().filter(|due| *due <= until) {
            self.now.mono = self.now.mono.max(due);
            self.stack.poll(self.now, &mut self.out);
            while let Some(event) = self.stack.event() {
                self.tell(&event);
            }
            self.proxy.poll(&mut self.stack.round(self.now, &mut self.out));
            self.agent.poll(&mut self.stack.round(self.now, &mut self.out));
        }
        self.now.mono = until;
        self.sent()
    }

    pub(super) fn tell(&mut self, event: &TransactionEvent) {
        let what = format!("{event:?}");
        let what = what.split(' ').next().unwrap_or_default();
        let round = &mut self.stack.round(self.now, &mut self.out);
        match event.user().role() {
            Role::Proxy(context) => {
                self.log.push(format!("proxy {what}"));
                self.proxy.event(round, context, event);
            }
            Role::UserAgent(_) => {
                self.log.push(format!("agent {what}"));
                self.agent.transaction_event(round, event);
            }
            Role::Suspended(_) => self.log.push(format!("suspended {what}")),
            Role::Ping(_) => self.log.push(format!("ping {what}")),
            Role::None => (),
        }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        let times = [self.stack.transactions.deadline(), self.proxy.deadline(), self.agent.deadline()];
        times.into_iter().flatten().min()
    }

    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let text = |range| String::from_utf8_lossy(&self.out.bytes[range]).into_owned();
        let sent = self.out.sends().iter().map(|send| (send.target.address, text(send.range()))).collect();
        self.out.clear();
        sent
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    pub(super) fn invited(&mut self) -> CallKey {
        match self.agent.event() {
            Some(Event::Invited { call, .. }) => call,
            other => panic!("{other:?}"),
        }
    }

    /// Asserts that no state is left after the last timer.
    pub(super) fn assert_clean(&mut self) {
        self.pass(400_000);
        while self.agent.event().is_some() {}
        let counts = self.stack.transactions.counts();
        assert_eq!((counts.servers, counts.clients, counts.kept_messages, counts.timers), (0, 0, 0, 0));
        assert_eq!((self.proxy.contexts(), self.agent.calls(), self.agent.requests()), (0, 0, 0));
        assert_eq!(self.agent.open_requests(), 0);
    }
}

pub(super) fn next_hop(proxy: &Proxy, request: &Request<'_>) -> Target {
    let routing = proxy.router().route(Now { mono: 1_000, wall: 1_700_000_000_000 }, request);
    match proxy.router().next_hop(&routing.next(), ListenerId(0)) {
        NextHop::Known(target) => target,
        other => panic!("{other:?}"),
    }
}

pub(super) fn answer(round: &mut Round<'_>, request: &Request<'_>, server: ServerId, status: u16) {
    let start = round.out.start();
    respond(&request.message, status, None, Some(b"shard"), &mut round.out.bytes).finish(b"");
    assert!(round.tx.respond(round.now, server, status, start..round.out.bytes.len(), round.out));
}

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(super) fn arrival(from: &str) -> Arrival {
    Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: address(from), flow: None }
}

/// Returns a request of Alice in the call `call`.
pub(super) fn request(method: &str, uri: &str, call: &str, cseq: u32, to_tag: &str) -> String {
    let number = if method == "ACK" || method == "CANCEL" { "INVITE" } else { method };
    let branch = if method == "ACK" && to_tag.starts_with(";tag=") { "ack" } else { number };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{call}{cseq}{branch}\r\nMax-Forwards: 70\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:b@example.org>{to_tag}\r\nCall-ID: {call}\r\nCSeq: {cseq} {method}\r\n\
         Contact: <sip:alice@{ALICE}>\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Returns the response of a peer to a sent request.
pub(super) fn response(sent: &str, status: u16, tag: &str) -> String {
    Got(sent.to_owned()).respond(status, tag, &format!("Contact: <sip:b@{BOB}>"))
}

/// Returns the parameter `;tag=` of To in a response.
pub(super) fn to_tag(sent: &str) -> String {
    let to = sent.lines().find(|line| line.starts_with("To:")).expect("a To");
    to[to.find(";tag=").expect("a tag")..].to_owned()
}

pub(super) const AGENT: &str = "sip:agent@192.0.2.9";
pub(super) const WAIT: &str = "sip:wait@192.0.2.9";
pub(super) const FAR: &str = "sip:bob@192.0.2.2";
