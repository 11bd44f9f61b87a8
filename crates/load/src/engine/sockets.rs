//! Sockets and connections of a shard: one for all, or one for each call, user or address.
//!
//! A call has a [dedicated] socket of the shard. It is opened when the call begins, so that the messages of the call name
//! the right port, and closed when it has ended. At the limit calls share the open ones.

use super::call::Call;
use super::socket_plan::{Each, Sockets};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use strowger_core::{Flow, Transport};
use strowger_net::clock;
use strowger_net::dedicated::{self, DedicatedSocket, DedicatedSockets, SocketRequest};

/// Dedicated sockets of a shard and their users.
pub(super) struct CallSockets {
    pub(super) plan: Sockets,
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
    pub(super) reported: bool,
}

/// Owner of a dedicated socket that stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    User(u32),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub(super) socket: Option<DedicatedSocket>,
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

    /// Opens a dedicated socket, or finds the one of this key.
    pub(super) fn open(&mut self, key: Option<Key>, request: SocketRequest) -> io::Result<(DedicatedSocket, bool)> {
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

    pub(super) fn join(&mut self, socket: DedicatedSocket, call: &mut Call, slot: u32) {
        let used = &mut self.uses[dedicated::index(socket.flow)];
        used.calls += 1;
        used.last = slot;
        call.socket = Some(socket.flow);
        call.target.flow = Some(socket.flow);
        call.local_port = socket.address.port();
    }

    /// Returns the use of this flow, if it is a dedicated one.
    pub(super) fn known(&mut self, flow: Flow) -> Option<&mut Use> {
        self.uses.get_mut(dedicated::index(flow)).filter(|u| u.socket.is_some_and(|socket| socket.flow == flow))
    }

    /// Ends a call's use of its dedicated socket. `now` is in ms: the connection lingers; `None`: it ends at once.
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

    /// Closes the connections whose linger time is over.
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

    /// Returns the number of sockets that calls or users have. A connection that is not yet made is included.
    pub(super) fn held(&self) -> usize {
        self.uses.iter().filter(|used| used.socket.is_some()).count()
    }

    /// Closes the kept sockets, which no call will use again. Returns true after all are closed, including those that
    /// their peers close: an earlier exit would cut these off.
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
