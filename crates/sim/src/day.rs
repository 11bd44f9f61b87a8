//! A day of many phones at one server. They register, refresh and call each other, some behind translators, some on
//! connections that break. The server restarts, its databases stop and return, and its configuration is reloaded.

use crate::agent::{Agent, Line};
use crate::connections::Break;
use crate::laws::{self, Weather};
use crate::log;
use crate::network::{Conditions, Network};
use crate::node::SimNode;
use crate::random::Random;
use crate::server::{Database, End, FixedBounds, Keeping, Outage, OutageKind, ServerHost, ServerSettings};
use crate::world::{PUBLIC_PORT, START, World};
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::Transport;

const DOMAIN: &str = "home.example";
const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;

/// Size of a day.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    pub phones: u32,
    pub hours: u64,
    /// Calls per phone.
    pub calls: u32,
}

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 1, 2)), 5060);

fn name(n: u32) -> String {
    format!("phone{n}")
}

/// Returns the connection of a phone, and its public address if it is behind a translator.
fn line(random: &mut Random, n: u32) -> (Line, Option<SocketAddr>) {
    let at = |a, b| SocketAddr::from(([a, b, (n / 250) as u8, 1 + (n % 250) as u8], 5060));
    let (near, behind) = (at(127, 1), at(10, 1));
    let public = SocketAddr::new(at(127, 2).ip(), PUBLIC_PORT);
    match random.between(0, 99) {
        0..60 => (Line::new(near, Transport::Udp), None),
        60..75 => (Line { translated: true, ..Line::new(behind, Transport::Udp) }, Some(public)),
        75..85 => (Line { listens: false, ..Line::new(near, Transport::Tcp) }, None),
        85..90 => (Line { listens: false, ..Line::new(near, Transport::Tls) }, None),
        _ => (Line { listens: false, ..Line::new(near, Transport::Ws) }, None),
    }
}

impl Day {
    /// Returns two versions of the configuration of the server.
    fn configs() -> Vec<String> {
        let config = |(algorithms, fork)| {
            format!(
                "domains = [\"{DOMAIN}\"]\nrealm = \"{DOMAIN}\"\nregistrar.durability = \"crash\"\n\
                 auth.algorithms = [{algorithms}]\nproxy.fork_timeout = \"{fork}s\"\n\
                 nat.ping_interval = \"never\"\nlog.calls_per_minute = 1000000\nstore.database = \"of-the-day\"\n"
            )
        };
        [("\"MD5\"", 20), ("\"SHA-256\", \"MD5\"", 10)].map(config).into()
    }

    /// Returns the outages of up to this number of minutes, spread over the day.
    fn outages(self, random: &mut Random, minutes: u64) -> Vec<Outage> {
        let one = |n| {
            let from = START.mono + n * self.hours * HOUR / 4 + random.between(0, self.hours * HOUR / 8);
            let to = from + random.between(1, minutes * 60) * 1_000;
            Outage { from, to, kind: *random.pick(&[OutageKind::Silent, OutageKind::Failing, OutageKind::Slow(700)]) }
        };
        (0..4).map(one).collect()
    }

    /// Returns random moments of the day, the latest first.
    fn moments(self, random: &mut Random, count: u64) -> Vec<u64> {
        let mut at: Vec<u64> = (0..count).map(|_| START.mono + random.between(MINUTE, self.hours * HOUR)).collect();
        at.sort_unstable_by(|a, b| b.cmp(a));
        at
    }

    fn server(self, random: &mut Random) -> ServerHost {
        let mut database = Database::new(DOMAIN, &[DOMAIN], (0..self.phones).map(name));
        database.delay = (1, 30);
        database.outages = self.outages(random, 10);
        let ends = self.moments(random, 5).into_iter().enumerate();
        let end = |(n, at)| (at, if n % 2 == 0 { End::Killed } else { End::Drained(30_000) });
        let settings = ServerSettings {
            address: SERVER,
            configs: Self::configs(),
            bounds: FixedBounds::default(),
            reloads: self.moments(random, 12),
            names: Vec::new(),
            lookups: (1, 50),
            failures: 0,
            database: Some(Arc::new(database)),
            credentials: None,
            counts: None,
            mailbox: None,
            keeping: Keeping::Written,
            commits: (3, 20),
            commit_failures: 2,
            disk_outages: self.outages(random, 2),
            shards: 3,
            moves: self.moments(random, 24),
            chased: 0,
            ends: ends.map(end).collect(),
        };
        ServerHost::new(START, settings, random.u64())
    }

    /// Returns the world of this day.
    fn world(self, seed: u64) -> World {
        let random = &mut Random::new(seed);
        let mut hosts: Vec<(SocketAddr, SimNode)> = vec![(SERVER, self.server(random).into())];
        let (mut public, mut breaks) = (Vec::new(), Vec::new());
        let end = START.mono + self.hours * HOUR;
        for n in 0..self.phones {
            let (line, seen) = line(random, n);
            let mut phone = Agent::new(&name(n), DOMAIN, line, SERVER, random.u64());
            phone.plan_register(START.mono + random.between(0, 5 * MINUTE), 3_600);
            phone.refresh_until(end);
            for _ in 0..self.calls {
                let to = name(random.between(0, u64::from(self.phones) - 1) as u32);
                let at = START.mono + random.between(10 * MINUTE, self.hours * HOUR);
                let cancel = random.chance(100).then(|| random.between(0, 3_000));
                phone.plan_call(at, &format!("sip:{to}@{DOMAIN}"), cancel);
            }
            if random.chance(100) {
                phone.plan_restart(START.mono + random.between(10 * MINUTE, self.hours * HOUR));
            }
            if line.transport.is_reliable() && random.chance(500) {
                let how = *random.pick(&[Break::Reset, Break::Closed { by: 0 }, Break::Silent(30_000)]);
                let at = START.mono + random.between(10 * MINUTE, self.hours * HOUR);
                breaks.push((hosts.len(), at, how));
            }
            public.extend(seen.map(|seen| (line.address, seen)));
            hosts.push((line.address, phone.into()));
        }
        let conditions = Conditions { loss: 10, doubling: 5, reordering: 10, delay: (1, 40), outage: (0, 0) };
        let mut world = World::new(Network::new(conditions, random.clone()), hosts);
        world.longest = (self.hours + 2) * HOUR;
        for (private, seen) in public {
            world.translate(private, [(0, seen)]);
        }
        for (host, at, how) in breaks {
            world.break_connections(host, [(at, how)]);
        }
        world
    }

    /// Runs the day.
    ///
    /// # Errors
    /// The violated law, and the time.
    pub fn run(self, seed: u64) -> Result<Weather, String> {
        let mut world = self.world(seed);
        let _log = log::catch();
        world.run()?;
        let weather = laws::judge(&world)?;
        let all = &weather.all;
        // Some callees have no connection, or the server has none to its databases.
        match all.calls >= u64::from(self.phones * self.calls) * 9 / 10 && all.success * 10 > all.calls * 7 {
            true => Ok(weather),
            false => Err(format!("most calls succeed on a good day: {all:?}")),
        }
    }
}
