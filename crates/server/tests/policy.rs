//! Another configuration reaches an engine while requests wait, ring and come: each goes by the one with which it came.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use strowger_config::{Config, Source};
use strowger_core::digest::{Challenge, ChallengeAnswer as Digest, Ha1Set, Hash, Secret};
use strowger_core::quota::Quota;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport, call};
use strowger_server::engine::{Answer, Circumstances, Engine};
use strowger_server::local_address::Routes;
use strowger_server::policy::Policy;
use strowger_server::shared::{Shared, Surroundings};
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{self, Credential, Ha1s, LookupSink, Question, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

const SERVER: &str = "192.0.2.1:5060";
const ALICE: &str = "198.51.100.7:5060";
const BOB: &str = "198.51.100.8:5060";

const ONE: &str =
    "server.software = \"one\"\nproxy.max_forwards = 11\nproxy.record_route = true\nproxy.fork_timeout = \"5s\"\n";
const TWO: &str =
    "server.software = \"two\"\nproxy.max_forwards = 22\nproxy.record_route = false\nproxy.fork_timeout = \"9s\"\n";

/// A database that always has to be waited for: the last ticket that was given to it.
#[derive(Default)]
struct Slow(AtomicU64);

impl Subscribers for Slow {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(&self, _question: Question<'_>, _now_ms: u64) -> Option<Result<subscriber::Answer, StoreError>> {
        None
    }

    fn request(&self, ticket: Ticket, _question: Question<'_>, _now_ms: u64) -> Result<(), Refused> {
        self.0.store(ticket.value, Relaxed);
        Ok(())
    }
}

struct OneWay;

impl Routes for OneWay {
    fn source(&self, _to: IpAddr) -> Option<IpAddr> {
        None
    }

    fn interface(&self, _own: IpAddr) -> Option<u32> {
        None
    }
}

struct Site {
    shared: Arc<Shared>,
    engines: Vec<Engine>,
    database: Arc<Slow>,
    now: Now,
    out: Outbox,
}

fn config(settings: &str) -> Config {
    let text = format!(
        "listen = [\"udp:{SERVER}\"]\ndomains = [\"example.org\"]\nregistrar.authenticate = false\nproxy.fork = \"sequence\"\n{settings}"
    );
    match Config::read(Source { text: &text, ..Source::default() }) {
        Ok((config, _)) => config,
        Err(report) => panic!("{report}"),
    }
}

fn identity() -> Identity {
    let listener = ListenerAddress {
        transport: Transport::Udp,
        bound: SERVER.parse().expect("an address"),
        sent_by: SERVER.as_bytes().into(),
        network: 0,
    };
    Identity::new(vec![listener], ["example.org"], &[])
}

impl Site {
    fn new(settings: &str) -> Self {
        let (config, database) = (config(settings), Arc::new(Slow::default()));
        let surroundings = Surroundings {
            identity: identity(),
            secret: vec![7; 32],
            seed: [7; 32],
            call_secret: 7,
            process: 1,
            shards: 2,
            location: Arc::new(LocationTable::new(config.location_settings())),
            subscribers: Some(database.clone()),
            quota: Arc::new(Quota::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay),
        };
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        let shared = Arc::new(Shared::new(now, config, surroundings));
        let engine = |number| {
            let mut engine = Engine::new(now, shared.clone(), number, Circumstances { draining: false, shards: 2 });
            engine.found = Some(SinkId::NONE);
            engine
        };
        let mut site = Self { engines: vec![engine(0), engine(1)], shared, database, now, out: Outbox::new() };
        for (name, q) in [("bob1", "1.0"), ("bob2", "0.5")] {
            let register = format!(
                "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKr{name};rport\r\n\
                 From: <sip:bob@example.org>;tag=b\r\nTo: <sip:bob@example.org>\r\nCall-ID: {name}\r\nCSeq: 1 REGISTER\r\n\
                 Contact: <sip:{name}@{BOB}>;q={q};expires=3600\r\nContent-Length: 0\r\n\r\n"
            );
            assert!(site.receive(BOB, &register).starts_with("SIP/2.0 200 "));
        }
        site
    }

    /// Makes this the configuration of the process; each engine hears of it.
    fn reload(&mut self, settings: &str) -> Weak<Policy> {
        let policy = self.shared.set_config(config(settings), identity());
        for engine in &mut self.engines {
            engine.answered(self.now, Answer::Policy(policy.clone()), &mut self.out);
        }
        Arc::downgrade(&policy)
    }

    /// What the first engine sends when it does this.
    fn work(&mut self, work: impl FnOnce(&mut Engine, Now, &mut Outbox)) -> String {
        self.work_at(0, work)
    }

    fn work_at(&mut self, shard: usize, work: impl FnOnce(&mut Engine, Now, &mut Outbox)) -> String {
        self.out.clear();
        work(&mut self.engines[shard], self.now, &mut self.out);
        self.out
            .sends()
            .iter()
            .map(|send| String::from_utf8_lossy(&self.out.bytes[send.range()]).into_owned())
            .collect()
    }

    fn receive(&mut self, from: &str, text: &str) -> String {
        let remote = from.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        self.work(|engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out))
    }

    /// The database says what it knows of alice.
    fn known(&self) -> Answer {
        let ha1 = Ha1Set::of_password(b"alice", b"example.org", b"secret of alice");
        let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
        let (username, realm, domain) = ("alice".into(), "example.org".into(), "example.org".into());
        let credential = Credential { username, realm, domain, ha1: Ha1s { md5, ..Ha1s::default() } };
        Answer::Subscribers(vec![(
            self.database.0.load(Relaxed),
            Ok(subscriber::Answer::Credential(Arc::new(credential))),
        )])
    }

    fn answer(&mut self) -> String {
        let answer = self.known();
        self.work(|engine, now, out| engine.answered(now, answer, out))
    }

    /// Alice's INVITE with her password: the challenge was for another one, of which this is the use `nc`.
    fn authorized(&self, number: u32, challenged: &str, nc: u32) -> String {
        let answer = Digest {
            user: b"alice",
            secret: Secret::Password(b"secret of alice"),
            method: b"INVITE",
            uri: b"sip:bob@example.org",
            body: b"",
            cnonce: b"1",
            nc,
        };
        let challenge = Challenge::parse(line(challenged, "Proxy-Authenticate").as_bytes()).expect("a challenge");
        let mut credentials = b"Proxy-Authorization: ".to_vec();
        answer.write(&challenge, &mut credentials).expect("an answer");
        credentials.extend_from_slice(b"\r\n");
        invite(number, 2, std::str::from_utf8(&credentials).expect("text"))
    }

    fn wait(&mut self, ms: u64) -> String {
        self.now = Now { mono: self.now.mono + ms, wall: self.now.wall + ms };
        self.work(|engine, now, out| engine.poll(now, out))
    }
}

