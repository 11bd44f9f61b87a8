//! Hosts, the network between them and one clock.

use crate::connections::{Break, Connections, Owner, Way};
use crate::laws::Laws;
use crate::network::{Arriving, Conditions, EndId, Network};
use crate::node::SimNode;
use crate::noise::Noise;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use strowger_core::outbox::Send;
use strowger_core::transaction::Transactions;
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};

/// A host: an address with machines inside.
pub trait Host {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox);

    /// Reports that the message with this token could not be sent.
    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox);

    /// Reports the end of the connection over which the message with this token was sent.
    fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox);

    /// Reports the end of a connection of this host.
    fn closed(&mut self, now: Now, flow: Flow, out: &mut Outbox);

    fn poll(&mut self, now: Now, out: &mut Outbox);

    /// Returns the time at which [`Host::poll`] is due.
    fn deadline(&mut self) -> Option<u64>;

    /// Returns the node, process and shard of the next connection of this host.
    fn owner(&mut self) -> (u16, u16, u8);

    /// Returns whether the host accepts connections for this target: by this transport, from a peer that wants this
    /// name proved.
    fn takes(&self, target: &Target) -> bool;

    /// Returns the peers that have asked, since the last call, to be reached over a connection of this host.
    fn aliases(&mut self) -> Vec<(Flow, Transport, SocketAddr)> {
        Vec::new()
    }

    /// Returns whether the host's process has ended and started again since the last call, and has forgotten its past.
    /// The next process does nothing before this call. So all messages that were sent before belong to the old process,
    /// and so do the connections that are ended now.
    fn has_restarted(&mut self) -> bool {
        false
    }

    /// Records that a connection of this host is dead before the host notices it.
    fn lost_connection(&mut self, _now: Now) {}

    /// Checks the laws after every step.
    ///
    /// # Errors
    /// The violated law.
    fn check(&self) -> Result<(), String>;

    /// Checks that nothing is left when no work is in progress and no timer runs.
    ///
    /// # Errors
    /// The remaining state.
    fn leftovers(&self) -> Result<(), String>;
}

/// Transports of the listeners, by number: the same for every host.
pub const LISTENERS: [Transport; 4] = [Transport::Udp, Transport::Tcp, Transport::Ws, Transport::Tls];

/// Port of each listener.
pub const PORTS: [u16; 4] = [5060, 5060, 80, 5061];

/// Returns the listener of a transport.
pub fn listener(transport: Transport) -> ListenerId {
    let at = LISTENERS.iter().position(|of| *of == transport).expect("every host has these");
    ListenerId(at as u16)
}

/// Returns the listening address of a host for a transport.
pub fn listens_at(address: SocketAddr, transport: Transport) -> SocketAddr {
    SocketAddr::new(address.ip(), PORTS[usize::from(listener(transport).0)])
}

/// A simulated world.
pub struct World {
    pub now: Now,
    pub hosts: Vec<SimNode>,
    /// Receiver of messages to an address.
    by_address: HashMap<SocketAddr, usize>,
    /// Address of each host as it sees itself.
    own: Vec<SocketAddr>,
    /// Public addresses of hosts behind a translator.
    translated: HashMap<usize, SocketAddr>,
    /// Address changes by translators: [`Now::mono`], then host.
    changes: BTreeMap<(u64, usize), SocketAddr>,
    /// Failures of a connection of a host: time, then host.
    breaks: BTreeMap<(u64, usize), Break>,
    has_broken: bool,
    /// Time ([`Now::mono`]) and length of a step of the wall clock, in ms.
    clock_step: Option<(u64, i64)>,
    network: Network,
    connections: Connections,
    pub laws: Laws,
    /// Poll time of each host, and all poll times in order. An outdated entry stays in the heap until its time and has
    /// no meaning.
    deadlines: Vec<Option<u64>>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    out: Outbox,
    /// Broken messages among those of the hosts.
    pub noise: Option<Noise>,
    /// Every message with the time of its sending, if requested.
    pub trace: Option<Vec<String>>,
    /// Hash of every message and the time of its sending: equal for equal runs.
    digest: u64,
    /// Time in ms after which a simulation without an end is given up.
    pub longest: u64,
}

/// First public port of a host behind a translator.
pub const PUBLIC_PORT: u16 = 20_000;

/// Time in ms after which a connection attempt is given up if the target does not respond.
const UNREACHED: u64 = 5_000;

/// Time to connect for a message whose sender has an alternative.
const FALLBACK_DELAY: u64 = 300;

