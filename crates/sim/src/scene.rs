//! A world made from a seed: who there is, who calls whom, what the weather is like.

use crate::agent::{Agent, Answer, Tally};
use crate::network::{Conditions, Network};
use crate::random::Random;
use crate::server::{ServerHost, ServerSettings};
use crate::world::{Host, PUBLIC_PORT, START, World};
use std::net::SocketAddr;
use strowger_core::transaction::{Counts, Transactions};
use strowger_core::{Arrival, Now, Outbox, Transport};

/// A host of either kind.
pub enum Node {
    Agent(Box<Agent>),
    Server(Box<ServerHost>),
}

impl Node {
    fn name(&self) -> String {
        match self {
            Self::Agent(agent) => agent.name().to_owned(),
            Self::Server(server) => server.address().to_string(),
        }
    }

    /// The tables of transactions, one a shard.
    fn transactions(&self) -> Vec<&Transactions> {
        match self {
            Self::Agent(agent) => vec![agent.transactions()],
            Self::Server(server) => server.transactions().collect(),
        }
    }

    fn host(&mut self) -> &mut dyn Host {
        match self {
            Self::Agent(agent) => &mut **agent,
            Self::Server(server) => &mut **server,
        }
    }
}

impl Host for Node {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.host().receive(now, arrival, bytes, out);
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.host().failed(now, token, out);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.host().poll(now, out);
    }

    fn deadline(&mut self) -> Option<u64> {
        self.host().deadline()
    }

    fn is_stateless(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    fn has_restarted(&mut self) -> bool {
        self.host().has_restarted()
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Agent(agent) => agent.check(),
            Self::Server(server) => server.check(),
        }
    }

    fn leftovers(&self) -> Result<(), String> {
        match self {
            Self::Agent(agent) => agent.leftovers(),
            Self::Server(server) => server.leftovers(),
        }
    }
}

/// ms until a request without an answer is sent again.
const T1: u64 = 500;

/// ms within which a CANCEL reaches a phone, if no message is lost.
const CANCELLED: u64 = 2_000;

/// So many wrong passwords ban a source, by default.
const FAILURES: usize = 10;

/// When all have registered, if no server was killed and no message lost: [`Now::mono`].
const REGISTERED: u64 = 2_900;

const DOMAIN: &str = "home.example";
const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 1, last], 5060))
}

/// An address of the world: those of the loopback interface are never banned.
fn outside() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 14], 5060))
}

/// An address behind a translator.
fn private(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 168, 7, last], 5060))
}

/// A registrar of one domain that relays for others too.
fn config(domain: &str, record_route: bool, passwords: bool) -> String {
    format!(
        "domains = [\"{domain}\"]\n\
         realm = \"{domain}\"\n[registrar]\nauthenticate = {passwords}\ndurability = \"none\"\n\
         [auth]\ncalls = {passwords}\n\
         [proxy]\nrelay_for = \"everyone\"\nrecord_route = {record_route}\n\
         [nat]\nping_interval = \"never\"\n\
         [store]\ndatabase = \"memory\"\n"
    )
}

/// When buckets of calls move, earliest last.
fn moves(random: &mut Random) -> Vec<u64> {
    let mut moves: Vec<u64> = (0..random.between(0, 6)).map(|_| random.between(2_000, 60_000)).collect();
    moves.sort_unstable_by(|a, b| b.cmp(a));
    moves
}

/// When the process of a server is killed, earliest last.
fn restarts(random: &mut Random) -> Vec<u64> {
    let times = if random.chance(200) { random.between(1, 3) } else { 0 };
    let mut restarts: Vec<u64> = (0..times).map(|_| random.between(1_000, 100_000)).collect();
    restarts.sort_unstable_by(|a, b| b.cmp(a));
    restarts
}

