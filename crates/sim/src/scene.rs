//! Creates a world from a seed: hosts, calls, incidents and weather.

mod choices;

use self::choices::{Choices, UNLIMITED, counts, database, mailbox, server};
use crate::agent::{Agent, CalleeAnswer, Line};
use crate::connections::Break;
use crate::laws::{self, Weather};
use crate::log;
use crate::network::{Conditions, Network};
use crate::node::SimNode;
use crate::noise::Noise;
use crate::random::Random;
use crate::server::{CacheManners, Keeping, ServerHost};
use crate::world::{PUBLIC_PORT, START, World};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use strowger_core::{PeerName, Transport};

const DOMAIN: &str = "home.example";
/// Realms of passwords, one at a time.
const REALMS: [&str; 2] = [DOMAIN, "other.example"];
const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];
const GATEWAY: &str = "gateway.example";

/// Number of the gateway's name in the network.
const PROVED: Option<PeerName> = match NonZeroU32::new(7) {
    Some(number) => Some(PeerName(number)),
    None => None,
};

const fn address(last: u8) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 1, last)), 5060)
}

/// Returns a public address with this last octet. Loopback addresses would not do, because they are never banned.
fn outside(last: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, last], 5060))
}

/// Returns an address behind a translator.
fn private(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 168, 7, last], 5060))
}

/// Returns random moments in this period, the latest first.
fn moments(random: &mut Random, count: u64, from: u64, to: u64) -> Vec<u64> {
    let mut moments: Vec<u64> = (0..count).map(|_| random.between(from, to)).collect();
    moments.sort_unstable_by(|a, b| b.cmp(a));
    moments
}

/// Plans the calls, messages and answers of the phones. `is_near`: caller and callees have one server.
fn script(random: &mut Random, choices: &Choices, is_near: bool, [alice, bob, carol]: [&mut Agent; 3]) {
    for callee in [&mut *bob, &mut *carol] {
        let answers = (0..4).map(|_| match random.between(0, 9) {
            0..5 => CalleeAnswer::Accept(random.between(0, 8_000)),
            5..8 => CalleeAnswer::Refuse(*random.pick(&[302, 404, 486, 500, 503, 603]), random.between(0, 4_000)),
            8 => CalleeAnswer::Ring,
            _ => CalleeAnswer::Refuse(408, 40_000),
        });
        callee.will_answer(answers.collect());
    }
    if choices.shared && random.chance(400) {
        // Both answer at the same time.
        let after = random.between(0, 8_000);
        for callee in [&mut *bob, &mut *carol] {
            callee.will_answer(vec![CalleeAnswer::Accept(after); 4]);
        }
    }
    for _ in 0..random.between(1, 3) {
        let at = random.between(3_000, 50_000);
        let to = match random.between(0, 22) {
            0..10 => format!("sip:bob@{DOMAIN}"),
            10..16 => format!("sip:{}@{DOMAIN}", carol.name()),
            16..18 => format!("sip:nobody@{DOMAIN}"),
            // There is no host at this address: a datagram vanishes, and a connection fails.
            18 => "sip:void@127.0.1.99:5060".to_owned(),
            19 => "sip:void@127.0.1.99:5060;transport=tcp".to_owned(),
            20 if carol.line().alias && is_near => format!("sip:{}@{};transport=tcp", carol.name(), carol.address()),
            _ => format!("sip:desk@{GATEWAY};transport=tls"),
        };
        if to.contains("void") && random.chance(500) {
            alice.plan_direct_call(at, &to);
            continue;
        }
        let cancel = random.chance(400).then(|| random.between(0, 10_000));
        alice.plan_call(at, &to, cancel);
    }
    if random.chance(500) {
        alice.plan_message(random.between(3_000, 60_000), &format!("sip:bob@{DOMAIN}"));
    }
    if random.chance(120) {
        // Over a gateway with two hosts, the first of which proves nothing.
        let count = random.between(2, 6);
        for at in moments(random, count, 3_000, 90_000) {
            alice.plan_message(at, &format!("sip:desk@{GATEWAY};transport=tls"));
        }
    }
    if random.chance(300) {
        let count = random.between(2, 6) as u32;
        alice.plan_messages(random.between(3_000, 60_000), &format!("sip:bob@{DOMAIN}"), count);
    }
    if random.chance(300) {
        bob.plan_call(random.between(3_000, 60_000), &format!("sip:alice@{DOMAIN}"), None);
    }
}

