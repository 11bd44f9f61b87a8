//! Resolution of the host of a URI to addresses (RFC 3263).
//!
//! An answer is kept as long as the name servers allow (`answer_cache.rs`). A used name is refreshed before its answer
//! expires (`ask_ahead`). While the name servers fail or do not answer, the stale answer is used (RFC 8767), after a
//! wait of at most [`PATIENCE`]. Of several equal servers one is chosen at random at each use (`srv_order.rs`).
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | questions and their order | `ask.rs` |
//! | kept answers, answers beyond their time (RFC 8767) | `answer_cache.rs` |
//! | choice among equal servers | `srv_order.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer_cache;
mod ask;
mod srv_order;
#[cfg(test)]
mod tests;

use self::answer_cache::Kept;
use self::ask::Found;
use self::srv_order::{Server, random, targets};
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

/// Targets in order of trying.
pub type Targets = Vec<(Transport, SocketAddr)>;

/// Reason for which a name has no address.
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

/// Longest wait for a new answer if a stale one is known. The caller gets no answer during the wait.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// Host, port, transport, and whether the URI is a sips URI.
type Key = (String, Option<u16>, Option<Transport>, bool);
type Cell = Arc<OnceCell<Result<Arc<[Server]>, Error>>>;

/// Resolver of names. Equal questions at the same time are sent once. Failures are remembered for a while, answers as
/// long as the name servers allow. Must be used inside a tokio runtime. Cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

/// Time limits and bounds of a resolver.
#[derive(Clone, Copy, Debug)]
pub struct ResolverSettings {
    /// Longest time of a whole resolution, which may need several questions.
    pub deadline: Duration,
    /// Longest time of one attempt to ask one question; the loss of a datagram costs this time.
    pub timeout: Duration,
    /// Attempts for one question, at least one.
    pub attempts: usize,
    /// Maximum number of remembered answers, and of remembered failures.
    pub entries: usize,
    /// Lifetime of a remembered failure.
    pub failure: Duration,
    /// Supported transports. Services by other transports are not queried (RFC 3263 section 4.1).
    pub speaks: Speaks,
    /// Maximum number of addresses of one name; the best are kept.
    pub targets: usize,
    /// Maximum number of names that are refreshed ahead at a time.
    pub ahead: usize,
    /// Time for which an expired answer is used while the name servers fail or are silent (RFC 8767).
    pub stale: Duration,
}

/// A set of transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaks(u8);

impl Speaks {
    /// Every transport.
    pub const ALL: Self = Self(u8::MAX);

    /// Creates the set of these transports.
    pub fn of(transports: impl IntoIterator<Item = Transport>) -> Self {
        Self(transports.into_iter().fold(0, |set, transport| set | 1 << transport as u8))
    }

    /// Tells whether the set has this transport.
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

/// Counters, continued by each new resolver of a process.
#[derive(Debug, Default)]
pub struct ResolverCounters {
    ahead: AtomicU64,
    stale: AtomicU64,
    left_out: AtomicU64,
}

impl ResolverCounters {
    /// Returns the number of names refreshed before their answers expired.
    pub fn asked_ahead(&self) -> u64 {
        self.ahead.load(Relaxed)
    }

    /// Returns the number of expired answers that were used, since the name servers gave none.
    pub fn stale(&self) -> u64 {
        self.stale.load(Relaxed)
    }

    /// Returns the number of addresses and of servers (SRV) that were left out, since their names have more than
    /// [`ResolverSettings::targets`].
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

struct Inner {
    dns: TokioResolver,
    settings: ResolverSettings,
    /// Questions in progress, and recent failures with the end of their lifetime.
    asked: Mutex<HashMap<Key, (Cell, Option<Instant>)>>,
    kept: Mutex<Kept<Key>>,
    counters: Arc<ResolverCounters>,
}

impl Resolver {
    /// Uses the name servers of the machine (`/etc/resolv.conf`, `/etc/hosts`), or those of loopback if the machine
    /// names none.
    pub fn system(settings: ResolverSettings) -> Result<Self, Error> {
        match TokioResolver::builder_tokio() {
            Ok(builder) => Self::with(builder, settings),
            Err(_) => Self::of(&[SocketAddr::from(([127, 0, 0, 1], 53))], settings),
        }
    }

    /// Uses these name servers.
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
        // This option counts the attempts after the first one.
        options.attempts = settings.attempts.saturating_sub(1);
        options.cache_size = settings.entries as u64;
        let dns = builder.build().map_err(ask::failed)?;
        let kept = Mutex::new(Kept::new(&settings));
        Ok(Self { inner: Arc::new(Inner { dns, settings, asked: Mutex::default(), kept, counters: Arc::default() }) })
    }

    /// Continues the counters of an earlier resolver. To be called before the first use.
    pub fn continue_counting(&mut self, before: &Self) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.counters = before.inner.counters.clone();
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ResolverCounters {
        &self.inner.counters
    }

    /// Returns the number of answers in memory, expired ones that may still be used among them.
    pub fn known(&self) -> usize {
        self.inner.kept().len()
    }

    /// Forgets expired failures, and answers too old to be used, and frees their memory. To be called every few
    /// seconds.
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

    /// Returns the targets of a request whose next hop is `host` (a name, or an address, IPv6 with or without
    /// brackets), with the port and transport of its URI if there are any; `secure` for a sips URI.
    ///
    /// # Errors
    /// The host is no name, or has no address, or the name servers did not answer in time.
    pub async fn resolve(
        &self,
        host: &str,
        port: Option<u16>,
        transport: Option<Transport>,
        secure: bool,
    ) -> Result<Targets, Error> {
        // A sips URI requires TLS on every hop (RFC 3261 section 26.2.2).
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
        let most = self.inner.settings.targets;
        let addresses: usize = servers.iter().map(|server| server.addresses.len()).sum();
        self.inner.counters.left_out.fetch_add(addresses.saturating_sub(most) as u64, Relaxed);
        Ok(targets(&servers, most, random))
    }

    /// Asks for a name whose answer is stale. Returns the stale answer if no new answer arrives within [`PATIENCE`].
    /// The question continues meanwhile, and other requests do not wait for its answer.
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

    /// Refreshes a name in the background, without delay for its users.
    fn ask_ahead(&self, key: Key) {
        let inner = self.inner.clone();
        inner.counters.ahead.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            // The result is stored, even if it is a failure.
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

    /// Asks the name servers, or waits for the answer to an equal question. `past_cache`: the answer in the cache of records is about to expire.
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

    /// Stores the result. If the name servers gave no answer, the earlier answer remains in use. `is_used`: whether a
    /// request waits for the result.
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
