//! Parties, the server, the network between them and one clock.

use super::finals::Finals;
use super::judge::{Bridged, Story};
use super::phone::{Manners, Phone, Transfer};
use super::reach::Reach;
use super::rising::Rising;
use super::server::Server;
use super::sound::{self, sender_of};
use super::text::Facts;
use super::topology::Topology;
use super::translator::Translator;
use super::{CAROL, DOMAIN, Datagram, GATEWAYS, PARTIES, PORTS, SERVER, STRANGER, TRANSLATOR};
use crate::network::{Arriving, Conditions, Network};
use crate::random::Random;
use crate::world::START;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use strowger_core::Now;
use strowger_media::rtp::Numbering;

/// Milliseconds after which a world without an end is given up.
const LONGEST: u64 = 3_600_000;

/// Places of the phones that register, and of the phone behind the translator.
const REGISTERED: std::ops::Range<usize> = 0..4;
const BEHIND: usize = 3;

/// Places of the phones that call: Alice, a phone of Bob, Carol, and a gateway.
const CALLERS: [usize; 4] = [0, 1, BEHIND, 4];

/// Users with a place of one of their phones, for attended transfers.
const TRANSFERS: [(&str, usize); 4] = [("alice", 0), ("bob", 1), ("carol", BEHIND), ("0049", 4)];

/// Incidents of a world by time, each list with the latest first.
#[derive(Debug, Default)]
struct Incidents {
    /// Moves of buckets to other shards.
    moves: Vec<u64>,
    kills: Vec<u64>,
    /// Changes of the ports of the translator.
    ports: Vec<u64>,
    /// Packets of the outsider to every port.
    strangers: Vec<u64>,
}