/// Plans more calls over both servers, so that some exceed a limit.
fn crowd(random: &mut Random, [alice, bob]: [&mut Agent; 2], carol: &str) {
    for _ in 0..random.between(4, 10) {
        let at = random.between(3_000, 60_000);
        let cancel = random.chance(300).then(|| random.between(0, 10_000));
        match random.between(0, 2) {
            0 => alice.plan_call(at, &format!("sip:bob@{DOMAIN}"), cancel),
            1 => alice.plan_call(at, &format!("sip:{carol}@{DOMAIN}"), cancel),
            _ => bob.plan_call(at, &format!("sip:alice@{DOMAIN}"), cancel),
        }
    }
}

/// Creates the world of one seed: alice calls bob and carol over one or two proxies. With two proxies, either the first
/// forwards to the second, which is the registrar, or both are servers with one secret and one database. Bob and carol
/// may share a name, so that the proxy forks.
pub fn world(seed: u64) -> World {
    let mut random = Random::new(seed);
    let random = &mut random;
    let conditions = Conditions::random(random);
    let (edge, home) = (address(1), address(2));
    // These random numbers are drawn from a generator of their own, so that the rest of the world does not depend on
    // them.
    let mut of_accounting = Random::new(!seed);
    let accounting = [700, 500].map(|chance| of_accounting.chance(chance));
    let mut choices = Choices::of(random, accounting, of_accounting.chance(400));
    let manners = CacheManners {
        delay: (0, of_accounting.between(0, 100)),
        failures: if !choices.calm && of_accounting.chance(300) { of_accounting.between(1, 300) } else { 0 },
    };
    choices.credentials = (choices.passwords && of_accounting.chance(400)).then_some(manners);
    choices.linger = *of_accounting.pick(&[1, 100, 5_000, 30_000]);
    choices.exchange = *of_accounting.pick(&[(250, 5), (250, 10), (500, 5), (500, 20), (2_000, 20)]);
    choices.counts = counts(&mut of_accounting, &choices);
    let mut of_failures = Random::new(!seed.rotate_left(32));
    choices.mailbox = mailbox(&mut of_failures, &choices);
    let Choices { calm, two, shares_users, passwords, .. } = choices;
    let mut users = database(random, &choices);
    let change = |n| {
        let (is_one, at) = (random.chance(100), random.between(5_000, 60_000));
        (passwords && is_one && !calm).then(|| (n, at, users.change_password(USERS[n], at)))
    };
    let changed: Vec<(usize, u64, u32)> = (0..3).filter_map(change).collect();
    let users = passwords.then(|| Arc::new(users));

    let mut hosts: Vec<(SocketAddr, SimNode)> = Vec::new();
    let other = if shares_users { DOMAIN } else { "edge.example" };
    for (at, domain) in [(home, DOMAIN), (edge, other)].into_iter().take(1 + usize::from(two)) {
        let settings = server(random, &choices, at, domain, users.as_ref());
        let server = match hosts.first() {
            Some((_, SimNode::Server(first))) if shares_users => first.sibling(START, settings, random.u64()),
            _ => ServerHost::new(START, settings, random.u64()),
        };
        hosts.push((at, server.into()));
    }
    // If each server has its own table, caller and callees register with one server.
    let is_apart = shares_users && choices.keeping == Keeping::Written;
    let first = if two && !is_apart { edge } else { home };
    let carol_is = if choices.shared { "bob" } else { "carol" };
    let [a, b, c] = choices.lines;
    let mut alice = Agent::new("alice", DOMAIN, a, first, random.u64());
    // A connection belongs to one server: a phone that only its connection reaches registers with the called server.
    let callees = if shares_users && choices.lines.iter().any(Line::is_one_way) { first } else { home };
    let mut bob = Agent::new("bob", DOMAIN, b, callees, random.u64());
    let mut carol = Agent::new(carol_is, DOMAIN, c, callees, random.u64());
    alice.plan_register(1_000, 3_600);
    bob.plan_register(1_000, 3_600);
    carol.plan_register(1_200, 3_600);
    script(random, &choices, callees == first, [&mut alice, &mut bob, &mut carol]);
    if choices.counts.as_ref().is_some_and(|manners| manners.most < UNLIMITED) {
        crowd(&mut of_accounting, [&mut alice, &mut bob], carol_is);
    }
    if choices.mailbox.is_some() {
        let mut answer = || match of_failures.between(0, 9) {
            0..6 => CalleeAnswer::Refuse(486, of_failures.between(0, 1_000)),
            6..8 => CalleeAnswer::Ring,
            _ => CalleeAnswer::Accept(of_failures.between(0, 4_000)),
        };
        bob.will_answer((0..24).map(|_| answer()).collect());
        crowd(&mut of_failures, [&mut alice, &mut bob], carol_is);
    }
    let mut public = Vec::new();
    for (n, agent) in [&mut alice, &mut bob, &mut carol].into_iter().enumerate() {
        for (_, at, version) in changed.iter().filter(|(of, ..)| *of == n) {
            // The break follows a moment later: servers notice the end of a connection within half a second.
            agent.plan_password(at + 700, *version);
        }
        if !calm && random.chance(100) {
            agent.plan_restart(random.between(2_000, 80_000));
        }
        let refreshes = *random.pick(&[0, 0, 0, 1, 3]);
        for at in moments(random, refreshes, 2_000, 90_000) {
            agent.plan_register(at, 3_600);
        }
        if !agent.line().translated {
            continue;
        }
        let public_at = |port| SocketAddr::new(address(11 + n as u8).ip(), port);
        let mut addresses = vec![(0, public_at(PUBLIC_PORT))];
        let changes = if calm { 0 } else { random.between(0, 3).saturating_sub(1) };
        for port in PUBLIC_PORT + 1..PUBLIC_PORT + 1 + changes as u16 {
            let moment = random.between(2_000, 80_000);
            addresses.push((moment, public_at(port)));
            agent.plan_register(moment + random.between(1, 10_000), 3_600);
        }
        public.push((agent.address(), addresses));
    }
    bob.plan_register(500_000, 0);
    let mut agents = vec![alice, bob, carol, guesser(random, home, passwords)];
    if two && is_apart {
        let mut dave = Agent::new("dave", DOMAIN, Line::new(address(14), Transport::Udp), edge, random.u64());
        dave.plan_register(1_000 + random.between(0, 500), 3_600);
        dave.plan_register(random.between(2_000, 60_000), 3_600);
        agents.push(dave);
    }
    let tls = |last| Line::new(address(last), Transport::Tls);
    agents.push(Agent::new("desk", GATEWAY, Line { proves: PROVED, ..tls(21) }, home, random.u64()));
    let mut impostor = Agent::new("impostor", GATEWAY, tls(22), home, random.u64());
    impostor.set_impostor();
    agents.push(impostor);
    // A thief that asks to be reached at the address of another phone.
    let claims = Some(address(13));
    let line = Line { listens: false, alias: true, claims, ..Line::new(address(23), Transport::Tcp) };
    let mut thief = Agent::new("thief", DOMAIN, line, callees, random.u64());
    thief.set_impostor();
    thief.set_wrong_password(true);
    if !calm && random.chance(500) {
        thief.plan_register(random.between(1_500, 20_000), 3_600);
    }
    agents.push(thief);
    for address in choices.mailbox.iter().flat_map(|mailbox| mailbox.addresses) {
        agents.push(box_of(&mut of_failures, address, home));
    }
    hosts.extend(agents.into_iter().map(|agent| (agent.address(), agent.into())));

    let count = hosts.len();
    let breaks: Vec<Vec<(u64, Break)>> = (0..count).filter(|_| !calm).map(|_| breaks(random)).collect();
    let noise = (!calm && random.chance(100)).then(|| Noise::new(Random::new(random.u64()), 200));
    let mut world = World::new(Network::new(conditions, random.clone()), hosts);
    for (private, public) in public {
        world.translate(private, public);
    }
    for (host, breaks) in breaks.into_iter().enumerate() {
        world.break_connections(host, breaks);
    }
    world.noise = noise;
    // State of an earlier process has wall clock times only, so a step affects it.
    let mut of_clock = Random::new(seed.rotate_left(16));
    let is_dated = !calm || choices.keeping == Keeping::Written || choices.keeps || choices.credentials.is_some();
    if !is_dated && of_clock.chance(500) {
        let (moment, days) = (of_clock.between(2_000, 90_000), *of_clock.pick(&[400, -400, 3, -3]));
        world.set_clock(START.mono + moment, days * 86_400_000);
    }
    world
}

