//! Resolution of the host of a URI to addresses (RFC 3263).
//!
//! An answer is kept as long as the name servers allow (`kept.rs`). A used name is asked for again before its answer expires (`ask_ahead`).
//! While the name servers fail or are silent, the stale answer is used (RFC 8767), after a wait of at most [`PATIENCE`]. Of several equal
//! servers one is drawn at each use (`servers.rs`).
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | questions and their order | `ask.rs` |
//! | kept answers, answers beyond their time (RFC 8767) | `kept.rs` |
//! | choice among equal servers | `servers.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ask;
mod kept;
mod servers;
#[cfg(test)]
mod tests;

use self::ask::Found;
use self::kept::Kept;
use self::servers::{Server, random, targets};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strowger_core::Transport;
use tokio::sync::OnceCell;

/// Targets in the order in which they are to be tried.
pub type Targets = Vec<(Transport, SocketAddr)>;

/// Why a name led to no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name does not exist, or has no address.
    NotFound,
    /// No answer within the deadline.
    Late,
    /// The name servers failed.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the name has no address"),
            Self::Late => f.write_str("the name servers did not answer in time"),
            Self::Failed(why) => write!(f, "the name servers failed: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Longest wait for a new answer if a stale one is known. The caller hears nothing meanwhile.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// Host, port, transport, and whether it is of a sips URI.
type Key = (String, Option<u16>, Option<Transport>, bool);
type Cell = Arc<OnceCell<Result<Arc<[Server]>, Error>>>;

/// Resolves names: equal questions at the same time are asked once, failures are remembered for a while, answers
/// as long as the name servers allow. To be used inside a tokio runtime. Cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

/// How long is waited, and how much remembered.
#[derive(Clone, Copy, Debug)]
pub struct ResolverSettings {
    /// For a whole resolution, of several questions maybe.
    pub deadline: Duration,
    /// For one try of one question; a lost datagram costs that much.
    pub timeout: Duration,
    /// Tries of one question, at least one.
    pub attempts: usize,
    /// Answers remembered at most, and as many failures.
    pub entries: usize,
    /// How long a failure is remembered.
    pub failure: Duration,
    /// What is spoken here: services by other transports are not asked for (RFC 3263 section 4.1).
    pub speaks: Speaks,
    /// Addresses that one name leads to at most; the best are kept.
    pub targets: usize,
    /// Names that are asked for ahead of their end at a time, at most.
    pub ahead: usize,
    /// How long an answer is good beyond its time while the name servers fail or are silent (RFC 8767).
    pub stale: Duration,
}

/// A set of transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaks(u8);

impl Speaks {
    /// Every transport.
    pub const ALL: Self = Self(u8::MAX);

    /// These transports.
    pub fn of(transports: impl IntoIterator<Item = Transport>) -> Self {
        Self(transports.into_iter().fold(0, |set, transport| set | 1 << transport as u8))
    }

    /// Whether this one is among them.
    pub const fn has(self, transport: Transport) -> bool {
        self.0 & 1 << transport as u8 != 0
    }
}

impl Default for ResolverSettings {
    fn default() -> Self {
        let [timeout, deadline, failure] = [2, 4, 5].map(Duration::from_secs);
        let stale = Duration::from_secs(86_400);
        let (entries, targets, ahead) = (8_192, 16, 64);
        Self { deadline, timeout, attempts: 2, entries, failure, speaks: Speaks::ALL, targets, ahead, stale }
    }
}

/// What resolvers of one process have done, one after the other.
#[derive(Debug, Default)]
pub struct ResolverCounters {
    ahead: AtomicU64,
    stale: AtomicU64,
}

impl ResolverCounters {
    /// Names that were asked for again before their answers ended.
    pub fn asked_ahead(&self) -> u64 {
        self.ahead.load(Relaxed)
    }

    /// Answers that were used beyond their time, since the name servers gave none.
    pub fn stale(&self) -> u64 {
        self.stale.load(Relaxed)
    }
}

struct Inner {
    dns: TokioResolver,
    settings: ResolverSettings,
    /// Questions under way; and those that failed lately, with the moment to forget it.
    asked: Mutex<HashMap<Key, (Cell, Option<Instant>)>>,
    kept: Mutex<Kept<Key>>,
    counters: Arc<ResolverCounters>,
}

impl Resolver {
    /// Asks the name servers of the machine (`/etc/resolv.conf`, `/etc/hosts`); those of loopback if it names none.
    pub fn system(settings: ResolverSettings) -> Result<Self, Error> {
        match TokioResolver::builder_tokio() {
            Ok(builder) => Self::with(builder, settings),
            Err(_) => Self::of(&[SocketAddr::from(([127, 0, 0, 1], 53))], settings),
        }
    }

    /// Asks these name servers.
    pub fn of(servers: &[SocketAddr], settings: ResolverSettings) -> Result<Self, Error> {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                let connection: &mut ConnectionConfig = connection;
                connection.port = address.port();
            }
            server
        };
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
        Self::with(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()), settings)
    }

    fn with(mut builder: ResolverBuilder<TokioRuntimeProvider>, settings: ResolverSettings) -> Result<Self, Error> {
        let options = builder.options_mut();
        options.timeout = settings.timeout;
        // There it counts the tries after the first.
        options.attempts = settings.attempts.saturating_sub(1);
        options.cache_size = settings.entries as u64;
        let dns = builder.build().map_err(ask::failed)?;
        let kept = Mutex::new(Kept::new(&settings));
        Ok(Self { inner: Arc::new(Inner { dns, settings, asked: Mutex::default(), kept, counters: Arc::default() }) })
    }

    /// Goes on with the counters of the resolver before this one. To be called before it is used.
    pub fn continue_counting(&mut self, before: &Self) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.counters = before.inner.counters.clone();
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> &ResolverCounters {
        &self.inner.counters
    }

    /// Forgets failures whose time is over and answers that no name server could make good again, and gives their memory back. To be
    /// called every few seconds.
    pub fn tidy(&self) {
        let now = Instant::now();
        self.inner.kept().tidy(now);
        let mut asked = self.inner.asked();
        asked.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        let needed = asked.len();
        if asked.capacity() > 4 * needed {
            asked.shrink_to(2 * needed);
        }
    }

    /// Where a request goes whose next hop is `host` (a name, an address, IPv6 with or without brackets), with
    /// the port and transport of its URI if there are any; `secure` for a sips URI.
    ///
    /// # Errors
    /// The host is no name, or has no address, or the name servers did not say so in time.
    pub async fn resolve(
        &self,
        host: &str,
        port: Option<u16>,
        transport: Option<Transport>,
        secure: bool,
    ) -> Result<Targets, Error> {
        // RFC 3261 section 26.2.2: sips means TLS on every hop.
        let transport = match (transport, secure) {
            (Some(Transport::Ws | Transport::Wss), true) => Some(Transport::Wss),
            (Some(_), true) => Some(Transport::Tls),
            (transport, _) => transport,
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let plain = transport.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
        let plain_port = port.unwrap_or_else(|| plain.default_port());
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![(plain, SocketAddr::new(ip, plain_port))]);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host == "localhost" {
            let both = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
            return Ok(both.map(|ip| (plain, SocketAddr::new(ip, plain_port))).to_vec());
        }
        let key = (host, port, transport, secure);
        let known = self.inner.kept().look(&key, Instant::now());
        let servers = match known {
            Some(known) => {
                self.inner.counters.stale.fetch_add(u64::from(known.is_stale), Relaxed);
                if known.is_to_be_asked {
                    self.ask_ahead(key);
                }
                known.servers
            }
            None => {
                let stale = self.inner.kept().stale(&key, Instant::now());
                match stale {
                    None => self.inner.learn(&key, false).await?,
                    Some(stale) => self.learn_or_use(key, stale).await?,
                }
            }
        };
        Ok(targets(&servers, self.inner.settings.targets, random))
    }

    /// Asks for a name whose answer is stale. Returns the stale answer if no new one comes within [`PATIENCE`]. The question continues, and
    /// other requests do not wait for it.
    async fn learn_or_use(&self, key: Key, stale: Arc<[Server]>) -> Result<Arc<[Server]>, Error> {
        let (inner, asked) = (self.inner.clone(), key.clone());
        let question = tokio::spawn(async move { inner.learn(&asked, true).await });
        let servers = match tokio::time::timeout(PATIENCE, question).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) | Err(_) => {
                self.inner.kept().is_late(&key, Instant::now());
                stale.clone()
            }
        };
        self.inner.counters.stale.fetch_add(u64::from(Arc::ptr_eq(&servers, &stale)), Relaxed);
        Ok(servers)
    }

    /// Asks for a name beside those that use it; the others who ask meanwhile wait for nothing.
    fn ask_ahead(&self, key: Key) {
        let inner = self.inner.clone();
        inner.counters.ahead.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            // What came of it is kept, a failure too.
            let _ = inner.learn(&key, true).await;
            inner.kept().is_asked(&key);
        });
    }
}

