//! User agents, and a network between them that a test controls.

use crate::text::Got;
use crate::written::through_bytes;
use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{
    CallKey, Endpoint, EndpointRecord, Event, Invite, MovedCalls, UserAgent, UserAgentSettings, auto_answer,
};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Target, Transport};

pub(crate) const OFFER: &[u8] = b"v=0\r\no=a 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";

pub(crate) const ANSWER: &[u8] = b"v=0\r\no=b 1 1 IN IP4 127.0.0.2\r\ns=-\r\nt=0 0\r\n";

/// User agent at an address, with all its events.
pub(crate) struct Phone {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) heard: Vec<Heard>,
    /// Set if it answers by itself what needs no decision.
    pub(crate) auto_answer: bool,
    /// Owner that handles each event before the next one.
    pub(crate) owner: Option<Owner>,
}

/// Function that handles an event.
pub(crate) type Owner = Box<dyn FnMut(&mut UserAgent, &mut Round<'_>, &Event)>;

/// Event with its body.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) event: Event,
    pub(crate) body: Vec<u8>,
    /// Message of the event, its source, and the number of its dialog.
    pub(crate) message: String,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) leg: u16,
}

/// Message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) at: u64,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// Phones on one network with one clock.
pub(crate) struct Net {
    pub(crate) phones: Vec<Phone>,
    pub(crate) now: Now,
    pub(crate) flying: Vec<Packet>,
    /// Start lines in the order of sending, `0>1 INVITE`.
    pub(crate) log: Vec<String>,
    /// Every message, in full.
    pub(crate) sent: Vec<String>,
    /// Selects the messages to lose, by their log lines.
    pub(crate) lose: Box<dyn FnMut(&str) -> bool>,
    /// Faults of the network: a tenth is lost, a tenth is duplicated, all are delayed by up to 300 ms, and so in any order.
    pub(crate) weather: Option<Entropy>,
    pub(crate) out: Outbox,
    pub(crate) transport: Transport,
}

pub(crate) fn address(n: usize) -> SocketAddr {
    format!("127.0.0.{}:5060", n + 1).parse().unwrap()
}

impl Net {
    pub(crate) fn new(settings: impl IntoIterator<Item = UserAgentSettings>) -> Self {
        Self::over(Transport::Udp, settings)
    }

    pub(crate) fn over(transport: Transport, settings: impl IntoIterator<Item = UserAgentSettings>) -> Self {
        let phones = settings.into_iter().enumerate().map(|(n, settings)| {
            let address = address(n);
            let listener = ListenerAddress {
                transport,
                bound: address,
                sent_by: address.to_string().into_bytes().into(),
                network: 0,
            };
            let identity = Identity::new(vec![listener], [""; 0], &[]);
            let endpoint = endpoint(n, 0, identity, settings);
            Phone { endpoint, address, heard: Vec::new(), auto_answer: true, owner: None }
        });
        Self {
            phones: phones.collect(),
            now: Now { mono: 1_000, wall: 1_700_000_000_000 },
            flying: Vec::new(),
            log: Vec::new(),
            sent: Vec::new(),
            lose: Box::new(|_| false),
            weather: None,
            out: Outbox::new(),
            transport,
        }
    }

    pub(crate) fn two() -> Self {
        Self::new([quiet(), quiet()])
    }

    pub(crate) fn target(&self, n: usize) -> Target {
        Target::new(self.transport, ListenerId(0), address(n))
    }

