//! Layers of the stack: begin of an exchange, and reaction to a message.

use super::Work;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use strowger_core::call::{self, BucketSet};
use strowger_core::entropy::{Entropy, hex};
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::transaction::{Event as Told, Incoming, TransactionUser, Transactions};
use strowger_core::user_agent::{Ending, Endpoint, EndpointRecord, Event, Invite, UserAgentSettings, auto_answer};
use strowger_core::{Arrival, Now, Outbox, Target, Transport, via};
use strowger_message::{Builder, Index, Limits, MandatoryHeaders, Message, Method, Name, build};

/// Session description of both sides.
const SDP: &[u8] =
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0 8\r\n";

/// Exchanges of the calling side that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) completed: u32,
    pub(super) failed: u32,
}

/// Layer of one shard.
pub(super) trait Layer {
    /// Begins an exchange.
    fn begin(&mut self, now: Now, to: &Target, out: &mut Outbox);

    /// Takes a message.
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> Tally;

    /// Runs the timers that are due.
    fn poll(&mut self, _now: Now, _out: &mut Outbox) -> Tally {
        Tally::default()
    }

    fn deadline(&mut self) -> Option<u64> {
        None
    }

    /// Takes the news that a message could not be sent.
    fn failed(&mut self, _now: Now, _token: u64, _out: &mut Outbox) -> Tally {
        Tally::default()
    }

    /// Gives up a bucket of calls.
    fn export(&mut self, now: Now, bucket: u8) -> Option<EndpointRecord>;

    /// Takes a bucket of calls over.
    fn import(&mut self, now: Now, bucket: u8, record: Option<EndpointRecord>);
}

/// Addresses and secrets of a side.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) transport: Transport,
    pub(super) own: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Key of the hash that gives calls to shards.
    pub(super) secret: u32,
    pub(super) seed: [u8; 32],
}

/// Makes the layer of a shard.
pub(super) fn layer(work: Work, side: &Side, shard: usize) -> Box<dyn Layer> {
    match work {
        Work::Stateless => Box::new(Stateless::new(side, shard)),
        Work::Transaction => Box::new(Transactional::new(side, shard)),
        Work::Call => Box::new(Calls::new(side, shard)),
    }
}

/// Writer of OPTIONS requests and of their responses.
struct Writer {
    entropy: Entropy,
    secret: u32,
    owned: BucketSet,
    uri: Vec<u8>,
    /// Via value up to the digits of the branch.
    via: Vec<u8>,
    from: Vec<u8>,
    to: Vec<u8>,
}

/// Magic cookie of a branch (RFC 3261 section 8.1.1.7).
const COOKIE: &[u8; 7] = b"z9hG4bK";

impl Writer {
    fn new(side: &Side, shard: usize) -> Self {
        let entropy = Entropy::new(side.seed).derive(&(shard as u64).to_le_bytes());
        let (own, peer) = (side.own, side.peer);
        let parameter = if side.transport == Transport::Udp { "" } else { ";transport=tcp" };
        let uri = format!("sip:stack@{peer}{parameter}");
        Self {
            entropy,
            secret: side.secret,
            owned: if shard == 0 { BucketSet::ALL } else { BucketSet::NONE },
            via: format!("SIP/2.0/{} {own};rport;branch=z9hG4bK", side.transport.via()).into_bytes(),
            from: format!("<sip:caller@{own}>;tag=").into_bytes(),
            to: format!("<{uri}>").into_bytes(),
            uri: uri.into_bytes(),
        }
    }

    /// Returns a Call-ID whose messages belong to this shard.
    fn call_id(&mut self) -> [u8; 16] {
        loop {
            let id = hex(self.entropy.u64());
            if self.owned == BucketSet::NONE || self.owned.contains(call::bucket(call::hash(self.secret, &id))) {
                return id;
            }
        }
    }

    /// Writes a request; returns its branch and the hash of its Call-ID.
    fn request(&mut self, out: &mut Vec<u8>) -> ([u8; 23], u32) {
        let (call_id, tag, digits) = (self.call_id(), hex(self.entropy.u64()), hex(self.entropy.u64()));
        let mut branch = [0; 23];
        branch[..7].copy_from_slice(COOKIE);
        branch[7..].copy_from_slice(&digits);
        Builder::request(out, Method::Options, &self.uri[..])
            .header_with(Name::Via, |out| {
                out.extend_from_slice(&self.via);
                out.extend_from_slice(&digits);
            })
            .max_forwards(70)
            .header_with(Name::From, |out| {
                out.extend_from_slice(&self.from);
                out.extend_from_slice(&tag);
            })
            .header(Name::To, &self.to[..])
            .call_id(&call_id)
            .cseq(1, Method::Options)
            .finish(b"");
        (branch, call::hash(self.secret, &call_id))
    }

