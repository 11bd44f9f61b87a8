//! Cost of a decision among 1,000 random rules of the kinds that operators write, and 100,000 prefixes: `bench_rules
//! [--rules N] [--prefixes N]`.
//!
//! First on prepared facts, with the index and without it: medians of rounds in nanoseconds per decision, for the first
//! rule that matches and for all of them, and the bytes per prefix. Then in the engine of a server: the additional cost
//! of an INVITE with the rules, which includes the extraction of the facts from the message. Exit code 1 if an indexed
//! decision, or the difference, exceeds its limit.

use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Output, run};
use strowger_benches::engine_alone::{self, BEGIN, address};
use strowger_benches::median;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_rules::{
    AddressField, Condition, Facts, FlagField, LookupKind, NumberField, Rule, Rules, Set, SetNames, Sets, TextField,
};
use strowger_server::engine::Engine;
use strowger_tests::random::Random;

/// Allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Cost of a decision by rules
#[derive(clap::Parser)]
struct Arguments {
    /// Rules that are asked
    #[arg(long, value_name = "N", default_value = "1000")]
    rules: usize,
    /// Prefixes that they look numbers up among
    #[arg(long, value_name = "N", default_value = "100000")]
    prefixes: usize,
    #[command(flatten)]
    output: Output,
}

const REQUESTS: usize = 1_000;
const ROUNDS: usize = 41;
/// Nanoseconds of a decision among 1,000 rules and 100,000 prefixes.
const LIMIT: f64 = 2_000.0;

/// Data for the rules, from one seed, so the same in each run.
struct Data {
    /// Carriers by prefix.
    rates: BTreeMap<String, String>,
    /// Plans by user.
    users: Vec<(String, String)>,
    offices: Vec<String>,
    conditions: Vec<String>,
    requests: Vec<Request>,
}

impl Data {
    fn new(rules: usize, prefixes: usize) -> Self {
        let mut random = Random::new(4711);
        let rates =
            (0..prefixes).map(|_| (digits(&mut random, 5, 9), format!("carrier-{}", random.below(50)))).collect();
        Self {
            rates,
            users: (0..10_000).map(|n| (format!("user{n}"), format!("plan-{}", n % 7))).collect(),
            offices: (0..200).map(|n| format!("10.{n}.0.0/16")).collect(),
            conditions: (0..rules).map(|_| condition(&mut random)).collect(),
            requests: (0..REQUESTS).map(|_| Request::new(&mut random)).collect(),
        }
    }
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let data = Data::new(arguments.rules, arguments.prefixes);
    let mut bars = over_ready_facts(&data, arguments.output)?;
    bars.extend(in_the_engine(&data, arguments.output)?);
    Ok(arguments.output.judge(&bars, &json!({"rules": data.conditions.len(), "prefixes": data.rates.len()})))
}

fn over_ready_facts(data: &Data, output: Output) -> Result<Vec<Bar>, String> {
    let mut names = SetNames::default();
    let mut name = |name: &str, kind| names.add(name, kind).map_err(|fault| format!("{fault:?}"));
    let rates = name("rates", LookupKind::Prefixes)?;
    let users = name("users", LookupKind::Texts)?;
    let offices = name("offices", LookupKind::Networks)?;
    let mut sets = Sets::empty(&names);
    let some = |(key, value): (&String, &String)| (key.clone(), Some(value.clone()));
    let began = Instant::now();
    for (id, kind, entries) in [
        (rates, LookupKind::Prefixes, data.rates.iter().map(some).collect::<Vec<_>>()),
        (users, LookupKind::Texts, data.users.iter().map(|(key, value)| some((key, value))).collect()),
        (offices, LookupKind::Networks, data.offices.iter().map(|key| (key.clone(), None)).collect()),
    ] {
        let set = Set::new(kind, entries).map_err(|fault| format!("{fault:?}"))?;
        output.say(&format!("{} {kind:?}: {:.1} bytes each", set.len(), set.memory() as f64 / set.len() as f64));
        sets = sets.with(id, Arc::new(set)).map_err(|fault| format!("{fault:?}"))?;
    }
    output.say(&format!("sets built in {:.0} ms", began.elapsed().as_secs_f64() * 1e3));
    let began = Instant::now();
    let compiled = data.conditions.iter().enumerate().map(|(n, text)| {
        let condition = Condition::compile(text, &names).map_err(|fault| fault.shown(text).to_string())?;
        Ok(Rule { name: format!("rule-{n}").into(), condition, action: n })
    });
    let rules = Rules::new(compiled.collect::<Result<Vec<_>, String>>()?);
    output.say(&format!(
        "{} rules: compiled in {:.0} ms, {} questions in the index",
        rules.len(),
        began.elapsed().as_secs_f64() * 1e3,
        rules.questions()
    ));
    Ok(judged(&rules, &data.requests, &sets, output))
}

