//! Proxy with its transactions, without sockets, and messages of its peers.

mod names;
mod targets;

pub(crate) use self::names::{ALICE, BOB, INNER, NOW, SIX, TCP, TLS, UDP, alice, by, identity, udp, wire};
pub(crate) use self::targets::{Try, at, contact, to};

use self::names::DAY;
use self::targets::{candidates_of, flows_of};
use super::allocation;
use crate::text::Got;
use crate::written::through_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use strowger_core::entropy::Entropy;
use strowger_core::notice::NoticeEvent;
use strowger_core::proxy::{Candidate, Choice, ContextRecord, Plan, Proxy, ProxySettings, Question, Report, Rerouting};
use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Incoming, Role, ServerId, TransactionRecord, Transactions};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Round, Target, Transport, call};
use strowger_message::{Form, Index, Limits, Message, Name, build};

/// Message that the proxy sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) target: Target,
    pub(crate) token: u64,
    pub(crate) has_fallback: bool,
    pub(crate) message: Got,
}

impl Deref for Sent {
    type Target = Got;

    fn deref(&self) -> &Got {
        &self.message
    }
}

impl Sent {
    pub(crate) fn to(&self) -> String {
        self.target.address.to_string()
    }
}

pub(crate) struct Rig {
    pub(crate) now: Now,
    pub(crate) tx: Transactions,
    pub(crate) proxy: Proxy,
    out: Outbox,
    events: Vec<Event>,
    /// Contexts of the forwarded requests.
    pub(crate) forwarded: Vec<u64>,
    /// Context of the next request.
    pub(crate) next: u64,
    /// Transaction of the last request.
    pub(crate) last: Option<ServerId>,
    /// Request whose user was asked.
    pub(crate) asked: Option<ServerId>,
    /// Plan of the requests.
    pub(crate) plan: Plan<'static>,
    /// Notices of each request, in order.
    pub(crate) heard: BTreeMap<u64, Vec<String>>,
    /// Branches that rang and have no end yet.
    pub(crate) ringing: BTreeSet<u32>,
    /// Allocations inside the proxy and its transactions so far.
    pub(crate) allocations: u64,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(ProxySettings::default())
    }

    pub(crate) fn with(settings: ProxySettings) -> Self {
        Self::seeded(settings, 1)
    }

    pub(crate) fn seeded(settings: ProxySettings, seed: u8) -> Self {
        Self::made(identity(), settings, b"secret", seed, DAY)
    }

    /// Creates a rig whose route tokens and seals are valid for this number of seconds.
    pub(crate) fn with_lifetime(seconds: u32) -> Self {
        Self::made(identity(), ProxySettings::default(), b"secret", 1, seconds)
    }

    /// Creates another server, which listens there by UDP.
    pub(crate) fn of(sent_by: &[u8], secret: &[u8]) -> Self {
        let bound = std::str::from_utf8(sent_by).expect("text").parse().expect("an address");
        let listener = ListenerAddress { transport: Transport::Udp, bound, sent_by: sent_by.into(), network: 0 };
        Self::made(Identity::new(vec![listener], [""; 0], &[]), ProxySettings::default(), secret, 9, DAY)
    }

    fn made(identity: Identity, settings: ProxySettings, secret: &[u8], seed: u8, lifetime: u32) -> Self {
        let router = Arc::new(Router::new(Arc::new(identity), secret, lifetime));
        Self {
            now: NOW,
            tx: Transactions::new(TimerSettings::default(), [1, 2]),
            proxy: Proxy::new(router, settings, Entropy::new([seed; 32])),
            out: Outbox::new(),
            events: Vec::new(),
            forwarded: Vec::new(),
            next: 1,
            last: None,
            asked: None,
            plan: Plan::default(),
            heard: BTreeMap::new(),
            ringing: BTreeSet::new(),
            allocations: 0,
        }
    }

    /// Receives a request, and forwards it to `tries`, or without any to the target of its Route or Request-URI; handles a CANCEL and an
    /// ACK as a server does. Returns the sent messages.
    pub(crate) fn request(&mut self, text: &str, arrival: Arrival, tries: &[Try]) -> Vec<Sent> {
        self.request_bytes(&wire(text), arrival, tries)
    }

    pub(crate) fn request_bytes(&mut self, bytes: &[u8], arrival: Arrival, tries: &[Try]) -> Vec<Sent> {
        let mut index = Index::new();
        index.parse(bytes, &Limits::default()).expect("well-formed");
        let mut canonical = Vec::new();
        strowger_message::canonical::write(&Message::new(bytes, &index), &mut canonical);
        let bytes = if index.form() == Form::Canonical { bytes } else { &canonical };
        index.parse(bytes, &Limits::default()).expect("well-formed");
        let message = Message::new(bytes, &index);
        let hash = call::hash(1, message.call_id().expect("a Call-ID").text);
        let request = Request::of(message, &arrival, hash).expect("complete");
        let before = allocation::count();
        let incoming = self.tx.request(self.now, &message, &arrival, hash, &mut self.out);
        let routing = self.proxy.router().route(self.now, &request);
        std::hint::black_box(self.proxy.router().is_loop(&request));
        self.allocations += allocation::count() - before;
        match incoming {
            Incoming::Request(id) => {
                self.last = Some(id);
                let targets: Vec<Target>;
                let own;
                let tries = if tries.is_empty() {
                    targets = self.next_hop(&request).into_iter().collect();
                    own = [Try { at: targets, q: 1000, ..Try::default() }];
                    &own[..]
                } else {
                    tries
                };
                let flows = flows_of(tries);
                let candidates = candidates_of(tries, &flows);
                let number = self.next;
                self.next += 1;
                self.forwarded.push(number);
                let plan = Plan { context: number, ..self.plan };
                let mut round = Round { now: self.now, tx: &mut self.tx, out: &mut self.out };
                let before = allocation::count();
                let sent = self.proxy.forward(&mut round, &request, &routing, id, &candidates, &plan);
                self.allocations += allocation::count() - before;
                assert!(sent, "no target");
            }
            Incoming::Ack => {
                let target = tries.first().map_or_else(|| self.next_hop(&request), |t| t.at.first().copied());
                let targets = [target.expect("a next hop")];
                let candidate = Candidate { targets: &targets, ..Candidate::default() };
                let before = allocation::count();
                self.proxy.forward_ack(
                    &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
                    &request,
                    &routing,
                    &candidate,
                );
                self.allocations += allocation::count() - before;
            }
            Incoming::Cancel { cancel, invite } => {
                let from = self.out.start();
                let status = if invite.is_some() { 200 } else { 481 };
                build::respond(&message, status, None, Some(b"proxy"), &mut self.out.bytes).finish(b"");
                let range = from..self.out.bytes.len();
                self.tx.respond(self.now, cancel, status, range, &mut self.out);
                if let Some(invite) = invite {
                    self.proxy.cancel(
                        &mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out },
                        invite,
                        &message,
                    );
                }
            }
            Incoming::Absorbed => (),
            other => panic!("{other:?}"),
        }
        self.taken()
    }

    fn next_hop(&self, request: &Request<'_>) -> Option<Target> {
        let routing = self.proxy.router().route(self.now, request);
        if routing.device.is_some() {
            return routing.device;
        }
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        match self.proxy.router().next_hop(&routing.next(), prefer) {
            NextHop::Known(target) => Some(target),
            other => panic!("{other:?}"),
        }
    }

    /// Calls `look` with the router and this request.
    pub(crate) fn routing<T>(&self, text: &str, look: impl FnOnce(&Router, &Request<'_>) -> T) -> T {
        let bytes = wire(text);
        let mut index = Index::new();
        index.parse(&bytes, &Limits::default()).expect("well-formed");
        let arrival = udp(ALICE);
        look(self.proxy.router(), &Request::of(Message::new(&bytes, &index), &arrival, 0).expect("complete"))
    }

    /// Receives a response. Returns the sent messages.
    pub(crate) fn response(&mut self, text: &[u8], arrival: Arrival) -> Vec<Sent> {
        let mut index = Index::new();
        index.parse(text, &Limits::default()).expect("well-formed");
        let message = Message::new(text, &index);
        let before = allocation::count();
        if let Incoming::Response { id, tu, .. } = self.tx.response(self.now, &message, &mut self.out) {
            let (tx, out) = (&mut self.tx, &mut self.out);
            if let Role::Proxy(context) = tu.role() {
                self.proxy.response(&mut Round { now: self.now, tx, out }, context, &message, &arrival, id);
            }
        }
        self.allocations += allocation::count() - before;
        self.taken()
    }

    /// Receives a response to this request from its target, with these further lines (each `Name: value\n`).
    pub(crate) fn answer(&mut self, request: &Sent, status: u16, lines: &str) -> Vec<Sent> {
        let text = respond(request, status, lines);
        let arrival = Arrival {
            transport: request.target.transport,
            listener: request.target.listener,
            remote: request.target.address,
            flow: request.target.flow,
        };
        self.response(&text, arrival)
    }

    /// Reports a failure to send this message.
    pub(crate) fn fail(&mut self, sent: &Sent) -> Vec<Sent> {
        self.tx.failed(self.now, sent.token, &mut self.out, &mut self.events);
        self.run_events();
        self.taken()
    }

    /// Advances the clock, and runs every timer at its moment. Returns the sent messages, with the milliseconds from
    /// now.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<(u64, Sent)> {
        let (from, end) = (self.now.mono, self.now.mono + ms);
        let mut sent = Vec::new();
        loop {
            let next = self.tx.deadline().into_iter().chain(self.proxy.deadline()).min();
            let at = next.map_or(end, |n| n.clamp(self.now.mono, end));
            self.now.wall += at - self.now.mono;
            self.now.mono = at;
            self.tx.poll(self.now, &mut self.out, &mut self.events);
            self.run_events();
            self.proxy.poll(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out });
            sent.extend(self.taken().into_iter().map(|s| (at - from, s)));
            if next.is_none_or(|n| n > end) {
                return sent;
            }
        }
    }

    /// Moves everything to another shard of the same process.
    pub(crate) fn moved(&mut self, seed: u8) {
        let mut new = Self::seeded(self.proxy.settings().clone(), seed);
        new.now = self.now;
        let contexts = self.proxy.export(self.now, |_| true);
        let transactions = self.tx.export(self.now, |_| true);
        new.take_in(contexts, transactions);
        new.take_over(self);
        *self = new;
    }

    /// Runs all timers, and asserts that no state is left.
    pub(crate) fn end(&mut self) {
        self.pass(400_000);
        let counts = self.tx.counts();
        let all = counts.servers + counts.clients + counts.kept_messages + counts.timers + counts.keys;
        assert_eq!((all, self.proxy.contexts(), self.proxy.unanswered()), (0, 0, 0), "{counts:?}");
        assert_eq!((self.tx.deadline(), self.proxy.deadline()), (None, None));
        // At most one final response goes upstream, and the end is the last notice.
        for number in &self.forwarded {
            let heard = self.heard.get(number).map_or(&[][..], |heard| heard);
            let finals = heard.iter().filter(|what| what.starts_with("answered") || what.starts_with("exhausted"));
            assert!(finals.count() <= 1, "{number}: {heard:?}");
            let ends = heard.iter().filter(|what| *what == "ended").count();
            assert_eq!((ends, heard.last().map(String::as_str)), (1, Some("ended")), "{number}: {heard:?}");
        }
    }

    /// Takes response contexts and transactions of another shard.
    pub(crate) fn take_in(&mut self, contexts: Vec<ContextRecord>, transactions: Vec<TransactionRecord>) {
        let (contexts, transactions) = through_bytes((contexts, transactions));
        let moved = self.proxy.import(self.now, contexts);
        let user = |record: &TransactionRecord| moved.user(record).unwrap_or(record.tu);
        let ids = self.tx.import_all(self.now, transactions, user);
        self.proxy.settle(&moved, &ids);
    }

    /// Takes over the notices of calls that moved here.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.next = self.next.max(other.next);
        self.forwarded.append(&mut other.forwarded);
        self.heard.append(&mut other.heard);
        self.ringing.append(&mut other.ringing);
    }

    /// Collects the new notices, and verifies the ranges of their responses.
    fn hear(&mut self) {
        let bytes = &self.out.bytes;
        let is_of = |status: u16, range: std::ops::Range<usize>| {
            assert!(bytes[range].starts_with(format!("SIP/2.0 {status} ").as_bytes()));
            status
        };
        let place = |target: Option<Target>| target.map_or_else(|| "none".to_owned(), |t| t.address.to_string());
        for report in self.proxy.reports().drain(..) {
            let notice = match report {
                Report::Notice(notice) => notice,
                Report::Question(Question { context, server, choice }) => {
                    self.asked = Some(server);
                    self.heard.entry(context).or_default().push(shown(&choice));
                    continue;
                }
            };
            let what = match notice.event {
                NoticeEvent::Rang { status, branch, bytes, .. } => {
                    self.ringing.insert(branch);
                    format!("rang {}", is_of(status, bytes))
                }
                NoticeEvent::BranchEnded { branch } => {
                    self.ringing.remove(&branch);
                    continue;
                }
                NoticeEvent::Answered { status, bytes, first: true, .. } => {
                    format!("answered {}", is_of(status, bytes))
                }
                NoticeEvent::Answered { status, bytes, .. } => format!("also answered {}", is_of(status, bytes)),
                NoticeEvent::Refused { status, by } => format!("refused {status} by {}", place(by)),
                NoticeEvent::TimedOut { target } => format!("timed out at {}", place(target)),
                NoticeEvent::Cancelled => "cancelled".to_owned(),
                NoticeEvent::Exhausted { status, bytes } => format!("exhausted {}", is_of(status, bytes)),
                NoticeEvent::Abandoned => "abandoned".to_owned(),
                NoticeEvent::Ended => "ended".to_owned(),
                NoticeEvent::HungUp { .. } => panic!("a proxy anchors no call"),
            };
            self.heard.entry(notice.context).or_default().push(what);
        }
    }

    fn run_events(&mut self) {
        for event in std::mem::take(&mut self.events) {
            if let Role::Proxy(context) = event.user().role() {
                self.proxy.event(&mut Round { now: self.now, tx: &mut self.tx, out: &mut self.out }, context, &event);
            }
        }
    }

    fn taken(&mut self) -> Vec<Sent> {
        self.hear();
        let sent = self.out.sends().iter().map(|s| Sent {
            target: s.target,
            token: s.token,
            has_fallback: s.has_fallback,
            message: Got(String::from_utf8(self.out.bytes[s.range()].to_vec()).expect("text")),
        });
        let sent = sent.collect();
        self.out.clear();
        for message in &sent {
            parses(message);
        }
        sent
    }
}

