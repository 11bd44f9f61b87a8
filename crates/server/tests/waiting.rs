//! A request that waits for an answer costs no allocation once warm: an engine alone, counted on its thread.

use std::alloc::System;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strowger_allocations::{Counting, of_thread};
use strowger_config::{Config, Source};
use strowger_core::digest::{Challenge, ChallengeAnswer as Digest, Ha1Set, Hash, Secret};
use strowger_core::quota::Quota;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_server::engine::{Answer, Circumstances, Engine};
use strowger_server::local_address::Routes;
use strowger_server::shared::{Shared, Surroundings};
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{self, Credential, Ha1s, LookupSink, Question, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const SERVER: &str = "192.0.2.1:5060";
const ALICE: &str = "198.51.100.7:5060";
const BOB: &str = "198.51.100.8:5060";

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

/// Allocations by which a build with assertions reads a message again whose Via was completed.
const ASSERTED: u64 = 3;

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
    engine: Engine,
    database: Arc<Slow>,
    credential: Arc<Credential>,
    now: Now,
    out: Outbox,
}

impl Site {
    fn new() -> Self {
        let text = format!(
            "listen = [\"udp:{SERVER}\"]\ndomains = [\"example.org\"]\nregistrar.authenticate = false\ntimers.t1 = \"10ms\"\n"
        );
        let config = match Config::read(Source { text: &text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report:?}"),
        };
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound: SERVER.parse().expect("an address"),
            sent_by: SERVER.as_bytes().into(),
            network: 0,
        };
        let database = Arc::new(Slow::default());
        let surroundings = Surroundings {
            identity: Identity::new(vec![listener], ["example.org"], &[]),
            secret: vec![7; 32],
            seed: [7; 32],
            call_secret: 7,
            process: 1,
            shards: 1,
            location: Arc::new(LocationTable::new(config.location_settings())),
            subscribers: Some(database.clone()),
            quota: Arc::new(Quota::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay),
        };
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        let shared = Arc::new(Shared::new(now, config, surroundings));
        let mut engine = Engine::new(now, shared, 0, Circumstances { draining: false, shards: 1 });
        engine.found = Some(SinkId::NONE);
        let ha1 = Ha1Set::of_password(b"alice", b"example.org", b"alice");
        let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
        let ha1 = Ha1s { md5, ..Ha1s::default() };
        let (username, realm, domain) = ("alice".into(), "example.org".into(), "example.org".into());
        let credential = Arc::new(Credential { username, realm, domain, ha1 });
        Self { engine, database, credential, now, out: Outbox::new() }
    }

    /// A message from there; what the engine sends then, and its allocations.
    fn receive(&mut self, from: &str, text: &str) -> (String, u64) {
        let remote = from.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        self.out.clear();
        let before = of_thread();
        self.engine.receive(self.now, &arrival, text.as_bytes(), &mut self.out);
        let made = of_thread() - before;
        (String::from_utf8_lossy(&self.out.bytes).into_owned(), made)
    }

    /// The database answers; what the engine sends then, and its allocations.
    fn answer(&mut self) -> (String, u64) {
        self.answered(Ok(subscriber::Answer::Credential(self.credential.clone())))
    }

    fn answered(&mut self, result: Result<subscriber::Answer, StoreError>) -> (String, u64) {
        let answer = Answer::Subscribers(vec![(self.database.0.load(Relaxed), result)]);
        self.out.clear();
        let before = of_thread();
        self.engine.answered(self.now, answer, &mut self.out);
        let made = of_thread() - before;
        (String::from_utf8_lossy(&self.out.bytes).into_owned(), made)
    }

    /// Alice's message with her password: the challenge was for another one, of which this is the use `nc`.
    fn authorized(&self, number: u32, challenged: &str, nc: u32) -> String {
        self.with_password(b"alice", number, challenged, nc)
    }

    fn with_password(&self, password: &[u8], number: u32, challenged: &str, nc: u32) -> String {
        let answer = Digest {
            user: b"alice",
            secret: Secret::Password(password),
            method: b"MESSAGE",
            uri: b"sip:bob@example.org",
            body: b"",
            cnonce: b"1",
            nc,
        };
        let challenge = Challenge::parse(line(challenged, "Proxy-Authenticate").as_bytes()).expect("a challenge");
        let mut credentials = b"Proxy-Authorization: ".to_vec();
        answer.write(&challenge, &mut credentials).expect("an answer");
        credentials.extend_from_slice(b"\r\n");
        message(number, 2, std::str::from_utf8(&credentials).expect("text"))
    }

    fn wait(&mut self, ms: u64) {
        self.now = Now { mono: self.now.mono + ms, wall: self.now.wall + ms };
        self.out.clear();
        self.engine.poll(self.now, &mut self.out);
    }
}

