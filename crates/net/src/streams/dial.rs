//! Connecting.

use super::Streams;
use crate::connection::Phase;
use crate::edge_readiness::Token;
use crate::local_fd::LocalFd;
use crate::{clock, keep_alive, timestamp};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use strowger_core::{Now, Transport};

/// A connection to make.
pub(crate) struct Dial {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) from: Option<IpAddr>,
    /// Local port; 0: any.
    pub(super) port: u16,
    pub(super) to: SocketAddr,
    /// Stream of a dedicated socket, which is already connecting.
    pub(super) begun: Option<std::net::TcpStream>,
}

impl Dial {
    /// Begins to connect.
    fn begin(&mut self) -> io::Result<LocalFd> {
        if let Some(stream) = self.begun.take() {
            return Ok(LocalFd::from_stream(stream));
        }
        let any = || match self.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let is_bound = self.from.is_some() || self.port != 0;
        let from = is_bound.then(|| SocketAddr::new(self.from.unwrap_or_else(any), self.port));
        // The earlier connection of a fixed port may still be in TIME-WAIT.
        LocalFd::connect(from, self.port != 0, self.to)
    }
}

impl Streams {
    /// Begins the attempts to connect that were asked for. An event ends each: see [`Streams::collect`].
    #[inline]
    pub(crate) fn start_dials(&mut self) {
        if !self.dials.is_empty() {
            self.start_all_dials();
        }
    }

    #[cold]
    fn start_all_dials(&mut self) {
        let mut dials = std::mem::take(&mut self.dials);
        for mut dial in dials.drain(..) {
            let Dial { slot, generation, .. } = dial;
            if self.same(slot, generation).is_none() {
                continue;
            }
            let begun = dial.begin().and_then(|stream| {
                self.edges.add(stream.as_fd(), Token::connection(slot, generation))?;
                Ok(stream)
            });
            match (begun, self.same(slot, generation)) {
                (Ok(stream), Some(connection)) => connection.stream = Some(stream),
                (Err(error), _) => self.fail_dial(slot, &error),
                (Ok(_), None) => (),
            }
        }
        // The list is empty meanwhile: only messages ask for connections.
        self.dials = dials;
    }

    /// Ends an attempt to connect that has failed.
    #[cold]
    fn fail_dial(&mut self, slot: u32, error: &io::Error) {
        self.counters.connects_failed.add(1);
        self.close(slot, error);
    }

    /// Ends an attempt to connect that takes too long.
    pub(super) fn give_up_dial(&mut self, slot: u32) {
        self.fail_dial(slot, &ErrorKind::TimedOut.into());
    }

    /// Continues after an attempt to connect, which its socket has reported as ended.
    pub(super) fn connected(&mut self, slot: u32, generation: u32, now: Now) {
        let network = self.network.clone();
        let Some(connection) = self.same(slot, generation).filter(|c| c.phase == Phase::Dialling) else { return };
        let Some(stream) = &connection.stream else { return };
        if let Some(error) = stream.take_error().unwrap_or_else(Some) {
            return self.fail_dial(slot, &error);
        }
        stream.send_at_once();
        if connection.dedicated.is_none() {
            keep_alive::probe(stream.as_fd());
        }
        if network.settings.scheduling.timestamps {
            timestamp::enable(stream.as_fd());
        }
        connection.peer.last_read = now.mono;
        if !connection.closing {
            // The handshake has its own time.
            connection.since = now.mono;
        }
        let dedicated = connection.dedicated;
        self.made.extend(dedicated.map(|flow| (flow, false, clock::micros())));
        let Some(connection) = self.connection(slot) else { return };
        let name = connection.name.map(|name| network.names.text(name));
        let started = match connection.transport {
            Transport::Tls | Transport::Wss => {
                connection.phase = Phase::Tls;
                let address = connection.remote.ip();
                let identities = network.identities.load();
                connection.verified = identities.verifies();
                let config = identities.client(connection.remote.port());
                match &name {
                    Some(None) => {
                        Err("the name that its peer must prove was forgotten: too many others were asked for since"
                            .into())
                    }
                    Some(Some(name)) => connection.layer().start_tls(config, Some(name), address),
                    None => connection.layer().start_tls(config, None, address),
                }
            }
            _ => Ok(()),
        };
        match started {
            Err(error) => self.close(slot, &error),
            Ok(()) => self.advance(slot),
        }
        self.schedule(slot);
        // Data may have come with the event that reported the connection.
        self.make_ready(slot, now.mono);
    }
}
