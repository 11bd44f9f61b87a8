//! Network of the rig: one virtual clock, servers, and the lines of a test.

use crate::connections::{Connection, ConnectionAddress};
use crate::host::{Host, Sent};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use strowger_calls::CallView;
use strowger_core::{Arrival, Now, Outbox, Transport};
use strowger_media::session::SessionEvent;
use strowger_server::engine::{Effect, Engine, EngineInput};
use strowger_server::peer_names::PeerNames;
use strowger_server::question::{HostKey, Resolved};

/// Milliseconds between two rounds of upkeep.
const UPKEEP: u64 = 1_000;

/// Longest UDP datagram.
const DATAGRAM: usize = 65_507;

/// First port that the system chooses.
const FIRST_PORT: u16 = 32_768;

/// Planned event.
pub(crate) enum Due {
    /// Datagram, with its server and shard if a server sent it.
    Datagram { from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, sender: Option<(usize, usize)> },
    /// Bytes for this side of a connection.
    Bytes { connection: usize, to: usize, bytes: Vec<u8> },
    /// End of a connection, as this side learns of it.
    Ended { connection: usize, to: usize },
    /// Look at the silence of the peer of this side, which is a server.
    Silence { connection: usize, side: usize },
    /// Answer for a shard of this process of a server.
    Answer { host: usize, process: u16, shard: usize, answer: EngineInput },
    /// Message that could not be sent, and whether its peer is the cause.
    Unsent { host: usize, process: u16, shard: usize, token: u64, by_peer: bool },
    /// Upkeep of a server.
    Upkeep(usize),
}

/// Socket or connection of a test.
pub(crate) struct LineState {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    pub(crate) connection: Option<usize>,
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// True once its socket is closed, or its peer has closed the connection.
    pub(crate) is_closed: bool,
}

