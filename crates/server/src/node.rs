//! The server whole: from a configuration to running shards.

use crate::ban::Bans;
use strowger_config::Config;
use crate::counters::{Counters, Counts, counted};
use crate::flows::Flows;
use crate::line_rate::LineRate;
use crate::refusals;
use crate::registration_log::Expired;
use crate::removal::Removals;
use crate::shard::{Shard, World};
use crate::shared::Shared;
use anyhow::Context;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use strowger_core::Outbox;
use strowger_core::digest::Authenticator;
use strowger_core::routing::{Identity, ListenerAddress, Router};
use strowger_net::resolve::Resolver;
use strowger_net::{Handle, Net, Node};
use strowger_store::access;
use strowger_store::clock::{Clock, Moment};
use strowger_store::journal::Journal;
use strowger_store::location::LocationTable;
use strowger_store::read_through::ReadThrough;
use strowger_store::sqlite_bindings;
use strowger_store::sqlite_subscribers::SqliteSubscribers;
use strowger_store::subscriber::Subscribers;

/// What the program around the server does for it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Each shard calls it when much less is under way than before, so that the allocator of the program gives memory back that
    /// is no longer used.
    pub give_back: fn(),
    /// Lines that the log has lost, and attempts to write it that failed, since the start; for the statistics.
    pub log_lost: fn() -> (u64, u64),
    /// Sees what a shard is about to send, each round; for tests that judge where messages go.
    pub sends: fn(&Outbox),
}

impl Default for Program {
    fn default() -> Self {
        Self { give_back: || (), log_lost: || (0, 0), sends: |_| () }
    }
}

/// A running server. Dropped, it stops.
pub struct Server {
    shared: Arc<Shared>,
    world: Arc<World>,
    node: Node<Shard>,
    /// Ends after the shards: what they gave it is written.
    journal: Option<Arc<Journal>>,
}

/// How often the server does what no request waits for: expiry, bans, what the log has left out.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often it looks after its database: overdue look-ups, users who were removed, threads that ended.
const DATABASE_UPKEEP: Duration = Duration::from_millis(250);

