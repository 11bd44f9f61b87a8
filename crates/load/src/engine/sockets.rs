//! The sockets and connections of calls: one for all, or one for each call, user or address.
//!
//! Those that belong to calls are [dedicated] sockets of the shard: opened when the call begins, so that its
//! messages name the right port, and closed when it has ended. At the bound calls share what is open.

use super::call::Call;
use super::stage::{Go, Stage};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use strowger_core::{Flow, Transport};
use strowger_measure::{Failure, Outcome};
use strowger_net::dedicated::{self, DedicatedSocket, DedicatedSockets, SocketRequest};
use strowger_net::{Ending, clock};

/// Who has a socket or connection of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Each {
    /// None: all calls of a shard share one.
    #[default]
    Run,
    Call,
    /// Each line of the first injection file; it stays open between the calls of its user.
    User,
    /// Each address that this field of the first injection file names, with the port of the run.
    Address {
        field: u32,
    },
}

/// Which sockets calls have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    pub each: Each,
    /// Our address; unspecified: as the way to the target demands.
    pub from: IpAddr,
    /// Open at once, at most, in each shard: then calls share those that are open.
    pub most: usize,
    /// How long the connection of a call stays when the call has ended, milliseconds: the peer may not be done with what was
    /// said last, and would take the end for a failure. Sockets for datagrams are closed at once.
    pub linger: u32,
    /// What is done when the peer ends the connection that all calls share. `None`: what is said next goes over a new one.
    pub reconnect: Option<Reconnect>,
}

/// How SIPp goes on when its only connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// So often, then the run ends (`-max_reconnect`). `None`: without end.
    pub most: Option<u32>,
    /// The calls end with the connection (`-reconnect_close`).
    pub close: bool,
    /// Nothing is done for so many milliseconds before (`-reconnect_sleep`).
    pub sleep: u32,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            each: Each::Run,
            from: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            most: usize::MAX,
            linger: 50,
            reconnect: None,
        }
    }
}

/// The dedicated sockets of a shard and who uses them.
pub(super) struct Ways {
    plan: Sockets,
    pub(super) sockets: DedicatedSockets,
    /// By the place of the dedicated socket.
    uses: Vec<Use>,
    kept: HashMap<Key, DedicatedSocket>,
    /// Connections whose calls have ended, and when they end too, ms.
    lingering: VecDeque<(u64, Flow)>,
    linger: u64,
    /// Who is shared next.
    turn: usize,
    /// That calls share, and why, was said.
    told: bool,
}

/// What a dedicated socket that stays open is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    User(u32),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    socket: Option<DedicatedSocket>,
    key: Option<Key>,
    calls: u32,
    /// The place of the call that came last.
    last: u32,
    /// When its connection was asked for, then when it was accepted, µs.
    since: u64,
}

/// Who used a dedicated socket that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    Nobody,
    /// At most the call in this place.
    One(u32),
    Several,
}

impl Ways {
    /// Nothing where calls share what the run has.
    pub(super) fn new(plan: Sockets, transport: Transport, sockets: DedicatedSockets) -> Option<Box<Self>> {
        (plan.each != Each::Run).then(|| {
            Box::new(Self {
                plan,
                sockets,
                uses: Vec::new(),
                kept: HashMap::new(),
                lingering: VecDeque::new(),
                linger: if transport.is_reliable() { u64::from(plan.linger) } else { 0 },
                turn: 0,
                told: false,
            })
        })
    }

