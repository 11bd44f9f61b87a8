//! Streams of the network: the choice of a stream for a message, which follows the rules of shards, and the ends of
//! streams.

use crate::host::Sent;
use crate::world::{Due, World};
use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, ListenerId, PeerName, Target, Transport};
use strowger_message::frame::{self, Frame};
use strowger_server::peer_names::PeerNames;

/// Stream between two sides; the first side opened it.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) sides: [Side; 2],
    /// Address of each side.
    pub(crate) addresses: [SocketAddr; 2],
}

/// Side of a connection.
pub(crate) enum Side {
    /// Line of a test, by its number.
    Line(usize),
    /// Server.
    Host(HostSide),
}

/// State of a server's side of a connection.
pub(crate) struct HostSide {
    pub(crate) host: usize,
    flow: Flow,
    listener: ListenerId,
    is_open: bool,
    /// Bytes of an incomplete message, and the state of its reader.
    partial: Vec<u8>,
    scanned: usize,
    /// Tokens of its messages, with their shards.
    sent: Vec<(usize, u64)>,
    /// Time of the last bytes of the peer.
    heard_at: u64,
    /// Longest silence of the peer, and the end of this limit.
    silence: Option<(u64, u64)>,
}

/// Address by which a server finds a connection again: its number, transport and address.
pub(crate) type ConnectionAddress = (usize, Transport, SocketAddr);

impl World {
    fn host_side(&mut self, connection: usize, side: usize) -> Option<&mut HostSide> {
        match &mut self.connections[connection].sides[side] {
            Side::Host(own) => Some(own),
            Side::Line(_) => None,
        }
    }

    /// Creates the server's side of a connection.
    pub(crate) fn side_of(&mut self, host: usize, listener: ListenerId) -> Side {
        let flow = self.hosts[host].next_flow();
        let (partial, sent, heard_at) = (Vec::new(), Vec::new(), self.now.mono);
        Side::Host(HostSide { host, flow, listener, is_open: true, partial, scanned: 0, sent, heard_at, silence: None })
    }

    /// Returns the side of this line.
    pub(crate) fn side_of_line(&self, connection: usize, line: usize) -> usize {
        usize::from(!matches!(self.connections[connection].sides[0], Side::Line(own) if own == line))
    }

    /// Returns the numbers of the open connections of a server, each with its side.
    pub(crate) fn open_of(&self, host: usize) -> Vec<(usize, usize)> {
        let is_open = |side: &Side| matches!(side, Side::Host(own) if own.host == host && own.is_open);
        let sides = (0..self.connections.len()).flat_map(|at| [(at, 0), (at, 1)]);
        sides.filter(|(at, side)| is_open(&self.connections[*at].sides[*side])).collect()
    }

    /// Sends a message of a server over a stream.
    pub(crate) fn send_by_stream(&mut self, host: usize, shard: usize, sent: Sent) {
        let Some((connection, side)) = self.way(host, &sent.target) else {
            return self.report(host, shard, sent.token, true);
        };
        if sent.token != 0
            && let Some(own) = self.host_side(connection, side)
        {
            own.sent.push((shard, sent.token));
        }
        self.plan(0, Due::Bytes { connection, to: 1 - side, bytes: sent.bytes });
    }

    /// Returns the connection for a message of a server, and opens one if needed; `None` if the peer accepts no
    /// connection.
    fn way(&mut self, host: usize, target: &Target) -> Option<(usize, usize)> {
        if let Some(flow) = target.flow {
            let leads = |(connection, side): &(usize, usize)| {
                let of = &self.connections[*connection];
                let is_it = matches!(&of.sides[*side], Side::Host(own) if own.flow == flow);
                let is_there = of.addresses[1 - side] == target.address
                    || self.directory.get(&(host, of.transport, target.address)) == Some(&(*connection, *side));
                is_it && is_there && of.transport == target.transport
            };
            if let Some(at) = self.open_of(host).into_iter().find(leads) {
                return Some(at);
            }
            // A server cannot connect to a browser.
            if matches!(target.transport, Transport::Ws | Transport::Wss) {
                return None;
            }
        }
        if target.name.is_some_and(|name| !self.is_proved(host, name, target.address)) {
            return None;
        }
        let target = target.without_flow();
        let place = (host, target.transport, target.address);
        if let Some(at) = self.directory.get(&place) {
            return Some(*at);
        }
        let from = SocketAddr::new(self.hosts[host].address(target.listener).ip(), self.next_port());
        let peer = self.accept(target.transport, target.address)?;
        let own = self.side_of(host, target.listener);
        let at = (self.connect(target.transport, [own, peer], [from, target.address]), 0);
        self.directory.insert(place, at);
        Some(at)
    }

    /// Tells whether the peer at this address proves a name of a server: it does if the name leads there.
    fn is_proved(&self, host: usize, name: PeerName, address: SocketAddr) -> bool {
        let targets = self.hosts[host].names().text(name).and_then(|text| self.names.get(&*text));
        targets.is_some_and(|targets| targets.iter().any(|(_, of_name)| of_name.ip() == address.ip()))
    }

