//! Engines in other processes: Memcached, and Redis as one server, as a group with Sentinels, or as a cluster.
//!
//! The one rule of use: call [`flush`](RemoteCache::flush) at the end of each round, because requests wait for this
//! call.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use strowger_cache::engine::CacheHandle;
//! use strowger_cache::request::Request;
//! use strowger_cache::servers::Service;
//! use strowger_cache::waiting::WaitingCache;
//! use strowger_cache::remote::{RemoteCache, RemoteSettings};
//!
//! // It starts without a reachable server.
//! let servers = vec!["127.0.0.1:1".parse()?];
//! let remote = RemoteCache::start(RemoteSettings::new(Service::Memcached, servers))?;
//! let mut cache = WaitingCache::new(CacheHandle::Remote(Arc::new(remote)));
//! let outcome = cache.ask_one(&Request::Fetch { key: b"key" }, 0, Duration::from_secs(5));
//! println!("{:?}", outcome.result);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Queue.* A request is queued with its bytes for the thread of the engine, or for the tasks of a shard with [its own
//! connections](RemoteCache::local), which wakes no other thread. Requests of a round leave together on
//! [`flush`](RemoteCache::flush), many on one connection without waiting for one another.
//!
//! *Order.* Requests of one thread for one key keep their order, and so do changes of a key by several threads: while a
//! change is in progress, all requests for the key use its connections.
//!
//! *Answers.* Each request has one answer within its deadline: the reply of the server, [`TimedOut`](CacheError::TimedOut), or
//! [`Unavailable`](CacheError::Unavailable) at once if the server is not reached. A change that timed out may have been made.
//! Replies arrive in the order of requests. A reply that does not fit (another type, another key or token if the protocol repeats them)
//! ends the connection: no request gets the reply to another one.
//!
//! *Silent servers.* A few requests wait for a silent server. Then its connection is closed, and requests fail at once until a new
//! connection answers; attempts follow each other after growing pauses.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | reply of a request; deadlines, dead servers | `link.rs`, `Link`; `connection.rs` |
//! | protocols | `memcached.rs`; `redis.rs`; `resp.rs` |
//! | order of changes of a key | `changes_in_progress.rs` |
//! | failures logged once for several observers | `log_once.rs` |
//! | server of a key; Sentinels | `cluster.rs`; `topology.rs`; `dial.rs` |

mod changes_in_progress;
mod cluster;
mod connection;
mod dial;
mod eviction;
mod flight;
mod link;
mod log_once;
mod memcached;
mod queue;
mod redis;
mod resp;
mod settings;
mod shared;
mod topology;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

pub use self::settings::RemoteSettings;

use self::queue::Queue;
use self::shared::Shared;
use self::topology::Served;
use crate::engine::{RemoteEngine, Task};
use crate::error::CacheError;
use crate::gauges::{Gauges, RemoteGauges};
use crate::request::Request;
use crate::servers::Service;
use crate::ticket::{Receivers, Ticket};

/// Cache in other processes, with connections of its own thread or of a [shard](RemoteEngine::local). A drop closes
/// them; open tickets come back with [`CacheError::Unavailable`].
pub struct RemoteCache {
    shared: Arc<Shared>,
    /// Number of the thread that has the connections, and its queue.
    number: usize,
    queue: Arc<Queue>,
    /// Thread of the engine; `None` if a shard runs the connections.
    thread: Option<JoinHandle<()>>,
}

impl RemoteCache {
    /// Starts the thread, which connects to the servers. Unreachable servers are no error.
    ///
    /// # Errors
    /// No server is given, the protocol cannot transmit these credentials, or the thread could not be started.
    pub fn start(mut settings: RemoteSettings) -> io::Result<Self> {
        let wrong = |reason| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        if settings.servers.is_empty() {
            return wrong("a cache without a server");
        }
        let is_memcached = settings.service == Service::Memcached;
        if is_memcached && !settings.credentials.as_ref().is_none_or(memcached::can_be_shown) {
            return wrong("Memcached takes no user and no password that is empty or has a space in it");
        }
        let port = settings.service.port();
        settings.servers = settings.servers.into_iter().map(|server| server.or_port(port)).collect();
        // The kernel keeps 15 bytes of the name.
        let thread = std::thread::Builder::new().name(format!("cache-{}", settings.name));
        let mut this = Self::of(Arc::new(Shared::new(settings)));
        let (shared, number, queue) = (this.shared.clone(), this.number, this.queue.clone());
        this.thread = Some(thread.spawn(move || run(shared, number, queue))?);
        Ok(this)
    }

    fn of(shared: Arc<Shared>) -> Self {
        let (number, queue) = shared.add();
        Self { shared, number, queue, thread: None }
    }
}

impl RemoteEngine for RemoteCache {
    fn ask(&self, request: &Request<'_>, ticket: Ticket, _now: u64) -> Result<(), CacheError> {
        self.shared.ask((self.number, &self.queue), request, ticket)
    }

    fn flush(&self) {
        self.queue.flush();
    }

    fn receivers(&self) -> &Receivers {
        &self.shared.receivers
    }

    fn local(&self) -> Option<(Arc<dyn RemoteEngine>, Task)> {
        let this = Self::of(self.shared.clone());
        let served = Served::new(this.shared.clone(), this.number, this.queue.clone());
        Some((Arc::new(this), Box::pin(served.serve())))
    }

    fn peers(&self) -> Vec<SocketAddr> {
        self.shared.settings.peers.list()
    }

    fn gauges(&self) -> Gauges {
        self.shared.gauges()
    }

    fn remote_gauges(&self) -> RemoteGauges {
        self.shared.remote_gauges()
    }
}

impl Drop for RemoteCache {
    fn drop(&mut self) {
        self.queue.stop();
        // The last owner may be a receiver of answers, on the thread itself.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic there was logged.
            let _ = thread.join();
        }
    }
}

/// Runs the thread of the engine.
fn run(shared: Arc<Shared>, number: usize, queue: Arc<Queue>) {
    let served = Served::new(shared.clone(), number, queue);
    match tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()) {
        Ok(runtime) => {
            // The end of the service logs a panic.
            let _ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(served.serve())));
            // A thread of the runtime may be resolving a name; this function does not wait for that thread.
            runtime.shutdown_background();
        }
        Err(error) => tracing::error!(cache = shared.settings.name, %error, "the thread of a cache cannot work"),
    }
}
