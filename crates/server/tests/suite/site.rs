//! Server of two engines, with a database that never answers at once, alice's phone, which calls, and bob's.

use crate::log::Lines;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use strowger_allocations::of_thread;
use strowger_cache::ticket::{Answered, Receiver};
use strowger_config::{Config, Decisions, Source};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_rig::Got;
use strowger_rules::Set;
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{Engine, EngineInput, ProcessStatus};
use strowger_server::local_address::OneWay;
use strowger_server::peer_names::NoNames;
use strowger_server::policy::Policy;
use strowger_server::process_state::{ProcessContext, ProcessState};
use strowger_store::credential_cache::CredentialCache;
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{self, Credential, Ha1s, LookupSink, Question, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

pub(crate) const SERVER: &str = "192.0.2.1:5060";
pub(crate) const ALICE: &str = "198.51.100.7:5060";
pub(crate) const BOB: &str = "198.51.100.8:5060";

/// Configurations that write different texts ([`is_forwarded_by`]).
pub(crate) const ONE: &str =
    "server.software = \"one\"\nproxy.max_forwards = 11\nproxy.record_route = true\nproxy.fork_timeout = \"5s\"\n";
pub(crate) const TWO: &str =
    "server.software = \"two\"\nproxy.max_forwards = 22\nproxy.record_route = false\nproxy.fork_timeout = \"9s\"\n";

/// Key of the hash that names the bucket of a call.
pub(crate) const CALL_SECRET: u32 = 7;

/// Database that never answers at once.
pub(crate) struct Slow {
    /// Last ticket.
    pub(crate) last: AtomicU64,
    /// All tickets.
    pub(crate) tickets: Mutex<Vec<u64>>,
}

impl Subscribers for Slow {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(
        &self,
        _question: Question<'_>,
        _now_ms: u64,
    ) -> Option<Result<subscriber::SubscriberAnswer, StoreError>> {
        None
    }

    fn request(&self, ticket: Ticket, _question: Question<'_>, _now_ms: u64) -> Result<(), Refused> {
        self.last.store(ticket.value, Relaxed);
        self.tickets.lock().expect("no test fails while it holds this").push(ticket.value);
        Ok(())
    }
}

/// Receiver that drops answers: the test hands them over.
struct ByHand;

impl Receiver for ByHand {
    fn answered(&self, _answers: Vec<Answered>) {}
}

pub(crate) struct Site {
    pub(crate) shared: Arc<ProcessState>,
    pub(crate) engines: Vec<Engine>,
    pub(crate) database: Arc<Slow>,
    pub(crate) now: Now,
    pub(crate) out: Outbox,
    /// Allocations during the last work of an engine.
    pub(crate) allocated: u64,
    credential: Arc<Credential>,
    /// Listener of all messages.
    udp: ListenerId,
}

fn config(listeners: &[&str], settings: &str) -> Config {
    let open = if settings.contains("registrar.authenticate") { "" } else { "registrar.authenticate = false\n" };
    let fork = if settings.contains("proxy.fork = ") { "" } else { "proxy.fork = \"sequence\"\n" };
    let text = format!("listen = {listeners:?}\ndomains = [\"example.org\"]\n{open}{fork}{settings}");
    read(Source { text: &text, ..Source::default() })
}

/// Reads a configuration and the files of its data sets.
fn read(source: Source<'_>) -> Config {
    let (mut config, _) = Config::read(source).unwrap_or_else(|report| panic!("{report}"));
    let mut decisions = Decisions::clone(&config.decisions);
    for table in &config.sets {
        if let Some(file) = &table.file {
            let place = file.display().to_string();
            let entries = BufReader::new(File::open(file).unwrap_or_else(|error| panic!("{place}: {error}")));
            let set = Set::read_csv(table.kind.kind(), &place, entries, table.columns()).expect("each line is right");
            decisions = decisions.with_set(table.name.as_str(), Arc::new(set));
        }
    }
    config.decisions = Arc::new(decisions);
    config
}

fn identity(config: &Config) -> Identity {
    let address = |transport| ListenerAddress {
        transport,
        bound: SERVER.parse().expect("an address"),
        sent_by: SERVER.as_bytes().into(),
        network: 0,
    };
    let listeners = config.listeners.iter().map(|listener| address(listener.transport)).collect();
    Identity::new(listeners, config.domain_names(), &[]).with_aliases(config.aliases())
}

impl Site {
    /// Starts a site on UDP.
    pub(crate) fn new(settings: &str) -> Self {
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        Self::start(now, &[&format!("udp:{SERVER}")], settings)
    }

    /// Starts a site with a configuration of the examples, whose first listener takes UDP.
    pub(crate) fn of_example(text: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let config = read(Source { text, folder: &folder, ..Source::default() });
        Self::with(Now { mono: 10_000, wall: 1_700_000_000_000 }, config, ListenerId(0), None)
    }

    /// Starts a site on UDP, with the credentials of registered users in this cache.
    pub(crate) fn with_credentials(settings: &str, cache: CredentialCache) -> Self {
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        Self::with(now, config(&[&format!("udp:{SERVER}")], settings), ListenerId(0), Some(cache))
    }

    /// Starts a site on these listeners.
    pub(crate) fn start(now: Now, listeners: &[&str], settings: &str) -> Self {
        let udp =
            listeners.iter().position(|listener| listener.starts_with("udp:")).and_then(|n| u16::try_from(n).ok());
        let udp = ListenerId(udp.expect("it listens on UDP"));
        Self::with(now, config(listeners, settings), udp, None)
    }

    /// Starts a site. `udp`: listener of all messages.
    fn with(now: Now, config: Config, udp: ListenerId, credentials: Option<CredentialCache>) -> Self {
        // Before the first line of this engine: a call site that another thread reaches while the subscriber is being set
        // stays silent.
        Lines::catch();
        // The room is reserved: an allocation of the database would count for the engine that asks.
        let database = Arc::new(Slow { last: AtomicU64::new(0), tickets: Mutex::new(Vec::with_capacity(4_096)) });
        let surroundings = ProcessContext {
            identity: identity(&config),
            secret: vec![7; 32],
            seed: [7; 32],
            call_secret: CALL_SECRET,
            process: 1,
            shards: 2,
            location: Arc::new(LocationTable::new(config.location_settings())),
            subscribers: Some(database.clone()),
            credentials: credentials.clone(),
            bounds: EngineBounds::default(),
            log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay),
            names: Arc::new(NoNames),
        };
        let shared = Arc::new(ProcessState::new(now, config, surroundings));
        let engine = |number| {
            let mut engine = Engine::new(now, shared.clone(), number, ProcessStatus { draining: false, shards: 2 });
            engine.sinks.found = Some(SinkId::NONE);
            engine.sinks.cached = credentials.clone().map(|cache| {
                let receiver = cache.receiver(Arc::new(ByHand));
                (cache, receiver)
            });
            engine
        };
        let engines = vec![engine(0), engine(1)];
        let credential = credential("alice", b"secret of alice");
        Self { shared, engines, database, now, out: Outbox::new(), allocated: 0, credential, udp }
    }

    /// Registers this Contact, with its parameters, for bob's phone.
    pub(crate) fn register(&mut self, contact: &str) {
        let call_id = contact.split(['@', ':', '>']).nth(1).expect("a user");
        let register = format!(
            "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKr{call_id};rport\r\n\
             From: <sip:bob@example.org>;tag=b\r\nTo: <sip:bob@example.org>\r\nCall-ID: {call_id}\r\nCSeq: 1 REGISTER\r\n\
             Contact: {contact};expires=3600\r\nContent-Length: 0\r\n\r\n"
        );
        assert!(self.receive(BOB, &register).starts_with("SIP/2.0 200 "));
    }

    /// Makes this the configuration of the process, and hands it to each engine.
    pub(crate) fn reload(&mut self, settings: &str) -> Weak<Policy> {
        let config = config(&[&format!("udp:{SERVER}")], settings);
        let identity = identity(&config);
        let policy = self.shared.set_config(config, identity);
        for engine in &mut self.engines {
            engine.answered(self.now, EngineInput::Policy(policy.clone()), &mut self.out);
        }
        Arc::downgrade(&policy)
    }

    /// Returns the messages that the first engine sends while `work` runs.
    pub(crate) fn work(&mut self, work: impl FnOnce(&mut Engine, Now, &mut Outbox)) -> String {
        self.work_at(0, work)
    }

    pub(crate) fn work_at(&mut self, shard: usize, work: impl FnOnce(&mut Engine, Now, &mut Outbox)) -> String {
        self.out.clear();
        let before = of_thread();
        work(&mut self.engines[shard], self.now, &mut self.out);
        self.allocated = of_thread() - before;
        self.out
            .sends()
            .iter()
            .map(|send| String::from_utf8_lossy(&self.out.bytes[send.range()]).into_owned())
            .collect()
    }

    /// Returns the messages that the first engine sends for this message from there.
    pub(crate) fn receive(&mut self, from: &str, text: &str) -> String {
        let remote = from.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: self.udp, remote, flow: None };
        self.work(|engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out))
    }

    /// Returns alice's credential as the answer of the database to the last question.
    pub(crate) fn known(&self) -> EngineInput {
        self.says(Ok(subscriber::SubscriberAnswer::Credential(self.credential.clone())))
    }

    /// Returns this answer of the database to the last question.
    pub(crate) fn says(&self, result: Result<subscriber::SubscriberAnswer, StoreError>) -> EngineInput {
        EngineInput::Subscribers(vec![(self.database.last.load(Relaxed), result)])
    }

    /// Returns the messages that the first engine sends when the database answers with alice's credential.
    pub(crate) fn answer(&mut self) -> String {
        let answer = self.known();
        self.work(|engine, now, out| engine.answered(now, answer, out))
    }

    /// Counts the allocations for 200 of alice's messages to bob: until each waits for an answer, and until it has been
    /// forwarded. 500 messages come before, which bring the tables to their full size. A table that becomes empty frees
    /// its memory, so another entry should wait meanwhile.
    pub(crate) fn allocations(
        &mut self,
        message: impl Fn(u32) -> String,
        answer: impl Fn(&mut Self) -> EngineInput,
    ) -> [u64; 2] {
        let mut made = [0; 2];
        for number in 2..700 {
            assert_eq!(self.receive(ALICE, &message(number)), "", "it waits");
            let waits = self.allocated;
            let answer = answer(self);
            let forwarded = self.work(|engine, now, out| engine.answered(now, answer, out));
            let goes_on = self.allocated;
            assert!(forwarded.starts_with("MESSAGE "), "{forwarded}");
            assert!(self.receive(BOB, &response(&forwarded, "200 OK")).starts_with("SIP/2.0 200 "));
            // The first ones are forgotten.
            self.wait(20);
            if number >= 500 {
                made[0] += waits;
                made[1] += goes_on;
            }
        }
        made
    }

    /// Asserts that [`allocations`](Self::allocations) are none, except that a table may grow once more. Debug builds
    /// parse each message with a completed Via again, to check its index.
    pub(crate) fn allocates_nothing(made: [u64; 2]) {
        let twice = if cfg!(debug_assertions) { 200 * 3 } else { 0 };
        assert!(made[0] <= twice + 2 && made[1] <= 2, "to wait {}, to go on {} in 200 requests", made[0], made[1]);
    }

    pub(crate) fn wait(&mut self, ms: u64) -> String {
        self.now = Now { mono: self.now.mono + ms, wall: self.now.wall + ms };
        self.work(|engine, now, out| engine.poll(now, out))
    }
}