impl Inner {
    fn asked(&self) -> MutexGuard<'_, HashMap<Key, (Cell, Option<Instant>)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<Key>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the name servers, or waits for the answer with those who ask the same. `past_cache`: what the cache of records has is about to end.
    async fn learn(&self, key: &Key, past_cache: bool) -> Result<Arc<[Server]>, Error> {
        let cell = {
            let mut asked = self.asked();
            let now = Instant::now();
            match asked.get(key) {
                Some((cell, until)) if until.is_none_or(|until| until > now) => cell.clone(),
                _ => {
                    let cell = Cell::default();
                    asked.insert(key.clone(), (cell.clone(), None));
                    cell
                }
            }
        };
        let ask = async {
            let ResolverSettings { deadline, failure, entries, .. } = self.settings;
            let end = tokio::time::Instant::now() + deadline;
            let found = tokio::time::timeout_at(end, self.ask(key, end, past_cache)).await.unwrap_or(Err(Error::Late));
            let found = self.keep(key, found, !past_cache);
            let mut asked = self.asked();
            if found.is_err() && asked.len() <= entries {
                if let Some((_, forget)) = asked.get_mut(key) {
                    *forget = Some(Instant::now() + failure);
                }
            } else {
                asked.remove(key);
            }
            found
        };
        cell.get_or_init(|| ask).await.clone()
    }

    /// Keeps what was found. What was found before is good on where the name servers said nothing; `is_used`: by one who waits.
    fn keep(&self, key: &Key, found: Result<Found, Error>, is_used: bool) -> Result<Arc<[Server]>, Error> {
        let (mut kept, now) = (self.kept(), Instant::now());
        match found {
            Ok(Found { servers, until }) => {
                let servers: Arc<[Server]> = servers.into();
                kept.put(key.clone(), servers.clone(), now, until);
                Ok(servers)
            }
            Err(Error::NotFound) => {
                kept.forget(key);
                Err(Error::NotFound)
            }
            Err(error) => {
                let Some(known) = kept.fails(key, now) else { return Err(error) };
                self.counters.stale.fetch_add(u64::from(known.is_stale && is_used), Relaxed);
                Ok(known.servers)
            }
        }
    }
}
