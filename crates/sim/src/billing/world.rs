//! Parties, the server, the network between them and one clock.

use super::honest::{Honest, Manners, SessionNote};
use super::hostile::{Habits, Hostile};
use super::law::{Money, Story};
use super::ledger::TRY;
use super::server::Server;
use super::text::Received;
use super::{BOBS, DOMAIN, GATEWAY, MALLORYS, MOST_CALLS, Outgoing, SERVER};
use crate::network::{Arriving, Conditions, Network};
use crate::random::Random;
use crate::world::START;
use std::net::SocketAddr;
use strowger_core::Now;

/// A world of billing.
pub(super) struct World {
    now: Now,
    network: Network,
    server: Server,
    honest: Vec<Honest>,
    hostile: Hostile,
    /// Times at which the process is killed, the latest first.
    kills: Vec<u64>,
    /// Milliseconds from the next 2xx to a BYE to a kill.
    kill_after_bye: Option<u64>,
    /// Longest delay of the network, and whether it loses datagrams.
    pub(super) delay: u64,
    pub(super) loses: bool,
    pub(super) trace: Option<Vec<String>>,
}

/// Milliseconds after which a world without an end is given up.
const LONGEST: u64 = 3_600_000;

/// Milliseconds after which the server ends any call.
const LIFETIME: u64 = 900_000;

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let conditions = conditions(random);
        let (kills, kill_after_bye) = kills(random);
        let keeps = !kills.is_empty() || kill_after_bye.is_some() || random.chance(300);
        let server = Server::new(START, config(random, keeps), Random::new(random.u64()));
        let mut honest = Vec::new();
        for (name, address) in [("0049", GATEWAY), ("bob", BOBS[0]), ("bob", BOBS[1])] {
            let manners = Manners {
                revives: random.chance(500),
                overload: *random.pick(&[0, 100, 400]),
                answers_within: random.between(0, 5_000),
                lasts: random.between(5_000, 120_000),
                session: *random.pick(&[0, 0, 90, 120]),
            };
            honest.push(Honest::new(name, address, manners, Random::new(random.u64())));
        }
        if random.chance(400) {
            honest.pop();
        }
        for _ in 0..random.between(0, 3) {
            let to = random.pick(&["mallory", "mallory", "0049"]);
            let at = random.between(2_500, 50_000);
            honest[1].plan_call(at, &format!("sip:{to}@{DOMAIN}"));
        }
        let habits = Habits {
            acknowledges: *random.pick(&[0, 500, 1_000, 1_000]),
            answers: *random.pick(&[0, 800, 1_000]),
            is_right: *random.pick(&[0, 500, 1_000]),
            forges: *random.pick(&[0, 100, 400]),
        };
        let callees = ["0049", "0049", "bob", "0049"].map(|user| format!("sip:{user}@{DOMAIN}")).to_vec();
        let until = random.between(20_000, 70_000);
        let hostile = Hostile::new(habits, callees, until, Random::new(random.u64()));
        let network = Network::new(conditions, random.clone());
        let (delay, loses) = (conditions.delay.1, !conditions.is_perfect());
        Self { now: START, network, server, honest, hostile, kills, kill_after_bye, delay, loses, trace: None }
    }

    /// Runs until no work is in progress.
    ///
    /// # Errors
    /// A world without an end, or a persisted call that is lost.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        self.register(&mut out);
        self.post(out);
        while let Some(next) = self.deadline() {
            let passed = next.saturating_sub(self.now.mono);
            self.now = Now { mono: self.now.mono + passed, wall: self.now.wall + passed };
            if self.now.mono > START.mono + LONGEST {
                return Err(format!("it finds no end: {next} {:?}", self.server.leftovers()));
            }
            self.step()?;
        }
        self.server.leftovers()
    }

    fn deadline(&mut self) -> Option<u64> {
        let parties = self.honest.iter().filter_map(Honest::deadline).chain(self.hostile.deadline());
        let kill = self.kills.last().copied();
        parties.chain(self.network.deadline()).chain(self.server.deadline()).chain(kill).min()
    }

    fn step(&mut self) -> Result<(), String> {
        let now = self.now;
        if self.kills.pop_if(|at| *at <= now.mono).is_some() {
            self.note("the process is killed");
            let sent = self.server.kill(now)?;
            self.deliver(sent);
        }
        if let Some(Arriving::Datagram { from, to, bytes }) = self.network.next(now.mono) {
            if to == SERVER {
                let sent = self.server.receive(now, from, &bytes);
                self.deliver(sent);
            } else {
                self.arrive(to, &Received::read(&bytes));
            }
            return Ok(());
        }
        let mut out = Vec::new();
        self.honest.iter_mut().for_each(|party| party.wake(now.mono, &mut out));
        self.hostile.wake(now.mono, &mut out);
        self.post(out);
        let sent = self.server.poll(now);
        self.deliver(sent);
        Ok(())
    }

    /// Delivers a datagram to a party.
    fn arrive(&mut self, to: SocketAddr, said: &Received) {
        let mut out = Vec::new();
        match self.honest.iter_mut().find(|party| party.address == to) {
            Some(party) => party.receive(self.now.mono, said, &mut out),
            None => self.hostile.receive(self.now.mono, to, said, &mut out),
        }
        self.post(out);
    }

    /// Sends datagrams of parties to the server.
    fn post(&mut self, out: Vec<Outgoing>) {
        for (from, text) in out {
            self.note(&format!("{from} -> {SERVER}\n{text}"));
            self.network.send(self.now.mono, from, SERVER, text.as_bytes(), true);
        }
    }

    /// Sends datagrams of the server to parties.
    fn deliver(&mut self, sent: Vec<(SocketAddr, Vec<u8>)>) {
        for (to, bytes) in sent {
            self.note(&format!("{SERVER} -> {to}\n{}", String::from_utf8_lossy(&bytes)));
            if bytes.starts_with(b"SIP/2.0 2")
                && Received::read(&bytes).method() == "BYE"
                && let Some(after) = self.kill_after_bye.take()
            {
                self.kills.insert(0, self.now.mono + after);
                self.kills.sort_unstable_by(|a, b| b.cmp(a));
            }
            let exists = MALLORYS.contains(&to) || self.honest.iter().any(|party| party.address == to);
            self.network.send(self.now.mono, SERVER, to, &bytes, exists);
        }
    }

    fn note(&mut self, what: &str) {
        let at = self.now.mono - START.mono;
        self.trace.iter_mut().for_each(|trace| trace.push(format!("{at} {what}")));
    }

    /// Registers Bob's phones.
    fn register(&self, out: &mut Vec<Outgoing>) {
        for (n, address) in self.honest.iter().map(|party| party.address).enumerate().skip(1) {
            out.push((
                address,
                format!(
                    "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKreg{n};rport\r\nMax-Forwards: 70\r\n\
                     From: <sip:bob@{DOMAIN}>;tag=reg{n}\r\nTo: <sip:bob@{DOMAIN}>\r\nCall-ID: reg{n}\r\nCSeq: 1 REGISTER\r\n\
                     Contact: <sip:bob@{address}>\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n"
                ),
            ));
        }
    }

    /// Compares the records of the server with the notes of the honest parties.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn judge(&self) -> Result<Money, String> {
        let notes: Vec<&SessionNote> = self.honest.iter().flat_map(|party| &party.notes).collect();
        let (ledger, passed) = (&self.server.ledger, &self.server.passed);
        let story = Story { notes, ledger, passed, loses: self.loses, delay: self.delay, lifetime: LIFETIME };
        let mut money = story.judge()?;
        money.acts = self.hostile.acts.iter().map(|(act, count)| (*act, *count)).collect();
        Ok(money)
    }
}

