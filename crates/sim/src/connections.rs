//! Connections between hosts: which of them a message goes over, as shards choose it (`strowger-net`), and how they break.
//!
//! A host names a connection by its flow. What it made itself it finds again by transport, address and the name that the peer was to
//! prove; what it accepted, by the flow alone, unless the peer asked to be reached there (an alias, RFC 5923). When a connection ends, each
//! of its hosts hears of that by itself, and until then what it sends is lost.

use crate::network::{Arriving, EndId, Network};
use std::collections::HashMap;
use std::net::SocketAddr;
use strowger_core::{Flow, PeerName, Target, Transport};

/// Who has an end of a connection, and by which process.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub host: usize,
    pub node: u16,
    pub process: u16,
    pub shard: u8,
}

#[derive(Debug)]
struct End {
    host: usize,
    flow: Flow,
    /// The address that the other end sees.
    address: SocketAddr,
    /// Its host has not heard of its end.
    is_open: bool,
    /// Tokens of what its host sent over it, as far as it wants to hear of them.
    sent: Vec<u64>,
    /// When what it sent last arrives at the other end.
    last: u64,
    /// Where its peer asked to be reached over it.
    alias: Option<SocketAddr>,
}

#[derive(Debug)]
struct Connection {
    transport: Transport,
    /// What its maker asked the peer to prove.
    name: Option<PeerName>,
    ends: [End; 2],
    /// Nothing arrives any more.
    is_dead: bool,
}

/// How a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// One side ends it: what it sent before arrives.
    Closed { by: usize },
    /// Both hear of it as fast as anything travels.
    Reset,
    /// A translator has forgotten it: each hears of it when it sends something, or after this time, ms.
    Silent(u64),
}

/// Messages of one connection whose senders hear of its end.
const REMEMBERED: usize = 256;

/// First port of the connections that hosts make.
const FIRST_PORT: u16 = 32_768;

#[derive(Debug, Default)]
pub struct Connections {
    all: Vec<Connection>,
    by_flow: HashMap<(usize, Flow), EndId>,
    /// Where an address is reached, by who asks.
    directory: HashMap<(usize, Transport, SocketAddr, Option<PeerName>), EndId>,
    /// How often each place of a shard was used, and whether it is.
    places: HashMap<(usize, u16, u8), Vec<(u32, bool)>>,
    /// Ends of connections, open ones, by host and in the order of their making.
    open: Vec<Vec<EndId>>,
    next_port: u16,
}

/// Where a message of a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Over(EndId),
    /// A connection to this address is to be made first.
    Dial(Target),
    /// Its connection has ended, and its peer takes none.
    Gone,
}

impl Connections {
    /// How a host's message of a stream reaches this target.
    pub fn way(&self, host: usize, target: &Target) -> Way {
        if let Some(flow) = target.flow {
            if let Some(at) = self.by_flow.get(&(host, flow)).filter(|at| self.leads(**at, target)) {
                return Way::Over(*at);
            }
            // A browser cannot be called back.
            if matches!(target.transport, Transport::Ws | Transport::Wss) {
                return Way::Gone;
            }
        }
        let target = target.without_flow();
        let key = (host, target.transport, target.address, target.name);
        self.directory.get(&key).map_or(Way::Dial(target), |at| Way::Over(*at))
    }

    /// Whether this end leads to whom the target means.
    fn leads(&self, at: EndId, target: &Target) -> bool {
        let connection = &self.all[at.connection as usize];
        let (end, peer) = (&connection.ends[at.side], &connection.ends[1 - at.side]);
        let is_there = peer.address == target.address || end.alias == Some(target.address);
        end.is_open
            && connection.transport == target.transport
            && is_there
            && (target.name.is_none() || connection.name == target.name)
    }

    /// Makes a connection from one host to another. `from`: the address of its maker that others see.
    pub fn make(&mut self, maker: Owner, taker: Owner, from: SocketAddr, target: &Target) -> EndId {
        let port = FIRST_PORT + self.next_port % (u16::MAX - FIRST_PORT);
        self.next_port = self.next_port.wrapping_add(1);
        let from = SocketAddr::new(from.ip(), port);
        let connection = self.all.len() as u32;
        let mut end = |owner: Owner, address, side| {
            let flow = self.place(owner);
            let at = EndId { connection, side };
            self.by_flow.insert((owner.host, flow), at);
            if self.open.len() <= owner.host {
                self.open.resize(owner.host + 1, Vec::new());
            }
            self.open[owner.host].push(at);
            End { host: owner.host, flow, address, is_open: true, sent: Vec::new(), last: 0, alias: None }
        };
        let ends = [end(maker, from, 0), end(taker, target.address, 1)];
        let Target { transport, address, name, .. } = *target;
        self.all.push(Connection { transport, name, ends, is_dead: false });
        let made = EndId { connection, side: 0 };
        self.directory.insert((maker.host, transport, address, name), made);
        made
    }

    /// A flow for a further connection of this shard: in the lowest place that is free.
    fn place(&mut self, owner: Owner) -> Flow {
        let Owner { host, node, process, shard } = owner;
        let places = self.places.entry((host, process, shard)).or_default();
        let slot = places.iter().position(|(_, used)| !used).unwrap_or(places.len());
        if slot == places.len() {
            places.push((0, false));
        }
        places[slot].0 += 1;
        places[slot].1 = true;
        Flow { node, process, shard, slot: slot as u32, generation: places[slot].0 }
    }

