//! Choices of a simulated world: its settings, servers, database and outages.

use super::{DOMAIN, GATEWAY, PROVED, REALMS, USERS, address, moments, private};
use crate::agent::Line;
use crate::random::Random;
use crate::server::{
    BoxLimit, CacheManners, CountManners, Database, End, FixedBounds, Keeping, LIMITED, Mailbox, Name, Outage,
    OutageKind, ServerSettings,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use strowger_core::Transport;
use strowger_server::bounds::EngineBounds;

/// Choices of a world.
pub(super) struct Choices {
    /// True if nothing but network faults (the weather) happens to the world.
    pub(super) calm: bool,
    /// True if there is a second server.
    pub(super) two: bool,
    /// True if the second server has the users of the first one too.
    pub(super) shares_users: bool,
    pub(super) passwords: bool,
    /// First `proxy.record_route` of the servers. Without it later requests bypass them, so every phone must be reachable
    /// at its own address.
    pub(super) record_route: bool,
    pub(super) keeping: Keeping,
    pub(super) reloads: bool,
    /// Connections of three phones.
    pub(super) lines: [Line; 3],
    /// Bob and carol have one name.
    pub(super) shared: bool,
    /// True if call records and call events are written.
    pub(super) accounting: [bool; 2],
    /// True if calls outlive a process.
    pub(super) keeps: bool,
    /// Time in ms for which the first row of an accounting group waits for others.
    pub(super) linger: u64,
    /// Cache that alone has the credentials of registered users.
    pub(super) credentials: Option<CacheManners>,
    /// Interval between two exchanges of counts in ms, and their lifetime in s.
    pub(super) exchange: (u64, u64),
    /// Settings if two servers count calls together.
    pub(super) counts: Option<CountManners>,
    /// Destination of failed calls to bob.
    pub(super) mailbox: Option<Mailbox>,
}

impl Choices {
    pub(super) fn of(random: &mut Random, accounting: [bool; 2], keeps: bool) -> Self {
        let calm = random.chance(300);
        let two = random.chance(500);
        let shares_users = random.chance(500);
        let record_route = random.chance(700);
        let mut transport = || match random.between(0, 11) {
            0..7 => Transport::Udp,
            7..9 => Transport::Tcp,
            9 => Transport::Tls,
            _ if record_route => Transport::Ws,
            _ => Transport::Udp,
        };
        let transports = [transport(), transport(), transport()];
        let keeping = if random.chance(400) { Keeping::Written } else { Keeping::Shared };
        let lines = std::array::from_fn(|n| {
            let last = 11 + n as u8;
            // A phone behind a translator, or on a connection that only it can make, is reached through its registrar,
            // which stays in the path of its calls.
            let is_near = n > 0 || !two || shares_users;
            let transport = if is_near || transports[n] != Transport::Ws { transports[n] } else { Transport::Udp };
            let translated = transport != Transport::Ws && record_route && is_near && random.chance(300);
            let one_way = transport.is_reliable() && record_route && is_near && random.chance(600);
            Line {
                translated,
                listens: !(one_way || translated && transport.is_reliable() || transport == Transport::Ws),
                alias: transport == Transport::Tcp && one_way && !translated && random.chance(500),
                ..Line::new(if translated { private(last) } else { address(last) }, transport)
            }
        });
        let (passwords, shared) = (random.chance(500), random.chance(300));
        let reloads = !calm && random.chance(400);
        let credentials = None;
        Self {
            calm,
            two,
            shares_users,
            passwords,
            record_route,
            keeping,
            reloads,
            lines,
            shared,
            accounting,
            keeps,
            linger: 0,
            credentials,
            exchange: (100, 5),
            counts: None,
            mailbox: None,
        }
    }

    /// Writes the configuration of a server, in its versions.
    fn config(&self, random: &mut Random, domain: &str, node: u16, fixed: &str) -> Vec<String> {
        let passwords = domain == DOMAIN && self.passwords;
        let (durability, database) = match self.keeping {
            Keeping::Shared => ("none", "memory"),
            Keeping::Written => ("crash", "of-the-world"),
        };
        let versions = if self.reloads { random.between(2, 4) } else { 1 };
        let config = |version: u64| {
            // Only if each phone can be called directly.
            let is_free = self.lines.iter().all(|line| line.listens && !line.translated);
            let record_route = if is_free && version > 0 { random.chance(500) } else { self.record_route };
            let realm = if version > 0 && domain == DOMAIN { *random.pick(&REALMS) } else { domain };
            let algorithms = *random.pick(&["\"MD5\"", "\"SHA-256\", \"MD5\""]);
            let (fork, seconds) = (random.pick(&["parallel", "sequence", "by-q"]), random.between(2, 20));
            // The limit exceeds the number of calls, so each unit must be released. The server counts only calls whose
            // end it sees.
            let is_counted = record_route && fixed.contains("dialogs.track = true\n");
            let rules = match &self.counts {
                Some(manners) => counted_together(manners),
                None if is_counted => counted(&format!("most = {UNLIMITED}"), ""),
                None => String::new(),
            };
            let mailbox = self.mailbox.filter(|_| domain == DOMAIN).map_or(String::new(), Mailbox::rules);
            // The log of this process contains the end of a persisted call, but not the beginning, which an earlier
            // process logged.
            let lines = if self.keeps { 0 } else { 1_000_000 };
            let (cache, caches) = match self.credentials {
                Some(_) if domain == DOMAIN => {
                    ("auth.credential_cache = \"far\"\n", "[[cache]]\nname = \"far\"\nmemory = \"64KiB\"\n")
                }
                _ => ("", ""),
            };
            format!(
                "domains = [\"{domain}\"]\nrealm = \"{realm}\"\nserver.node = {node}\n{fixed}\
                 registrar.authenticate = {passwords}\nregistrar.durability = \"{durability}\"\n\
                 auth.calls = {passwords}\nauth.algorithms = [{algorithms}]\n\
                 proxy.relay_for = \"everyone\"\nproxy.reachable = [\"127.0.0.0/8\"]\nproxy.record_route = {record_route}\n\
                 proxy.fork = \"{fork}\"\nproxy.fork_timeout = \"{seconds}s\"\n\
                 nat.ping_interval = \"never\"\nlog.calls_per_minute = {lines}\nstore.database = \"{database}\"\n\
                 {cache}{caches}{rules}{mailbox}"
            )
        };
        (0..versions).map(config).collect()
    }
}

/// Names and `per` of further limits, one for each way of counting.
const WAYS: [(&str, &str); 5] = [
    ("each", "request.uri"),
    ("user", "user"),
    ("group", "source.group"),
    ("address", "source.address"),
    ("caller", "from.uri"),
];

/// Returns the configuration of limits: every call counts under a limit with the settings `all`, and under each of the
/// other limits, which always have room. `shared` is added to every limit.
fn counted(all: &str, shared: &str) -> String {
    let mut text = format!(
        "[[source]]\nname = \"group\"\nnetworks = [\"127.0.1.8/29\"]\n[[call_limit]]\nname = \"all\"\n{all}\n{shared}\n"
    );
    for (name, per) in WAYS {
        text += &format!("[[call_limit]]\nname = \"{name}\"\nper = \"{per}\"\nmost = {UNLIMITED}\n{shared}\n");
    }
    let names = WAYS.map(|(name, _)| name);
    text + &format!("[[rule]]\nname = \"counted\"\ncall_limits = [\"all\", \"{}\"]\n", names.join("\", \""))
}

/// Returns the configuration of limits that two servers count together.
fn counted_together(manners: &CountManners) -> String {
    let without = if manners.refuses { "refuse" } else { "local" };
    let shared = format!("status = {LIMITED}\ncache = \"counts\"\nservers = [0, 1]\nwithout_cache = \"{without}\"");
    let cache = "[[cache]]\nname = \"counts\"\nengine = \"redis\"\nservers = [\"192.0.2.1\"]\n";
    format!("{cache}{}", counted(&format!("most = {}", manners.most), &shared))
}

/// A limit above the number of calls.
pub(super) const UNLIMITED: u32 = 1_000;

/// Returns the settings of two servers that count together, if they do.
pub(super) fn counts(random: &mut Random, choices: &Choices) -> Option<CountManners> {
    let Choices { calm, two, shares_users, record_route, reloads, .. } = *choices;
    let manners = CountManners {
        delay: (0, random.between(0, 100)),
        failures: if !calm && random.chance(300) { random.between(1, 300) } else { 0 },
        outages: if !calm && random.chance(400) { outages(random) } else { Vec::new() },
        most: if calm { UNLIMITED } else { *random.pick(&[1, 2, 3, UNLIMITED]) },
        refuses: random.chance(300),
    };
    // Only calls whose end the server sees can be counted.
    (two && shares_users && record_route && !reloads && random.chance(400)).then_some(manners)
}

/// Returns the mailbox for failed calls to bob, with its limit of concurrent calls, if there is one.
pub(super) fn mailbox(random: &mut Random, choices: &Choices) -> Option<Mailbox> {
    let most = random.between(1, 2) as u32;
    // Only calls whose end the server sees can be counted.
    let may_count = choices.record_route && !choices.reloads && choices.counts.is_none();
    (may_count && random.chance(300)).then(|| Mailbox {
        addresses: [address(24), address(25)],
        most,
        limit: *random.pick(&[BoxLimit::Failure, BoxLimit::Group, BoxLimit::Gateway, BoxLimit::Rule]),
    })
}

/// Creates the database of subscribers, with failures in some worlds.
pub(super) fn database(random: &mut Random, choices: &Choices) -> Database {
    let mut database = Database::new(DOMAIN, &REALMS, USERS.map(str::to_owned));
    database.delay = (0, random.between(0, 400));
    if !choices.calm {
        database.failures = if random.chance(300) { random.between(1, 400) } else { 0 };
        database.outages = if random.chance(400) { outages(random) } else { Vec::new() };
    }
    database
}

fn outages(random: &mut Random) -> Vec<Outage> {
    let (count, mut from) = (random.between(1, 3), random.between(1_500, 20_000));
    let one = |_| {
        let to = from + random.between(500, 30_000);
        let more = random.between(200, 3_000);
        let kind = *random.pick(&[OutageKind::Silent, OutageKind::Failing, OutageKind::Slow(more)]);
        let outage = Outage { from, to, kind };
        from = to + random.between(500, 10_000);
        outage
    };
    (0..count).map(one).collect()
}

/// Ends of the processes of a server.
fn ends(random: &mut Random) -> Vec<(u64, End)> {
    let times = if random.chance(350) { random.between(1, 3) } else { 0 };
    let at = moments(random, times, 1_000, 100_000);
    let end = |at| {
        let drained = End::Drained(random.between(1_000, 60_000));
        (at, if random.chance(400) { drained } else { End::Killed })
    };
    at.into_iter().map(end).collect()
}

pub(super) fn server(
    random: &mut Random,
    choices: &Choices,
    at: SocketAddr,
    domain: &str,
    database: Option<&Arc<Database>>,
) -> ServerSettings {
    let node = u16::from(at == address(1));
    let answers = (random.pick(&[0, 5, 300]), random.pick(&[0, 86_400, 86_400]), random.between(1, 4));
    let breaker_after = random.between(1, 5) as u32;
    let lookup_timeout = random.pick(&[700, 2_000]);
    let (held_messages, commit_queue) = (*random.pick(&[1, 2, 32]), *random.pick(&[16, 20_000]));
    // Keys that need a restart.
    let fixed = format!(
        "store.cache_lifetime = \"{}s\"\nstore.serve_stale = \"{}s\"\nstore.lookup_connections = {}\n\
         store.lookup_timeout = \"{lookup_timeout}ms\"\ndialogs.track = {}\ndialogs.lifetime = \"{}s\"\n\
         accounting.cdr = {}\naccounting.events = {}\naccounting.group_interval = \"{}ms\"\n{}",
        answers.0,
        answers.1,
        answers.2,
        random.chance(600),
        // The maximum duration is longer than any call, or so short that the server ends some calls.
        random.pick(&[300, 300, 20]),
        choices.accounting[0],
        choices.accounting[1],
        choices.linger,
        if choices.keeps {
            "dialogs.folder = \"calls-of-the-world\"\nauth.secret = \"the secret of a site\"\n"
        } else {
            ""
        },
    );
    let (interval, lifetime) = choices.exchange;
    let engine = EngineBounds {
        held_messages,
        logged_time: Duration::from_secs(600),
        count_interval: Duration::from_millis(interval),
        count_lifetime: Duration::from_secs(lifetime),
        ..EngineBounds::default()
    };
    let fails = !choices.calm && choices.keeping == Keeping::Written;
    ServerSettings {
        address: at,
        configs: choices.config(random, domain, node, &fixed),
        bounds: FixedBounds { engine, breaker_after, commit_queue },
        reloads: if choices.reloads {
            let count = random.between(1, 8);
            moments(random, count, 2_000, 60_000)
        } else {
            Vec::new()
        },
        names: vec![
            Name { host: DOMAIN.to_owned(), targets: vec![(Transport::Udp, address(2))], proves: None },
            Name {
                host: GATEWAY.to_owned(),
                targets: vec![(Transport::Tls, address(22)), (Transport::Tls, address(21))],
                proves: PROVED,
            },
        ],
        lookups: (0, random.between(0, 400)),
        failures: if !choices.calm && random.chance(200) { random.between(1, 400) } else { 0 },
        database: database.filter(|_| domain == DOMAIN).cloned(),
        credentials: choices.credentials.filter(|_| domain == DOMAIN),
        counts: choices.counts.clone(),
        mailbox: choices.mailbox.filter(|_| domain == DOMAIN),
        keeping: choices.keeping.clone(),
        commits: (3, random.between(3, 100)),
        commit_failures: if fails && random.chance(300) { random.between(1, 300) } else { 0 },
        disk_outages: if fails && random.chance(200) { outages(random) } else { Vec::new() },
        shards: *random.pick(&[1, 1, 2, 3]),
        moves: {
            let count = random.between(0, 6);
            moments(random, count, 2_000, 60_000)
        },
        chased: *random.pick(&[0, 300, 900]),
        ends: if choices.calm { Vec::new() } else { ends(random) },
    }
}
