//! Socket or connection of a test.

use crate::connections::Side;
use crate::world::{Due, World};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strowger_core::Transport;

pub(crate) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Socket or connection of a test: of the network in memory, or of the system.
pub struct Line {
    way: Way,
    transport: Transport,
    local: SocketAddr,
    /// Server that gets the datagrams.
    peer: SocketAddr,
}

enum Way {
    /// Line of this number.
    Memory(Arc<Mutex<World>>, usize),
    System(UdpSocket),
}

impl Line {
    /// Connects a line of the network from this address; returns `None` if its peer does not listen.
    pub(crate) fn connect(
        world: &Arc<Mutex<World>>,
        transport: Transport,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<Self> {
        let mut state = lock(world);
        let other = if transport == Transport::Udp { None } else { Some(state.accept(transport, peer)?) };
        let number = state.add_line(transport, local);
        if let Some(other) = other {
            state.connect(transport, [Side::Line(number), other], [local, peer]);
        }
        drop(state);
        Some(Self { way: Way::Memory(world.clone(), number), transport, local, peer })
    }

    /// Uses a UDP socket of the system, for a server that has sockets.
    ///
    /// # Panics
    /// The socket is not bound.
    pub fn of_socket(socket: UdpSocket, peer: SocketAddr) -> Self {
        let local = socket.local_addr().expect("it is bound");
        Self { way: Way::System(socket), transport: Transport::Udp, local, peer }
    }

    /// Returns its own address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns its transport.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Makes the line send by UDP to another server from now on.
    pub const fn turn_to(&mut self, server: SocketAddr) {
        self.peer = server;
    }

    /// Returns the time of the line's clock, of which only differences have a meaning.
    pub fn clock(&self) -> Duration {
        match &self.way {
            Way::Memory(world, _) => Duration::from_millis(lock(world).now.mono),
            Way::System(_) => since_start(),
        }
    }

    /// Sends bytes: one datagram, one frame, or a piece of the stream.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let (world, number) = match &self.way {
            Way::Memory(world, number) => (world, *number),
            Way::System(socket) => return socket.send_to(bytes, self.peer).map(drop),
        };
        let mut world = lock(world);
        let (from, to, bytes) = (self.local, self.peer, bytes.to_vec());
        match world.lines[number].connection {
            _ if world.lines[number].is_closed => return Err(io::ErrorKind::BrokenPipe.into()),
            None => world.plan(0, Due::Datagram { from, to, bytes, sender: None }),
            Some(connection) => {
                let to = 1 - world.side_of_line(connection, number);
                world.plan(0, Due::Bytes { connection, to, bytes });
            }
        }
        Ok(())
    }

    /// Returns the next datagram, frame or piece of the stream; `None` if none arrives before the limit or the
    /// connection has ended.
    pub fn chunk(&self, limit: Duration) -> Option<Vec<u8>> {
        let (world, number) = match &self.way {
            Way::Memory(world, number) => (world, *number),
            Way::System(socket) => return received(socket, limit),
        };
        let mut world = lock(world);
        let end = world.now.mono + limit.as_millis() as u64;
        loop {
            if let Some(bytes) = world.lines[number].inbox.pop_front() {
                return Some(bytes);
            }
            if world.lines[number].is_closed || !world.step(end) {
                return None;
            }
        }
    }

    /// Returns the next message, as [`chunk`](Self::chunk) does. Skips keep-alives.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        let end = self.clock() + limit;
        loop {
            let bytes = self.chunk(end.saturating_sub(self.clock()))?;
            if bytes.iter().any(|byte| !b"\r\n\0".contains(byte)) {
                return Some(bytes);
            }
        }
    }

    /// Tells whether the peer closes the connection before the limit; discards received bytes. Always false for UDP.
    pub fn closes(&self, limit: Duration) -> bool {
        let end = self.clock() + limit;
        while self.chunk(end.saturating_sub(self.clock())).is_some() {}
        match &self.way {
            Way::Memory(world, number) => lock(world).lines[*number].is_closed,
            Way::System(_) => false,
        }
    }

    /// Tells whether there is unread input, including the end of a connection, once the network is quiet.
    pub fn has_come(&self) -> bool {
        let Way::Memory(world, number) = &self.way else { return false };
        let mut world = lock(world);
        world.settle();
        let line = &world.lines[*number];
        line.is_closed || !line.inbox.is_empty()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Way::Memory(world, number) = &self.way else { return };
        let mut world = lock(world);
        world.lines[*number].is_closed = true;
        if let Some(connection) = world.lines[*number].connection {
            let to = 1 - world.side_of_line(connection, *number);
            world.plan(0, Due::Ended { connection, to });
        }
    }
}

/// Returns the time since the first call in this process.
fn since_start() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}

fn received(socket: &UdpSocket, limit: Duration) -> Option<Vec<u8>> {
    // A time-out of zero would mean no time-out.
    socket.set_read_timeout(Some(limit.max(Duration::from_millis(1)))).expect("a socket can be set");
    let mut buffer = vec![0; 65_536];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

/// Listener of a test for connections of servers.
pub struct Listener {
    world: Arc<Mutex<World>>,
    address: SocketAddr,
}

impl Listener {
    /// Listens at this address.
    pub(crate) fn new(world: &Arc<Mutex<World>>, address: SocketAddr) -> Self {
        lock(world).accepted.entry(address).or_default();
        Self { world: world.clone(), address }
    }

    /// Returns its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next connection of a server; `None` if none arrives before the limit.
    pub fn accept(&self, limit: Duration) -> Option<Line> {
        let mut world = lock(&self.world);
        let end = world.now.mono + limit.as_millis() as u64;
        loop {
            if let Some(number) = world.accepted.get_mut(&self.address).and_then(|lines| lines.pop_front()) {
                let (transport, local) = (world.lines[number].transport, self.address);
                return Some(Line { way: Way::Memory(self.world.clone(), number), transport, local, peer: local });
            }
            if !world.step(end) {
                return None;
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.world).accepted.remove(&self.address);
    }
}
