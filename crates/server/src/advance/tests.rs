//! Verdicts of the stages on single requests: policy without a socket, a database or real time.

mod destinations;
mod realms;

use super::*;
use crate::bounds::EngineBounds;
use crate::destination::Destination;
use crate::engine::ProcessStatus;
use crate::handling::Progress;
use crate::local_address::OneWay;
use crate::peer_names::NoNames;
use crate::process_state::{ProcessContext, ProcessState};
use crate::proof::{Proof, User};
use crate::question::{Answers, Resolved};
use crate::reply::{Counted, Lines, Party, Why};
use std::sync::Arc;
use strowger_config::{Config, Source};
use strowger_core::digest::{Challenge, ChallengeAnswer as Digest, ChallengeHeader, Ha1Set, Hash, Secret};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::proxy::TryNext;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::{Index, Message};
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{Credential, Ha1s, LookupSink, SubscriberAnswer, Subscribers};
use strowger_store::ticket::{Refused, SinkId};

const SERVER: &str = "192.0.2.1:5060";
const PHONE: &str = "198.51.100.7:5060";
pub(crate) const NOW: Now = Now { mono: 10_000, wall: 1_700_000_000_000 };

/// Database without any answer at hand.
struct Silent;

impl Subscribers for Silent {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(
        &self,
        _question: subscriber::Question<'_>,
        _now_ms: u64,
    ) -> Option<Result<SubscriberAnswer, StoreError>> {
        None
    }

    fn request(&self, _: Ticket, _: subscriber::Question<'_>, _: u64) -> Result<(), Refused> {
        Ok(())
    }
}

fn engine(settings: &str) -> Engine {
    engine_of("domains = [\"example.org\"]\n", settings)
}

pub(crate) fn engine_of(domains: &str, settings: &str) -> Engine {
    let text = format!("listen = [\"udp:{SERVER}\"]\n{settings}{domains}");
    let config = match Config::read(Source { text: &text, ..Source::default() }) {
        Ok((config, _)) => config,
        Err(report) => panic!("{report:?}\n{text}"),
    };
    let listener = ListenerAddress {
        transport: Transport::Udp,
        bound: SERVER.parse().unwrap(),
        sent_by: SERVER.as_bytes().into(),
        network: 0,
    };
    let surroundings = ProcessContext {
        identity: Identity::new(vec![listener], config.domain_names(), &[]).with_aliases(config.aliases()),
        secret: vec![7; 32],
        seed: [7; 32],
        call_secret: 7,
        process: 1,
        shards: 1,
        location: Arc::new(LocationTable::new(config.location_settings())),
        subscribers: Some(Arc::new(Silent)),
        credentials: None,
        bounds: EngineBounds::default(),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
        routes: Box::new(OneWay),
        names: Arc::new(NoNames),
    };
    let shared = Arc::new(ProcessState::new(NOW, config, surroundings));
    let mut engine = Engine::new(NOW, shared, 0, ProcessStatus { draining: false, shards: 1 });
    engine.sinks.found = Some(SinkId::NONE);
    engine
}

pub(crate) fn arrival() -> Arrival {
    Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: PHONE.parse().unwrap(), flow: None }
}