/// The world of one seed: alice calls bob and carol over one or two proxies. Of two, the first leads to the other, which is the
/// registrar, or both are servers with one secret and one database. Bob and carol may share a name, so that the proxy forks.
pub fn world(seed: u64) -> World<Node> {
    let mut random = Random::new(seed);
    let conditions = Conditions::random(&mut random);
    let (edge, home) = (address(1), address(2));
    let two = random.chance(500);
    let record_route = random.chance(700);
    let passwords = random.chance(500);
    let first = if two { edge } else { home };
    let mut hosts: Vec<(SocketAddr, Node)> = Vec::new();
    let beside = random.chance(500);
    let other = if beside { DOMAIN } else { "edge.example" };
    for (at, domain) in [(home, DOMAIN), (edge, other)].into_iter().take(1 + usize::from(two)) {
        let settings = ServerSettings {
            address: at,
            config: config(domain, record_route, domain == DOMAIN && passwords),
            names: vec![(DOMAIN.to_owned(), home)],
            lookups: (0, random.between(0, 400)),
            failures: if random.chance(400) { random.between(1, 400) } else { 0 },
            users: if domain == DOMAIN && passwords { USERS.to_vec() } else { Vec::new() },
            remembers: random.chance(600),
            shards: *random.pick(&[1, 1, 2, 3]),
            moves: moves(&mut random),
            chased: *random.pick(&[0, 300, 900]),
            restarts: restarts(&mut random),
        };
        let server = match hosts.first() {
            Some((_, Node::Server(first))) if beside => first.beside(START, settings, random.u64()),
            _ => ServerHost::new(START, settings, random.u64()),
        };
        hosts.push((at, Node::Server(Box::new(server))));
    }
    let mut transport = || *random.pick(&[Transport::Udp, Transport::Udp, Transport::Udp, Transport::Tcp]);
    let transports = [transport(), transport(), transport()];
    let shared = random.chance(300);
    // A phone behind a translator is reached through the server that it registers with, which stays in its calls.
    let mut translated = transports.map(|by| by == Transport::Udp && record_route && random.chance(300));
    translated[0] &= !two || beside;
    let at = |n: u8| if translated[usize::from(n)] { private(11 + n) } else { address(11 + n) };
    let mut alice = Agent::new("alice", DOMAIN, at(0), transports[0], first, random.u64());
    let mut bob = Agent::new("bob", DOMAIN, at(1), transports[1], home, random.u64());
    let carol_is = if shared { "bob" } else { "carol" };
    let mut carol = Agent::new(carol_is, DOMAIN, at(2), transports[2], home, random.u64());
    alice.plan_register(1_000, 3_600);
    bob.plan_register(1_000, 3_600);
    carol.plan_register(1_200, 3_600);
    for callee in [&mut bob, &mut carol] {
        let answers = (0..4).map(|_| match random.between(0, 9) {
            0..5 => Answer::Accept(random.between(0, 8_000)),
            5..8 => Answer::Refuse(*random.pick(&[302, 404, 486, 500, 503, 603]), random.between(0, 4_000)),
            8 => Answer::Ring,
            _ => Answer::Refuse(408, 40_000),
        });
        callee.will_answer(answers.collect());
    }
    if shared && random.chance(400) {
        // Both answer at once.
        let after = random.between(0, 8_000);
        for callee in [&mut bob, &mut carol] {
            callee.will_answer(vec![Answer::Accept(after); 4]);
        }
    }
    for _ in 0..random.between(1, 3) {
        let at = random.between(3_000, 50_000);
        let to = match random.between(0, 19) {
            0..10 => format!("sip:bob@{DOMAIN}"),
            10..16 => format!("sip:carol@{DOMAIN}"),
            16..18 => format!("sip:nobody@{DOMAIN}"),
            // Nothing is there: a datagram vanishes, a connection fails.
            18 => "sip:void@127.0.1.99:5060".to_owned(),
            _ => "sip:void@127.0.1.99:5060;transport=tcp".to_owned(),
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
    if random.chance(300) {
        bob.plan_call(random.between(3_000, 60_000), &format!("sip:alice@{DOMAIN}"), None);
    }
    let mut public = Vec::new();
    for (n, agent) in [&mut alice, &mut bob, &mut carol].into_iter().enumerate().filter(|(n, _)| translated[*n]) {
        agent.set_translated();
        let public_at = |port| SocketAddr::new(address(11 + n as u8).ip(), port);
        let mut addresses = vec![(0, public_at(PUBLIC_PORT))];
        for port in PUBLIC_PORT + 1..PUBLIC_PORT + 1 + random.between(0, 3).saturating_sub(1) as u16 {
            let moment = random.between(2_000, 80_000);
            addresses.push((moment, public_at(port)));
            agent.plan_register(moment + random.between(1, 10_000), 3_600);
        }
        public.push((agent.address(), addresses));
    }
    bob.plan_register(500_000, 0);
    let mut guesser = Agent::new("bob", DOMAIN, outside(), Transport::Udp, home, random.u64());
    guesser.set_wrong_password(random.chance(500));
    let guesses = if passwords && random.chance(200) { random.between(1, 20) } else { 0 };
    let (first, apart) = (random.between(3_000, 30_000), *random.pick(&[0, 50, 30_000]));
    for _ in 0..guesses {
        guesser.plan_register(first + random.between(0, apart), 3_600);
    }
    hosts.extend([alice, bob, carol, guesser].into_iter().map(|agent| {
        let at = agent.address();
        (at, Node::Agent(Box::new(agent)))
    }));
    let mut world = World::new(Network::new(conditions, random), hosts);
    for (private, public) in public {
        world.translate(private, public);
    }
    world
}

/// Runs the world of one seed.
///
/// # Errors
/// What did not hold, and when.
pub fn run(seed: u64) -> Result<Weather, String> {
    let mut world = world(seed);
    finish(&mut world)
}

/// As [`run`], with every message that was sent.
pub fn trace(seed: u64) -> (Result<Weather, String>, Vec<String>) {
    let mut world = world(seed);
    world.trace = Some(Vec::new());
    let result = finish(&mut world);
    (result, world.trace.unwrap_or_default())
}

fn finish(world: &mut World<Node>) -> Result<Weather, String> {
    world.run()?;
    let conditions = *world.conditions();
    let mut whole = Tally::default();
    let (mut calls_nobody, mut may_fail, mut first_restart) = (false, false, u64::MAX);
    // A request passes three hops at most, and so does its answer; a server asks three questions at most.
    let mut slowest = 6 * conditions.delay.1;
    for node in &world.hosts {
        match node {
            // It may hear nothing, once it is banned.
            Node::Agent(agent) if agent.guesses() => (),
            Node::Agent(agent) => {
                whole += agent.tally();
                calls_nobody |= agent.calls_nobody();
            }
            Node::Server(server) => {
                slowest += 3 * server.longest_look_up();
                may_fail |= server.may_fail();
                first_restart = first_restart.min(server.first_restart().unwrap_or(u64::MAX));
            }
        }
    }
    let restarts = first_restart < u64::MAX;
    let moves = world.moves_hosts();
    let is_good = conditions.is_perfect() && !restarts && !moves;
    let mut no_acks = 0;
    let is_heard = |node: &&Node| !matches!(node, Node::Agent(agent) if agent.guesses());
    for node in world.hosts.iter().filter(is_heard) {
        let counts: Vec<Counts> = node.transactions().into_iter().map(Transactions::counts).collect();
        let unacknowledged: u64 = counts.iter().map(|c| c.no_acks).sum();
        let given_up: u64 = counts.iter().map(|c| c.timeouts + c.transport_errors).sum();
        let strays: u64 = counts.iter().map(|c| c.strays).sum();
        no_acks += unacknowledged;
        // The last copy of a 2xx without ACK leaves half a second before timer M ends: held up, it comes too late.
        let too_late = conditions.reordering > 0 && whole.unacknowledged > 0;
        if strays > 0 && given_up == 0 && !restarts && !moves && !conditions.has_outage() && !too_late {
            return Err(format!("{}: a response to nothing though nothing was given up: {counts:?}", node.name()));
        }
        if is_good && (unacknowledged > 0 || given_up > 0) && !calls_nobody {
            return Err(format!("{}: something was lost in good weather: {counts:?}", node.name()));
        }
        let resent: u64 = counts.iter().map(|c| c.requests_resent).sum();
        // A callee may think before it answers an INVITE; a server answers at once.
        let is_heard_at_once = matches!(node, Node::Agent(_)) && slowest < T1;
        if is_good && is_heard_at_once && !calls_nobody && resent > 0 {
            return Err(format!("{}: a request had to be sent again in good weather: {counts:?}", node.name()));
        }
    }
    if is_good && whole.unacknowledged + whole.unanswered > 0 {
        return Err(format!("something was lost in good weather: {whole:?}"));
    }
    if is_good && whole.challenged_again > 0 {
        return Err(format!("a right password was asked for again in good weather: {whole:?}"));
    }
    // Route tokens and registrations outlive the process, however often it is killed.
    if whole.refused_in_call > 0 {
        return Err(format!("a server did not know a call again: {whole:?}"));
    }
    let agents =
        || world.hosts.iter().filter_map(|node| if let Node::Agent(agent) = node { Some(agent) } else { None });
    let is_here = |name: &&str| agents().any(|agent| agent.name() == *name);
    let missed = agents().find_map(|agent| agent.called_in_vain().find(is_here));
    if let Some(name) = missed.filter(|_| conditions.is_perfect() && !may_fail && first_restart > REGISTERED) {
        return Err(format!("{name} is registered, and was not found"));
    }
    let taken: Vec<(Vec<u8>, u64, u64)> = agents().flat_map(|agent| agent.taken()).collect();
    let is_late = |(call, rang, accepted): &&(Vec<u8>, u64, u64)| {
        taken.iter().any(|(other, _, before)| other == call && *accepted > CANCELLED + *before.max(rang))
    };
    if let Some((call, ..)) = taken.iter().find(is_late).filter(|_| is_good) {
        return Err(format!("{} was answered twice", String::from_utf8_lossy(call)));
    }
    for guesser in agents().filter(|agent| agent.guesses()) {
        let (judged, right) = guesser.judged();
        if right > 0 || (judged > FAILURES && !restarts) {
            return Err(format!("{judged} passwords of a guesser were judged, {right} were right"));
        }
    }
    let is_fair = conditions.is_fair() && !restarts && !moves;
    let fair = if is_fair { whole } else { Tally::default() };
    Ok(Weather { all: whole, fair, fair_no_acks: if is_fair { no_acks } else { 0 } })
}

/// How things went in all weathers, and in those in which hardly anything may fail for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    pub all: Tally,
    pub fair: Tally,
    /// Failures that found no ACK.
    pub fair_no_acks: u64,
}

impl Weather {
    /// What holds of many worlds together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        let Self { all, fair, fair_no_acks } = self;
        // Callers mostly call who is there; where most calls fail for another reason, the worlds show nothing of calls.
        let shows = all.success * 3 > all.calls
            && all.success > 0
            && all.failed > 0
            && all.cancelled > 0
            && all.messages > 0
            && all.acknowledged > 0
            && all.timeouts > 0
            && all.transport_errors > 0;
        if !shows {
            return Err(format!("the worlds do not hold what they are for: {all:?}"));
        }
        // Where at most a tenth is lost, a message that is sent again until it is answered fails once in thousands of times.
        match () {
            () if 100 * fair.unacknowledged > fair.acknowledged => Err(format!("2xx without ACK: {fair:?}")),
            () if 100 * fair.unanswered > fair.calls => Err(format!("requests without answer: {fair:?}")),
            () if 100 * fair_no_acks > fair.failed => Err(format!("{fair_no_acks} failures without ACK: {fair:?}")),
            () => Ok(()),
        }
    }
}

impl std::ops::AddAssign for Weather {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.fair += other.fair;
        self.fair_no_acks += other.fair_no_acks;
    }
}