    /// Writes the 200 of a request. The tag is computed from the Call-ID: a stateless server answers a copy of the request with the same
    /// tag (RFC 3261 section 8.2.7).
    fn ok(
        &self,
        message: &Message<'_>,
        mandatory: &MandatoryHeaders<'_>,
        arrival: &Arrival,
        out: &mut Outbox,
    ) -> Range<usize> {
        let tag = hex(u64::from(call::hash(self.secret, mandatory.call_id.text)));
        let start = out.start();
        let write_via = |out: &mut Vec<u8>| via::write_completed(message, &mandatory.via, &arrival.remote, false, out);
        build::respond_via(message, 200, None, Some(&tag), write_via, &mut out.bytes).finish(b"");
        start..out.bytes.len()
    }

    fn export(&mut self, bucket: u8) {
        self.owned = self.owned.without(BucketSet::of(|of| of == bucket));
    }

    fn import(&mut self, bucket: u8) {
        self.owned = self.owned.with(BucketSet::of(|of| of == bucket));
    }
}

/// Requests and responses without transactions.
pub(super) struct Stateless {
    writer: Writer,
    index: Index,
    limits: Limits,
}

impl Stateless {
    pub(super) fn new(side: &Side, shard: usize) -> Self {
        Self { writer: Writer::new(side, shard), index: Index::new(), limits: Limits::default() }
    }
}

impl Layer for Stateless {
    fn begin(&mut self, _: Now, to: &Target, out: &mut Outbox) {
        let start = out.start();
        self.writer.request(&mut out.bytes);
        out.send(*to, start..out.bytes.len(), 0);
    }

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> Tally {
        let parsed = self.index.parse(bytes, &self.limits);
        let message = Message::new(bytes, &self.index);
        let mandatory = MandatoryHeaders::of(&message);
        let (Ok(()), Ok(mandatory)) = (parsed, &mandatory) else { return Tally::default() };
        if message.is_request() {
            let range = self.writer.ok(&message, mandatory, arrival, out);
            out.send(via::reply_target(&mandatory.via, arrival), range, 0);
        }
        Tally { completed: u32::from(message.status().is_some_and(|status| status >= 200)), failed: 0 }
    }

    fn export(&mut self, _: Now, bucket: u8) -> Option<EndpointRecord> {
        self.writer.export(bucket);
        None
    }

    fn import(&mut self, _: Now, bucket: u8, _: Option<EndpointRecord>) {
        self.writer.import(bucket);
    }
}

/// Requests with transactions.
pub(super) struct Transactional {
    writer: Writer,
    index: Index,
    limits: Limits,
    table: Transactions,
    told: Vec<Told>,
}

impl Transactional {
    pub(super) fn new(side: &Side, shard: usize) -> Self {
        let mut key = Entropy::new(side.seed).derive(b"transactions");
        let table = Transactions::new(Default::default(), [key.u64(), key.u64()]);
        let (writer, index, limits) = (Writer::new(side, shard), Index::new(), Limits::default());
        Self { writer, index, limits, table, told: Vec::new() }
    }

    /// Counts the transactions that have failed, each as a failed exchange.
    fn told(&mut self) -> Tally {
        let has_failed = |told: &Told| matches!(told, Told::Timeout { .. } | Told::ClientTransportError { .. });
        let failed = self.told.drain(..).filter(has_failed).count() as u32;
        Tally { completed: 0, failed }
    }
}