    /// Runs `act` with the user agent of phone `n`, and posts the messages that the phone sends.
    pub(crate) fn with<T>(&mut self, n: usize, act: impl FnOnce(&mut UserAgent, &mut Round<'_>) -> T) -> T {
        self.at(n, |endpoint, now, out| {
            let (agent, mut round) = endpoint.lend(now, out);
            act(agent, &mut round)
        })
    }

    /// Runs `act` with the endpoint of phone `n`, and posts the messages that the phone sends.
    pub(crate) fn at<T>(&mut self, n: usize, act: impl FnOnce(&mut Endpoint, Now, &mut Outbox) -> T) -> T {
        let mut out = std::mem::take(&mut self.out);
        let result = act(&mut self.phones[n].endpoint, self.now, &mut out);
        self.post(n, &mut out);
        self.listen(n, &mut out);
        self.post(n, &mut out);
        self.out = out;
        result
    }

    pub(crate) fn post(&mut self, n: usize, out: &mut Outbox) {
        for send in out.sends() {
            let bytes = out.bytes[send.range()].to_vec();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let to = self.phones.iter().position(|p| p.address == send.target.address);
            let first = text.lines().next().unwrap_or_default();
            let what = match first.strip_prefix("SIP/2.0 ") {
                Some(rest) => {
                    let method = text.lines().find(|l| l.starts_with("CSeq:")).and_then(|l| l.split(' ').nth(2));
                    format!("{} {}", &rest[..3], method.unwrap_or_default())
                }
                None => first.split(' ').next().unwrap_or_default().to_owned(),
            };
            let line = format!("{n}>{} {what}", to.map_or_else(|| "?".to_owned(), |t| t.to_string()));
            let lost = (self.lose)(&line);
            self.log.push(line);
            self.sent.push(text);
            let (mut copies, mut late) = (usize::from(!lost), 10);
            if let Some(weather) = &mut self.weather {
                copies = [0, 2, 1, 1, 1, 1, 1, 1, 1, 1][weather.u64() as usize % 10];
                late = weather.u64() % 300;
            }
            for copy in 0..copies as u64 {
                let from = self.phones[n].address;
                let at = self.now.mono + late + 20 * copy;
                self.flying.push(Packet { at, from, to: send.target.address, bytes: bytes.clone() });
            }
        }
        out.clear();
    }

    fn listen(&mut self, n: usize, out: &mut Outbox) {
        let phone = &mut self.phones[n];
        while let Some(event) = phone.endpoint.agent.event() {
            if phone.auto_answer {
                let (agent, mut round) = phone.endpoint.lend(self.now, out);
                auto_answer(agent, &mut round, &event);
            }
            if let Some(owner) = &mut phone.owner {
                let (agent, mut round) = phone.endpoint.lend(self.now, out);
                owner(agent, &mut round, &event);
            }
            let span = match event {
                Event::Progress { body, .. }
                | Event::Answered { body, .. }
                | Event::Confirmed { body, .. }
                | Event::Changed { body, .. }
                | Event::Acknowledged { body, .. }
                | Event::Request { body, .. }
                | Event::Reply { body, .. } => Some(body),
                Event::Invited { offer, .. } | Event::Offered { offer, .. } => Some(offer),
                Event::Redirected { target, .. } => Some(target),
                Event::Unresolved { uri, .. } => Some(uri),
                _ => None,
            };
            let body = span.map_or(Vec::new(), |s| phone.endpoint.agent.text(s).to_vec());
            let agent = &phone.endpoint.agent;
            let message = String::from_utf8_lossy(agent.message()).into_owned();
            let (from, leg) = (agent.arrival().map(|arrival| arrival.remote), agent.leg());
            phone.heard.push(Heard { event, body, message, from, leg });
        }
    }

    /// Sends a handwritten message from an address without a phone.
    pub(crate) fn inject(&mut self, to: usize, text: &str) {
        let bytes = text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
        self.flying.push(Packet {
            at: self.now.mono,
            from: "127.0.0.99:5060".parse().unwrap(),
            to: address(to),
            bytes,
        });
        self.run(0);
    }

    /// Lets this number of milliseconds pass.
    pub(crate) fn run(&mut self, ms: u64) {
        let until = self.now.mono + ms;
        loop {
            let packet = self.flying.iter().map(|p| p.at).min();
            let timer = self.phones.iter_mut().filter_map(|p| p.endpoint.deadline()).min();
            let Some(next) = packet.into_iter().chain(timer).min().filter(|&at| at <= until) else { break };
            let next = next.max(self.now.mono);
            self.now.wall += next - self.now.mono;
            self.now.mono = next;
            let first = self.flying.iter().enumerate().filter(|(_, p)| p.at <= next).min_by_key(|(_, p)| p.at);
            if let Some(at) = first.map(|(at, _)| at) {
                let packet = self.flying.remove(at);
                if let Some(n) = self.phones.iter().position(|p| p.address == packet.to) {
                    let arrival =
                        Arrival { transport: self.transport, listener: ListenerId(0), remote: packet.from, flow: None };
                    self.at(n, |endpoint, now, out| endpoint.receive(now, &arrival, &packet.bytes, out));
                }
                continue;
            }
            for n in 0..self.phones.len() {
                self.at(n, |endpoint, now, out| endpoint.poll(now, out));
            }
        }
        self.now.wall += until - self.now.mono;
        self.now.mono = until;
    }

    /// Moves everything of phone `n` to another shard. Returns its keys there.
    pub(crate) fn moves(&mut self, n: usize, shard: u8) -> MovedCalls {
        let record = self.export(n);
        self.import(n, shard, through_bytes(record))
    }

    /// Removes and returns everything of phone `n`.
    pub(crate) fn export(&mut self, n: usize) -> EndpointRecord {
        let endpoint = &mut self.phones[n].endpoint;
        assert_eq!(endpoint.agent.event(), None);
        let record = endpoint.export(self.now, BucketSet::ALL);
        let (counts, agent) = (endpoint.counts(), &endpoint.agent);
        let left = (agent.calls(), agent.requests(), agent.registrations(), agent.open_requests());
        assert_eq!((left, counts.servers, counts.clients, counts.timers), ((0, 0, 0, 0), 0, 0, 0));
        record
    }

    /// Continues phone `n` in another shard from its record. Returns its keys there.
    pub(crate) fn import(&mut self, n: usize, shard: u8, record: EndpointRecord) -> MovedCalls {
        let settings = self.phones[n].endpoint.agent.settings().clone();
        let address = address(n);
        let sent_by = address.to_string().into_bytes().into();
        let listener = ListenerAddress { transport: self.transport, bound: address, sent_by, network: 0 };
        let mut new = endpoint(n, shard, Identity::new(vec![listener], [""; 0], &[]), settings);
        let moved = new.import(self.now, record);
        self.phones[n].endpoint = new;
        moved
    }

    /// Makes a call from phone 0 to phone 1.
    pub(crate) fn call(&mut self, offer: &[u8]) -> CallKey {
        let target = self.target(1);
        self.with(0, |agent, round| agent.invite(round, &invite(target, offer))).unwrap()
    }

    /// Makes a call that phone 1 has received. Returns the keys of both.
    pub(crate) fn calling(&mut self) -> (CallKey, CallKey) {
        let caller = self.call(OFFER);
        self.run(20);
        (caller, self.invited(1))
    }

    /// Makes a call that rings at phone 1. Returns the keys of both.
    pub(crate) fn ringing(&mut self) -> (CallKey, CallKey) {
        let (caller, callee) = self.calling();
        self.with(1, |agent, round| agent.ring(round, callee, 180, b""));
        self.run(20);
        (caller, callee)
    }

    /// Returns the call of the last invitation of phone `n`.
    pub(crate) fn invited(&self, n: usize) -> CallKey {
        let found = self.phones[n].heard.iter().rev().find_map(|h| match h.event {
            Event::Invited { call, .. } => Some(call),
            _ => None,
        });
        found.expect("somebody called")
    }

    /// Makes an established call from phone 0 to phone 1. Returns the keys of both.
    pub(crate) fn up(&mut self) -> (CallKey, CallKey) {
        let (caller, callee) = self.calling();
        self.with(1, |agent, round| agent.answer(round, callee, ANSWER));
        self.run(50);
        self.log.clear();
        (caller, callee)
    }

    pub(crate) fn last(&self, n: usize) -> &Heard {
        self.phones[n].heard.last().expect("something happened")
    }

    /// Asserts that no state is left after the last timer.
    pub(crate) fn is_clean(&mut self) {
        self.run(200_000);
        for (n, phone) in self.phones.iter_mut().enumerate() {
            let counts = phone.endpoint.counts();
            assert_eq!((phone.endpoint.agent.calls(), phone.endpoint.agent.requests()), (0, 0), "phone {n}");
            assert_eq!(
                (counts.servers, counts.clients, counts.kept_messages, counts.timers),
                (0, 0, 0, 0),
                "phone {n}"
            );
            assert_eq!(phone.endpoint.deadline(), None, "phone {n}");
        }
    }
}

/// Returns the endpoint of phone `n` in a shard.
fn endpoint(n: usize, shard: u8, identity: Identity, settings: UserAgentSettings) -> Endpoint {
    Endpoint::of_shard(Arc::new(identity), settings, &Entropy::new([n as u8 + 1; 32]), 7, usize::from(shard))
}

/// Returns settings without an immediate 100, so that flows stay short.
pub(crate) fn quiet() -> UserAgentSettings {
    UserAgentSettings { trying: false, ..UserAgentSettings::default() }
}

pub(crate) fn invite(target: Target, offer: &[u8]) -> Invite<'_> {
    Invite {
        uri: Some(b"sip:bob@127.0.0.2"),
        ..Invite::new(b"\"Alice\" <sip:alice@atlanta.example>", b"sip:bob@biloxi.example", target, offer)
    }
}