fn parses(sent: &Sent) {
    let mut index = Index::new();
    let result = index.parse(sent.0.as_bytes(), &Limits::default());
    assert!(result.is_ok(), "{result:?}: {}", sent.0);
    let message = Message::new(sent.0.as_bytes(), &index);
    assert!(message.has(Name::CallId) && message.has(Name::CSeq));
}

/// Returns the response of its target to this request.
pub(crate) fn respond(request: &Sent, status: u16, lines: &str) -> Vec<u8> {
    request.respond(status, &format!("at{}", request.target.address.port()), lines).into_bytes()
}

/// Returns the only message of the list.
pub(crate) fn only(mut sent: Vec<Sent>) -> Sent {
    assert_eq!(sent.len(), 1, "{sent:#?}");
    sent.remove(0)
}

/// Returns statuses and methods, in order.
pub(crate) fn words(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(|s| if s.status() > 0 { s.status().to_string() } else { s.method().to_owned() }).collect()
}

/// Decision of the user about a failed request.
pub(crate) enum Decision<'a> {
    More(&'a [Try]),
    Answer(u16),
    CarryOut,
    Pass,
}

impl Rig {
    /// Applies the decision of the user, once it was asked.
    pub(crate) fn decide(&mut self, decision: &Decision<'_>) -> Vec<Sent> {
        let server = self.asked.take().expect("it is asked");
        let mut round = Round { now: self.now, tx: &mut self.tx, out: &mut self.out };
        match decision {
            Decision::More(tries) => {
                let flows = flows_of(tries);
                self.proxy.more(&mut round, server, &candidates_of(tries, &flows));
            }
            Decision::Answer(status) => self.proxy.answer(&mut round, server, *status),
            Decision::CarryOut => self.proxy.carry_out(&mut round, server),
            Decision::Pass => self.proxy.pass(&mut round, server),
        }
        self.taken()
    }

    /// Adds targets of the user to the request of this transaction.
    pub(crate) fn add(&mut self, server: ServerId, tries: &[Try]) -> Vec<Sent> {
        let mut round = Round { now: self.now, tx: &mut self.tx, out: &mut self.out };
        let flows = flows_of(tries);
        self.proxy.add(&mut round, server, &candidates_of(tries, &flows));
        self.taken()
    }
}

/// Returns a question of the proxy as text.
fn shown(choice: &Choice) -> String {
    match choice {
        Choice::Failing { status, plan } => {
            let plan = plan.as_ref().map(|plan| format!(": {}", String::from_utf8_lossy(plan)));
            format!("failing {status}{}", plan.unwrap_or_default())
        }
        Choice::Choosing { before, next } => {
            format!("choosing {} after {}", String::from_utf8_lossy(next), String::from_utf8_lossy(before))
        }
    }
}
