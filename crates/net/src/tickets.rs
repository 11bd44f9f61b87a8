//! The sessions that TLS servers let us resume (RFC 8446 section 2.2): who makes a connection for each call to one server
//! needs more of them than who makes one.

use rustls::NamedGroup;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Servers remembered at most; beyond, all are forgotten and learned anew.
const SERVERS: usize = 1_024;

/// Tickets by server, each used once (appendix C.4), the newest first.
pub(crate) struct Tickets {
    /// Everything but the tickets of TLS 1.3.
    rest: ClientSessionMemoryCache,
    by_server: Mutex<HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>>,
    /// Of one server.
    most: usize,
}

impl Tickets {
    /// `most`: tickets kept of one server.
    pub(crate) fn new(most: usize) -> Self {
        Self { rest: ClientSessionMemoryCache::new(SERVERS), by_server: Mutex::default(), most: most.max(1) }
    }

    fn tickets(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>> {
        self.by_server.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl fmt::Debug for Tickets {
    // What lets somebody resume a session is nobody's to read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("servers", &self.tickets().len()).field("most", &self.most).finish()
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.rest.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.rest.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.rest.set_tls12_session(server, session);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.rest.tls12_session(server)
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.rest.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut all = self.tickets();
        if all.len() >= SERVERS && !all.contains_key(&server) {
            all.clear();
        }
        let tickets = all.entry(server).or_default();
        if tickets.len() >= self.most {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets().get_mut(server)?.pop_back()
    }
}
