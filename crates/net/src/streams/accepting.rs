//! Accepting of connections; headers of load balancers before the data of their peers.

use super::{Acceptor, Streams};
use crate::connection::{Connection, Initiator, Layer, Phase};
use crate::counters::Count;
use crate::dispatcher::Dispatcher;
use crate::extension::Extension;
use crate::local_fd::LocalFd;
use crate::proxy_protocol::{self, HeaderFault};
use crate::service::Service;
use crate::timestamp;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use strowger_core::Now;

/// Maximum number of connections accepted from one listener in a turn.
const ACCEPTS: usize = 64;

/// Interval of log lines about failures to accept, in milliseconds; attempts follow ten times a second.
const WARNING_PERIOD: u64 = 10_000;

impl Streams {
    /// Accepts the connections that wait at the listeners. Returns whether there may be more.
    pub(crate) fn accept(&mut self, now: Now) -> bool {
        if self.accept_pause.until.is_some_and(|until| now.mono < until) {
            return false;
        }
        self.accept_pause.until = None;
        for i in 0..self.acceptors.len() {
            for _ in 0..ACCEPTS {
                if !self.acceptors[i].is_ready {
                    break;
                }
                match LocalFd::accept(self.acceptors[i].socket.as_fd()) {
                    Ok((stream, remote)) => self.accept_one(i, stream, remote, now),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.acceptors[i].is_ready = false,
                    Err(error) if is_of_one(&error) => (),
                    Err(error) => {
                        if self.accept_pause.warned.is_none_or(|at| now.mono >= at + WARNING_PERIOD) {
                            self.accept_pause.warned = Some(now.mono);
                            tracing::warn!(%error, "connections cannot be accepted");
                        }
                        self.accept_pause.until = Some(now.mono + 100);
                        return false;
                    }
                }
            }
        }
        self.acceptors.iter().any(|acceptor| acceptor.is_ready)
    }

    #[inline(never)]
    fn accept_one(&mut self, acceptor: usize, stream: LocalFd, remote: SocketAddr, now: Now) {
        let Acceptor { listener, transport, .. } = self.acceptors[acceptor];
        let is_balancer = self.network.balancers.load().contains(listener, remote.ip());
        // The peers behind a balancer are sources; the balancer itself is none.
        let source = (!is_balancer).then(|| remote.ip());
        if !self.network.sources.admit(source, &self.bounds) {
            self.counters.connections_refused.add(1);
            if self.may_log(remote) {
                tracing::info!(%remote, "connection refused: limit reached");
            }
            return;
        }
        let layer = match Layer::accepting(transport, self.network.identities.load().server(listener)) {
            Ok(layer) => layer,
            Err(error) => {
                if self.may_log(remote) {
                    tracing::warn!(%remote, %error, "connection refused");
                }
                return self.network.sources.release(source);
            }
        };
        stream.send_at_once();
        if self.network.settings.scheduling.timestamps {
            timestamp::enable(stream.as_fd());
        }
        self.counters.accepted.add(1);
        let mut connection = Connection::accepted(stream, transport, listener, remote, layer, now);
        if is_balancer {
            connection.phase = Phase::Header;
            connection.initiator = Initiator::Balancer;
        }
        let slot = self.add(connection);
        if self.charge_source(slot) {
            self.watch(slot);
        }
    }

    /// Reads the header of a balancer, or a part of it. The bytes after the header are data of the peer.
    #[cold]
    pub(crate) fn balancer_header<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &mut [u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        let Some(connection) = self.connection(slot) else { return };
        let mut held = std::mem::take(&mut connection.partial);
        let is_first = held.is_empty();
        let bytes = if is_first {
            bytes
        } else {
            held.extend_from_slice(bytes);
            &mut held[..]
        };
        match proxy_protocol::read(bytes) {
            Ok(Some(header)) => {
                if self.begin_after_header(slot, header.source, now) && header.length < bytes.len() {
                    self.received(slot, &mut bytes[header.length..], now, dispatcher);
                }
            }
            Ok(None) => {
                let held = if is_first { bytes.to_vec() } else { held };
                if let Some(connection) = self.connection(slot) {
                    connection.partial = held;
                }
                self.charge_source(slot);
            }
            Err(fault) => {
                let (count, reason): (&Count, &str) = match fault {
                    HeaderFault::Malformed => (&self.counters.proxy_malformed, "malformed PROXY header"),
                    HeaderFault::TooLong => (&self.counters.proxy_long, "PROXY header too long"),
                };
                count.add(1);
                self.close(slot, &reason);
            }
        }
    }

    /// Begins the protocols of the listener for the peer that a header names; without a peer the balancer itself is the
    /// peer. Returns false if the connection has ended.
    fn begin_after_header(&mut self, slot: u32, peer: Option<SocketAddr>, now: Now) -> bool {
        let (network, bounds, counters) = (self.network.clone(), self.bounds.clone(), self.counters.clone());
        let Some(connection) = self.connection(slot) else { return false };
        counters.proxy_headers.add(1);
        if let Some(peer) = peer {
            let charged = std::mem::take(&mut connection.charged);
            network.sources.refund(connection.charged_source(), charged as usize);
            counters.connection_bytes.less(u64::from(charged));
            connection.remote = peer;
            if !network.sources.admit_source(peer.ip(), &bounds) {
                counters.connections_refused.add(1);
                self.close(slot, &"limit of its source reached");
                return false;
            }
            connection.initiator = Initiator::BehindBalancer;
        }
        connection.since = now.mono;
        connection.phase = Phase::first(connection.transport);
        if connection.phase == Phase::Open {
            self.open(slot);
        } else if self.charge_source(slot) {
            self.schedule(slot);
        }
        self.connection(slot).is_some()
    }
}

/// Tells whether the error concerns the connection to accept, not the listener.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}
