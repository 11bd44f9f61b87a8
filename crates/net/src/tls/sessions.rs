//! Resumable sessions of TLS servers (RFC 8446 section 2.2). A client that opens a connection to a server for each call
//! needs more sessions than a client with a single connection.

use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NamedGroup};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum number of remembered servers, and ports; beyond it all are forgotten.
const SERVERS: usize = 1_024;

/// Client settings by port. Two servers of one name at different ports seldom share sessions.
pub(crate) struct ClientConfigs {
    base: Arc<ClientConfig>,
    sessions: Arc<Sessions>,
    by_port: Mutex<HashMap<u16, Arc<ClientConfig>>>,
}

impl ClientConfigs {
    /// Creates the settings; `most`: sessions kept of one server.
    pub(crate) fn new(base: Arc<ClientConfig>, most: usize) -> Self {
        Self { base, sessions: Sessions::new(most), by_port: Mutex::default() }
    }

    /// Returns the settings for a server at this port.
    pub(crate) fn of(&self, port: u16) -> Arc<ClientConfig> {
        let mut all = lock(&self.by_port);
        if all.len() >= SERVERS && !all.contains_key(&port) {
            all.clear();
        }
        let make = || {
            let store = SessionStore { port, sessions: self.sessions.clone() };
            let mut config = ClientConfig::clone(&self.base);
            config.resumption = Resumption::store(Arc::new(store));
            Arc::new(config)
        };
        all.entry(port).or_insert_with(make).clone()
    }
}

/// Sessions of all servers.
struct Sessions {
    by_server: Mutex<HashMap<(ServerName<'static>, u16), ServerSessions>>,
    /// Maximum number of sessions of one server.
    most: usize,
}

impl Sessions {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { by_server: Mutex::default(), most: most.max(1) })
    }
}

/// Sessions of one server.
#[derive(Default)]
struct ServerSessions {
    /// Group of its key exchange.
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// Tickets of TLS 1.3, each used once (RFC 8446 appendix C.4), the newest last.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

/// Sessions of the servers at one port.
pub(crate) struct SessionStore {
    port: u16,
    sessions: Arc<Sessions>,
}

impl SessionStore {
    /// Creates the store for a client whose connections all go to one port. `most`: sessions kept of one server.
    pub(crate) fn new(most: usize) -> Self {
        Self { port: 0, sessions: Sessions::new(most) }
    }

    fn note<T>(&self, server: ServerName<'static>, note: impl FnOnce(&mut ServerSessions) -> T) -> T {
        let (mut all, server) = (lock(&self.sessions.by_server), (server, self.port));
        if all.len() >= SERVERS && !all.contains_key(&server) {
            all.clear();
        }
        note(all.entry(server).or_default())
    }

    fn look<T>(&self, server: &ServerName<'_>, look: impl FnOnce(&mut ServerSessions) -> Option<T>) -> Option<T> {
        lock(&self.sessions.by_server).get_mut(&(server.to_owned(), self.port)).and_then(look)
    }
}

impl fmt::Debug for SessionStore {
    // Sessions are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore")
            .field("port", &self.port)
            .field("most", &self.sessions.most)
            .finish_non_exhaustive()
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.note(server, |of_server| of_server.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.look(server, |of_server| of_server.group)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.note(server, |of_server| of_server.tls12 = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.look(server, |of_server| of_server.tls12.clone())
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.look(server, |of_server| of_server.tls12.take());
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let most = self.sessions.most;
        self.note(server, |of_server| {
            if of_server.tickets.len() >= most {
                of_server.tickets.pop_front();
            }
            of_server.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.look(server, |of_server| of_server.tickets.pop_back())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|e| e.into_inner())
}