/// Returns a response to a sent message, as a peer would make it.
pub(crate) fn respond(request: &str, status: u16, lines: &str) -> String {
    Got(request.to_owned()).respond(status, "peer", lines)
}

/// Returns a message of [`respond`] or [`request`] with a session description. `body`: lines that end with `\n`.
pub(crate) fn with_body(text: &str, body: &str) -> String {
    let length = body.len() + body.matches('\n').count();
    let lines = format!("Content-Type: application/sdp\nContent-Length: {length}\n\n{body}");
    text.replace("\r\n", "\n").replace("Content-Length: 0\n\n", &lines)
}

/// Returns a request of a peer without a phone, in its only call. `to_tag`: `;tag=` and the phone's tag, or empty. `lines`, `body`: end with
/// `\n`.
pub(crate) fn request(method: &str, cseq: u32, to_tag: &str, lines: &str, body: &str) -> String {
    let text = format!(
        "{method} sip:bob@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{method}{cseq}\nMax-Forwards: 70\n\
         From: <sip:x@y>;tag=1\nTo: <sip:bob@z>{to_tag}\nCall-ID: only\nCSeq: {cseq} {method}\n{lines}Content-Length: 0\n\n"
    );
    if body.is_empty() { text } else { with_body(&text, body) }
}

/// Returns `;tag=` and the tag of To in a sent response.
pub(crate) fn to_tag(sent: &str) -> String {
    let to = sent.lines().find(|line| line.starts_with("To:")).expect("a To");
    to[to.find(";tag=").expect("a tag")..].to_owned()
}