    /// Adds a connection; returns its number.
    pub(crate) fn connect(&mut self, transport: Transport, sides: [Side; 2], addresses: [SocketAddr; 2]) -> usize {
        self.connections.push(Connection { transport, sides, addresses });
        let number = self.connections.len() - 1;
        for side in &self.connections[number].sides {
            if let Side::Line(line) = side {
                self.lines[*line].connection = Some(number);
            }
        }
        number
    }

    /// Creates the other side of a connection to this address, if a server or a test listens there.
    pub(crate) fn accept(&mut self, transport: Transport, to: SocketAddr) -> Option<Side> {
        let listens = |(host, listener): (usize, Option<ListenerId>)| listener.map(|listener| (host, listener));
        let mut listeners = self.hosts.iter().map(|host| host.listener(transport, to)).enumerate();
        if let Some((host, listener)) = listeners.find_map(listens) {
            return Some(self.side_of(host, listener));
        }
        if !self.accepted.contains_key(&to) {
            return None;
        }
        let line = self.add_line(transport, to);
        self.accepted.get_mut(&to)?.push_back(line);
        Some(Side::Line(line))
    }

    /// Makes a connection of a server the one for messages to the address that its peer named (RFC 5923).
    pub(crate) fn alias(&mut self, host: usize, flow: Flow, transport: Transport, address: SocketAddr) {
        let is_it =
            |at: &(usize, usize)| matches!(&self.connections[at.0].sides[at.1], Side::Host(own) if own.flow == flow);
        if let Some(at) = self.open_of(host).into_iter().find(is_it) {
            self.directory.insert((host, transport, address), at);
        }
    }

    /// Limits the silence of the peer of a server's connection until this time.
    pub(crate) fn limit_silence(&mut self, host: usize, flow: Flow, longest: u64, until: u64) {
        for (connection, side) in self.open_of(host) {
            if let Some(own) = self.host_side(connection, side).filter(|own| own.flow == flow) {
                own.silence = Some((longest, until));
                self.end_silence(connection, side);
            }
        }
    }

    /// Ends a connection whose peer is silent for too long, or plans to look again.
    pub(crate) fn end_silence(&mut self, connection: usize, side: usize) {
        let now = self.now.mono;
        let Some(own) = self.host_side(connection, side).filter(|own| own.is_open) else { return };
        let due = own.silence.map(|(longest, until)| (own.heard_at + longest, until));
        match due.filter(|(due, until)| due <= until) {
            Some((due, _)) if due <= now => self.close(connection, side),
            Some((due, _)) => self.plan(due - now, Due::Silence { connection, side }),
            None => (),
        }
    }

    /// Delivers bytes of a stream.
    pub(crate) fn deliver(&mut self, connection: usize, to: usize, bytes: Vec<u8>) {
        let now = self.now;
        let of = &self.connections[connection];
        let (transport, remote) = (of.transport, of.addresses[1 - to]);
        let has_frames = matches!(transport, Transport::Ws | Transport::Wss);
        let own = match &mut self.connections[connection].sides[to] {
            Side::Line(line) => return self.lines[*line].inbox.push_back(bytes),
            Side::Host(own) if own.is_open => own,
            Side::Host(_) => return,
        };
        own.heard_at = now.mono;
        let (host, listener, flow) = (own.host, own.listener, own.flow);
        let arrival = Arrival { transport, listener, remote, flow: Some(flow) };
        if has_frames {
            return self.receive(host, &arrival, &bytes);
        }
        own.partial.extend_from_slice(&bytes);
        let limits = self.hosts[host].shared().policy().config.message_limits();
        while let Some(own) = self.host_side(connection, to).filter(|own| own.is_open && !own.partial.is_empty()) {
            match frame::next(&own.partial, &mut own.scanned, &limits) {
                Frame::Ping(length) => {
                    own.partial.drain(..length);
                    self.hosts[host].kept_alive(now, flow);
                    self.plan(0, Due::Bytes { connection, to: 1 - to, bytes: b"\r\n".to_vec() });
                }
                Frame::Skip(length) => drop(own.partial.drain(..length)),
                Frame::Message(length) => {
                    let message: Vec<u8> = own.partial.drain(..length).collect();
                    self.receive(host, &arrival, &message);
                }
                Frame::Partial(_) => return,
                Frame::Broken(_) => return self.close(connection, to),
            }
        }
    }

    /// Ends a connection by this side, and notifies the other side.
    pub(crate) fn close(&mut self, connection: usize, by: usize) {
        self.ended(connection, by);
        self.plan(0, Due::Ended { connection, to: 1 - by });
    }

    /// Notifies a side that its connection has ended.
    pub(crate) fn ended(&mut self, connection: usize, to: usize) {
        let own = match &mut self.connections[connection].sides[to] {
            Side::Line(line) => return self.lines[*line].is_closed = true,
            Side::Host(own) if own.is_open => own,
            Side::Host(_) => return,
        };
        own.is_open = false;
        let (host, flow, sent) = (own.host, own.flow, std::mem::take(&mut own.sent));
        self.directory.retain(|_, at| *at != (connection, to));
        if flow.process != self.hosts[host].process() {
            return;
        }
        self.hosts[host].closed(flow);
        for (shard, token) in sent.into_iter().rev() {
            self.work(host, shard, |now, engine, out| engine.cut_off(now, token, out));
        }
    }
}