/// A world of bridged calls.
pub(super) struct World {
    now: Now,
    network: Network,
    server: Server,
    phones: Vec<Phone>,
    translator: Translator,
    incidents: Incidents,
    /// Times of the kills so far.
    killed: Vec<u64>,
    /// Time of the first request in a dialog, such as an ACK, that has arrived at the server, by Call-ID.
    proven: BTreeMap<Vec<u8>, u64>,
    /// True if there are no incidents, and no packet is lost.
    is_calm: bool,
    numbering: Numbering,
    finals: Finals,
    topology: Topology,
    reach: Reach,
    rising: Rising,
    /// Packets that were heard after a kill in calls that were answered before.
    heard_on: u64,
    pub(super) trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let random = &mut random;
        let conditions = conditions(random);
        let is_quiet = random.chance(250);
        let keeps = random.chance(500);
        let incidents = if is_quiet { Incidents::default() } else { Incidents::of(random, keeps) };
        let shards = random.between(1, 3) as usize;
        let transfers = if random.chance(500) { random.between(1, 2) as u32 } else { 0 };
        let server = Server::new(START, config(random, transfers > 0, keeps), shards, Random::new(random.u64()));
        let (mut phones, mut topology) = (Vec::new(), Topology::default());
        for (place, (user, label, address)) in PARTIES.into_iter().enumerate() {
            let manners = Manners {
                is_reliable: random.chance(500),
                updates: random.chance(600),
                is_timed: random.chance(300),
                refuses: if place < REGISTERED.end { *random.pick(&[0, 100, 300]) } else { *random.pick(&[0, 500]) },
                busy: if is_quiet { 0 } else { random.between(0, 6) },
                answers_within: *random.pick(&[0, 3_000, 8_000]),
                lasts: random.between(4_000, 45_000),
            };
            phones.push(Phone::new((user, label), place as u8, address, manners, Random::new(random.u64())));
            topology.hide(place, secrets(label, address));
        }
        let calls = random.between(2, 6) as u32;
        for number in 1..=calls {
            let caller = *random.pick(&CALLERS);
            let to = match (random.between(0, 5), caller) {
                (0 | 1, 0 | 3 | 4) => "bob",
                (2, 0 | 1 | 4) => "carol",
                (3, 1 | 3 | 4) => "alice",
                (4, 4) | (5, 4) => "nobody",
                _ if caller == 4 => "bob",
                _ => "0049",
            };
            phones[caller].plan_call(START.mono + random.between(3_000, 40_000), number, to);
        }
        (0..transfers).for_each(|transfer| plan_transfer(random, &mut phones, calls + 1 + 2 * transfer));
        let is_calm = is_quiet && conditions.is_perfect();
        Self {
            now: START,
            network: Network::new(conditions, random.clone()),
            server,
            phones,
            translator: Translator::new(),
            incidents,
            killed: Vec::new(),
            proven: BTreeMap::new(),
            is_calm,
            numbering: Numbering::new(0x5452_4e47, 1, 1),
            finals: Finals::default(),
            topology,
            reach: Reach::default(),
            rising: Rising::default(),
            heard_on: 0,
            trace: None,
        }
    }

    /// Runs the world and judges it.
    ///
    /// # Errors
    /// The violated law, and the time.
    pub(super) fn judged(&mut self) -> Result<Bridged, String> {
        self.run().map_err(|error| format!("after {} ms: {error}", self.now.mono - START.mono))?;
        let at_the_end = |error: String| format!("at the end: {error}");
        self.phones.iter().try_for_each(Phone::leftovers).map_err(at_the_end)?;
        self.server.leftovers(self.now).map_err(at_the_end)?;
        self.finals.at_the_end().map_err(at_the_end)?;
        let phones = self.phones.iter().map(|phone| (&phone.calls[..], phone.acts)).collect();
        let story = Story {
            phones,
            records: &self.server.disk.records,
            continued: &self.server.disk.continued,
            heard_on: self.heard_on,
            kills: &self.killed,
            proven: &self.proven,
            has_moved_ports: self.translator.has_moved,
            is_calm: self.is_calm,
        };
        story.judge().map_err(at_the_end)
    }

    /// Runs until no work is in progress.
    fn run(&mut self) -> Result<(), String> {
        REGISTERED.for_each(|place| self.register(place, 1));
        self.flush()?;
        while let Some(next) = self.deadline() {
            let passed = next.saturating_sub(self.now.mono);
            self.now = Now { mono: self.now.mono + passed, wall: self.now.wall + passed };
            if self.now.mono > START.mono + LONGEST {
                return Err(format!("it finds no end: {:?}", self.server.leftovers(self.now)));
            }
            self.step()?;
        }
        Ok(())
    }

    fn deadline(&mut self) -> Option<u64> {
        let Incidents { moves, kills, ports, strangers } = &self.incidents;
        let incidents = [moves, kills, ports, strangers].into_iter().filter_map(|times| times.last().copied());
        let phones = self.phones.iter_mut().filter_map(Phone::deadline);
        incidents.chain(phones).chain(self.network.deadline()).chain(self.server.deadline()).min()
    }

    fn step(&mut self) -> Result<(), String> {
        self.happen();
        let now = self.now;
        if let Some(Arriving::Datagram { from, to, bytes }) = self.network.next(now.mono) {
            self.arrive(from, to, &bytes)?;
        } else {
            for place in 0..self.phones.len() {
                let mut sent = Vec::new();
                self.phones[place].wake(now, &mut sent);
                self.post(place, sent)?;
            }
            self.server.poll(now);
        }
        self.flush()?;
        self.server.check()
    }

    /// Performs the incidents that are due.
    fn happen(&mut self) {
        let now = self.now;
        let is_due = |times: &mut Vec<u64>| times.pop_if(|at| *at <= now.mono).is_some();
        if is_due(&mut self.incidents.moves) {
            self.server.move_buckets(now);
        }
        if is_due(&mut self.incidents.kills) {
            self.note("the process is killed");
            self.killed.push(now.mono);
            if self.server.start(now) {
                self.reach.restarted();
            }
            self.finals.restarted();
        }
        if is_due(&mut self.incidents.ports) {
            self.translator.change_ports();
            // CSeq rises from one REGISTER to the next.
            self.register(BEHIND, 9 - self.incidents.ports.len() as u32);
        }
        if is_due(&mut self.incidents.strangers) {
            for port in PORTS.0..=PORTS.1 {
                let bytes = sound::packet(&mut self.numbering, sound::STRANGER);
                let to = SocketAddr::new(SERVER.ip(), port);
                self.network.send(now.mono, STRANGER, to, &bytes, true);
            }
        }
    }

    /// Registers a phone by a datagram that is not lost.
    fn register(&mut self, place: usize, number: u32) {
        let (text, from) = (self.phones[place].register(number), self.translator.outward(self.phones[place].address));
        let arriving = Arriving::Datagram { from, to: SERVER, bytes: text.into_bytes() };
        self.network.put(self.now.mono + 1, arriving);
    }

    /// Delivers a datagram.
    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Result<(), String> {
        if to.ip() == SERVER.ip() {
            if to == SERVER {
                let facts = Facts::read(bytes)?;
                self.finals.arrived(&facts);
                if facts.status.is_none() && !facts.to_tag.is_empty() {
                    self.proven.entry(facts.call_id).or_insert(self.now.mono);
                }
            }
            self.server.receive(self.now, from, to.port(), bytes);
            return Ok(());
        }
        let to = self.translator.inward(to);
        let Some(place) = self.phones.iter().position(|phone| phone.address.ip() == to.ip()) else { return Ok(()) };
        if to == self.phones[place].address {
            let mut sent = Vec::new();
            self.phones[place].receive(self.now, bytes, &mut sent);
            return self.post(place, sent);
        }
        self.hear(place, to.port(), bytes)
    }

    /// Takes a packet that arrives at a phone: it must come from the other party of the call.
    fn hear(&mut self, place: usize, port: u16, bytes: &[u8]) -> Result<(), String> {
        let (Some(sender), Some(at)) = (sender_of(bytes), self.phones[place].call_of_port(port)) else { return Ok(()) };
        let label = self.phones[place].label;
        if sender == sound::STRANGER {
            return Err(format!("{label} hears the stranger"));
        }
        let (sender, number) = (usize::from(sender), self.phones[place].calls[at].number);
        let is_party = self.phones[sender].calls.iter().any(|call| call.number == number);
        // After a kill, a phone that has not noticed the end of its call may send to a port that now serves another call.
        if sender == place || !is_party && self.killed.is_empty() {
            return Err(format!("{label} hears {} in call {number}", self.phones[sender].label));
        }
        let call = &mut self.phones[place].calls[at];
        call.heard[sender] += 1;
        let is_older = |kill: &u64| call.answered.is_some_and(|answered| answered < *kill);
        self.heard_on += u64::from(is_party && self.killed.last().is_some_and(is_older));
        Ok(())
    }

    /// Sends the datagrams of a phone.
    fn post(&mut self, place: usize, sent: Vec<Datagram>) -> Result<(), String> {
        for Datagram { from, to, bytes } in sent {
            let source = self.translator.outward(from);
            if to.ip() != SERVER.ip() {
                return Err(format!("{} was told of {to}", self.phones[place].label));
            }
            if from == self.phones[place].address {
                self.note_message(source, to, &bytes);
                let facts = Facts::read(&bytes)?;
                self.topology.learn_of_party(&facts);
                self.reach.described(place, &facts);
            } else if let Some(at) = self.phones[place].call_of_port(from.port()) {
                self.reach.came_from(source, place, &self.phones[place].calls[at].call_id);
            }
            self.network.send(self.now.mono, source, to, &bytes, true);
        }
        Ok(())
    }

    /// Sends the datagrams of the server.
    fn flush(&mut self) -> Result<(), String> {
        for Datagram { from, to, bytes } in self.server.take_sent() {
            if from == SERVER {
                self.note_message(from, to, &bytes);
                self.check_message(to, &bytes)
                    .map_err(|error| format!("{error}: to {to}\n{}", String::from_utf8_lossy(&bytes)))?;
            } else {
                self.reach.sent(from.port(), to)?;
            }
            self.network.send(self.now.mono, from, to, &bytes, true);
        }
        Ok(())
    }

    /// Checks a SIP message of the server.
    fn check_message(&mut self, to: SocketAddr, bytes: &[u8]) -> Result<(), String> {
        let facts = Facts::read(bytes)?;
        let place = PARTIES.iter().position(|(.., address)| public(*address) == to.ip());
        let Some(place) = place else { return Err("a message to nobody".to_owned()) };
        self.finals.sent(&facts)?;
        self.topology.sent(place, &facts, bytes)?;
        self.rising.sent(&facts)?;
        self.reach.shown(place, &facts)
    }

    fn note_message(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.trace.is_some() {
            self.note(&format!("{from} -> {to}\n{}", String::from_utf8_lossy(bytes)));
        }
    }

    fn note(&mut self, what: &str) {
        let at = self.now.mono - START.mono;
        self.trace.iter_mut().for_each(|trace| trace.push(format!("{at} {what}")));
    }
}