/// Without a Max-Forwards of its own, so that the server writes its own.
fn invite(number: u32, cseq: u32, more: &str) -> String {
    format!(
        "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{number}-{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:bob@example.org>\r\nCall-ID: {number}\r\nCSeq: {cseq} INVITE\r\n\
         Contact: <sip:alice@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("{name}: ");
    text.split("\r\n").find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Which of the two configurations wrote this request.
#[track_caller]
fn is_forwarded_by(text: &str) -> &'static str {
    let at = text.find("INVITE sip:bob").unwrap_or_else(|| panic!("nothing was forwarded: {text}"));
    let text = &text[at..];
    match (line(text, "Max-Forwards"), text.contains("Record-Route: ")) {
        ("11", true) => "one",
        ("22", false) => "two",
        _ => panic!("of neither: {text}"),
    }
}

/// A response of bob's phone to a request that it got.
fn response(forwarded: &str, status: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for via in forwarded.split("\r\n").filter(|line| line.starts_with("Via: ")) {
        text += via;
        text += "\r\n";
    }
    for name in ["From", "Call-ID", "CSeq"] {
        text += &format!("{name}: {}\r\n", line(forwarded, name));
    }
    text + &format!("To: {};tag=bob\r\nContent-Length: 0\r\n\r\n", line(forwarded, "To"))
}

#[test]
fn what_comes_goes_by_the_new_one() {
    let mut site = Site::new(ONE);
    let before = site.receive(ALICE, &invite(1, 1, ""));
    assert_eq!(line(&before, "Server"), "one");
    site.reload(TWO);
    let after = site.receive(ALICE, &invite(2, 1, ""));
    assert_eq!(line(&after, "Server"), "two");
    site.reload(&format!("{TWO}auth.calls = false\n"));
    assert_eq!(is_forwarded_by(&site.receive(ALICE, &invite(3, 1, ""))), "two", "without a password");
    site.reload(&format!("{ONE}realm = \"elsewhere\"\n"));
    let realm = site.receive(ALICE, &invite(4, 1, ""));
    assert!(line(&realm, "Proxy-Authenticate").contains("realm=\"elsewhere\""), "{realm}");
}

#[test]
fn a_request_that_waits_keeps_its_own() {
    let mut site = Site::new(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = site.authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "", "it waits for the database");
    site.reload(TWO);
    assert_eq!(is_forwarded_by(&site.answer()), "one");
    // The nonce of before is as good as it was.
    let text = site.authorized(2, &challenged, 2);
    assert_eq!(site.receive(ALICE, &text), "");
    assert_eq!(is_forwarded_by(&site.answer()), "two");
    let replayed = site.authorized(3, &challenged, 2);
    assert_eq!(site.receive(ALICE, &replayed), "");
    assert!(line(&site.answer(), "Proxy-Authenticate").contains("stale=true"), "its use was not forgotten");
}

#[test]
fn a_request_that_waits_keeps_its_own_in_another_shard() {
    let mut site = Site::new(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = site.authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    site.reload(TWO);
    let bucket = call::bucket(call::hash(7, b"1"));
    let records = site.engines[0].export(site.now, bucket);
    assert_eq!(site.engines[0].waiting(), 0);
    for record in records {
        let sent = site.work_at(1, |engine, now, out| engine.import(now, record, out));
        assert_eq!(sent, "", "it asks again");
    }
    let answer = site.known();
    let forwarded = site.work_at(1, |engine, now, out| engine.answered(now, answer, out));
    assert_eq!(is_forwarded_by(&forwarded), "one");
}

#[test]
fn a_request_that_rings_keeps_its_own() {
    let free = "auth.calls = false\n";
    let mut site = Site::new(&format!("{ONE}{free}"));
    let first = site.receive(ALICE, &invite(1, 1, ""));
    assert!(first.contains("INVITE sip:bob1@") && is_forwarded_by(&first) == "one", "{first}");
    let one = Arc::downgrade(&site.shared.policy());
    site.reload(&format!("{TWO}{free}"));
    // The phone refuses, and the next one is tried: what it gets is written as the first was.
    let request = first[first.find("INVITE").expect("it was forwarded")..].to_owned();
    let second = site.receive(BOB, &response(&request, "486 Busy Here"));
    assert!(second.contains("INVITE sip:bob2@") && is_forwarded_by(&second) == "one", "{second}");
    // Another request rings by the other.
    let other = site.receive(ALICE, &invite(2, 1, ""));
    assert!(other.contains("INVITE sip:bob1@") && is_forwarded_by(&other) == "two", "{other}");
    assert!(
        !site.wait(5_100).contains("CANCEL"),
        "of the second phone nothing waits, and the other call rings for 9 s"
    );
    assert_eq!(one.upgrade().map(|policy| policy.config.server.software.clone()), None, "the shards have given it up");
}

#[test]
fn a_policy_that_nothing_goes_by_is_forgotten() {
    let mut site = Site::new(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = site.authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    let waits = Arc::downgrade(&site.shared.policy());
    let passed = site.reload(TWO);
    site.reload(ONE);
    assert_eq!((waits.strong_count() > 0, passed.strong_count()), (true, 0));
    site.answer();
    assert_eq!(waits.strong_count(), 0, "the request that waited was the last");
}

#[test]
fn bounds_follow() {
    let mut site = Site::new("auth.calls = false\n");
    site.reload("auth.calls = false\nlimits.transactions = 100\n");
    let sent: Vec<String> = (0..60).map(|number| site.receive(ALICE, &invite(number, 1, ""))).collect();
    let refused = sent.iter().filter(|sent| sent.starts_with("SIP/2.0 503 ")).count();
    assert!(refused >= 10, "an INVITE has two transactions: {refused}");
    site.reload("auth.calls = false\nlimits.transactions = 1000\n");
    assert!(site.receive(ALICE, &invite(100, 1, "")).contains("INVITE sip:bob1@"));
}

#[test]
fn pings_begin_and_end() {
    let mut site = Site::new("nat.ping_interval = \"never\"\n");
    assert!(!site.wait(60_000).contains("OPTIONS"));
    assert!(site.engines[0].deadline().is_none_or(|at| at > site.now.mono + 10_000));
    site.reload("nat.ping_interval = \"1s\"\n");
    assert!(site.engines[0].deadline().is_some_and(|at| at <= site.now.mono + 1_000), "a round begins");
    site.reload("nat.ping_interval = \"never\"\n");
    assert!(site.engines[0].deadline().is_none_or(|at| at > site.now.mono + 10_000));
}