    /// Opens, or finds, a dedicated socket.
    fn open(&mut self, key: Option<Key>, request: SocketRequest) -> io::Result<(DedicatedSocket, bool)> {
        if let Some(socket) = key.and_then(|key| self.kept.get(&key)) {
            return Ok((*socket, false));
        }
        let since = clock::micros();
        match self.sockets.open(request) {
            Ok(socket) => {
                let place = dedicated::index(socket.flow);
                if self.uses.len() <= place {
                    self.uses.resize(place + 1, Use::default());
                }
                self.uses[place] = Use { socket: Some(socket), key, calls: 0, last: 0, since };
                if let Some(key) = key {
                    self.kept.insert(key, socket);
                }
                Ok((socket, false))
            }
            Err(error) if dedicated::is_full(&error) => self.next().map(|socket| (socket, true)).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Those that are open, in turn.
    fn next(&mut self) -> Option<DedicatedSocket> {
        let count = self.uses.len();
        let found = (0..count).map(|i| (self.turn + i) % count).find(|&i| self.uses[i].socket.is_some())?;
        self.turn = found + 1;
        self.uses[found].socket
    }

    fn join(&mut self, socket: DedicatedSocket, call: &mut Call, slot: u32) {
        let used = &mut self.uses[dedicated::index(socket.flow)];
        used.calls += 1;
        used.last = slot;
        call.socket = Some(socket.flow);
        call.target.flow = Some(socket.flow);
        call.local_port = socket.address.port();
    }

    /// The dedicated socket of this flow, if it is one of ours.
    fn known(&mut self, flow: Flow) -> Option<&mut Use> {
        self.uses.get_mut(dedicated::index(flow)).filter(|u| u.socket.is_some_and(|socket| socket.flow == flow))
    }

    /// A call is done with its dedicated socket. `now`: ms; none: it ends at once.
    pub(super) fn give_back(&mut self, flow: Flow, now: Option<u64>) {
        let Some(used) = self.known(flow) else { return };
        used.calls = used.calls.saturating_sub(1);
        if used.calls == 0 && used.key.is_none() {
            *used = Use::default();
            match now.filter(|_| self.linger > 0) {
                Some(now) => self.lingering.push_back((now + self.linger, flow)),
                None => self.sockets.close(flow),
            }
        }
    }

    /// The connection of this flow has come a step further at `at`: how long that took, and whose it is, µs.
    pub(super) fn advance(&mut self, flow: Flow, at: u64) -> Option<(u64, Users)> {
        let used = self.known(flow)?;
        let took = at.saturating_sub(std::mem::replace(&mut used.since, at));
        let users = match used.calls {
            0 => Users::Nobody,
            1 => Users::One(used.last),
            _ => Users::Several,
        };
        Some((took, users))
    }

    /// When [`Ways::close_due`] has work, ms.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.lingering.front().map(|(at, _)| *at)
    }

    /// Ends the connections whose time has come.
    pub(super) fn close_due(&mut self, now: u64) {
        while let Some((_, flow)) = self.lingering.pop_front_if(|(at, _)| *at <= now) {
            self.sockets.close(flow);
        }
    }

    /// A dedicated socket is no more.
    pub(super) fn lose(&mut self, flow: Flow) -> Users {
        let used = self.known(flow).map(std::mem::take).unwrap_or_default();
        if let Some(key) = used.key {
            self.kept.remove(&key);
        }
        self.sockets.close(flow);
        match used.calls {
            0 => Users::Nobody,
            1 => Users::One(used.last),
            _ => Users::Several,
        }
    }

    /// No call will come any more: what was kept for one ends too. True when all have ended, the other sides too as far as they
    /// go along: who went before would cut them off.
    pub(super) fn end(&mut self) -> bool {
        self.kept.clear();
        for used in &mut self.uses {
            if let Some(socket) = std::mem::take(used).socket {
                self.sockets.close(socket.flow);
            }
        }
        self.lingering.is_empty() && self.sockets.held() == 0
    }
}

/// Which calls came over connections that others made, so that the end of one is no search through all calls.
#[derive(Debug, Default)]
pub(super) struct Riders {
    /// By the slot of the connection.
    all: Vec<Rider>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rider {
    flow: Option<Flow>,
    calls: u32,
    last: u32,
}

/// Two connections of different shards met in one slot: it is unknown how many calls each has.
const UNKNOWN: u32 = u32::MAX / 2;

impl Riders {
    pub(super) fn board(&mut self, flow: Flow, slot: u32) {
        let place = flow.slot as usize;
        if self.all.len() <= place {
            self.all.resize(place + 1, Rider::default());
        }
        let rider = &mut self.all[place];
        let calls = match rider.flow {
            Some(same) if same == flow => rider.calls.saturating_add(1),
            _ if rider.calls == 0 => 1,
            _ => UNKNOWN,
        };
        *rider = Rider { flow: Some(flow), calls, last: slot };
    }

