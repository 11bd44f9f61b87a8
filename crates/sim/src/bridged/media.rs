//! Media thread of the server: sessions of `strowger-media` on simulated ports, as the threads of `strowger-net` drive them.

use super::{Datagram, SERVER};
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use strowger_config::Media;
use strowger_core::Now;
use strowger_media::Moment;
use strowger_media::session::{
    LegPort, PortPair, Session, SessionEvent, SessionKey, SessionOrder, SessionOutput, Side, StreamOrder,
};

/// Media thread.
pub(super) struct MediaThread {
    free: VecDeque<PortPair>,
    /// Ports of the sessions of the process before, which wait for their claims.
    reserved: Vec<PortPair>,
    /// Number of pairs that shards have.
    lent: usize,
    sessions: BTreeMap<SessionKey, Session>,
    /// Sessions of ports, by the port of RTP, with the place of the stream and the side.
    bound: BTreeMap<u16, (SessionKey, u8, Side)>,
    /// Longest silence in microseconds.
    timeout: Option<u64>,
    /// Time of the last poll in milliseconds.
    polled: u64,
    random: Random,
    out: SessionOutput,
    problem: Option<String>,
}

/// Returns both clocks in microseconds.
const fn moment(now: Now) -> Moment {
    Moment { mono: now.mono * 1_000, wall: now.wall * 1_000 }
}

impl MediaThread {
    /// Creates the media thread of a process with one media address.
    pub(super) fn new(media: &Media, random: Random) -> Self {
        let first = media.ports.first.next_multiple_of(2);
        let pair = |n: usize| PortPair { thread: 0, address: 0, rtp: first + 2 * n as u16 };
        Self {
            free: (0..media.ports.pairs()).map(pair).collect(),
            reserved: Vec::new(),
            lent: 0,
            sessions: BTreeMap::new(),
            bound: BTreeMap::new(),
            timeout: media.timeout.map(|timeout| timeout.as_micros() as u64),
            polled: 0,
            random,
            out: SessionOutput::default(),
            problem: None,
        }
    }

    /// Keeps these ports for their claims, without those that another program has taken.
    pub(super) fn reserve(&mut self, ports: &[PortPair], taken: &[PortPair]) {
        self.free.retain(|pair| !ports.contains(pair) && !taken.contains(pair));
        self.reserved.extend(ports.iter().filter(|pair| !taken.contains(pair)));
    }

    /// Carries out an order of a shard.
    pub(super) fn carry_out(&mut self, now: Now, order: SessionOrder) {
        match order {
            SessionOrder::Set { key, streams, .. } => self.set(now, key, streams),
            SessionOrder::Report { key } => {
                let streams = self.sessions.get(&key).map(Session::reports).unwrap_or_default();
                self.out.events.push(SessionEvent::Reported { key, streams });
            }
            SessionOrder::Close { key } => {
                self.bound.retain(|_, (of, ..)| *of != key);
                match self.sessions.remove(&key) {
                    Some(session) => session.close(moment(now), &mut self.out),
                    None => self.out.events.push(SessionEvent::Closed { key, streams: Vec::new() }),
                }
            }
            SessionOrder::Lend { shard, pairs } => {
                let pairs = usize::from(pairs).min(self.free.len());
                self.lent += pairs;
                let ports = self.free.drain(..pairs).collect();
                self.out.events.push(SessionEvent::Lent { shard, ports });
            }
            SessionOrder::Claim { key, ports } => {
                let is_bound = ports.iter().all(|pair| self.reserved.contains(pair));
                let own: Vec<PortPair> = self.reserved.extract_if(.., |pair| ports.contains(pair)).collect();
                match is_bound {
                    true => self.lent += own.len(),
                    false => self.free.extend(own),
                }
                self.out.events.push(SessionEvent::Claimed { key, ports, is_bound });
            }
            SessionOrder::Return(ports) => {
                let (unclaimed, ports): (Vec<_>, Vec<_>) =
                    ports.into_iter().partition(|pair| self.reserved.contains(pair));
                self.reserved.retain(|pair| !unclaimed.contains(pair));
                self.free.extend(unclaimed);
                if self.lent < ports.len() {
                    self.problem.get_or_insert_with(|| format!("more ports come back than were lent: {ports:?}"));
                }
                self.lent = self.lent.saturating_sub(ports.len());
                self.free.extend(ports);
            }
        }
    }