impl Layer for Transactional {
    fn begin(&mut self, now: Now, to: &Target, out: &mut Outbox) {
        let start = out.start();
        let (branch, call_hash) = self.writer.request(&mut out.bytes);
        let (range, method) = (start..out.bytes.len(), Method::Options.text());
        self.table.send(now, range, &branch, method, *to, call_hash, TransactionUser::NONE, out);
    }

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> Tally {
        let parsed = self.index.parse(bytes, &self.limits);
        let message = Message::new(bytes, &self.index);
        let mandatory = MandatoryHeaders::of(&message);
        let (Ok(()), Ok(mandatory)) = (parsed, &mandatory) else { return Tally::default() };
        if message.is_request() {
            let call_hash = call::hash(self.writer.secret, mandatory.call_id.text);
            if let Incoming::Request(server) = self.table.request(now, &message, arrival, call_hash, out) {
                self.table.set_reply(server, via::reply_target(&mandatory.via, arrival));
                let range = self.writer.ok(&message, mandatory, arrival, out);
                self.table.respond(now, server, 200, range, out);
            }
            return Tally::default();
        }
        let is_delivered = matches!(self.table.response(now, &message, out), Incoming::Response { .. });
        let is_final = message.status().is_some_and(|status| status >= 200);
        Tally { completed: u32::from(is_delivered && is_final), failed: 0 }
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) -> Tally {
        self.table.poll(now, out, &mut self.told);
        self.told()
    }

    fn deadline(&mut self) -> Option<u64> {
        self.table.deadline()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) -> Tally {
        self.table.failed(now, token, out, &mut self.told);
        self.told()
    }

    fn export(&mut self, _: Now, bucket: u8) -> Option<EndpointRecord> {
        self.writer.export(bucket);
        None
    }

    fn import(&mut self, _: Now, bucket: u8, _: Option<EndpointRecord>) {
        self.writer.import(bucket);
    }
}

/// Calls of user agents.
pub(super) struct Calls {
    endpoint: Endpoint,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Calls {
    pub(super) fn new(side: &Side, shard: usize) -> Self {
        let Side { transport, own, peer, secret, seed } = side;
        let listener = ListenerAddress {
            transport: *transport,
            bound: *own,
            sent_by: own.to_string().into_bytes().into(),
            network: 0,
        };
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        // Each call is answered immediately, so that no 100 is needed.
        let settings = UserAgentSettings { trying: false, ..UserAgentSettings::default() };
        let endpoint = Endpoint::of_shard(identity, settings, &Entropy::new(*seed), *secret, shard);
        let parameter = if *transport == Transport::Udp { "" } else { ";transport=tcp" };
        let (from, to) = (format!("<sip:caller@{own}>"), format!("<sip:stack@{peer}{parameter}>"));
        Self { endpoint, from: from.into_bytes(), to: to.into_bytes() }
    }

    /// Answers calls, hangs up those that were answered, and counts those that ended.
    fn act(&mut self, now: Now, out: &mut Outbox) -> Tally {
        let mut tally = Tally::default();
        let (agent, mut round) = self.endpoint.lend(now, out);
        while let Some(event) = agent.event() {
            auto_answer(agent, &mut round, &event);
            match event {
                Event::Invited { call, .. } => agent.answer(&mut round, call, SDP),
                Event::Answered { call, .. } => agent.hang_up(&mut round, call),
                Event::Ended { by: Ending::Local, .. } => tally.completed += 1,
                Event::Failed { .. } | Event::Redirected { .. } => tally.failed += 1,
                _ => (),
            }
        }
        tally
    }

    /// Returns the number of existing dialogs.
    #[cfg(test)]
    pub(super) fn dialogs(&self) -> usize {
        self.endpoint.agent.calls()
    }

    /// Returns the number of existing transactions.
    pub(super) fn transactions(&self) -> u64 {
        let counts = self.endpoint.counts();
        counts.servers + counts.clients
    }
}

impl Layer for Calls {
    fn begin(&mut self, now: Now, to: &Target, out: &mut Outbox) {
        let invite = Invite::new(&self.from, &self.to, *to, SDP);
        let (agent, mut round) = self.endpoint.lend(now, out);
        agent.invite(&mut round, &invite).expect("the addresses are written right here");
    }

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> Tally {
        self.endpoint.receive(now, arrival, bytes, out);
        self.act(now, out)
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) -> Tally {
        self.endpoint.poll(now, out);
        self.act(now, out)
    }

    fn deadline(&mut self) -> Option<u64> {
        self.endpoint.deadline()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) -> Tally {
        self.endpoint.failed(now, token, out);
        self.act(now, out)
    }

    fn export(&mut self, now: Now, bucket: u8) -> Option<EndpointRecord> {
        Some(self.endpoint.export(now, BucketSet::of(|of| of == bucket)))
    }

    fn import(&mut self, now: Now, _: u8, record: Option<EndpointRecord>) {
        if let Some(record) = record {
            self.endpoint.import(now, record);
        }
    }
}