/// Evaluates the rules on the requests both ways, round by round.
fn judged(rules: &Rules<usize>, requests: &[Request], sets: &Sets, output: Output) -> Vec<Bar> {
    let mut matching = 0;
    for request in requests {
        let (mut indexed, mut plain) = (Vec::new(), Vec::new());
        all(|visit| rules.walk(request, sets, visit), |place| indexed.push(place));
        all(|visit| rules.walk_each(request, sets, visit), |place| plain.push(place));
        assert_eq!(indexed, plain, "the index changes nothing");
        matching += plain.len();
    }
    output.say(&format!("a request matches {:.1} rules", matching as f64 / requests.len() as f64));
    type Way<'a> = (&'a str, &'a dyn Fn(&Request) -> usize);
    let ways: [Way<'_>; 4] = [
        ("first that matches, indexed", &|request| rules.first(request, sets).map_or(0, |rule| rule.action)),
        ("first that matches, each", &|request| {
            rules.walk_each(request, sets, |_, rule| ControlFlow::Break(rule.action)).break_value().unwrap_or(0)
        }),
        ("all that match, indexed", &|request| {
            let mut count = 0;
            all(|visit| rules.walk(request, sets, visit), |_| count += 1);
            count
        }),
        ("all that match, each", &|request| {
            let mut count = 0;
            all(|visit| rules.walk_each(request, sets, visit), |_| count += 1);
            count
        }),
    ];
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            let began = Instant::now();
            black_box(requests.iter().map(|request| way(black_box(request))).sum::<usize>());
            times.push(began.elapsed().as_secs_f64() * 1e9 / requests.len() as f64);
        }
    }
    let mut bars = Vec::new();
    for ((name, _), mut times) in ways.iter().zip(times) {
        times.sort_unstable_by(f64::total_cmp);
        let middle = times[ROUNDS / 2];
        output.say(&format!("{name:<28} {middle:>8.0} ns (from {:.0} to {:.0})", times[0], times[ROUNDS - 1]));
        if name.ends_with("indexed") {
            bars.push(Bar::most(&format!("ns, {name}"), middle, LIMIT));
        }
    }
    bars
}

const CALLEE: &str = "127.0.0.1:5080";

/// INVITEs in a round of the engine.
const INVITES: usize = 4_000;
/// Milliseconds of simulated time between two INVITEs: the longest timer of one has 32 s.
const BETWEEN: u64 = 8;

/// Returns the configuration of a relay that follows the Route of a request, and whose rules let all requests pass.
fn configuration(data: &Data, has_rules: bool) -> String {
    let mut text = String::from(
        "listen = [\"udp:127.0.0.1:5060\"]\ndomains = []\nserver.shards = 1\nproxy.relay_for = \"everyone\"\n\
         proxy.record_route = true\nregistrar.durability = \"none\"\nstore.database = \"memory\"\nban.enabled = false\n",
    );
    for n in 0..45 {
        let _ = write!(text, "[[source]]\nname = \"group-{n}\"\nnetworks = [\"10.{n}.0.0/16\"]\n");
    }
    for (name, kind) in [("rates", "prefixes"), ("users", "texts"), ("offices", "networks")] {
        let _ = write!(text, "[[set]]\nname = \"{name}\"\nkind = \"{kind}\"\nfile = \"{name}.csv\"\n");
        text += if name == "offices" { "" } else { "value = \"value\"\n" };
    }
    for (n, condition) in data.conditions.iter().enumerate().filter(|_| has_rules) {
        let _ = write!(text, "[[rule]]\nname = \"rule-{n}\"\nwhen = {condition:?}\nrecord_route = true\n");
    }
    text
}

/// Writes the files of the sets.
fn write_sets(data: &Data, folder: &Path) -> std::io::Result<()> {
    let lines = |entries: &mut dyn Iterator<Item = (&String, &String)>| {
        entries.fold(String::from("key,value\n"), |text, (key, value)| text + key + "," + value + "\n")
    };
    std::fs::write(folder.join("rates.csv"), lines(&mut data.rates.iter()))?;
    std::fs::write(folder.join("users.csv"), lines(&mut data.users.iter().map(|(key, value)| (key, value))))?;
    std::fs::write(folder.join("offices.csv"), format!("key\n{}\n", data.offices.join("\n")))
}