/// Creates the mailbox, which accepts calls to bob that fail, or refuses them.
fn box_of(random: &mut Random, address: SocketAddr, home: SocketAddr) -> Agent {
    let mut agent = Agent::new("mailbox", GATEWAY, Line::new(address, Transport::Udp), home, random.u64());
    let mut answer = || match random.between(0, 9) {
        0..5 => CalleeAnswer::Accept(random.between(0, 4_000)),
        5..8 => CalleeAnswer::Refuse(*random.pick(&[486, 500, 503, 603]), random.between(0, 4_000)),
        _ => CalleeAnswer::Ring,
    };
    agent.will_answer((0..24).map(|_| answer()).collect());
    agent
}

/// Creates an agent that guesses passwords.
fn guesser(random: &mut Random, home: SocketAddr, passwords: bool) -> Agent {
    let mut guesser = Agent::new("bob", DOMAIN, Line::new(outside(14), Transport::Udp), home, random.u64());
    guesser.set_wrong_password(random.chance(500));
    let guesses = if passwords && random.chance(200) { random.between(1, 20) } else { 0 };
    let (first, apart) = (random.between(3_000, 30_000), *random.pick(&[0, 50, 30_000]));
    for _ in 0..guesses {
        guesser.plan_register(first + random.between(0, apart), 3_600);
    }
    guesser
}

