//! Socket of a call: taken, redirected, closed.

use super::call_runner::{CallRunner, Progress};
use super::socket_plan::Each;
use super::sockets::{CallSockets, Key};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use strowger_core::Flow;
use strowger_measure::{CallOutcome, Failure};
use strowger_net::Ending;
use strowger_net::dedicated::{DedicatedSocket, SocketRequest};

impl CallRunner<'_> {
    /// Gives the call its socket. Returns false if no socket is available and the call has failed.
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
            self.finish(CallOutcome::Failed(Failure::Congestion));
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
        self.finish(CallOutcome::Failed(if reliable { Failure::TcpConnect } else { Failure::CannotSendMessage }));
        false
    }

    /// Returns a dedicated socket, and whether it is shared because no other is available. Returns `None` if the call
    /// uses the socket of the run.
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

    /// Redirects the messages of this call. A dedicated connection is made again. SIPp cannot redirect its shared
    /// connection, and ends in this case.
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

    /// Runs `closecon`: closes the connection of this call, whose next message uses a new one.
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
            Some(failure) => CallOutcome::Failed(failure),
            None if ending == Ending::Unmade => CallOutcome::Failed(Failure::TcpConnect),
            // The last wait expects no message.
            None if self.call.timewait => CallOutcome::Successful,
            None => CallOutcome::Failed(Failure::TcpClosed),
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