/// Writes a request of a phone; `more` are further header lines.
pub(crate) fn text(method: &str, uri: &str, from: &str, more: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {PHONE};branch=z9hG4bK1;rport=5060;received=198.51.100.7\r\n\
         From: <{from}>;tag=a\r\nTo: <sip:bob@example.org>\r\nCall-ID: 1\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:alice@{PHONE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

/// Returns the verdict of a stage on this request, with these answers.
fn says(engine: &Engine, stage: Stage, answers: Answers, text: &str) -> Verdict {
    let (mut index, arrival) = (Index::new(), arrival());
    index.parse(text.as_bytes(), &engine.policy.limits).unwrap();
    let request = Request::of(Message::new(text.as_bytes(), &index), &arrival, 1).unwrap();
    let mut progress = Progress { answers, ..Progress::new(NOW) };
    let mut out = Outbox::new();
    let handling = Handling { now: NOW, request: &request, server: None, progress: &mut progress, out: &mut out };
    let routing = engine.policy.router.route(NOW, &request);
    let mut contacts = Contacts::default();
    let verdict = match stage {
        Stage::Address => engine.decider().address(&handling, &routing),
        Stage::Authorize => engine.decider().authorize(&handling, &routing),
        Stage::Decide => engine.decider().decide(&handling, &routing),
        Stage::Route => engine.decider().route(&handling, &routing, &mut contacts),
        Stage::Register => engine.decider().authorize_registration(&handling),
        Stage::Acknowledge => engine.decider().acknowledge(&handling, &routing, &mut contacts),
    };
    assert!(out.is_empty(), "a stage sends nothing");
    verdict
}

pub(crate) fn first(engine: &Engine, stage: Stage, text: &str) -> Verdict {
    says(engine, stage, Answers::default(), text)
}

fn name(host: &str) -> crate::question::HostKey {
    (host.as_bytes().into(), None, None, false)
}

/// Returns the answers in which this name resolves to this address.
fn leads(host: &str, to: &str) -> Answers {
    let resolved = Resolved { targets: vec![(Transport::Udp, to.parse().unwrap())], name: None };
    Answers { names: vec![(name(host), resolved)], ..Answers::default() }
}

fn target(address: &str) -> Target {
    Target::new(Transport::Udp, ListenerId(0), address.parse().unwrap())
}

const ALICE: &str = "sip:alice@example.org";
const GUEST: &str = "sip:guest@example.net";
const BOB: &str = "sip:bob@example.org";

#[test]
fn the_addressee_of_a_request() {
    let engine = engine("");
    for (uri, more, verdict) in [
        (BOB, "", Verdict::Next(Stage::Authorize)),
        ("sip:carol@example.net", "", Verdict::Next(Stage::Authorize)),
        ("http://example.org/", "", Reply::refused(416).into()),
        (BOB, "Max-Forwards: 0\r\n", Reply::refused(483).into()),
        (BOB, "Proxy-Require: foo\r\n", Reply::refused(420).with(Lines::UnsupportedByProxy).into()),
        ("sip:bob@192.0.2.1:5060", "", Verdict::Next(Stage::Authorize)),
        ("sip:192.0.2.1:5060", "", Reply::refused(405).with(Lines::Allow).into()),
        ("sip:192.0.2.1:5060", "Require: foo\r\n", Reply::refused(420).with(Lines::Unsupported).into()),
        (BOB, "Route: <sip:edge.example.org;lr>\r\n", Verdict::Ask(Question::Name(name("edge.example.org")))),
        // Names of other domains are looked up only after a password.
        (BOB, "Route: <sip:edge.example.net;lr>\r\n", Verdict::Next(Stage::Authorize)),
    ] {
        assert_eq!(first(&engine, Stage::Address, &text("MESSAGE", uri, ALICE, more)), verdict, "{uri} {more}");
    }
    let capabilities = Verdict::Reply(Reply::new(200).with(Lines::Capabilities));
    assert_eq!(first(&engine, Stage::Address, &text("OPTIONS", "sip:192.0.2.1:5060", GUEST, "")), capabilities);
    // With two domains it is unknown whose user is meant.
    let unknown = Verdict::Reply(Reply::unknown(Party::RequestUri));
    let message = text("MESSAGE", "sip:bob@192.0.2.1:5060", ALICE, "");
    assert_eq!(first(&engine_of(TWO, ""), Stage::Address, &message), unknown);
}

/// Checks that a user may write any name of its domain in From: the realm and the user are the same under each name.
#[test]
fn a_user_may_call_itself_by_each_name_of_its_domain() {
    let header = ChallengeHeader::ProxyAuthenticate;
    let table = "[[domain]]\nname = \"example.org\"\naliases = [\"sip.example.org\"";
    let tenants = format!("{table}, \"192.0.2.1\"]\n[[domain]]\nname = \"b.example\"\n");
    let names = "domains = [\"example.org\", \"sip.example.org\"]\n";
    for domains in [names, &format!("{table}]\n"), &tenants] {
        let mut engine = engine_of(domains, "");
        for host in ["example.org", "Sip.Example.org", "192.0.2.1", "192.0.2.1:5060", "192.0.2.1:9999"] {
            let message = text("MESSAGE", BOB, &format!("sip:alice@{host}"), "");
            // The database may have the user under any of the names.
            for stored in ["alice@example.org", "alice@sip.example.org", "alice@192.0.2.1"] {
                let challenge = challenge(&mut engine, &message, header);
                let right = with_credentials(&message, &challenge, header, "of alice");
                let stored = found(Ok(credential_in("example.org", stored, "of alice")));
                let admitted = Verdict::Admit(shown_by("alice@example.org"));
                assert_eq!(says(&engine, Stage::Authorize, stored, &right), admitted, "{domains} {host}");
            }
            let other = text("MESSAGE", BOB, &format!("sip:carol@{host}"), "");
            let challenge = challenge(&mut engine, &other, header);
            let other = with_credentials(&other, &challenge, header, "of alice");
            let stored = found(Ok(credential_in("example.org", "alice@example.org", "of alice")));
            let refused = Reply { why: Why::Logged, ..Reply::refused(403) };
            assert_eq!(says(&engine, Stage::Authorize, stored, &other), refused.into(), "{domains} {host}");
        }
    }
}

/// Checks that a user is looked up under each name of its domain before the answer is 404.
#[test]
fn a_user_may_be_stored_under_each_name_of_its_domain() {
    let engine = engine_of("domains = [\"example.org\", \"sip.example.org\"]\n", "");
    let asks = |domain: &str, place| {
        Verdict::Ask(Question::User { username: b"bob"[..].into(), domain: domain.as_bytes().into(), place })
    };
    let not_found = |status: u16, why| Verdict::Reply(Reply::not_found(status).because(why));
    for host in ["example.org", "sip.example.org", "192.0.2.1"] {
        let call = text("MESSAGE", &format!("sip:bob@{host}"), GUEST, "");
        let says = |user| says(&engine, Stage::Route, Answers { user, ..Answers::default() }, &call);
        assert_eq!(says(None), asks("example.org", 0), "{host}");
        assert_eq!(says(Some((0, Ok(SubscriberAnswer::Absent)))), asks("sip.example.org", 1), "{host}");
        assert_eq!(
            says(Some((1, Ok(SubscriberAnswer::Exists)))),
            not_found(480, "the user is not registered"),
            "{host}"
        );
        assert_eq!(says(Some((1, Ok(SubscriberAnswer::Absent)))), not_found(404, "unknown user"), "{host}");
    }
}

#[test]
fn a_name_that_is_ours_is_taken_off() {
    let engine = engine("");
    let text = text("MESSAGE", BOB, ALICE, "Route: <sip:edge.example.org;lr>\r\n");
    let ours = says(&engine, Stage::Address, leads("edge.example.org", SERVER), &text);
    assert_eq!(ours, Verdict::TakeOffRoutes);
    let other = says(&engine, Stage::Address, leads("edge.example.org", "192.0.2.99:5060"), &text);
    assert_eq!(other, Verdict::Next(Stage::Authorize));
    // The request has used up its look-ups.
    let most = engine.shared.bounds.names_per_request;
    let names = (0..most).map(|n| (name(&format!("{n}.example.org")), Resolved::default())).collect();
    let many = says(&engine, Stage::Address, Answers { names, ..Answers::default() }, &text);
    assert_eq!(many, Reply::refused(400).because("too many names in its Routes").into());
}

#[test]
fn senders_that_may_have_a_request_forwarded() {
    let engine = engine("");
    let challenge = || Verdict::Reply(Reply::challenge(ChallengeHeader::ProxyAuthenticate, false));
    let admitted = || Verdict::Admit(Proof::default());
    for (uri, from, verdict) in [
        (BOB, ALICE, challenge()),
        (BOB, GUEST, admitted()),
        ("sip:carol@example.net", ALICE, challenge()),
        ("sip:carol@example.net", GUEST, challenge()),
        ("urn:service:sos", GUEST, challenge()),
        ("urn:example:other", GUEST, challenge()),
    ] {
        assert_eq!(first(&engine, Stage::Authorize, &text("MESSAGE", uri, from, "")), verdict, "{from} to {uri}");
    }
}

#[test]
fn emergency_calls_go_on_before_their_sender_is_asked_for_a_password() {
    let engine = engine("emergency.target = \"sip:192.0.2.112\"\nemergency.numbers = [\"112\"]\n");
    for (method, uri, from, is_emergency) in [
        ("INVITE", "urn:service:sos", GUEST, true),
        ("MESSAGE", "urn:service:sos.fire", ALICE, true),
        ("INVITE", "sip:112@example.org", ALICE, true),
        ("INVITE", "sip:112@example.org", "sip:anonymous@anonymous.invalid", true),
        ("INVITE", "sip:112@example.org", GUEST, false),
        ("MESSAGE", "sip:112@example.org", ALICE, false),
        ("INVITE", "sip:112@example.net", ALICE, false),
        ("INVITE", "urn:service:counseling", ALICE, false),
    ] {
        let verdict = first(&engine, Stage::Address, &text(method, uri, from, ""));
        assert_eq!(matches!(verdict, Verdict::Decide(_)), is_emergency, "{method} {uri} {from}: {verdict:?}");
    }
}

#[test]
fn relaying_by_its_setting() {
    let between = text("MESSAGE", "sip:carol@example.net", GUEST, "");
    let local = engine("proxy.relay_for = \"local-domains\"\n");
    let denied = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
    let denied = denied.because("relaying denied: neither end is of a local domain");
    assert_eq!(first(&local, Stage::Authorize, &between), denied.into());
    let everyone = engine("proxy.relay_for = \"everyone\"\n");
    assert_eq!(first(&everyone, Stage::Authorize, &between), Verdict::Admit(Proof::default()));
}

/// Returns the credential of a user whose password is its name.
fn credential(user: &str) -> SubscriberAnswer {
    credential_in("example.org", &format!("{user}@example.org"), user)
}

/// Returns the credential of a user in this realm.
fn credential_in(realm: &str, user: &str, password: &str) -> SubscriberAnswer {
    let (username, domain) = user.split_once('@').unwrap();
    let ha1 = Ha1Set::of_password(username.as_bytes(), realm.as_bytes(), password.as_bytes());
    let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
    let ha1 = Ha1s { md5, ..Ha1s::default() };
    let (username, realm, domain) = (username.into(), realm.into(), domain.into());
    SubscriberAnswer::Credential(Arc::new(Credential { username, realm, domain, ha1 }))
}

/// Returns the proof that a request with the password of this user gives.
fn shown_by(user: &str) -> Proof {
    let (name, domain) = user.split_once('@').unwrap();
    let user = User { name: name.as_bytes().into(), domain: domain.as_bytes().into() };
    Proof { user: Some(user), ..Proof::default() }
}

/// Returns the request with credentials, with a right or wrong `password`.
fn authorized(engine: &mut Engine, method: &str, uri: &str, header: ChallengeHeader, password: &str) -> String {
    let plain = text(method, uri, ALICE, "");
    let challenge = challenge(engine, &plain, header);
    with_credentials(&plain, &challenge, header, password)
}

/// Returns the challenge to this request.
fn challenge(engine: &mut Engine, plain: &str, header: ChallengeHeader) -> String {
    let (mut index, arrival) = (Index::new(), arrival());
    index.parse(plain.as_bytes(), &engine.policy.limits).unwrap();
    let request = Request::of(Message::new(plain.as_bytes(), &index), &arrival, 1).unwrap();
    let (mut progress, mut out, mut lines) = (Progress::new(NOW), Outbox::new(), Vec::new());
    let handling = Handling { now: NOW, request: &request, server: None, progress: &mut progress, out: &mut out };
    engine.write_challenges(&handling, header, false, &mut lines);
    let lines = String::from_utf8(lines).unwrap();
    lines.split_once(": ").unwrap().1.trim_end().into()
}

/// Returns the request with alice's answer to this challenge.
fn with_credentials(plain: &str, challenge: &str, header: ChallengeHeader, password: &str) -> String {
    let mut words = plain.split(' ');
    let answer = Digest {
        user: b"alice",
        secret: Secret::Password(password.as_bytes()),
        method: words.next().unwrap().as_bytes(),
        uri: words.next().unwrap().as_bytes(),
        body: b"",
        cnonce: b"1",
        nc: 1,
    };
    let mut credentials = format!("{}: ", header.answer_name()).into_bytes();
    answer.write(&Challenge::parse(challenge.as_bytes()).unwrap(), &mut credentials).unwrap();
    let credentials = String::from_utf8(credentials).unwrap();
    plain.replace("Content-Length", &format!("{credentials}\r\nContent-Length"))
}

fn found(credential: Result<SubscriberAnswer, StoreError>) -> Answers {
    Answers { credential: Some(credential), ..Answers::default() }
}

#[test]
fn a_password_is_asked_for_judged_and_counts_once() {
    let mut engine = engine("");
    let header = ChallengeHeader::ProxyAuthenticate;
    let right = authorized(&mut engine, "MESSAGE", BOB, header, "alice");
    let wrong = authorized(&mut engine, "MESSAGE", BOB, header, "guessed");
    let asks = Verdict::Ask(Question::Credential { username: b"alice"[..].into(), realm: b"example.org"[..].into() });
    let challenge = |stale| Verdict::Reply(Reply::challenge(header, stale));
    // The stage may run any number of times: a question spends nothing.
    for _ in 0..3 {
        assert_eq!(first(&engine, Stage::Authorize, &right), asks);
    }
    let late = says(&engine, Stage::Authorize, found(Err(StoreError::TimedOut)), &right);
    assert_eq!(late, Reply { why: Why::Logged, ..Reply::new(500) }.into());
    assert_eq!(says(&engine, Stage::Authorize, found(Ok(SubscriberAnswer::Absent)), &right), challenge(false));
    assert_eq!(says(&engine, Stage::Authorize, found(Ok(credential("alice"))), &wrong), challenge(false));
    let shown = Verdict::Admit(shown_by("alice@example.org"));
    assert_eq!(says(&engine, Stage::Authorize, found(Ok(credential("alice"))), &right), shown);
    assert_eq!(says(&engine, Stage::Authorize, found(Ok(credential("alice"))), &right), challenge(true));
}

#[test]
fn senders_that_may_change_bindings() {
    let mut engine = engine("");
    let header = ChallengeHeader::WwwAuthenticate;
    let elsewhere = text("REGISTER", "sip:example.org", ALICE, "")
        .replace("To: <sip:bob@example.org>", "To: <sip:bob@example.net>");
    assert_eq!(first(&engine, Stage::Register, &elsewhere), Reply::unknown(Party::To).into());
    let plain = text("REGISTER", "sip:example.org", ALICE, "");
    assert_eq!(first(&engine, Stage::Register, &plain), Reply::challenge(header, false).into());
    // The right password of a user who registers another.
    let other = authorized(&mut engine, "REGISTER", "sip:example.org", header, "alice");
    let refused = Reply { why: Why::Logged, ..Reply::refused(403) };
    assert_eq!(says(&engine, Stage::Register, found(Ok(credential("alice"))), &other), refused.into());
    let own = authorized(&mut engine, "REGISTER", "sip:example.org", header, "alice")
        .replace("To: <sip:bob@", "To: <sip:alice@");
    let shown = |replayed| Verdict::Register(Proof { replayed, ..shown_by("alice@example.org") }, None);
    assert_eq!(says(&engine, Stage::Register, found(Ok(credential("alice"))), &own), shown(false));
    // By UDP this may be a copy of a request that was served already.
    assert_eq!(says(&engine, Stage::Register, found(Ok(credential("alice"))), &own), shown(true));
}

/// Configuration of two domains. Each has a user `alice` with a password of her own.
const TWO: &str = "[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\nrealm = \"office\"\n";

/// Checks that a message without room to wait is answered only if it came over a connection: a datagram is
/// retransmitted.
#[test]
fn a_message_that_finds_no_room_to_wait_is_answered_where_it_comes_once() {
    let mut engine = engine("");
    Arc::get_mut(&mut engine.shared).unwrap().bounds.held_messages = 1;
    let mut receive = |transport, cseq: u32, more: &str| {
        let arrival = Arrival { transport, ..arrival() };
        let text = text("MESSAGE", BOB, ALICE, more)
            .replace("CSeq: 1 ", &format!("CSeq: {cseq} "))
            .replace("branch=z9hG4bK1", &format!("branch=z9hG4bK{cseq}"));
        let mut out = Outbox::new();
        engine.receive(NOW, &arrival, text.as_bytes(), &mut out);
        String::from_utf8_lossy(&out.bytes).into_owned()
    };
    let challenge = receive(Transport::Tcp, 1, "");
    let challenge = challenge.split("\r\n").find_map(|line| line.strip_prefix("Proxy-Authenticate: ")).unwrap();
    let answer = Digest {
        user: b"alice",
        secret: Secret::Password(b"secret"),
        method: b"MESSAGE",
        uri: BOB.as_bytes(),
        body: b"",
        cnonce: b"1",
        nc: 1,
    };
    let mut credentials = b"Proxy-Authorization: ".to_vec();
    answer.write(&Challenge::parse(challenge.as_bytes()).unwrap(), &mut credentials).unwrap();
    let credentials = String::from_utf8(credentials).unwrap() + "\r\n";
    assert_eq!(receive(Transport::Tcp, 2, &credentials), "", "it waits for the database");
    assert_eq!(receive(Transport::Tcp, 3, ""), "", "one may wait behind it");
    assert_eq!(receive(Transport::Udp, 4, ""), "", "dropped");
    let refused = receive(Transport::Tcp, 5, "");
    assert!(refused.starts_with("SIP/2.0 503 ") && refused.contains("Retry-After: "), "{refused}");
    assert_eq!(engine.shared.counts().held_dropped, 2);
}

const RULES: &str = "[[rule]]\nname = \"no-user\"\nwhen = \"not exists request.user\"\nanswer = 484\n\
    [[rule]]\nname = \"hint\"\nwhen = \"from.local\"\nadd_headers = [\"P-Hint: local\"]\ntrack = true\n\
    [[rule]]\nname = \"numbers\"\nwhen = \"exists number\"\nto = [\"sip:gw.example.net\"]\nrelay_for = \"everyone\"\ntry_next = [503]\nadd_headers = [\"X: 1\"]\n\
    [[rule]]\nname = \"late\"\nadd_headers = [\"X: 2\"]\ntrack = false\n";

#[test]
fn rules_add_up_until_one_leads_on_or_answers() {
    let engine = engine_of(&format!("domains = [\"example.org\"]\n{RULES}"), "");
    let alice = "sip:alice@example.org";
    let says = |uri: &str, from: &str| first(&engine, Stage::Decide, &text("INVITE", uri, from, ""));
    assert!(matches!(says("sip:example.org", alice), Verdict::Reply(Reply { status: 484, why: Why::Rule(0), .. })));
    let Verdict::Decide(decision) = says("sip:4930@example.org", alice) else { panic!("rules hold") };
    assert_eq!((&decision.add[..], decision.track), (&b"P-Hint: local\r\nX: 1\r\n"[..], Some(true)));
    assert_eq!(
        (decision.to.uris.as_slice(), decision.try_next()),
        (&["sip:gw.example.net".to_owned()][..], TryNext::On(&[503]))
    );
    let Verdict::Decide(decision) = says("sip:bob@example.org", "sip:carol@example.net") else {
        panic!("the last holds")
    };
    assert_eq!((&decision.add[..], decision.track, decision.to.uris.len()), (&b"X: 2\r\n"[..], Some(false), 0));
}

/// Checks that the host of a place of a rule is looked up before the request goes to the place.
#[test]
fn a_place_that_rules_name_is_looked_up() {
    let engine = engine_of(&format!("domains = [\"example.org\"]\n{RULES}"), "");
    let number = text("INVITE", "sip:4930@example.org", "sip:alice@example.org", "");
    let Verdict::Decide(decision) = first(&engine, Stage::Decide, &number) else { panic!("rules hold") };
    let says = |answers: Answers| {
        let (mut index, arrival) = (Index::new(), arrival());
        index.parse(number.as_bytes(), &engine.policy.limits).unwrap();
        let request = Request::of(Message::new(number.as_bytes(), &index), &arrival, 1).unwrap();
        let mut progress = Progress { answers, decision: Some(decision.clone()), ..Progress::new(NOW) };
        let mut out = Outbox::new();
        let handling = Handling { now: NOW, request: &request, server: None, progress: &mut progress, out: &mut out };
        engine.decider().route(&handling, &engine.policy.router.route(NOW, &request), &mut Contacts::default())
    };
    assert_eq!(says(Answers::default()), Verdict::Ask(Question::Name(name("gw.example.net"))));
    let Verdict::Forward(Destination::Places(places)) = says(leads("gw.example.net", "192.0.2.50:5060")) else {
        panic!("it goes there")
    };
    assert_eq!((places.len(), places[0].addresses()[0].address.to_string()), (1, "192.0.2.50:5060".to_owned()));
}
