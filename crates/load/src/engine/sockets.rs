//! Sockets and connections of calls: one for all, or one for each call, user or address.
//!
//! Those of calls are [dedicated] sockets of the shard. They are opened when the call begins, so that its messages name
//! the right port, and closed when it has ended. At the limit calls share the open ones.

use super::call::Call;
use super::call_runner::{CallRunner, Progress};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use strowger_core::{Flow, Transport};
use strowger_measure::{Failure, Outcome};
use strowger_net::dedicated::{self, DedicatedSocket, DedicatedSockets, SocketRequest};
use strowger_net::{Ending, clock};

/// Owner of a dedicated socket or connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Each {
    /// All calls of a shard share one.
    #[default]
    Run,
    Call,
    /// Each line of the first injection file; it stays open between the calls of its user.
    User,
    /// Each address in this field of the first injection file, with the port of the run.
    Address {
        field: u32,
    },
}

/// Socket settings of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    pub each: Each,
    /// Local address; unspecified: chosen by the route to the target.
    pub from: IpAddr,
    /// Limit of open sockets in each shard; beyond it calls share them.
    pub most: usize,
    /// Time for which the connection of an ended call stays open, milliseconds. The peer may still use it and would
    /// take its end for a failure. Datagram sockets are closed at once.
    pub linger: u32,
    /// Rules for the loss of the shared connection; `None`: the next message makes a new one.
    pub reconnect: Option<Reconnect>,
}

/// SIPp's behaviour after the loss of its only connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// Limit of reconnections, after which the run ends (`-max_reconnect`); `None`: no limit.
    pub most: Option<u32>,
    /// True if the calls end with the connection (`-reconnect_close`).
    pub close: bool,
    /// Pause before a reconnection, milliseconds (`-reconnect_sleep`).
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

/// Dedicated sockets of a shard and their users.
pub(super) struct CallSockets {
    plan: Sockets,
    pub(super) sockets: DedicatedSockets,
    /// Uses, by the place of the dedicated socket.
    uses: Vec<Use>,
    kept: HashMap<Key, DedicatedSocket>,
    /// Connections of ended calls, with their closing times, ms.
    lingering: VecDeque<(u64, Flow)>,
    linger: u64,
    /// Place of the socket shared next.
    turn: usize,
    /// True once the sharing and its cause were reported.
    reported: bool,
}

/// Owner of a dedicated socket that stays open.
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
    /// Slot of the last call that used it.
    last: u32,
    /// Time when its connection was requested, later when it was accepted, µs.
    since: u64,
}

/// Users of a lost dedicated socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    Nobody,
    /// At most the call in this slot.
    One(u32),
    Several,
}

impl CallSockets {
    /// Returns `None` if calls share the socket of the run.
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
                reported: false,
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

    /// Returns the next open socket, in turn.
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

    /// Returns the use of this flow, if it is a dedicated one.
    fn known(&mut self, flow: Flow) -> Option<&mut Use> {
        self.uses.get_mut(dedicated::index(flow)).filter(|u| u.socket.is_some_and(|socket| socket.flow == flow))
    }

    /// Ends a call's use of its dedicated socket. `now`, ms: the connection lingers; `None`: it ends at once.
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

    /// Records the next step of connecting at `at`. Returns its duration, µs, and the users.
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

    /// Returns the next time of [`CallSockets::close_due`], ms.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.lingering.front().map(|(at, _)| *at)
    }

    /// Closes the connections whose time has come.
    pub(super) fn close_due(&mut self, now: u64) {
        while let Some((_, flow)) = self.lingering.pop_front_if(|(at, _)| *at <= now) {
            self.sockets.close(flow);
        }
    }

    /// Removes a lost dedicated socket.
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

    /// Closes the kept sockets, since no call will use them. True once all are closed, also by the peers as far as they
    /// close theirs: an earlier exit would cut them off.
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