/// Start time of a world.
pub const START: Now = Now { mono: 1_000, wall: 1_700_000_000_000 };

impl World {
    pub fn new(network: Network, hosts: Vec<(SocketAddr, SimNode)>) -> Self {
        let own: Vec<SocketAddr> = hosts.iter().map(|(address, _)| *address).collect();
        let by_address = own.iter().enumerate().flat_map(|(n, address)| {
            LISTENERS.map(|transport| (listens_at(*address, transport), n)).into_iter().chain([(*address, n)])
        });
        let servers = hosts.iter().filter(|(_, host)| host.server().is_some()).map(|(address, _)| *address);
        let laws = Laws::new(servers);
        let mut world = Self {
            now: START,
            by_address: by_address.collect(),
            deadlines: vec![None; hosts.len()],
            hosts: hosts.into_iter().map(|(_, host)| host).collect(),
            own,
            translated: HashMap::new(),
            changes: BTreeMap::new(),
            breaks: BTreeMap::new(),
            has_broken: false,
            clock_step: None,
            network,
            connections: Connections::default(),
            laws,
            due: BinaryHeap::new(),
            out: Outbox::new(),
            noise: None,
            trace: None,
            digest: 0,
            longest: 3_600_000,
        };
        (0..world.hosts.len()).for_each(|at| world.look_at_deadline(at));
        world
    }

    pub const fn conditions(&self) -> &Conditions {
        self.network.conditions()
    }

    /// Returns the hash that is equal for equal runs.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Puts a translator before the host with this address. Peers reach the host by the first of the public addresses,
    /// and after each of the times by the next public address; no other address leads to the host.
    pub fn translate(&mut self, private: SocketAddr, public: impl IntoIterator<Item = (u64, SocketAddr)>) {
        let Some(&at) = self.by_address.get(&private) else { return };
        self.by_address.retain(|_, host| *host != at);
        self.changes.extend(public.into_iter().map(|(moment, address)| ((moment, at), address)));
        self.change_addresses();
    }

    /// Breaks a connection of a host at each of these times, if the host has a connection.
    pub fn break_connections(&mut self, host: usize, breaks: impl IntoIterator<Item = (u64, Break)>) {
        let breaks: Vec<_> = breaks.into_iter().collect();
        self.has_broken |= !breaks.is_empty();
        self.breaks.extend(breaks.into_iter().map(|(moment, how)| ((moment, host), how)));
    }

    /// Steps the wall clock of all hosts by a number of milliseconds at this time.
    pub fn set_clock(&mut self, moment: u64, by: i64) {
        self.clock_step = Some((moment, by));
    }

    /// Returns whether the wall clock has stepped.
    pub(crate) fn has_stepped(&self) -> bool {
        self.now.wall.wrapping_sub(START.wall) != self.now.mono.wrapping_sub(START.mono)
    }

    /// Returns whether a translator changes the address of a host while it is in use.
    pub fn moves_hosts(&self) -> bool {
        self.translated.values().any(|public| public.port() != PUBLIC_PORT)
    }

    /// Returns whether connections break, or have broken.
    pub const fn breaks_connections(&self) -> bool {
        self.has_broken
    }

    fn change_addresses(&mut self) {
        while let Some(entry) = self.changes.first_entry().filter(|entry| entry.key().0 <= self.now.mono) {
            let ((_, at), public) = entry.remove_entry();
            if let Some(before) = self.translated.insert(at, public) {
                self.by_address.remove(&before);
                self.hosts[at].host().lost_connection(self.now);
                for end in self.connections.of(at).to_vec() {
                    self.break_off(end, Break::Silent(10_000));
                }
            }
            self.by_address.insert(public, at);
        }
    }

    fn break_connections_now(&mut self) {
        while let Some(entry) = self.breaks.first_entry().filter(|entry| entry.key().0 <= self.now.mono) {
            let ((_, at), how) = entry.remove_entry();
            let open = self.connections.of(at);
            if !open.is_empty() {
                let end = open[self.network.random().u64() as usize % open.len()];
                self.break_off(end, how);
            }
        }
    }

    fn break_off(&mut self, at: EndId, how: Break) {
        if let Some(hosts) = self.connections.break_off(&mut self.network, self.now.mono, at, how) {
            hosts.into_iter().for_each(|host| self.hosts[host].host().lost_connection(self.now));
        }
    }