/// A server, and its number of calls.
struct Server {
    engine: Engine,
    now: Now,
    out: Outbox,
    calls: usize,
}

impl Server {
    fn receive(&mut self, from: SocketAddr, message: &str) {
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: from, flow: None };
        self.out.clear();
        self.engine.receive(self.now, &arrival, message.as_bytes(), &mut self.out);
        self.engine.effects.clear();
    }

    /// Runs INVITEs that the callee refuses; returns the nanoseconds per INVITE.
    fn round(&mut self, requests: &[Request]) -> Result<f64, String> {
        let mut time = Duration::ZERO;
        for _ in 0..INVITES {
            (self.now.mono, self.now.wall) = (self.now.mono + BETWEEN, self.now.wall + BETWEEN);
            self.out.clear();
            if self.engine.deadline().is_some_and(|at| at <= self.now.mono) {
                self.engine.poll(self.now, &mut self.out);
            }
            let request = &requests[self.calls % requests.len()];
            self.calls += 1;
            let (from, invite) = (SocketAddr::new(request.address, 5060), request.invite(self.calls));
            let began = Instant::now();
            self.receive(from, &invite);
            time += began.elapsed();
            let sent = self.out.sends().iter().find(|send| send.target.address == address(CALLEE));
            let passed = sent.map(|send| String::from_utf8_lossy(&self.out.bytes[send.range()]).into_owned());
            let passed = passed.ok_or_else(|| format!("not passed on: {invite}"))?;
            self.receive(address(CALLEE), &refusal(&passed));
            self.receive(from, &invite.replace("INVITE", "ACK"));
        }
        Ok(time.as_secs_f64() * 1e9 / INVITES as f64)
    }
}

/// Returns the answer of the callee.
fn refusal(request: &str) -> String {
    let copied = |line: &&str| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
    let tagged = |line: &str| if line.starts_with("To:") { format!("{line};tag=b\r\n") } else { format!("{line}\r\n") };
    let lines: String = request.split("\r\n").filter(copied).map(tagged).collect();
    format!("SIP/2.0 486 Busy Here\r\n{lines}Content-Length: 0\r\n\r\n")
}

fn in_the_engine(data: &Data, output: Output) -> Result<Vec<Bar>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    write_sets(data, folder.path()).map_err(|error| error.to_string())?;
    let start = |has_rules| {
        let engine = engine_alone::engine(&configuration(data, has_rules), folder.path())?;
        Ok::<_, String>(Server { engine, now: BEGIN, out: Outbox::new(), calls: 0 })
    };
    let (mut with, mut without) = (start(true)?, start(false)?);
    // The state of the engine is steady after that.
    for _ in 0..2 {
        with.round(&data.requests)?;
        without.round(&data.requests)?;
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push([without.round(&data.requests)?, with.round(&data.requests)?]);
    }
    let middle = |of: &dyn Fn(&[f64; 2]) -> f64| median(rounds.iter().map(of).collect());
    let more = middle(&|[without, with]| with - without);
    output.say(&format!(
        "an INVITE in the engine       {:>8.0} ns with rules, {:.0} ns without",
        middle(&|round| round[1]),
        middle(&|round| round[0])
    ));
    Ok(vec![Bar::most("ns, an INVITE with rules more than without", more, LIMIT)])
}

fn main() -> ExitCode {
    run(measure)
}

/// Visits all rules that match.
fn all(
    walk: impl FnOnce(&mut dyn FnMut(usize, &Rule<usize>) -> ControlFlow<()>) -> ControlFlow<()>,
    mut visit: impl FnMut(usize),
) {
    let walked = walk(&mut |place, _| {
        visit(place);
        ControlFlow::Continue(())
    });
    assert!(walked.is_continue());
}