/// Returns a network that loses up to a fifth of all datagrams: a request that is retransmitted always arrives.
fn conditions(random: &mut Random) -> Conditions {
    if random.chance(400) {
        return Conditions { delay: (1, random.between(1, 60)), ..Conditions::PERFECT };
    }
    let share = |random: &mut Random| if random.chance(500) { random.between(1, 200) } else { 0 };
    let (loss, doubling, reordering) = (share(random), share(random), share(random));
    Conditions { loss, doubling, reordering, delay: (1, random.between(1, 60)), outage: (0, 0) }
}

/// Returns the times at which the process is killed, and the delay of a kill after a 2xx to a BYE.
fn kills(random: &mut Random) -> (Vec<u64>, Option<u64>) {
    let count = if random.chance(250) { random.between(1, 2) } else { 0 };
    let mut kills: Vec<u64> = (0..count).map(|_| random.between(5_000, 80_000)).collect();
    kills.sort_unstable_by(|a, b| b.cmp(a));
    (kills, random.chance(150).then(|| random.between(0, 150)))
}

/// Returns the configuration of the server.
fn config(random: &mut Random, keeps: bool) -> String {
    let kept = if keeps { "dialogs.folder = \"calls\"\nauth.secret = \"the secret of these worlds\"\n" } else { "" };
    let session = random.pick(&["", "", "dialogs.session_expires = \"90s\"\n"]);
    let fork = random.pick(&["parallel", "sequence"]);
    format!(
        "listen = [\"udp:{SERVER}\"]\ndomains = [\"{DOMAIN}\"]\nregistrar.authenticate = false\nauth.calls = true\n\
         auth.algorithms = [\"MD5\"]\n\
         accounting.cdr = true\naccounting.events = true\naccounting.fields = [\"{TRY}\", \"From\"]\nproxy.fork = \"{fork}\"\n\
         nat.ping_interval = \"never\"\nlog.calls_per_minute = 0\ndialogs.lifetime = \"{}s\"\n{kept}{session}\
         [[call_limit]]\nname = \"line\"\nper = \"user\"\nmost = {MOST_CALLS}\nstatus = 486\n\
         [[rule]]\nname = \"out\"\nwhen = \"request.user == '0049'\"\nto = [\"sip:{GATEWAY}\"]\ncall_limits = [\"line\"]\n\
         [[rule]]\nname = \"home\"\ncall_limits = [\"line\"]\n",
        LIFETIME / 1_000
    )
}