    /// Runs until no work is in progress and no timer runs.
    ///
    /// # Errors
    /// The first violated law, with its time.
    pub fn run(&mut self) -> Result<(), String> {
        let start = self.now.mono;
        while self.now.mono < start + self.longest {
            let Some(next) = self.deadline() else {
                let at_end = |e| format!("at the end: {e}");
                self.hosts.iter().try_for_each(SimNode::leftovers).map_err(at_end)?;
                self.check_connections().map_err(at_end)?;
                return self.laws.at_the_end(&self.hosts).map_err(at_end);
            };
            let passed = next.saturating_sub(self.now.mono);
            self.now = Now { mono: self.now.mono + passed, wall: self.now.wall + passed };
            if let Some((_, by)) = self.clock_step.take_if(|(moment, _)| *moment <= self.now.mono) {
                self.now.wall = self.now.wall.wrapping_add_signed(by);
            }
            self.change_addresses();
            self.break_connections_now();
            self.step().map_err(|e| format!("after {} ms: {e}", self.now.mono - start))?;
        }
        let left: Vec<String> = self.hosts.iter().filter_map(|h| h.leftovers().err()).collect();
        Err(format!("no end after {} ms: {}", self.longest, left.join("; ")))
    }

    /// Checks that servers know which of their connections are open.
    fn check_connections(&self) -> Result<(), String> {
        for (host, server) in self.hosts.iter().enumerate().filter_map(|(n, node)| Some((n, node.server()?))) {
            let is_unknown = |at: &&EndId| !server.has_open_flow(self.connections.flow(**at));
            if let Some(at) = self.connections.of(host).iter().find(is_unknown) {
                return Err(format!("{}: {at:?} is open, and taken for ended", self.own[host]));
            }
        }
        Ok(())
    }

    fn deadline(&mut self) -> Option<u64> {
        while self.due.peek().is_some_and(|Reverse((due, at))| self.deadlines[*at] != Some(*due)) {
            self.due.pop();
        }
        let host = self.due.peek().map(|Reverse((due, _))| *due);
        let change = self.changes.keys().next().map(|(moment, _)| *moment);
        let broken = self.breaks.keys().next().map(|(moment, _)| *moment);
        host.into_iter().chain(self.network.deadline()).chain(change).chain(broken).min()
    }

    fn look_at_deadline(&mut self, at: usize) {
        let deadline = self.hosts[at].host().deadline();
        if self.deadlines[at] != deadline {
            self.deadlines[at] = deadline;
            self.due.extend(deadline.map(|due| Reverse((due, at))));
        }
    }

    /// Performs one arrival, or one round of the timers of one host.
    fn step(&mut self) -> Result<(), String> {
        let now = self.now;
        let at = match self.network.next(now.mono) {
            Some(Arriving::Datagram { from, to, bytes }) => {
                // The host has gone.
                let Some(&at) = self.by_address.get(&to) else { return Ok(()) };
                let (transport, flow) = (Transport::Udp, None);
                self.hand_over(at, &Arrival { transport, listener: listener(transport), remote: from, flow }, &bytes)?;
                at
            }
            Some(Arriving::Message { at, bytes }) => {
                let Some((host, flow, transport, remote)) = self.connections.arrives(at) else { return Ok(()) };
                let flow = Some(flow);
                self.hand_over(host, &Arrival { transport, listener: listener(transport), remote, flow }, &bytes)?;
                host
            }
            Some(Arriving::End(at)) => {
                let Some((host, flow, tokens)) = self.connections.end(at) else { return Ok(()) };
                let [_, peer] = self.connections.hosts(at);
                self.knows_of_loss(host, peer);
                self.hosts[host].host().closed(now, flow, &mut self.out);
                if self.hosts[host].server().is_some_and(|server| server.has_open_flow(flow)) {
                    return Err(format!("{}: a connection that has ended is taken for open", self.own[host]));
                }
                for token in tokens {
                    self.hosts[host].host().cut_off(now, token, &mut self.out);
                }
                host
            }
            Some(Arriving::Unsent { host, token }) => {
                self.hosts[host].host().failed(now, token, &mut self.out);
                host
            }
            None => match self.due.peek() {
                Some(&Reverse((due, at))) if due <= now.mono => at,
                _ => return Ok(()),
            },
        };
        // As in a shard, the timers run once after each round.
        self.hosts[at].host().poll(now, &mut self.out);
        let has_restarted = self.hosts[at].host().has_restarted();
        if has_restarted {
            self.laws.restarts(self.own[at]);
        }
        self.flush(at)?;
        if has_restarted {
            self.laws.restarted(self.own[at]);
            for peer in self.connections.kill(&mut self.network, now.mono, at) {
                self.hosts[peer].host().lost_connection(now);
                self.knows_of_loss(at, peer);
            }
        }
        self.look_at_deadline(at);
        self.laws.after_step(&self.hosts[at], now)?;
        self.hosts[at].check()
    }