/// Returns a condition as operators write them.
fn condition(random: &mut Random) -> String {
    let mut tests: Vec<String> = Vec::new();
    tests.push(match random.below(10) {
        0..6 => "method == 'INVITE'".into(),
        6 => "method == 'REGISTER'".into(),
        7 => "method in ['INVITE', 'MESSAGE']".into(),
        8 => "method == 'SUBSCRIBE' or method == 'PUBLISH'".into(),
        _ => "not in_dialog".into(),
    });
    if tests[0].contains(" or ") {
        tests[0] = format!("({})", tests[0]);
    }
    tests.push(match random.below(16) {
        0..3 => format!("number starts_with '{}'", digits(random, 2, 6)),
        3..5 => format!("number matches '^(\\+|00){}[0-9]*$'", digits(random, 2, 4)),
        5..7 => format!("rates[number] == 'carrier-{}'", random.below(50)),
        7..9 => format!("source.group == 'group-{}'", random.below(40)),
        9 => format!("request.domain == 'domain-{}.example'", random.below(30)),
        10 => format!("user == 'user{}'", random.below(10_000)),
        11 => format!("users[user] == 'plan-{}'", random.below(7)),
        12 => format!("source.address in 10.{}.0.0/16", random.below(250)),
        13 => format!("number in ['{}', '{}']", digits(random, 3, 5), digits(random, 3, 5)),
        14 => format!("from.user starts_with 'user{}'", random.below(100)),
        _ => format!("header.User-Agent matches 'phone-{}'", random.below(30)),
    });
    match random.below(10) {
        0 => tests.push(format!("source.group != 'group-{}'", random.below(40))),
        1 => tests.push("source.address not in offices".into()),
        2 => tests.push("authenticated".into()),
        3 => tests.push("not request.local".into()),
        4 => tests.push(format!("transport in ['{}', 'ws']", if random.below(2) == 0 { "udp" } else { "tls" })),
        5 => tests.push("size < 8KiB".into()),
        6 => tests.push(format!("source.group == 'group-{}'", random.below(40))),
        _ => (),
    }
    tests.join(" and ")
}

struct Request {
    method: &'static str,
    transport: &'static str,
    number: String,
    group: String,
    domain: String,
    user: String,
    agent: String,
    address: IpAddr,
    size: u64,
    flags: u64,
}

impl Request {
    fn new(random: &mut Random) -> Self {
        let trunk = ["", "", "+", "00"][random.below(4)];
        Self {
            method: ["INVITE", "INVITE", "INVITE", "REGISTER", "MESSAGE", "BYE"][random.below(6)],
            transport: ["UDP", "TCP", "TLS", "WSS"][random.below(4)],
            number: format!("{trunk}{}", digits(random, 9, 14)),
            group: format!("group-{}", random.below(45)),
            domain: format!("Domain-{}.example", random.below(40)),
            user: format!("user{}", random.below(12_000)),
            agent: format!("phone-{} 1.{}", random.below(40), random.below(10)),
            address: IpAddr::from([10, random.below(256) as u8, 3, 4]),
            size: 300 + random.below(3_000) as u64,
            flags: random.number(),
        }
    }
}

impl Request {
    /// Returns the request as an INVITE, whatever its method.
    fn invite(&self, number: usize) -> String {
        let Self { number: called, domain, user, agent, address, .. } = self;
        format!(
            "INVITE sip:{called}@{domain} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKi{number}\r\nMax-Forwards: 70\r\n\
             Route: <sip:{CALLEE};lr>\r\nFrom: <sip:{user}@{domain}>;tag=c{number}\r\nTo: <sip:{called}@{domain}>\r\n\
             Call-ID: {number}@{address}\r\nCSeq: 1 INVITE\r\nContact: <sip:{user}@{address}>\r\nUser-Agent: {agent}\r\n\
             Content-Length: 0\r\n\r\n"
        )
    }
}

impl Facts for Request {
    fn text(&self, field: TextField) -> Option<&[u8]> {
        let text = match field {
            TextField::Method => self.method,
            TextField::Transport => self.transport,
            TextField::Number | TextField::RequestUser => &self.number,
            TextField::SourceGroup => &self.group,
            TextField::RequestDomain => &self.domain,
            TextField::User | TextField::FromUser => &self.user,
            _ => return None,
        };
        Some(text.as_bytes())
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        (name == "user-agent").then_some(self.agent.as_bytes())
    }

    fn number(&self, field: NumberField) -> Option<u64> {
        (field == NumberField::Size).then_some(self.size)
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        match field {
            AddressField::SourceAddress => Some(self.address),
        }
    }

    fn flag(&self, field: FlagField) -> bool {
        self.flags >> (field as u64) & 1 == 1
    }
}

/// Returns a number of `shortest` to `longest` digits, without a leading zero.
fn digits(random: &mut Random, shortest: usize, longest: usize) -> String {
    let length = shortest + random.below(longest - shortest + 1);
    (0..length).map(|n| char::from(b'0' + if n == 0 { 1 + random.below(9) } else { random.below(10) } as u8)).collect()
}