/// Calls of each accepted connection, so that the end of one needs no search through all calls.
#[derive(Debug, Default)]
pub(super) struct AcceptedCalls {
    /// Entries, by the slot of the connection.
    all: Vec<AcceptedConnection>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AcceptedConnection {
    flow: Option<Flow>,
    calls: u32,
    last: u32,
}

/// Two connections of different shards met in one slot: the number of calls of each is unknown.
const UNKNOWN: u32 = u32::MAX / 2;

impl AcceptedCalls {
    pub(super) fn add(&mut self, flow: Flow, slot: u32) {
        let place = flow.slot as usize;
        if self.all.len() <= place {
            self.all.resize(place + 1, AcceptedConnection::default());
        }
        let connection = &mut self.all[place];
        let calls = match connection.flow {
            Some(same) if same == flow => connection.calls.saturating_add(1),
            _ if connection.calls == 0 => 1,
            _ => UNKNOWN,
        };
        *connection = AcceptedConnection { flow: Some(flow), calls, last: slot };
    }

    pub(super) fn remove(&mut self, flow: Flow) {
        if let Some(connection) = self.all.get_mut(flow.slot as usize).filter(|r| r.flow == Some(flow)) {
            connection.calls = connection.calls.saturating_sub(1);
        }
    }

    /// Removes an ended connection and returns its users.
    pub(super) fn end(&mut self, flow: Flow) -> Users {
        match self.all.get_mut(flow.slot as usize) {
            Some(connection) if connection.flow == Some(flow) => {
                let connection = std::mem::take(connection);
                match connection.calls {
                    0 => Users::Nobody,
                    1 => Users::One(connection.last),
                    _ => Users::Several,
                }
            }
            Some(connection) if connection.calls > 0 => Users::Several,
            _ => Users::Nobody,
        }
    }
}

impl CallRunner<'_> {
    /// Gives the call its socket; returns false if none is to be had and the call has failed.
    #[inline]
    pub(super) fn take_socket(&mut self) -> bool {
        self.shard.call_sockets.is_none() || self.open_socket()
    }

    /// Gives the call a TDM circuit, if there are any; returns false if all are busy and the call has failed.
    #[inline]
    pub(super) fn take_circuit(&mut self) -> bool {
        let Some(circuits) = &self.shard.run.circuits else { return true };
        self.call.circuit = circuits.take(self.shard.random.word());
        if self.call.circuit.is_none() {
            self.shard.warn(format_args!("Can't create new outgoing call: all tdm_map circuits busy"));
            self.finish(Outcome::Failed(Failure::Congestion));
        }
        self.call.circuit.is_some()
    }

    /// Gives the call a socket again before a message, if the scenario has closed its own.
    #[inline]
    pub(super) fn retake_socket(&mut self) -> bool {
        !self.call.unplugged || self.open_socket()
    }

    #[cold]
    fn open_socket(&mut self) -> bool {
        let Some(mut call_sockets) = self.shard.call_sockets.take() else { return true };
        self.call.unplugged = false;
        let opened = self.find_socket(&mut call_sockets);
        if let Ok(Some((_, true))) = opened
            && !std::mem::replace(&mut call_sockets.reported, true)
        {
            let most = call_sockets.sockets.held();
            self.shard.warn(format_args!(
                "{most} sockets are open, which is the limit: further calls share them (-max_socket, ulimit -n)"
            ));
        }
        if let Ok(Some((socket, _))) = opened {
            call_sockets.join(socket, self.call, self.slot);
        }
        self.shard.call_sockets = Some(call_sockets);
        let Err(error) = opened else { return true };
        let to = self.call.target.address;
        self.shard.warn(format_args!("a call to {to} gets no socket: {}", Sentence(&error)));
        let reliable = self.call.target.transport.is_reliable();
        self.finish(Outcome::Failed(if reliable { Failure::TcpConnect } else { Failure::CannotSendMessage }));
        false
    }