/// Returns the credential of a user with this password.
pub(crate) fn credential(username: &str, password: &[u8]) -> Arc<Credential> {
    credential_as(username, username, password)
}

/// Returns the same for credentials with this spelling of the user's name. The hash contains the name as it was sent.
pub(crate) fn credential_as(spelled: &str, username: &str, password: &[u8]) -> Arc<Credential> {
    let ha1 = Ha1Set::of_password(spelled.as_bytes(), b"example.org", password);
    let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
    let [realm, domain] = ["example.org".into(), "example.org".into()];
    Arc::new(Credential { username: username.into(), realm, domain, ha1: Ha1s { md5, ..Ha1s::default() } })
}

/// Spellings of alice's name: the name, and her address, whose domain ignores case.
pub(crate) const SPELLINGS: [&str; 3] = ["alice", "alice@example.org", "alice@Example.ORG"];

/// Writes alice's credentials for a request of this method to bob, as a header line. The challenge was for another
/// request; `nc` is the nonce count.
pub(crate) fn credentials(password: &[u8], method: &str, challenged: &str, nc: u32) -> String {
    credentials_of("alice", password, (method, "sip:bob@example.org"), challenged, nc)
}

/// Writes the credentials of any user, for a request of this method to this URI.
pub(crate) fn credentials_of(
    user: &str,
    password: &[u8],
    (method, uri): (&str, &str),
    challenged: &str,
    nc: u32,
) -> String {
    strowger_rig::credentials(challenged.as_bytes(), user, password, (method, uri, b""), nc) + "\r\n"
}