    /// Records that a server has lost the connection over which a phone had registered.
    fn knows_of_loss(&mut self, host: usize, peer: usize) {
        if self.hosts[host].server().is_some()
            && let SimNode::Agent(agent) = &mut self.hosts[peer]
        {
            agent.server_knows(self.now.mono);
        }
    }

    fn hand_over(&mut self, at: usize, arrival: &Arrival, bytes: &[u8]) -> Result<(), String> {
        self.laws.arrived(&self.hosts[at], self.own[at], self.now, arrival, bytes);
        self.hosts[at].host().receive(self.now, arrival, bytes, &mut self.out);
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<(), String> {
        for (flow, transport, address) in self.hosts[at].host().aliases() {
            self.connections.alias(at, flow, transport, address);
        }
        let own = self.own[at];
        let from = self.translated.get(&at).copied().unwrap_or(own);
        let out = std::mem::take(&mut self.out);
        for send in out.sends() {
            let bytes = &out.bytes[send.range()];
            self.note(from, &send.target, bytes);
            self.laws.sent(&self.hosts[at], own, self.now, &send.target, bytes)?;
            if send.target.transport.is_reliable() {
                self.send_by_stream(at, from, send, bytes);
            } else {
                let exists = self.by_address.contains_key(&send.target.address);
                self.network.send(self.now.mono, from, send.target.address, bytes, exists);
            }
            let to_server = self.by_address.get(&send.target.address).filter(|to| self.hosts[**to].server().is_some());
            if let (Some(noise), Some(_)) = (&mut self.noise, to_server)
                && let Some((from, broken)) = noise.broken_copy(bytes)
            {
                self.network.send(self.now.mono, from, listens_at(send.target.address, Transport::Udp), &broken, true);
            }
        }
        self.out = out;
        self.out.clear();
        Ok(())
    }

    fn send_by_stream(&mut self, at: usize, from: SocketAddr, send: &Send, bytes: &[u8]) {
        let (now, token) = (self.now.mono, send.token);
        let end = match self.connections.way(at, &send.target) {
            Way::Over(end) => end,
            Way::Gone => return self.network.put(now, Arriving::Unsent { host: at, token }),
            Way::Dial(target) => {
                let to = self.by_address.get(&target.address).copied();
                let Some(to) = to.filter(|to| self.hosts[*to].host_ref().takes(&target)) else {
                    let patience = if send.has_fallback { FALLBACK_DELAY } else { UNREACHED };
                    let silence = if to.is_none() { patience } else { 0 };
                    let due = now + silence + 2 * self.network.delay();
                    return self.network.put(due, Arriving::Unsent { host: at, token });
                };
                let mut owner = |host: usize| {
                    let (node, process, shard) = self.hosts[host].host().owner();
                    Owner { host, node, process, shard }
                };
                let (maker, taker) = (owner(at), owner(to));
                self.connections.make(maker, taker, from, &target)
            }
        };
        self.connections.send(&mut self.network, now, end, bytes, token);
    }

    /// Records a message, for the trace and the comparison of two runs.
    fn note(&mut self, from: SocketAddr, target: &Target, bytes: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.digest);
        hasher.write_u64(self.now.mono);
        hasher.write_u16(target.address.port());
        hasher.write(bytes);
        self.digest = hasher.finish();
        if let Some(trace) = &mut self.trace {
            let (to, text) = (target.address, String::from_utf8_lossy(bytes));
            trace.push(format!("{} {from} -> {to} {}\n{text}", self.now.mono, target.transport.text()));
        }
    }
}

/// Checks a transaction table after its last timer.
pub(crate) fn nothing_left(host: &dyn Display, tx: &Transactions) -> Result<(), String> {
    let counts = tx.counts();
    let left = counts.servers + counts.clients + counts.kept_messages + counts.timers + counts.keys;
    if left > 0 || tx.timers_waiting() > 0 || tx.memory() > 0 {
        return Err(format!("{host}: {} bytes for {counts:?}", tx.memory()));
    }
    if counts.charged_bytes > 0 {
        return Err(format!("{host}: sources are charged {} bytes for nothing", counts.charged_bytes));
    }
    Ok(())
}