    pub(super) fn alight(&mut self, flow: Flow) {
        if let Some(rider) = self.all.get_mut(flow.slot as usize).filter(|r| r.flow == Some(flow)) {
            rider.calls = rider.calls.saturating_sub(1);
        }
    }

    /// A connection has ended: whose it was.
    pub(super) fn end(&mut self, flow: Flow) -> Users {
        match self.all.get_mut(flow.slot as usize) {
            Some(rider) if rider.flow == Some(flow) => {
                let rider = std::mem::take(rider);
                match rider.calls {
                    0 => Users::Nobody,
                    1 => Users::One(rider.last),
                    _ => Users::Several,
                }
            }
            Some(rider) if rider.calls > 0 => Users::Several,
            _ => Users::Nobody,
        }
    }
}

impl Stage<'_> {
    /// Sees to it that the call has the socket that it is to have; false: there is none, and the call has failed.
    #[inline]
    pub(super) fn take_socket(&mut self) -> bool {
        self.world.ways.is_none() || self.open_socket()
    }

    /// Sees to it that the call has a TDM circuit, where there are any; false: all are busy, and the call has failed.
    #[inline]
    pub(super) fn take_circuit(&mut self) -> bool {
        let Some(circuits) = &self.world.run.circuits else { return true };
        self.call.circuit = circuits.take(self.world.random.word());
        if self.call.circuit.is_none() {
            self.world.warn(format_args!("Can't create new outgoing call: all tdm_map circuits busy"));
            self.finish(Outcome::Failed(Failure::Congestion));
        }
        self.call.circuit.is_some()
    }

    /// The same before each message: the scenario may have closed it.
    #[inline]
    pub(super) fn retake_socket(&mut self) -> bool {
        !self.call.unplugged || self.open_socket()
    }

    #[cold]
    fn open_socket(&mut self) -> bool {
        let Some(mut ways) = self.world.ways.take() else { return true };
        self.call.unplugged = false;
        let opened = self.find_socket(&mut ways);
        if let Ok(Some((_, true))) = opened
            && !std::mem::replace(&mut ways.told, true)
        {
            let most = ways.sockets.held();
            self.world.warn(format_args!(
                "{most} sockets are open, which is the limit: further calls share them (-max_socket, ulimit -n)"
            ));
        }
        if let Ok(Some((socket, _))) = opened {
            ways.join(socket, self.call, self.slot);
        }
        self.world.ways = Some(ways);
        let Err(error) = opened else { return true };
        let to = self.call.target.address;
        self.world.warn(format_args!("a call to {to} gets no socket: {}", Sentence(&error)));
        let reliable = self.call.target.transport.is_reliable();
        self.finish(Outcome::Failed(if reliable { Failure::TcpConnect } else { Failure::CannotSendMessage }));
        false
    }

    /// A dedicated socket, and whether it is shared for want of another; none where the call has the socket of the run.
    fn find_socket(&self, ways: &mut Ways) -> io::Result<Option<(DedicatedSocket, bool)>> {
        let target = self.call.target;
        let line = self.call.extra.as_ref().and_then(|e| e.lines.first()).copied().unwrap_or(0);
        let mut from = SocketAddr::new(ways.plan.from, 0);
        let key = match ways.plan.each {
            Each::Run | Each::Call => None,
            Each::User => Some(Key::User(line)),
            // Each address has the port of the main socket, which has the first of them.
            Each::Address { field } => {
                let mut text = Vec::new();
                if let Some(file) = self.world.run.injections.first() {
                    let _ = file.write_field(line, field, &mut text);
                }
                let text = String::from_utf8_lossy(&text);
                let ip = text.trim().trim_matches(['[', ']']).parse().map_err(|_| {
                    io::Error::new(
                        ErrorKind::InvalidInput,
                        format!("field {field} of the injection file holds '{text}', which is no address"),
                    )
                })?;
                if ip == ways.plan.from {
                    return Ok(None);
                }
                from = SocketAddr::new(ip, self.world.run.local_port);
                Some(Key::Address(ip))
            }
        };
        let strowger_core::Target { transport, listener, address: to, name, .. } = target;
        let request = SocketRequest { transport, listener, from, to, name };
        ways.open(key, request).map(Some)
    }