impl Server {
    /// Opens the database, binds the listeners, starts the shards. When it returns, messages are answered.
    ///
    /// # Errors
    /// What could not be opened or bound, in words.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_in(Program::default(), config)
    }

    /// [`Server::start`] as a part of this program.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_in(program: Program, config: Config) -> anyhow::Result<Self> {
        let seed: [u8; 32] = random()?;
        let call_secret = u32::from_le_bytes(random()?);
        // A flow of an earlier life of this server must not be taken for one of this.
        let process = u16::from_le_bytes(random()?);
        let settings = strowger_net::Settings { process, ..config.net_settings(call_secret) };
        let most = settings.shards.most();
        let quota = settings.quota.clone();
        // First the ports: a server that cannot have them leaves no file behind.
        let net = Net::bind(settings, config.net_listeners()).context("a listener cannot be opened")?;
        let location = Arc::new(LocationTable::new(config.location_settings()));
        let (journal, subscribers) = open_store(&config, &location)?;
        let journal = journal.map(Arc::new);
        let secret = match &config.auth.secret {
            Some(secret) => secret.reveal().to_vec(),
            None => kept_secret(&config)?,
        };
        let identity = Arc::new(identity(&config, net.addresses()));
        let router = Arc::new(Router::new(identity, &secret, config.route_lifetime()));
        let shared = Arc::new(Shared {
            router,
            limits: config.message_limits(),
            location,
            flows: Flows::new(config.server.node, process, most),
            subscribers,
            authenticator: Authenticator::new(
                config.digest_settings(),
                &secret,
                u64::from_le_bytes(seed[8..16].try_into()?),
                strowger_net::clock::now(),
            ),
            algorithms: config.offered_algorithms(),
            bans: Bans::new(config.ban.clone(), config.limits.ipv6_prefix),
            quota,
            call_lines: LineRate::new(config.log.calls_per_minute),
            registration_lines: LineRate::new(config.log.registrations_per_minute),
            call_secret,
            server_line: match &config.server.software[..] {
                "" => Vec::new(),
                software => format!("Server: {software}\r\n").into_bytes(),
            },
            pings_awake: Default::default(),
            seed,
            counters: (0..most).map(|_| Counters::default()).collect(),
            config,
        });
        let world = Arc::new(World { resolver: resolver(&shared.config)?, program });
        let (for_shards, world_of_shards, with_journal) = (shared.clone(), world.clone(), journal.clone());
        let node = net.spawn(move |number, handle: Handle<Shard>| {
            Shard::new(for_shards.clone(), world_of_shards.clone(), number, &handle, with_journal.as_deref())
        })?;
        node.handle().spawn("upkeep", keep_up(shared.clone(), world.clone()));
        if let Some(subscribers) = shared.subscribers.clone() {
            let removals = Removals::new(journal.as_deref());
            let (handle, journal) = (node.handle().clone(), journal.as_ref().map(Arc::downgrade));
            let work = keep_up_database(shared.clone(), handle, journal, subscribers, removals);
            node.handle().spawn("upkeep of the database", work);
        }
        if let Some(interval) = shared.config.log.statistics {
            let (shared, world, handle) = (shared.clone(), world.clone(), node.handle().clone());
            node.handle().spawn("the log of statistics", async move {
                let mut tick = tokio::time::interval(interval);
                tick.tick().await;
                loop {
                    tick.tick().await;
                    log_statistics(&shared, &world, &handle, "statistics");
                }
            });
        }
        Ok(Self { shared, world, node, journal })
    }

    /// The addresses on which the listeners of the configuration really listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.node.handle().addresses()
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn handle(&self) -> &Handle<Shard> {
        self.node.handle()
    }

    /// Counters of all shards.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Bindings that are registered now.
    pub fn bindings(&self) -> usize {
        self.shared.location.gauges().bindings
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Lets calls that are being set up go on for `most`, refuses new work, then stops.
    pub fn drain(self, most: Duration) {
        let end = Instant::now() + most;
        self.node.handle().drain(most);
        let mut busy: Option<Instant> = None;
        while Instant::now() < end {
            match self.counts().busy() {
                true => busy = Some(Instant::now()),
                // A call that was answered just now has its ACK still to come, and so has a failure.
                false if busy.is_some_and(|last| last.elapsed() < self.shared.config.timers.t1) => (),
                false => break,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stop();
    }

    /// Stops: what was acknowledged is kept.
    pub fn stop(self) {
        refusals::say_left_out(&self.shared, u64::MAX);
        let open = self.counts().calls_logged;
        if open > 0 {
            tracing::info!(count = open, "calls left open: their ends will not be logged");
        }
        log_statistics(&self.shared, &self.world, self.node.handle(), "statistics at the end");
        let Self { shared, world: _, node, journal } = self;
        drop(node);
        drop(shared);
        drop(journal);
    }
}

/// Logs every counter and gauge that is not 0: of the server, of its network side, and of what belongs to the process.
fn log_statistics(shared: &Shared, world: &World, handle: &Handle<Shard>, event: &str) {
    shared.counts().log(event);
    handle.total().log(event);
    let location = shared.location.gauges();
    let (log_lines_lost, log_write_errors) = (world.program.log_lost)();
    tracing::info!(
        of = "process",
        bindings = counted(location.bindings as u64),
        bindings_expired = counted(location.expired),
        used_nonces = counted(shared.authenticator.used().entries() as u64),
        shards = counted(handle.shards() as u64),
        log_lines_lost = counted(log_lines_lost),
        log_write_errors = counted(log_write_errors),
        "{event}"
    );
}

/// The work of no call in particular.
async fn keep_up(shared: Arc<Shared>, world: Arc<World>) {
    let mut tick = tokio::time::interval(UPKEEP);
    let mut n = 0u64;
    loop {
        tick.tick().await;
        n += 1;
        let now = strowger_net::clock::now();
        let mut expired = Vec::new();
        shared.location.expire(now.mono, 20_000, &mut |binding| {
            expired.extend(Expired::of(&binding, &shared, now.mono));
        });
        expired.iter().for_each(Expired::log);
        refusals::say_left_out(&shared, now.mono);
        if n.is_multiple_of(5) {
            shared.bans.tidy(now.mono);
            shared.authenticator.purge(now);
            world.resolver.tidy();
            // Of this thread: what look-ups used.
            (world.program.give_back)();
        }
    }
}

/// The same for the database.
async fn keep_up_database(
    shared: Arc<Shared>,
    handle: Handle<Shard>,
    journal: Option<Weak<Journal>>,
    subscribers: Arc<dyn Subscribers>,
    mut removals: Removals,
) {
    let mut tick = tokio::time::interval(DATABASE_UPKEEP);
    loop {
        tick.tick().await;
        // Without it every REGISTER is refused.
        if journal.as_ref().and_then(Weak::upgrade).is_some_and(|journal| journal.has_ended()) {
            handle.fail("the thread that writes bindings ended");
        }
        if subscribers.has_ended() {
            handle.fail("the thread that reads subscribers ended");
        }
        let now = strowger_net::clock::now();
        subscribers.overdue(now.mono);
        removals.step(now, &shared, &*subscribers);
    }
}

fn resolver(config: &Config) -> anyhow::Result<Resolver> {
    let settings = config.resolver_settings();
    let servers: Vec<SocketAddr> = config.dns.servers.iter().map(|ip| SocketAddr::new(*ip, 53)).collect();
    let resolver = if servers.is_empty() { Resolver::system(settings) } else { Resolver::of(&servers, settings) };
    resolver.context("names cannot be resolved: name servers in `dns.servers` or /etc/resolv.conf are needed")
}

type Store = (Option<Journal>, Option<Arc<dyn Subscribers>>);

fn open_store(config: &Config, location: &Arc<LocationTable>) -> anyhow::Result<Store> {
    let Some(settings) = config.sqlite_settings() else { return Ok((None, None)) };
    let clock: Clock = Arc::new(|| {
        let now = strowger_net::clock::now();
        Moment { mono: now.mono, wall: now.wall }
    });
    let (journal, loaded) = sqlite_bindings::keep(&settings, location, config.journal_settings(), clock.clone())
        .map_err(|error| match access::denial(&settings.path, true) {
            Some(reason) => anyhow::anyhow!("{error}; {reason}"),
            None => error.into(),
        })?;
    tracing::info!(database = %settings.path.display(), bindings = loaded, "bindings loaded");
    let subscribers = ReadThrough::start(SqliteSubscribers::open(&settings)?, config.read_through_settings(), clock)?;
    Ok((journal, Some(Arc::new(subscribers))))
}

/// The secret that the server drew itself, kept in a file beside its database: routes of running calls and nonces stay good
/// over a restart. In memory only, it is drawn anew at each start.
fn kept_secret(config: &Config) -> anyhow::Result<Vec<u8>> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(database) = &config.store.database else { return Ok(random::<32>()?.to_vec()) };
    let path = database.with_extension("secret");
    let what = || format!("{}: the secret of this server", path.display());
    match std::fs::read(&path) {
        Ok(secret) if secret.len() >= 16 => return Ok(secret),
        Ok(_) => anyhow::bail!("{} is shorter than 16 bytes: remove the file, the server draws another", what()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
        Err(error) => {
            let reason = access::denial(&path, false).map(|reason| format!(": {reason}")).unwrap_or_default();
            return Err(error).with_context(|| format!("{} cannot be read{reason}", what()));
        }
    }
    let secret = random::<32>()?;
    // Whole or not at all: another start must not find half of it.
    let draft = database.with_extension("secret.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(|| format!("{} cannot be written", what()))?;
    file.write_all(&secret).and_then(|()| file.sync_all()).with_context(|| format!("{} cannot be written", what()))?;
    std::fs::rename(&draft, &path).with_context(|| format!("{} cannot be written", what()))?;
    Ok(secret.to_vec())
}

/// Names and addresses of ours. A listener on all addresses is known by the address that reaches furthest.
fn identity(config: &Config, bound: &[SocketAddr]) -> Identity {
    let interfaces: Vec<IpAddr> = if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|i| i.ip()).collect();
    let mut networks: Vec<&str> = Vec::new();
    let listeners = config.listeners.iter().zip(bound).map(|(listener, bound)| {
        let network = networks.iter().position(|n| *n == listener.network).unwrap_or_else(|| {
            networks.push(&listener.network);
            networks.len() - 1
        });
        let (host, port) = match &listener.advertise {
            Some(name) => (name.host.clone(), name.port.unwrap_or_else(|| bound.port())),
            None => (shown_ip(reachable(bound.ip(), &interfaces)), bound.port()),
        };
        // The default port may be left out in a Via; it stands there all the same, for those who get it wrong.
        ListenerAddress {
            transport: listener.transport,
            bound: *bound,
            sent_by: format!("{host}:{port}").into_bytes().into(),
            network: network as u16,
        }
    });
    let names = config.server.names.iter().map(|name| name.as_str());
    Identity::new(listeners.collect(), config.domains.iter().map(|d| d.as_str()), &interfaces).with_names(names)
}

fn reachable(bound: IpAddr, interfaces: &[IpAddr]) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if (ip.segments()[0] & 0xffc0) == 0xfe80);
    let same = |ip: &&IpAddr| ip.is_ipv4() == bound.is_ipv4() && !link_local(ip);
    let mut fitting: Vec<&IpAddr> = interfaces.iter().filter(same).collect();
    fitting.sort_by_key(|ip| ip.is_loopback());
    fitting.first().map_or(bound, |ip| **ip)
}

fn shown_ip(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// From the system's source of randomness.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    use std::io::Read;
    static SOURCE: OnceLock<std::fs::File> = OnceLock::new();
    let mut source = match SOURCE.get() {
        Some(file) => file,
        None => SOURCE.get_or_init(|| std::fs::File::open("/dev/urandom").expect("every Linux has /dev/urandom")),
    };
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).context("no randomness from /dev/urandom")?;
    Ok(bytes)
}

impl Counts {
    /// Something is under way that a caller waits for.
    fn busy(&self) -> bool {
        self.waiting > 0 || self.unanswered > 0
    }
}