fn message(number: u32, cseq: u32, more: &str) -> String {
    format!(
        "MESSAGE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{number}-{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:bob@example.org>\r\nCall-ID: {number}\r\nCSeq: {cseq} MESSAGE\r\n\
         Max-Forwards: 70\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("{name}: ");
    text.split("\r\n").find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// A site at which bob is registered, and what alice's first message was answered.
fn with_bob() -> (Site, String) {
    let mut site = Site::new();
    let register = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKr;rport\r\nFrom: <sip:bob@example.org>;tag=b\r\n\
         To: <sip:bob@example.org>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\nContact: <sip:bob@{BOB}>;expires=3600\r\n\
         Content-Length: 0\r\n\r\n"
    );
    assert!(site.receive(BOB, &register).0.starts_with("SIP/2.0 200 "));
    let challenged = site.receive(ALICE, &message(0, 1, "")).0;
    (site, challenged)
}

#[test]
fn copies_of_a_request_that_waits_are_one_request() {
    let (mut site, challenged) = with_bob();
    let text = site.authorized(1, &challenged, 1);
    for _ in 0..3 {
        assert_eq!(site.receive(ALICE, &text).0, "");
    }
    let forwarded = site.answer().0;
    assert_eq!(forwarded.matches("MESSAGE sip:bob@").count(), 1, "{forwarded}");
    assert_eq!(site.receive(ALICE, &text).0, "");
}

#[test]
fn a_copy_of_what_failed_fails_too() {
    let (mut site, challenged) = with_bob();
    let text = site.authorized(1, &challenged, 1);
    // One waits, a copy of it comes before the answer and one after it.
    assert_eq!(site.receive(ALICE, &text).0, "");
    assert_eq!(site.receive(ALICE, &text).0, "");
    let failed = site.answered(Err(StoreError::Unavailable)).0;
    assert_eq!(failed.matches("SIP/2.0 500 ").count(), 1, "{failed}");
    assert_eq!(site.receive(ALICE, &text).0, failed);
    // It waits for nothing more, and no timer sends it again.
    site.wait(5_000);
    assert!(site.out.is_empty());
}

#[test]
fn guesses_that_wait_together_are_judged_up_to_the_ban() {
    let (mut site, challenged) = with_bob();
    let mut tickets = Vec::new();
    // As many calls, and as many messages of one call.
    for number in 1..=60 {
        let text = site.with_password(b"wrong", number.min(30), &challenged, number);
        let text = text.replace("CSeq: 2 ", &format!("CSeq: {} ", number + 1)).replace("-2;", &format!("-{number};"));
        assert_eq!(site.receive(ALICE, &text).0, "");
        tickets.push(site.database.0.load(Relaxed));
    }
    tickets.dedup();
    assert_eq!(tickets.len(), 30);
    let mut judged = 0;
    for mut ticket in tickets {
        site.database.0.store(ticket, Relaxed);
        loop {
            judged += site.answer().0.matches("SIP/2.0 407 ").count();
            // What was held behind it asks next.
            let next = site.database.0.load(Relaxed);
            if next == ticket {
                break;
            }
            ticket = next;
        }
    }
    assert_eq!(judged, 10, "ban.failures");
    assert_eq!(site.engine.waiting(), 0);
    site.wait(60_000);
    assert_eq!(site.engine.transactions().counts().servers, 0);
}

#[test]
fn a_request_that_waits_costs_no_allocation() {
    let (mut site, challenged) = with_bob();
    // What is the only one of its kind gives its memory back when it ends: there is always another one that waits.
    let text = site.authorized(0, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text).0, "");
    let mut made = [0; 2];
    for number in 1..700 {
        let text = site.authorized(number, &challenged, number + 1);
        let (sent, waits) = site.receive(ALICE, &text);
        assert_eq!(sent, "", "it waits");
        let (forwarded, goes_on) = site.answer();
        assert!(forwarded.starts_with("MESSAGE "), "{forwarded}");
        let mut ok = String::from("SIP/2.0 200 OK\r\n");
        for via in forwarded.split("\r\n").filter(|line| line.starts_with("Via: ")) {
            ok += via;
            ok += "\r\n";
        }
        for name in ["From", "To", "Call-ID", "CSeq"] {
            ok += &format!("{name}: {}\r\n", line(&forwarded, name));
        }
        ok += "Content-Length: 0\r\n\r\n";
        assert!(site.receive(BOB, &ok).0.starts_with("SIP/2.0 200 "));
        // Tables are at their full size when the first ones have been forgotten.
        site.wait(20);
        if number >= 500 {
            made[0] += waits;
            made[1] += goes_on;
        }
    }
    // A table may grow once more. What reads each message a second time, to hold the first reading to it, is not in a release.
    let twice = if cfg!(debug_assertions) { 200 * ASSERTED } else { 0 };
    assert!(made[0] <= twice + 2 && made[1] <= 2, "to wait {}, to go on {} in 200 requests", made[0], made[1]);
}