    /// Returns a dedicated socket, and whether it is shared for lack of another; `None`: the call uses the socket of
    /// the run.
    fn find_socket(&self, call_sockets: &mut CallSockets) -> io::Result<Option<(DedicatedSocket, bool)>> {
        let target = self.call.target;
        let line = self.call.extra.as_ref().and_then(|e| e.lines.first()).copied().unwrap_or(0);
        let mut from = SocketAddr::new(call_sockets.plan.from, 0);
        let key = match call_sockets.plan.each {
            Each::Run | Each::Call => None,
            Each::User => Some(Key::User(line)),
            // Each address has the port of the main socket, which has the first of them.
            Each::Address { field } => {
                let mut text = Vec::new();
                if let Some(file) = self.shard.run.injections.first() {
                    let _ = file.write_field(line, field, &mut text);
                }
                let text = String::from_utf8_lossy(&text);
                let ip = text.trim().trim_matches(['[', ']']).parse().map_err(|_| {
                    io::Error::new(
                        ErrorKind::InvalidInput,
                        format!("field {field} of the injection file holds '{text}', which is no address"),
                    )
                })?;
                if ip == call_sockets.plan.from {
                    return Ok(None);
                }
                from = SocketAddr::new(ip, self.shard.run.local_port);
                Some(Key::Address(ip))
            }
        };
        let strowger_core::Target { transport, listener, address: to, name, .. } = target;
        let request = SocketRequest { transport, listener, from, to, name };
        call_sockets.open(key, request).map(Some)
    }

    /// Assigns the dedicated socket on which a message began this call.
    pub(super) fn keep_socket(&mut self, flow: Flow) {
        if let Some(call_sockets) = &mut self.shard.call_sockets
            && let Some(socket) = call_sockets.known(flow).and_then(|used| used.socket)
        {
            call_sockets.join(socket, self.call, self.slot);
        }
    }

    /// Redirects the messages of this call. A dedicated connection is made again; SIPp cannot redirect its shared one
    /// and ends there.
    pub(super) fn redirect(&mut self, address: SocketAddr) -> bool {
        let sockets = &self.shard.run.sockets;
        if sockets.each == Each::Run && sockets.reconnect.is_some() {
            self.halt(format_args!("Changing destinations for TCP or SCTP requires multisocket mode."));
            return true;
        }
        let moves = self.call.target.address != address;
        self.call.target.address = address;
        if moves {
            // The name belonged to the old target.
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

    /// Runs `closecon`: closes the connection of this call; its next message goes over a new one.
    pub(super) fn close_connection(&mut self) {
        if self.call.target.transport.is_reliable()
            && let (Some(flow), Some(call_sockets)) = (self.call.socket.take(), &mut self.shard.call_sockets)
        {
            call_sockets.give_back(flow, None);
            self.call.target.flow = None;
            self.call.unplugged = true;
        }
    }

    /// Handles the end of this call's connection, or its failure to open.
    pub(super) fn lose_connection(&mut self, ending: Ending) -> Progress {
        self.finish(match self.call.failed {
            // The first cause counts.
            Some(failure) => Outcome::Failed(failure),
            None if ending == Ending::Unmade => Outcome::Failed(Failure::TcpConnect),
            // The last wait expects no message.
            None if self.call.timewait => Outcome::Successful,
            None => Outcome::Failed(Failure::TcpClosed),
        });
        Progress::Over
    }
}

/// Cause of a socket error, with its cure.
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
        let mut accepted_calls = AcceptedCalls::default();
        assert_eq!(accepted_calls.end(flow(0, 3, 1)), Users::Nobody);
        accepted_calls.add(flow(0, 3, 1), 70);
        assert_eq!(accepted_calls.end(flow(0, 3, 1)), Users::One(70));
        accepted_calls.add(flow(0, 3, 2), 70);
        accepted_calls.add(flow(0, 3, 2), 71);
        accepted_calls.remove(flow(0, 3, 2));
        accepted_calls.add(flow(0, 3, 2), 72);
        assert_eq!(accepted_calls.end(flow(0, 3, 2)), Users::Several);
        accepted_calls.add(flow(0, 3, 3), 5);
        accepted_calls.remove(flow(0, 3, 3));
        assert_eq!(accepted_calls.end(flow(0, 3, 3)), Users::Nobody);
        // A connection of another shard in the same slot.
        accepted_calls.add(flow(0, 3, 4), 5);
        accepted_calls.add(flow(1, 3, 9), 6);
        assert_eq!([accepted_calls.end(flow(0, 3, 4)), accepted_calls.end(flow(1, 3, 9))], [Users::Several; 2]);
    }
}