    /// Opens or changes a session.
    fn set(&mut self, now: Now, key: SessionKey, streams: Vec<Option<StreamOrder>>) {
        let legs = legs(&streams);
        let Self { sessions, random, out, timeout, .. } = self;
        let mut number = || random.u64() as u32;
        match sessions.get_mut(&key) {
            Some(session) => session.set(moment(now), streams, &mut number, out),
            None => {
                let session = Session::new(moment(now).mono, key, *timeout, streams, &mut number);
                sessions.insert(key, session);
            }
        }
        self.bound.retain(|_, (of, ..)| *of != key);
        for (port, stream, side) in legs {
            if let Some((other, ..)) = self.bound.insert(port, (key, stream, side)) {
                self.problem.get_or_insert_with(|| format!("port {port} is of {other:?} and of {key:?}"));
            }
        }
    }

    /// Takes a datagram that arrives at a port.
    pub(super) fn receive(&mut self, now: Now, port: u16, from: SocketAddr, bytes: &[u8]) {
        let is_rtcp = port % 2 == 1;
        let Some((key, stream, side)) = self.bound.get(&(port & !1)).copied() else { return };
        if let Some(session) = self.sessions.get_mut(&key) {
            session.packet(moment(now).mono, LegPort { stream, side, is_rtcp }, from, bytes, &mut self.out);
        }
    }

    /// Polls the sessions that are due.
    pub(super) fn poll(&mut self, now: Now) {
        self.polled = now.mono;
        let moment = moment(now);
        let Self { sessions, random, out, .. } = self;
        let mut number = || random.u64() as u32;
        for session in sessions.values_mut() {
            if session.deadline().is_some_and(|at| at <= moment.mono) {
                session.poll(moment, &mut number, out);
            }
        }
    }

    /// Returns the time of the next poll in milliseconds.
    pub(super) fn deadline(&self) -> Option<u64> {
        let next = self.sessions.values().filter_map(Session::deadline).min()?;
        Some(next.div_ceil(1_000).max(self.polled + 1))
    }

    /// Takes the packets and events since the last call.
    pub(super) fn take(&mut self) -> (Vec<Datagram>, Vec<SessionEvent>) {
        let datagram = |packet: &strowger_media::session::OutgoingPacket| Datagram {
            from: SocketAddr::new(SERVER.ip(), packet.ports.rtp + u16::from(packet.is_rtcp_port)),
            to: packet.to,
            bytes: self.out.bytes[packet.start..packet.end].to_vec(),
        };
        let packets = self.out.packets.iter().map(datagram).collect();
        let events = std::mem::take(&mut self.out.events);
        self.out.clear();
        (packets, events)
    }

    /// Checks the use of ports.
    ///
    /// # Errors
    /// Two sessions have one port, or ports come back that were not lent.
    pub(super) fn check(&self) -> Result<(), String> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// Checks that nothing is left at the end. `free`: pairs that the shards have, of which no session has one.
    ///
    /// # Errors
    /// Sessions or ports that are left.
    pub(super) fn leftovers(&self, free: usize) -> Result<(), String> {
        match (self.sessions.len(), self.bound.len()) {
            (0, 0) if self.lent == free => Ok(()),
            (0, 0) => Err(format!("{} pairs of ports are lent, and shards have {free}", self.lent)),
            (sessions, ports) => Err(format!("{sessions} sessions of media at {ports} ports are left")),
        }
    }
}

/// Returns the legs of these streams: port of RTP, place of the stream, side.
fn legs(streams: &[Option<StreamOrder>]) -> Vec<(u16, u8, Side)> {
    let mut legs = Vec::new();
    for (place, stream) in (0_u8..).zip(streams) {
        let Some(StreamOrder { near, far, .. }) = stream else { continue };
        legs.push((near.ports.rtp, place, Side::Near));
        legs.extend(far.iter().map(|far| (far.ports.rtp, place, Side::Far)));
    }
    legs
}