/// Returns the times and kinds of failures of a host's connections.
fn breaks(random: &mut Random) -> Vec<(u64, Break)> {
    let times = if random.chance(200) { random.between(1, 3) } else { 0 };
    let at = moments(random, times, 1_500, 80_000);
    let how = |at| {
        let silent = Break::Silent(random.between(100, 10_000));
        (at, *random.pick(&[Break::Closed { by: 0 }, Break::Closed { by: 1 }, Break::Reset, silent]))
    };
    at.into_iter().map(how).collect()
}

/// Runs the world of one seed.
///
/// # Errors
/// The violated law, and the time.
pub fn run(seed: u64) -> Result<Weather, String> {
    finish(&mut world(seed))
}

/// Runs the world twice; both runs must be equal, message by message.
///
/// # Errors
/// The error of [`run`], or a difference between the runs.
pub fn run_twice(seed: u64) -> Result<Weather, String> {
    let (mut first, mut second) = (world(seed), world(seed));
    let results = (finish(&mut first), finish(&mut second));
    match first.digest() == second.digest() && results.0 == results.1 {
        true => results.0,
        false => Err(format!("it does not replay: {:?}, {:?}", results.0, results.1)),
    }
}

/// Acts as [`run`], and returns every message that was sent.
pub fn trace(seed: u64) -> (Result<Weather, String>, Vec<String>) {
    let mut world = world(seed);
    world.trace = Some(Vec::new());
    let result = finish(&mut world);
    (result, world.trace.unwrap_or_default())
}

/// Returns the command that shows the world of a failed seed.
pub fn replay(seed: u64) -> String {
    format!(
        "STROWGER_SIM_SEED={seed} cargo test --locked --package strowger-tests --test simulate -- --exact \
         every_call_ends_as_it_must_and_nothing_is_left --nocapture"
    )
}

fn finish(world: &mut World) -> Result<Weather, String> {
    let _log = log::catch();
    world.run()?;
    laws::judge(world)
}