    /// A message began this call over a dedicated socket.
    pub(super) fn keep_socket(&mut self, flow: Flow) {
        if let Some(ways) = &mut self.world.ways
            && let Some(socket) = ways.known(flow).and_then(|used| used.socket)
        {
            ways.join(socket, self.call, self.slot);
        }
    }

    /// The messages of this call go elsewhere from now on. A connection of its own is made again; SIPp does not lead the one of
    /// all calls elsewhere, and ends there.
    pub(super) fn redirect(&mut self, address: SocketAddr) -> bool {
        let sockets = &self.world.run.sockets;
        if sockets.each == Each::Run && sockets.reconnect.is_some() {
            self.halt(format_args!("Changing destinations for TCP or SCTP requires multisocket mode."));
            return true;
        }
        let moves = self.call.target.address != address;
        self.call.target.address = address;
        if moves {
            // It was the name of the one before.
            self.call.target.name = None;
        }
        if self.call.socket.is_none() {
            self.call.target.flow = None;
            return true;
        }
        if !moves || !self.call.target.transport.is_reliable() {
            return true;
        }
        self.close_connection();
        self.open_socket()
    }

    /// `closecon`: the connection of this call ends, and what is said next goes over a new one.
    pub(super) fn close_connection(&mut self) {
        if self.call.target.transport.is_reliable()
            && let (Some(flow), Some(ways)) = (self.call.socket.take(), &mut self.world.ways)
        {
            ways.give_back(flow, None);
            self.call.target.flow = None;
            self.call.unplugged = true;
        }
    }

    /// The connection of this call is no more, or never was.
    pub(super) fn lose_connection(&mut self, ending: Ending) -> Go {
        self.finish(match self.call.failed {
            // The first cause counts.
            Some(failure) => Outcome::Failed(failure),
            None if ending == Ending::Unmade => Outcome::Failed(Failure::TcpConnect),
            // Nothing more is expected in the last wait.
            None if self.call.timewait => Outcome::Successful,
            None => Outcome::Failed(Failure::TcpClosed),
        });
        Go::Over
    }
}

/// What stands in the way of a socket, and what would help.
struct Sentence<'a>(&'a io::Error);

impl std::fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.kind() {
            ErrorKind::QuotaExceeded => f.write_str("as many are open as may be"),
            ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => write!(
                f,
                "{}: no port is free, or the address is not ours. A connection that we end keeps its port for a minute \
                 (TIME_WAIT); more source addresses help, or net.ipv4.tcp_tw_reuse=1",
                self.0
            ),
            _ => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_connection_are_known_or_searched_for() {
        let flow = |shard, slot, generation| Flow { node: 0, process: 0, shard, slot, generation };
        let mut riders = Riders::default();
        assert_eq!(riders.end(flow(0, 3, 1)), Users::Nobody);
        riders.board(flow(0, 3, 1), 70);
        assert_eq!(riders.end(flow(0, 3, 1)), Users::One(70));
        riders.board(flow(0, 3, 2), 70);
        riders.board(flow(0, 3, 2), 71);
        riders.alight(flow(0, 3, 2));
        riders.board(flow(0, 3, 2), 72);
        assert_eq!(riders.end(flow(0, 3, 2)), Users::Several);
        riders.board(flow(0, 3, 3), 5);
        riders.alight(flow(0, 3, 3));
        assert_eq!(riders.end(flow(0, 3, 3)), Users::Nobody);
        // One of another shard in the same slot.
        riders.board(flow(0, 3, 4), 5);
        riders.board(flow(1, 3, 9), 6);
        assert_eq!([riders.end(flow(0, 3, 4)), riders.end(flow(1, 3, 9))], [Users::Several; 2]);
    }
}