    /// Sends over this end.
    pub fn send(&mut self, network: &mut Network, now: u64, at: EndId, bytes: &[u8], token: u64) {
        let due = now + network.delay();
        let connection = &mut self.all[at.connection as usize];
        let end = &mut connection.ends[at.side];
        if token != 0 {
            if end.sent.len() == REMEMBERED {
                end.sent.remove(0);
            }
            end.sent.push(token);
        }
        if connection.is_dead {
            // Its system, or that of the peer, says so.
            return network.put(due, Arriving::End(at));
        }
        end.last = due.max(end.last);
        let to = EndId { side: 1 - at.side, ..at };
        network.put(end.last, Arriving::Message { at: to, bytes: bytes.to_vec() });
    }

    /// The end at which something arrives: its host, flow, transport and where that came from; none if the connection has ended.
    pub fn arrives(&self, at: EndId) -> Option<(usize, Flow, Transport, SocketAddr)> {
        let connection = &self.all[at.connection as usize];
        let (end, peer) = (&connection.ends[at.side], &connection.ends[1 - at.side]);
        (end.is_open && !connection.is_dead).then_some((end.host, end.flow, connection.transport, peer.address))
    }

    /// This peer asks to be reached over a connection of this host.
    pub fn alias(&mut self, host: usize, flow: Flow, transport: Transport, address: SocketAddr) {
        let Some(&at) = self.by_flow.get(&(host, flow)) else { return };
        let before = self.all[at.connection as usize].ends[at.side].alias.replace(address);
        if let Some(before) = before.filter(|before| *before != address) {
            self.forget(host, transport, before, None, at);
        }
        self.directory.insert((host, transport, address, None), at);
    }

    fn forget(&mut self, host: usize, of: Transport, to: SocketAddr, name: Option<PeerName>, at: EndId) {
        if self.directory.get(&(host, of, to, name)) == Some(&at) {
            self.directory.remove(&(host, of, to, name));
        }
    }

    /// The connections that a host knows as open, oldest first.
    pub fn of(&self, host: usize) -> &[EndId] {
        self.open.get(host).map_or(&[], |open| open)
    }

    /// The hosts at both ends, first that of this one.
    pub fn hosts(&self, at: EndId) -> [usize; 2] {
        let ends = &self.all[at.connection as usize].ends;
        [ends[at.side].host, ends[1 - at.side].host]
    }

    /// What names this end at its host.
    pub fn flow(&self, at: EndId) -> Flow {
        self.all[at.connection as usize].ends[at.side].flow
    }

    /// Something breaks the connection of this end. Returns the hosts of both if it was whole.
    pub fn break_off(&mut self, network: &mut Network, now: u64, at: EndId, how: Break) -> Option<[usize; 2]> {
        let hosts = self.hosts(at);
        let connection = &mut self.all[at.connection as usize];
        if connection.is_dead {
            return None;
        }
        let here = EndId { side: at.side, ..at };
        let there = EndId { side: 1 - at.side, ..at };
        match how {
            Break::Closed { by } => {
                // What is under way to the side that ends it finds no one. The other end hears of it behind what was sent before.
                let (by, other) = if by == at.side { (here, there) } else { (there, here) };
                let last = connection.ends[by.side].last;
                network.put(now, Arriving::End(by));
                let due = (now + network.delay()).max(last);
                network.put(due, Arriving::End(other));
                // Not dead: what comes before the end is still heard.
                return Some(hosts);
            }
            Break::Reset => {
                connection.is_dead = true;
                for end in [here, there] {
                    let due = now + network.delay();
                    network.put(due, Arriving::End(end));
                }
            }
            Break::Silent(after) => {
                connection.is_dead = true;
                for end in [here, there] {
                    let due = now + network.random().between(0, after);
                    network.put(due, Arriving::End(end));
                }
            }
        }
        Some(hosts)
    }

    /// A host hears that its connection has ended: its flow and the tokens of what it sent over it, the latest first. None: it knew already.
    pub fn end(&mut self, at: EndId) -> Option<(usize, Flow, Vec<u64>)> {
        let connection = &mut self.all[at.connection as usize];
        let (transport, name) = (connection.transport, connection.name);
        let peer = connection.ends[1 - at.side].address;
        let end = &mut connection.ends[at.side];
        if !std::mem::replace(&mut end.is_open, false) {
            return None;
        }
        let (host, flow, alias) = (end.host, end.flow, end.alias.take());
        let tokens = std::mem::take(&mut end.sent).into_iter().rev().collect();
        self.by_flow.remove(&(host, flow));
        self.open[host].retain(|other| *other != at);
        self.forget(host, transport, peer, name, at);
        if let Some(alias) = alias {
            self.forget(host, transport, alias, None, at);
        }
        if let Some(places) = self.places.get_mut(&(host, flow.process, flow.shard)) {
            places[flow.slot as usize].1 = false;
        }
        Some((host, flow, tokens))
    }

    /// The process of a host has died: its system ends its connections, and the peers hear of it. Returns who.
    pub fn kill(&mut self, network: &mut Network, now: u64, host: usize) -> Vec<usize> {
        let mut peers = Vec::new();
        for at in self.of(host).to_vec() {
            let connection = &mut self.all[at.connection as usize];
            connection.is_dead = true;
            peers.push(connection.ends[1 - at.side].host);
            let due = now + network.delay();
            network.put(due, Arriving::End(EndId { side: 1 - at.side, ..at }));
            self.end(at);
        }
        self.places.retain(|(of, ..), _| *of != host);
        peers
    }
}
