//! What a decision costs: 1,000 random rules of the kinds that operators write, 100,000 prefixes, with the index and without it.
//!
//! `decide [RULES [PREFIXES]]` prints the median of rounds in nanoseconds a decision, for the first rule that matches and for all of them,
//! and the bytes that a prefix takes. It ends with 1 where an indexed decision takes longer than [`LIMIT`].

use std::hint::black_box;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_rules::{
    AddressField, Condition, Facts, FlagField, Kind, NumberField, Rule, Rules, Set, SetNames, Sets, TextField,
};

const REQUESTS: usize = 1_000;
const ROUNDS: usize = 41;
/// Nanoseconds of a decision among 1,000 rules and 100,000 prefixes.
const LIMIT: f64 = 2_000.0;

fn main() {
    let argument = |n, default| std::env::args().nth(n).map_or(default, |text| text.parse().expect("a number"));
    let (rules, prefixes) = (argument(1, 1_000), argument(2, 100_000));
    let mut random = Random(4711);

    let mut names = SetNames::default();
    let rates = names.add("rates", Kind::Prefixes).expect("a name");
    let users = names.add("users", Kind::Texts).expect("a name");
    let offices = names.add("offices", Kind::Networks).expect("a name");
    let began = Instant::now();
    let entries = (0..prefixes).map(|_| (random.digits(5, 9), Some(format!("carrier-{}", random.below(50)))));
    // A prefix that came twice keeps its first carrier.
    let entries: std::collections::BTreeMap<String, Option<String>> = entries.collect();
    let set = Set::new(Kind::Prefixes, entries).expect("a set");
    println!(
        "{} prefixes: {:.1} bytes each, built in {:.0} ms",
        set.len(),
        set.memory() as f64 / set.len() as f64,
        began.elapsed().as_secs_f64() * 1e3
    );
    let plans = (0..10_000).map(|n| (format!("user{n}"), Some(format!("plan-{}", n % 7))));
    let plans = Set::new(Kind::Texts, plans).expect("a set");
    println!("{} users: {:.1} bytes each", plans.len(), plans.memory() as f64 / plans.len() as f64);
    let networks = (0..200).map(|n| (format!("10.{n}.0.0/16"), None::<&str>));
    let networks = Set::new(Kind::Networks, networks).expect("a set");
    println!("{} networks: {:.1} bytes each", networks.len(), networks.memory() as f64 / networks.len() as f64);
    let sets = Sets::empty(&names);
    let sets = sets.with(rates, Arc::new(set)).and_then(|sets| sets.with(users, Arc::new(plans)));
    let sets = sets.and_then(|sets| sets.with(offices, Arc::new(networks))).expect("sets of their kinds");

    let began = Instant::now();
    let rules = (0..rules).map(|n| {
        let text = condition(&mut random);
        let condition = Condition::compile(&text, &names).unwrap_or_else(|fault| panic!("{}", fault.shown(&text)));
        Rule { name: format!("rule-{n}").into(), condition, action: n }
    });
    let rules = Rules::new(rules);
    println!(
        "{} rules: compiled in {:.0} ms, {} questions in the index",
        rules.len(),
        began.elapsed().as_secs_f64() * 1e3,
        rules.questions()
    );
    let requests: Vec<Request> = (0..REQUESTS).map(|_| Request::new(&mut random)).collect();
    if !report(&rules, &requests, &sets) {
        println!("missed: a decision takes more than {LIMIT} ns");
        std::process::exit(1);
    }
}

/// Judges the requests both ways, round by round. Whether the indexed ways keep the limit.
fn report(rules: &Rules<usize>, requests: &[Request], sets: &Sets) -> bool {
    let mut matching = 0;
    for request in requests {
        let (mut indexed, mut plain) = (Vec::new(), Vec::new());
        all(|visit| rules.walk(request, sets, visit), |place| indexed.push(place));
        all(|visit| rules.walk_each(request, sets, visit), |place| plain.push(place));
        assert_eq!(indexed, plain, "the index changes nothing");
        matching += plain.len();
    }
    println!("a request matches {:.1} rules", matching as f64 / requests.len() as f64);
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
            times.push(began.elapsed());
        }
    }
    let mut is_kept = true;
    for ((name, _), mut times) in ways.iter().zip(times) {
        times.sort_unstable();
        let each = |time: Duration| time.as_secs_f64() * 1e9 / requests.len() as f64;
        println!(
            "{name:<28} {:>8.0} ns (from {:.0} to {:.0})",
            each(times[ROUNDS / 2]),
            each(times[0]),
            each(times[ROUNDS - 1])
        );
        is_kept &= !name.ends_with("indexed") || each(times[ROUNDS / 2]) <= LIMIT;
    }
    is_kept
}

/// Visits all that match.
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

/// A condition as operators write them.
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
        0..3 => format!("number starts_with '{}'", random.digits(2, 6)),
        3..5 => format!("number matches '^(\\+|00){}[0-9]*$'", random.digits(2, 4)),
        5..7 => format!("rates[number] == 'carrier-{}'", random.below(50)),
        7..9 => format!("source.group == 'group-{}'", random.below(40)),
        9 => format!("request.domain == 'domain-{}.example'", random.below(30)),
        10 => format!("user == 'user{}'", random.below(10_000)),
        11 => format!("users[user] == 'plan-{}'", random.below(7)),
        12 => format!("source.address in 10.{}.0.0/16", random.below(250)),
        13 => format!("number in ['{}', '{}']", random.digits(3, 5), random.digits(3, 5)),
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
            number: format!("{trunk}{}", random.digits(9, 14)),
            group: format!("group-{}", random.below(45)),
            domain: format!("Domain-{}.example", random.below(40)),
            user: format!("user{}", random.below(12_000)),
            agent: format!("phone-{} 1.{}", random.below(40), random.below(10)),
            address: IpAddr::from([10, random.below(256) as u8, 3, 4]),
            size: 300 + random.below(3_000) as u64,
            flags: random.next(),
        }
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

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// From `shortest` to `longest` digits, without a leading zero.
    fn digits(&mut self, shortest: usize, longest: usize) -> String {
        let length = shortest + self.below(longest - shortest + 1);
        (0..length).map(|n| char::from(b'0' + if n == 0 { 1 + self.below(9) } else { self.below(10) } as u8)).collect()
    }
}