/// Network, clock and hosts.
pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) hosts: Vec<Host>,
    pub(crate) lines: Vec<LineState>,
    pub(crate) connections: Vec<Connection>,
    /// Connections by which servers reach addresses.
    pub(crate) directory: HashMap<ConnectionAddress, (usize, usize)>,
    /// Lines that listeners of the test have accepted.
    pub(crate) accepted: HashMap<SocketAddr, VecDeque<usize>>,
    /// Addresses of names.
    pub(crate) names: HashMap<String, Vec<(Transport, SocketAddr)>>,
    /// Milliseconds until an answer of the database or of a name server.
    pub(crate) lookup: u64,
    due: BTreeMap<(u64, u64), Due>,
    planned: u64,
    port: u16,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: Now { mono: 10_000, wall: 1_700_000_000_000 },
            hosts: Vec::new(),
            lines: Vec::new(),
            connections: Vec::new(),
            directory: HashMap::new(),
            accepted: HashMap::new(),
            names: HashMap::new(),
            lookup: 1,
            due: BTreeMap::new(),
            planned: 0,
            port: FIRST_PORT,
        }
    }

    /// Returns a free port.
    pub(crate) const fn next_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    /// Plans an event in this number of milliseconds.
    pub(crate) fn plan(&mut self, after: u64, due: Due) {
        self.planned += 1;
        self.due.insert((self.now.mono + after, self.planned), due);
    }

    /// Adds a server; returns its number.
    pub(crate) fn add(&mut self, host: Host) -> usize {
        self.hosts.push(host);
        let number = self.hosts.len() - 1;
        self.plan(UPKEEP, Due::Upkeep(number));
        self.begin(number);
        number
    }

    /// Carries out the effects that the start of a process has caused.
    pub(crate) fn begin(&mut self, host: usize) {
        for (shard, effects) in self.hosts[host].first_effects().into_iter().enumerate() {
            self.carry_out(host, shard, Vec::new(), effects);
        }
    }

    /// Adds a line of the test; returns its number.
    pub(crate) fn add_line(&mut self, transport: Transport, local: SocketAddr) -> usize {
        let inbox = VecDeque::new();
        self.lines.push(LineState { transport, local, connection: None, inbox, is_closed: false });
        self.lines.len() - 1
    }

    /// Handles the next event or timer, if it is due by `end`, and returns true. Otherwise advances the clock to `end`,
    /// and returns false.
    pub(crate) fn step(&mut self, end: u64) -> bool {
        let planned = self.due.keys().next().map(|(at, _)| *at);
        let deadline = |(number, host): (usize, &mut Host)| host.deadline().map(|(at, shard)| (at, number, shard));
        let timer = self.hosts.iter_mut().enumerate().filter_map(deadline).min();
        match (planned, timer) {
            (Some(at), _) if at <= end && timer.is_none_or(|(timer, ..)| at <= timer) => {
                self.pass_to(at);
                if let Some((_, due)) = self.due.pop_first() {
                    self.handle(due);
                }
                true
            }
            (_, Some((at, host, shard))) if at <= end => {
                self.pass_to(at);
                let (sent, effects) = self.hosts[host].poll(self.now, shard);
                self.carry_out(host, shard, sent, effects);
                true
            }
            _ => {
                self.pass_to(end);
                false
            }
        }
    }

    /// Handles events until the network is quiet; the clock advances by the time of a look-up.
    pub(crate) fn settle(&mut self) {
        let end = self.now.mono + self.lookup + 1;
        while self.step(end) {}
    }

    fn pass_to(&mut self, at: u64) {
        let passed = at.saturating_sub(self.now.mono);
        self.now = Now { mono: self.now.mono + passed, wall: self.now.wall + passed };
    }

    fn handle(&mut self, due: Due) {
        match due {
            Due::Datagram { from, to, bytes, sender } => self.datagram(from, to, &bytes, sender),
            Due::Bytes { connection, to, bytes } => self.deliver(connection, to, bytes),
            Due::Ended { connection, to } => self.ended(connection, to),
            Due::Silence { connection, side } => self.end_silence(connection, side),
            Due::Answer { host, process, shard, answer } => {
                if self.hosts[host].process() == process {
                    self.work(host, shard, |now, engine, out| engine.answered(now, answer, out));
                }
            }
            Due::Unsent { host, process, shard, token, by_peer } => {
                if self.hosts[host].process() == process {
                    let reason = if by_peer { "connection not made" } else { "not sent" };
                    self.work(host, shard, |now, engine, out| engine.unsent(now, token, reason, by_peer, out));
                }
            }
            Due::Upkeep(host) => {
                self.hosts[host].keep_up(self.now);
                self.plan(UPKEEP, Due::Upkeep(host));
            }
        }
    }

    /// Delivers a datagram. A server learns of a closed port of this machine by ICMP.
    fn datagram(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], sender: Option<(usize, usize)>) {
        let takes = |(number, host): (usize, &Host)| host.listener(Transport::Udp, to).map(|own| (number, own));
        if let Some((host, listener)) = self.hosts.iter().enumerate().find_map(takes) {
            // A datagram of line ends keeps a path open.
            if bytes.iter().any(|byte| !b"\r\n\0".contains(byte)) {
                let arrival = Arrival { transport: Transport::Udp, listener, remote: from, flow: None };
                self.receive(host, &arrival, bytes);
            }
            return;
        }
        let is_there = |line: &&mut LineState| line.transport == Transport::Udp && line.local == to && !line.is_closed;
        if let Some(line) = self.lines.iter_mut().find(is_there) {
            return line.inbox.push_back(bytes.to_vec());
        }
        if let Some((host, shard)) = sender.filter(|_| to.ip().is_loopback()) {
            self.work(host, shard, |now, engine, out| engine.unreachable(now, to, bytes, out));
        }
    }

    /// Gives a message to the shard that owns its call.
    pub(crate) fn receive(&mut self, host: usize, arrival: &Arrival, bytes: &[u8]) {
        let shard = self.hosts[host].shard_of(self.now, bytes);
        self.work(host, shard, |now, engine, out| engine.receive(now, arrival, bytes, out));
    }

    /// Calls an engine and carries out its effects.
    pub(crate) fn work(&mut self, host: usize, shard: usize, input: impl FnOnce(Now, &mut Engine, &mut Outbox)) {
        let now = self.now;
        let (sent, effects) = self.hosts[host].work(now, shard, |engine, out| input(now, engine, out));
        self.carry_out(host, shard, sent, effects);
    }

    /// Plans the report that a message could not be sent, if the sender of the message wants one.
    pub(crate) fn report(&mut self, host: usize, shard: usize, token: u64, by_peer: bool) {
        if token != 0 {
            let process = self.hosts[host].process();
            self.plan(0, Due::Unsent { host, process, shard, token, by_peer });
        }
    }

    fn carry_out(&mut self, host: usize, shard: usize, sent: Vec<Sent>, effects: Vec<Effect>) {
        let process = self.hosts[host].process();
        for sent in sent {
            if sent.target.transport != Transport::Udp {
                self.send_by_stream(host, shard, sent);
            } else if sent.bytes.len() > DATAGRAM || sent.target.is_nowhere() {
                self.report(host, shard, sent.token, false);
            } else {
                let (from, to) = (self.hosts[host].address(sent.target.listener), sent.target.address);
                self.plan(0, Due::Datagram { from, to, bytes: sent.bytes, sender: Some((host, shard)) });
            }
        }
        for effect in effects {
            match effect {
                Effect::Alias { flow, transport, address } => self.alias(host, flow, transport, address),
                Effect::LimitSilence { flow, longest, until } => self.limit_silence(host, flow, longest, until),
                Effect::Resolve { ticket, name, .. } => {
                    let to = self.resolved(host, &name);
                    let answer = EngineInput::Resolved { ticket, name, to };
                    self.plan(self.lookup, Due::Answer { host, process, shard, answer });
                }
                Effect::WakePings => self.plan(0, Due::Answer { host, process, shard: 0, answer: EngineInput::Pings }),
                Effect::Media { order, .. } => {
                    if let Some(event) = self.hosts[host].media.carry_out(order) {
                        self.media_event(host, event);
                    }
                }
                Effect::Account(row) => self.hosts[host].rows.push(*row),
                Effect::PersistCall { call, state } => _ = self.hosts[host].kept_calls.insert(call, state),
                Effect::FinishCall { call, .. } | Effect::DeleteCall { call } => {
                    self.hosts[host].kept_calls.remove(&call);
                }
                Effect::SourceVerified(_) | Effect::GiveBack => (),
            }
        }
        let answers = self.hosts[host].users().answers();
        if !answers.is_empty() {
            self.plan(self.lookup, Due::Answer { host, process, shard, answer: EngineInput::Subscribers(answers) });
        }
    }

    /// Plans an event of a media thread of a server.
    pub(crate) fn media_event(&mut self, host: usize, event: SessionEvent) {
        let shard = match &event {
            SessionEvent::Lent { shard, .. } => usize::from(*shard),
            SessionEvent::Heard { key, .. }
            | SessionEvent::Silent { key, .. }
            | SessionEvent::Played { key, .. }
            | SessionEvent::RecordingFailed { key }
            | SessionEvent::Reported { key, .. }
            | SessionEvent::Claimed { key, .. }
            | SessionEvent::Closed { key, .. } => self.hosts[host].shard_of_session(*key),
        };
        let (process, answer) = (self.hosts[host].process(), EngineInput::Media(event));
        self.plan(0, Due::Answer { host, process, shard, answer });
    }

    /// Shows a tracked call of a server.
    pub(crate) fn show_call(&mut self, host: usize, id: u64) -> Option<CallView> {
        let (now, mut found) = (self.now, None);
        for (shard, sent, effects) in self.hosts[host].show_call(now, id, &mut found) {
            self.carry_out(host, shard, sent, effects);
        }
        found
    }

    /// Ends a tracked call of a server by an order.
    pub(crate) fn end_call(&mut self, host: usize, id: u64) {
        let now = self.now;
        for (shard, sent, effects) in self.hosts[host].end_call(now, id) {
            self.carry_out(host, shard, sent, effects);
        }
    }

    /// Ends the calls with media of a server that no next process continues.
    pub(crate) fn end_unkept(&mut self, host: usize) {
        let now = self.now;
        for (shard, sent, effects) in self.hosts[host].end_unkept(now) {
            self.carry_out(host, shard, sent, effects);
        }
    }

    /// Returns the targets of a name that the test has set, or of this machine (RFC 6761 section 6.3).
    fn resolved(&self, at: usize, (host, port, transport, _): &HostKey) -> Resolved {
        if &**host == b"localhost" || host.ends_with(b".localhost") {
            let target = (transport.unwrap_or(Transport::Udp), (Ipv4Addr::LOCALHOST, port.unwrap_or(5_060)).into());
            return Resolved { targets: vec![target], name: None };
        }
        let text = String::from_utf8_lossy(host);
        let targets = self.names.get(&*text).into_iter().flatten();
        let fits = |(by, _): &&(Transport, SocketAddr)| transport.is_none_or(|wanted| wanted == *by);
        let target = |(by, address): &(Transport, SocketAddr)| {
            (*by, SocketAddr::new(address.ip(), port.unwrap_or_else(|| address.port())))
        };
        let targets: Vec<_> = targets.filter(fits).map(target).collect();
        let is_secure = targets.iter().any(|(transport, _)| transport.is_secure());
        Resolved { name: is_secure.then(|| self.hosts[at].names().number(&text)), targets }
    }
}