/// Writes alice's INVITE for bob, the first of the call with this number. It has no Max-Forwards, so that the server
/// writes its own.
pub(crate) fn invite(number: u32, cseq: u32, more: &str) -> String {
    format!(
        "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{number}-{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:bob@example.org>\r\nCall-ID: {number}\r\nCSeq: {cseq} INVITE\r\n\
         Contact: <sip:alice@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

/// Writes [`invite()`] with alice's password.
pub(crate) fn authorized(number: u32, challenged: &str, nc: u32) -> String {
    invite(number, 2, &credentials(b"secret of alice", "INVITE", challenged, nc))
}

/// Returns the value of the first header line of this name.
pub(crate) fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("{name}: ");
    text.split("\r\n").find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Tells which of the two configurations wrote this request.
#[track_caller]
pub(crate) fn is_forwarded_by(text: &str) -> &'static str {
    let at = text.find("INVITE sip:bob").unwrap_or_else(|| panic!("nothing was forwarded: {text}"));
    let text = &text[at..];
    match (line(text, "Max-Forwards"), text.contains("Record-Route: ")) {
        ("11", true) => "one",
        ("22", false) => "two",
        _ => panic!("of neither: {text}"),
    }
}

/// Writes a response of bob's phone to a request that it got. `status`: the status, whose reason only readers need.
pub(crate) fn response(request: &str, status: &str) -> String {
    respond(request, status, "bob", "")
}

/// Writes a response of the phone at this address, with its Contact and this tag.
pub(crate) fn response_at(at: &str, request: &str, status: &str, tag: &str) -> String {
    respond(request, status, tag, &format!("Contact: <sip:{tag}@{at}>"))
}

fn respond(request: &str, status: &str, tag: &str, lines: &str) -> String {
    let code = status.split(' ').next().and_then(|code| code.parse().ok()).expect("a status");
    Got(request.to_owned()).respond(code, tag, lines)
}