impl Incidents {
    /// Chooses incidents. `keeps`: whether calls outlive a kill.
    fn of(random: &mut Random, keeps: bool) -> Self {
        let mut times = |often: u64, most: u64| {
            let count = if random.chance(often) { random.between(1, most) } else { 0 };
            let mut times: Vec<u64> = (0..count).map(|_| START.mono + random.between(4_000, 70_000)).collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            times
        };
        Self {
            moves: times(600, 6),
            kills: times(if keeps { 350 } else { 150 }, 2),
            ports: times(300, 2),
            strangers: times(600, 4),
        }
    }
}

/// Plans two calls of one phone, the first of which has this number, and an attended transfer between them.
fn plan_transfer(random: &mut Random, phones: &mut [Phone], first: u32) {
    let turn = random.between(0, 3) as usize;
    let (one, other) = *random.pick(&[(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]);
    let [(own, phone), (referred, _), (user, target)] = [0, one, other].map(|step| TRANSFERS[(turn + step) % 4]);
    let begins = START.mono + random.between(3_000, 30_000);
    phones[phone].plan_call(begins, first, referred);
    let (second, at) = (first + 1, begins + random.between(0, 4_000));
    // The transferor may be the caller or the callee of the second call.
    match random.chance(700) {
        true => phones[phone].plan_call(at, second, user),
        false => phones[target].plan_call(at, second, own),
    }
    let transfer = Transfer { numbers: [first, second], user, until: at + 40_000 };
    phones[phone].plan_transfer(at + random.between(500, 9_000), transfer);
}

/// Returns the public address of a party.
fn public(address: SocketAddr) -> IpAddr {
    if address == CAROL { TRANSLATOR.ip() } else { address.ip() }
}

/// Returns the texts of a party that no other party may see.
fn secrets(label: &str, address: SocketAddr) -> Vec<String> {
    vec![label.to_owned(), address.ip().to_string(), public(address).to_string()]
}

/// Returns a network that loses up to a fifth of all datagrams: a request that is retransmitted always arrives.
fn conditions(random: &mut Random) -> Conditions {
    if random.chance(300) {
        return Conditions { delay: (1, random.between(1, 60)), ..Conditions::PERFECT };
    }
    let share = |random: &mut Random| if random.chance(500) { random.between(1, 200) } else { 0 };
    let (loss, doubling, reordering) = (share(random), share(random), share(random));
    Conditions { loss, doubling, reordering, delay: (1, random.between(1, 60)), outage: (0, 0) }
}

/// Returns the configuration of the server.
fn config(random: &mut Random, has_transfers: bool, keeps: bool) -> String {
    let kept = if keeps { "dialogs.folder = \"calls\"\nauth.secret = \"the secret of these worlds\"\n" } else { "" };
    let fork = random.pick(&["parallel", "sequence"]);
    let timeout = random.pick(&["never", "20s", "60s"]);
    let session = random.pick(&["", "", "dialogs.session_expires = \"90s\"\n"]);
    let codecs = random.pick(&["", "codecs = [\"PCMA\", \"telephone-event\"]\n"]);
    let most = if has_transfers { &50 } else { random.pick(&[1, 2, 50, 50]) };
    let refer = random.pick(&["refer_from = \"everyone\"\n", "refer_from = \"everyone\"\n", ""]);
    let next = random.pick(&["try_next = [500, 503]\n", ""]);
    let [first, second] = GATEWAYS;
    format!(
        "listen = [\"udp:{SERVER}\"]\ndomains = [\"{DOMAIN}\"]\nregistrar.authenticate = false\nregistrar.durability = \"none\"\n\
         auth.calls = false\nstore.database = \"memory\"\naccounting.cdr = true\nproxy.relay_for = \"everyone\"\nproxy.fork = \"{fork}\"\n\
         proxy.fork_timeout = \"15s\"\nnat.ping_interval = \"never\"\nlog.calls_per_minute = 0\ndialogs.lifetime = \"600s\"\n{kept}{session}\
         media.addresses = [\"{}\"]\nmedia.ports = \"{}-{}\"\nmedia.timeout = \"{timeout}\"\n\
         [[call_limit]]\nname = \"all\"\nmost = {most}\nstatus = 486\n\
         [[rule]]\nname = \"out\"\nwhen = \"request.user == '0049'\"\nto = [\"sip:{first}\", \"sip:{second}\"]\n{next}\
         b2bua = true\n{refer}{codecs}call_limits = [\"all\"]\n\
         [[rule]]\nname = \"home\"\nb2bua = true\n{refer}{codecs}call_limits = [\"all\"]\n",
        SERVER.ip(),
        PORTS.0,
        PORTS.1,
    )
}
