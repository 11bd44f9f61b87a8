//! Law: a source is banned when it has made its allowed number of failed attempts, and not earlier.

use crate::server::ServerHost;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use strowger_core::{Arrival, Now};
use strowger_message::{Message, Name};

/// Number of wrong passwords that ban a source by default.
const FAILURES: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Bans {
    /// Number of requests with credentials to a host from a source.
    attempts: HashMap<(SocketAddr, IpAddr), usize>,
}

impl Bans {
    pub(super) fn arrived(&mut self, host: SocketAddr, arrival: &Arrival, message: &Message<'_>) {
        if message.has(Name::Authorization) || message.has(Name::ProxyAuthorization) {
            *self.attempts.entry((host, arrival.remote.ip())).or_default() += 1;
        }
    }

    /// Checks that every banned source has made enough attempts.
    ///
    /// # Errors
    /// A source was banned too early.
    pub(super) fn check(&self, server: &ServerHost, now: Now) -> Result<(), String> {
        let host = server.address();
        let attempts = |source: &IpAddr| self.attempts.get(&(host, *source)).copied().unwrap_or(0);
        match server.banned(now).into_iter().find(|source| attempts(source) < FAILURES) {
            Some(source) => Err(format!("{host}: {source} is banned after {} attempts", attempts(&source))),
            None => Ok(()),
        }
    }
}
