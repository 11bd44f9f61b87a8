//! Server: from a configuration to running shards.

use crate::caches::Caches;
use crate::control::{self, Controlled, Socket};
use crate::data_sets;
use crate::directory::Directory;
use crate::health::Health;
use crate::http::{self, Pages};
use crate::kept::Kept;
use crate::lease::Leases;
use crate::machine;
use crate::media;
use crate::metrics::{Metrics, Writers};
use crate::peer_names::PeerNames;
use crate::policy_thread::PolicyThread;
use crate::program::Program;
use crate::removal::Removals;
use crate::routes::KernelRoutes;
use crate::running::Running;
use crate::service_addresses::ServiceAddresses;
use crate::shard::{CallOrder, Input, Services, Shard};
use crate::shared_counts::SharedCounts;
use crate::store::{self, Secret, Store};
use crate::{preflight, random, settings, supervisor, upkeep};
use anyhow::Context;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use strowger_backend::accounting::Accounting;
use strowger_backend::sql::lease::Claim;
use strowger_config::{Config, ControlSocket};
use strowger_core::call::CallKeys;
use strowger_core::entropy::Entropy;
use strowger_dns::Resolver;
use strowger_net::media::MediaThreads;
use strowger_net::{Handle, ListenSocket, Net, Node, clock};
use strowger_server::anchored_calls::kept_ports;
use strowger_server::bounds::EngineBounds;
use strowger_server::counters::Counts;
use strowger_server::policy::Policy;
use strowger_server::process_state::{CALL_SEED, ProcessContext, ProcessState};
use strowger_store::calls::CallStore;
use strowger_store::journal::Journal;
use strowger_store::location::LocationTable;

/// Longest wait for the answers to the BYEs of calls with media at the end of the process: one that is lost is sent again after 0.5 s (T1).
const LAST_ANSWERS: Duration = Duration::from_millis(1_500);

/// A running server. A drop stops it.
pub struct Server {
    pub(crate) shared: Arc<ProcessState>,
    pub(crate) services: Arc<Services>,
    metrics: Metrics,
    health: Arc<Health>,
    /// Address of the metrics, if they are served.
    served: Option<SocketAddr>,
    /// Address of orders by HTTP, if they are accepted.
    ordered: Option<SocketAddr>,
    /// Control socket; its file is removed with the server.
    control: Option<Socket>,
    pub(crate) node: Node<Shard>,
    /// Writer of bindings; ends after the shards, so that their changes are written.
    journal: Option<Arc<Journal>>,
    /// Writer of accounting; ends after the shards too.
    accounting: Option<Arc<Accounting>>,
    /// Writer of kept calls; ends after accounting, which may still remove kept calls.
    call_store: Option<Arc<CallStore>>,
    /// Subscribers, if a database server has them.
    pub(crate) directory: Option<Arc<Directory>>,
    /// Thread that counts calls together with other servers.
    _shared_counts: Option<SharedCounts>,
    /// Media threads; they end after the shards.
    _media: Option<Arc<MediaThreads>>,
}

