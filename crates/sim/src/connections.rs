//! Connections between hosts: their choice for a message, as shards make it (`strowger-net`), and their failures.
//!
//! A host names a connection by its flow. A host finds a connection that it made by transport, address and the name
//! that the peer had to prove. A host finds an accepted connection only by the flow, unless the peer asked to be
//! reached over this connection (an alias, RFC 5923). When a connection ends, each of its hosts learns of that
//! separately; until then its messages are lost.

use crate::network::{Arriving, EndId, Network};
use std::collections::HashMap;
use std::net::SocketAddr;
use strowger_core::{Flow, PeerName, Target, Transport};

/// Owner of an end of a connection: host, process and shard.
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
    /// Address that the other end sees.
    address: SocketAddr,
    /// False once its host has learned of the end.
    is_open: bool,
    /// Tokens of messages that its host sent over it and wants to hear of.
    sent: Vec<u64>,
    /// Arrival time of its last message at the other end.
    last: u64,
    /// Address of a peer that asked to be reached over it.
    alias: Option<SocketAddr>,
}

#[derive(Debug)]
struct Connection {
    transport: Transport,
    /// Name that its maker asked the peer to prove.
    name: Option<PeerName>,
    ends: [End; 2],
    /// True if no more messages arrive.
    is_dead: bool,
}

/// Kind of failure of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// One side closes it: its earlier messages still arrive.
    Closed { by: usize },
    /// Both ends learn of the reset after the usual delay.
    Reset,
    /// A translator has forgotten it: each side learns of it when it sends a message, or after this time in ms.
    Silent(u64),
}

/// Number of messages of one connection whose senders learn of its end.
const REMEMBERED: usize = 256;

/// First port of outgoing connections.
const FIRST_PORT: u16 = 32_768;

#[derive(Debug, Default)]
pub struct Connections {
    all: Vec<Connection>,
    by_flow: HashMap<(usize, Flow), EndId>,
    /// End of a connection by the host that looks for it, and by address.
    directory: HashMap<(usize, Transport, SocketAddr, Option<PeerName>), EndId>,
    /// Number of uses of each slot of a shard, and whether it is in use.
    places: HashMap<(usize, u16, u8), Vec<(u32, bool)>>,
    /// Open ends of connections by host, in the order of their creation.
    open: Vec<Vec<EndId>>,
    next_port: u16,
}

/// Path of a message over a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Over(EndId),
    /// A connection to this address must be made first.
    Dial(Target),
    /// The connection of the message has ended, and the peer accepts no new one.
    Gone,
}

impl Connections {
    /// Returns the path of a host's message to this target.
    pub fn way(&self, host: usize, target: &Target) -> Way {
        if let Some(flow) = target.flow {
            if let Some(at) = self.by_flow.get(&(host, flow)).filter(|at| self.leads(**at, target)) {
                return Way::Over(*at);
            }
            // A server cannot connect to a browser.
            if matches!(target.transport, Transport::Ws | Transport::Wss) {
                return Way::Gone;
            }
        }
        let target = target.without_flow();
        let key = (host, target.transport, target.address, target.name);
        self.directory.get(&key).map_or(Way::Dial(target), |at| Way::Over(*at))
    }

    /// Returns whether the connection of this end is suitable for messages to the target.
    fn leads(&self, at: EndId, target: &Target) -> bool {
        let connection = &self.all[at.connection as usize];
        let (end, peer) = (&connection.ends[at.side], &connection.ends[1 - at.side]);
        let is_there = peer.address == target.address || end.alias == Some(target.address);
        end.is_open
            && connection.transport == target.transport
            && is_there
            && (target.name.is_none() || connection.name == target.name)
    }

    /// Makes a connection from one host to another. `from`: address of its maker as others see it.
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

    /// Allocates a flow for another connection of this shard, in the lowest free slot.
    fn place(&mut self, owner: Owner) -> Flow {
        let Owner { host, node, process, shard } = owner;
        let places = self.places.entry((host, process, shard)).or_default();
        let slot = places.iter().position(|(_, used)| !used).unwrap_or(places.len());
        if slot == places.len() {
            places.push((0, false));
        }
        // Even: the connection of no load balancer.
        places[slot].0 += 2;
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
            // The kernel of the sender or of the peer reports the end.
            return network.put(due, Arriving::End(at));
        }
        end.last = due.max(end.last);
        let to = EndId { side: 1 - at.side, ..at };
        network.put(end.last, Arriving::Message { at: to, bytes: bytes.to_vec() });
    }

    /// Returns the receiving host, flow, transport and sender's address of an arrival; `None` if the connection has
    /// ended.
    pub fn arrives(&self, at: EndId) -> Option<(usize, Flow, Transport, SocketAddr)> {
        let connection = &self.all[at.connection as usize];
        let (end, peer) = (&connection.ends[at.side], &connection.ends[1 - at.side]);
        (end.is_open && !connection.is_dead).then_some((end.host, end.flow, connection.transport, peer.address))
    }

    /// Records that this peer asks to be reached over a connection of this host.
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

    /// Returns the connections that a host believes open, oldest first.
    pub fn of(&self, host: usize) -> &[EndId] {
        self.open.get(host).map_or(&[], |open| open)
    }

    /// Returns the hosts at both ends, that of this end first.
    pub fn hosts(&self, at: EndId) -> [usize; 2] {
        let ends = &self.all[at.connection as usize].ends;
        [ends[at.side].host, ends[1 - at.side].host]
    }

    /// Returns the flow of this end at its host.
    pub fn flow(&self, at: EndId) -> Flow {
        self.all[at.connection as usize].ends[at.side].flow
    }

    /// Breaks the connection of this end. Returns the hosts of both ends if it was intact.
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
                // Messages in transit to the closing side are lost. The other end learns of the close after the
                // messages that were sent before the close.
                let (by, other) = if by == at.side { (here, there) } else { (there, here) };
                let last = connection.ends[by.side].last;
                network.put(now, Arriving::End(by));
                let due = (now + network.delay()).max(last);
                network.put(due, Arriving::End(other));
                // The connection is not marked dead, because messages sent before its end still arrive.
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

    /// Reports to a host that its connection has ended. Returns the flow and the tokens of the sent messages, the
    /// latest first; `None` if the host knew of the end.
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

    /// Ends the connections of a host whose process has died; the operating system of that host informs the peers.
    /// Returns the ended connections.
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