impl Server {
    /// Opens the database, binds the listeners and starts the shards. When this returns, the server answers messages.
    ///
    /// # Errors
    /// A description of the part that could not be opened or bound.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_in(Program::default(), config)
    }

    /// Starts a server as [`Server::start`] does, with the callbacks of this program.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_in(program: Program, config: Config) -> anyhow::Result<Self> {
        let policies = PolicyThread::start(program.give_back)?;
        let leases = Leases::acquire(&config, Claim::IfFree, &AtomicBool::new(false))?.unwrap_or_default();
        Self::start_with(program, policies, config, Vec::new(), leases)
    }

    /// Starts a server as [`Server::start_in`] does, with three things that the caller has made: open sockets, each for
    /// the listener with its address; the thread that has read the configuration; and the leases that the configuration
    /// needs.
    ///
    /// # Errors
    /// As [`Server::start`]; and a socket that matches no listener.
    pub fn start_with(
        program: Program,
        policies: PolicyThread,
        mut config: Config,
        sockets: Vec<ListenSocket>,
        leases: Leases,
    ) -> anyhow::Result<Self> {
        let secret = Secret::of(&config)?;
        let (seed, call_secret) = keys(&config, &secret.bytes)?;
        // Distinguishes the flows of this process from those of an earlier one.
        let process = u16::from_le_bytes(random()?);
        let settings = strowger_net::NetSettings { process, ..settings::net(&config, call_secret) };
        let most = settings.shards.most();
        let log_limiter = settings.log_limiter.clone();
        // The ports are bound first: a server that cannot bind its ports must leave no file behind.
        let listeners = settings::listeners(&config);
        let net = Net::with_sockets(settings, listeners, sockets).context("a listener cannot be opened")?;
        let pages = config.metrics.listen.map(|address| bind("metrics.listen", address)).transpose()?;
        let orders = config.control.listen.map(|address| bind("control.listen", address)).transpose()?;
        let (media, media_links) = media::start(&config, most, &Entropy::new(seed))?;
        // A failure now precedes the loss of data, which might happen long after the start.
        if let Some(fault) = preflight::unwritable(&config).first() {
            anyhow::bail!("{}: {}", fault.message, fault.cure);
        }
        let mut config = policies
            .run(move || data_sets::read(&mut config, None).map(|_| config))
            .map_err(|fault| anyhow::anyhow!("a set of the rules cannot be read: {fault}"))?;
        let location = Arc::new(LocationTable::new(config.location_settings()));
        let caches = Arc::new(Caches::open(&config)?);
        let Store { journal, subscribers, directory, second } = store::open(&config, &location, &caches, &leases)?;
        let journal = journal.map(Arc::new);
        let mut kept = Kept::open(&config, &leases)?;
        kept.spool_rows(&config);
        let accounting = store::accounting(&config)?;
        kept.submit_rows(accounting.as_deref());
        let Kept { call_store, left, .. } = kept;
        if let Some(directory) = &directory {
            directory.fit(&mut config)?;
        }
        let secret = secret.keep()?;
        let listening = pages.iter().chain(&orders).filter_map(|listener| listener.local_addr().ok()).collect();
        let addresses = ServiceAddresses::new(&config, listening, caches.clone());
        let identity = addresses.identity(&config, net.addresses());
        if let Some(media) = &media {
            let ports = |(_, state): &(u64, Box<[u8]>)| kept_ports(&identity, &config.media, state);
            media.reserve(left.anchors.iter().flat_map(ports));
        }
        let routes = Box::new(KernelRoutes::new());
        let names = Arc::new(PeerNames(net.names()));
        let surroundings = ProcessContext {
            identity,
            secret,
            seed,
            call_secret,
            process,
            shards: most,
            location,
            subscribers,
            credentials: caches.credentials(&config),
            bounds: EngineBounds::default(),
            log_limiter,
            routes,
            names,
        };
        let shared = Arc::new(ProcessState::new(clock::now(), config, surroundings));
        let services =
            Services::new(resolver(&shared.policy().config)?, most, program, policies, addresses, (left, media_links));
        let services = Arc::new(services);
        services.sets.are_those_of(&shared.policy().config, &[], Instant::now());
        let (for_shards, services_for_shards, with_journal) = (shared.clone(), services.clone(), journal.clone());
        let with_writers = (accounting.clone(), call_store.clone());
        let node = net.spawn(move |number, handle: Handle<Shard>| {
            let (shared, services) = (for_shards.clone(), services_for_shards.clone());
            Shard::new(shared, services, number, &handle, with_journal.as_deref(), with_writers.clone())
        })?;
        media.iter().for_each(media::wait_for_ports);
        let writers = Writers {
            journal: journal.as_ref().map(Arc::downgrade),
            accounting: accounting.as_ref().map(Arc::downgrade),
            call_store: call_store.as_ref().map(Arc::downgrade),
        };
        let watch = upkeep::keep_up_writers(node.handle().clone(), writers.clone(), leases);
        node.handle().spawn("upkeep of what is written", watch);
        let media = media.map(Arc::new);
        let of_media = media.as_ref().map_or_else(Weak::new, Arc::downgrade);
        if media.is_some() {
            node.handle()
                .spawn("the look after media threads", media::keep_up(node.handle().clone(), of_media.clone()));
        }
        let handle = node.handle().clone();
        let metrics =
            Metrics::new(shared.clone(), services.clone(), handle, caches.clone(), (writers, of_media.clone()));
        let health = Arc::new(Health::new(node.handle().clone(), shared.clone(), of_media));
        let watched = health.clone();
        node.handle().spawn("the look after the shards", async move { watched.watch().await });
        node.handle().spawn("the watchdog", supervisor::keep_watchdog(health.clone()));
        let pages = pages.map(|listener| {
            (listener, Pages { metrics: metrics.clone(), health: health.clone(), services: services.clone() })
        });
        let served = pages
            .map(|(listener, pages)| {
                serve_http("metrics", listener, node.handle(), |listener| http::serve(listener, pages))
            })
            .transpose()?;
        let controlled = Controlled {
            shared: shared.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            program: services.program.clone(),
            caches: caches.clone(),
            second,
            services: services.clone(),
        };
        let ordered = orders
            .map(|listener| {
                serve_http("control", listener, node.handle(), |listener| {
                    control::http::serve(listener, controlled.clone())
                })
            })
            .transpose()?;
        let control = serve_control(controlled, node.handle())?;
        node.handle().spawn("upkeep", upkeep::keep_up(shared.clone(), services.clone()));
        let running = Running { shared: shared.clone(), services: services.clone(), handle: node.handle().clone() };
        node.handle().spawn("addresses of the machine", machine::keep_up(running.clone()));
        node.handle().spawn("data sets that are read again", data_sets::refresh(running));
        if let Some(subscribers) = shared.subscribers.clone() {
            let removals = Removals::new(journal.as_deref());
            let work = upkeep::keep_up_subscribers(shared.clone(), node.handle().clone(), subscribers, removals);
            node.handle().spawn("upkeep of the database", work);
        }
        if let Some(work) = caches.upkeep() {
            node.handle().spawn("upkeep of the caches", work);
        }
        node.handle().spawn("the log of statistics", upkeep::log_statistics(shared.clone(), metrics.clone()));
        let _shared_counts = SharedCounts::start(&shared, &caches)?;
        Ok(Self {
            shared,
            services,
            metrics,
            health,
            served,
            ordered,
            control,
            node,
            journal,
            accounting,
            call_store,
            directory: directory.map(Arc::new),
            _shared_counts,
            _media: media,
        })
    }

    /// Returns the bound addresses of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.node.handle().addresses()
    }

    /// Returns the policy of new requests.
    pub fn policy(&self) -> Arc<Policy> {
        self.shared.policy()
    }

    /// Returns the handle of the shards and their sockets: number, counters, input from outside.
    pub fn handle(&self) -> &Handle<Shard> {
        self.node.handle()
    }

    /// Returns the numbers of requests and responses that all shards have received.
    pub fn received(&self) -> (u64, u64) {
        self.shared.received()
    }

    /// Returns the counters of all shards.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Returns the metrics of the server.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the health of the server.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Returns the address of the metrics; `None` if they are not served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.served
    }

    /// Returns the address of orders by HTTP; `None` if they are not accepted.
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.ordered
    }

    /// Returns the number of bindings.
    pub fn bindings(&self) -> usize {
        self.shared.location.gauges().bindings
    }

    /// Returns the common state of the engines of all shards: policy, bindings, users, counters.
    pub fn shared(&self) -> &Arc<ProcessState> {
        &self.shared
    }

    /// Refuses new work, continues calls that are being set up for at most `most`, then stops.
    pub fn drain(self, most: Duration) {
        let end = Instant::now() + most;
        self.node.handle().drain(most);
        let (mut busy, t1): (Option<Instant>, _) = (None, self.policy().config.timers.t1);
        while Instant::now() < end {
            match self.counts().busy() {
                true => busy = Some(Instant::now()),
                // The ACK of a call that was just answered or refused has not arrived yet.
                false if busy.is_some_and(|last| last.elapsed() < t1) => (),
                false => break,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.end_calls_with_media();
        self.stop();
    }

    /// Ends the calls with media that the next process does not continue, and waits for the answers to the BYEs.
    fn end_calls_with_media(&self) {
        let (handle, end) = (self.node.handle(), Instant::now() + LAST_ANSWERS);
        while self.policy().config.media.is_on() && Instant::now() < end {
            let (reply, ended) = mpsc::channel();
            let asked = 0..handle.shards();
            asked.for_each(|shard| {
                handle.mailbox(shard).send(Input::Calls(CallOrder::EndUnkept { reply: reply.clone() }));
            });
            drop(reply);
            // A shard that is stuck does not answer.
            let answers = (0..handle.shards()).map_while(|_| ended.recv_timeout(LAST_ANSWERS).ok());
            if answers.sum::<usize>() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server. All acknowledged data are written before this returns.
    pub fn stop(self) {
        self.shared.report_suppressed(u64::MAX);
        let open = self.counts().calls_logged;
        if open > 0 && self.call_store.is_none() {
            tracing::info!(count = open, "calls left open: their ends will not be logged");
        }
        self.metrics.log("statistics at the end");
        let Self { shared, metrics, control, node, journal, accounting, call_store, .. } = self;
        drop(control);
        drop(node);
        drop((shared, metrics));
        drop((journal, accounting));
        drop(call_store);
    }
}

/// Returns the seed of the process, and the key of the hash that maps calls to shards. If calls are kept, the hash keys
/// of the tables of calls are those of the earlier process.
fn keys(config: &Config, secret: &[u8]) -> anyhow::Result<([u8; 32], u32)> {
    let (mut seed, call_secret) = (random::<32>()?, u32::from_le_bytes(random()?));
    if config.dialogs.place().is_none() {
        return Ok((seed, call_secret));
    }
    let keys = CallKeys::derive(secret);
    seed[CALL_SEED].copy_from_slice(&keys.tables.to_le_bytes());
    Ok((seed, keys.buckets))
}

/// Binds a TCP address. This happens before the database is opened, because a server that cannot bind its ports must
/// leave no file behind.
fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("`{key}` {address} cannot be opened"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Starts to serve HTTP, and returns the address.
fn serve_http<W>(
    what: &'static str,
    listener: TcpListener,
    handle: &Handle<Shard>,
    serve: impl FnOnce(tokio::net::TcpListener) -> W,
) -> anyhow::Result<SocketAddr>
where
    W: Future<Output = ()> + Send + 'static,
{
    let address = listener.local_addr()?;
    let listener = {
        let _services = handle.services().enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    handle.spawn(what, serve(listener));
    tracing::info!(%address, "{what} served");
    Ok(address)
}

/// Opens the control socket. A failure is fatal only if a key names the socket.
fn serve_control(server: Controlled, handle: &Handle<Shard>) -> anyhow::Result<Option<Socket>> {
    let policy = server.shared.policy();
    let Some(path) = policy.config.control_socket() else { return Ok(None) };
    let (socket, listener) = match Socket::bind(&path) {
        Ok(bound) => bound,
        Err(error) if policy.config.control.socket == ControlSocket::Database => {
            let error = format!("{error:#}");
            tracing::warn!(%error, "no control socket: `strowger status` and its like do not reach this server");
            return Ok(None);
        }
        Err(error) => return Err(error.context("`control.socket`")),
    };
    let listener = {
        let _services = handle.services().enter();
        tokio::net::UnixListener::from_std(listener)?
    };
    handle.spawn("the control socket", control::serve(listener, server));
    Ok(Some(socket))
}

pub(crate) fn resolver(config: &Config) -> anyhow::Result<Resolver> {
    let settings = settings::resolver(config);
    let servers: Vec<SocketAddr> = config.dns.servers.iter().map(|ip| SocketAddr::new(*ip, 53)).collect();
    let resolver = if servers.is_empty() { Resolver::system(settings) } else { Resolver::of(&servers, settings) };
    resolver.context("names cannot be resolved: name servers in `dns.servers` or /etc/resolv.conf are needed")
}
