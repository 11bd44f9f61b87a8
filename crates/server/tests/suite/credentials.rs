//! Credentials that stand in a cache alone: who has registered is verified from there, and no database is asked.

use crate::site::*;
use std::sync::{Arc, Mutex};
use strowger_cache::engine::{Engine as CacheEngine, RemoteEngine};
use strowger_cache::error::CacheError;
use strowger_cache::gauges::Gauges;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{Answer as CacheAnswer, Request};
use strowger_cache::settings::LocalSettings;
use strowger_cache::ticket::{Answered, Receiver, ReceiverId, Receivers, Ticket};
use strowger_core::digest::{Challenge, ChallengeAnswer as Digest, Secret};
use strowger_server::engine::Answer;
use strowger_store::binding::Binding;
use strowger_store::credential_cache::CredentialCache;
use strowger_store::location::{Step, UpdateStatus};
use strowger_store::ticket::Ticket as BindingTicket;

const PASSWORD: &str = "secret of alice";

/// A cache in another process: it does what it is asked at once, and its answer comes when the test says.
struct Remote {
    local: LocalCache,
    receivers: Receivers,
    state: Mutex<State>,
}

struct State {
    is_down: bool,
    /// The values that fetches found, apart from the room for tickets: what is noted here would count for the engine that asks.
    answers: Vec<(u64, Result<CacheAnswer, CacheError>)>,
    value: Vec<u8>,
}

impl Remote {
    fn new() -> Arc<Self> {
        let state = State { is_down: false, answers: Vec::with_capacity(4_096), value: Vec::with_capacity(4_096) };
        let (local, receivers) = (LocalCache::new(LocalSettings::default()), Receivers::default());
        Arc::new(Self { local, receivers, state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no test fails while it holds this")
    }

    /// How many answers are still to come.
    fn open(&self) -> usize {
        self.state().answers.len()
    }

    /// What it says now, or that it said nothing in time.
    fn says(&self, in_time: bool) -> Answer {
        let mut state = self.state();
        let value: Box<[u8]> = state.value.as_slice().into();
        let answers = state.answers.drain(..);
        Answer::Credentials(
            answers
                .map(|(ticket, result)| match in_time {
                    true => Answered { ticket, result, value: value.clone() },
                    false => Answered { ticket, result: Err(CacheError::TimedOut), value: Box::default() },
                })
                .collect(),
        )
    }
}

impl RemoteEngine for Remote {
    fn ask(&self, request: &Request<'_>, ticket: Ticket, now: u64) -> Result<(), CacheError> {
        let mut state = self.state();
        if state.is_down {
            return Err(CacheError::Unavailable);
        }
        let result = match *request {
            Request::Fetch { key } => {
                state.value.clear();
                let is_found = self.local.fetch(key, now, &mut state.value);
                is_found.map(|is_found| if is_found { CacheAnswer::Found } else { CacheAnswer::Absent })
            }
            Request::Store { key, value, life } => self.local.store(key, value, life, now).map(|_| CacheAnswer::Stored),
            Request::Remove { key } => self.local.remove(key, now).map(|_| CacheAnswer::Removed),
            _ => unreachable!("no other is asked"),
        };
        state.answers.push((ticket.value, result));
        Ok(())
    }

    fn register(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        self.receivers.register(receiver)
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

const AUTHENTICATES: &str = "registrar.authenticate = true\ntimers.t1 = \"10ms\"\n";

fn site(settings: &str) -> (Site, Arc<Remote>) {
    let remote = Remote::new();
    let cache = CredentialCache::new(CacheEngine::Remote(remote.clone()));
    (with_bob(settings, cache), remote)
}

/// A site at which bob's phone is bound, as by a REGISTER of another day.
fn with_bob(settings: &str, cache: CredentialCache) -> Site {
    let site = Site::with_credentials(&format!("{AUTHENTICATES}{settings}"), cache);
    let uri = format!("sip:bob@{BOB}");
    let phone = Binding { uri: uri.as_bytes(), expires_at: site.now.mono + 86_400_000, ..Binding::EMPTY };
    let bound = site
        .shared
        .location
        .update::<()>(b"bob@example.org", site.now.mono, 5, BindingTicket::NONE, |_| Ok(vec![Step::Add(phone)]));
    assert_eq!(bound, Ok(UpdateStatus::Done));
    site
}

/// A request went on to bob.
fn is_admitted(sent: &str) -> bool {
    sent.contains("INVITE sip:bob@")
}

fn local() -> CredentialCache {
    CredentialCache::new(CacheEngine::Local(Arc::new(LocalCache::new(LocalSettings::default()))))
}

/// Alice's REGISTER of this contact, with its header lines.
fn register(cseq: u32, contact: &str, more: &str) -> String {
    format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKr{contact}{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:alice@example.org>\r\nCall-ID: {contact}\r\nCSeq: {cseq} REGISTER\r\n\
         Contact: <sip:{contact}@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

impl Site {
    /// Alice registers a contact for so many seconds: what is answered when the database has said what it knows of her.
    fn registers(&mut self, cseq: u32, contact: &str, seconds: u32) -> String {
        self.registers_with(PASSWORD, cseq, contact, seconds)
    }

    fn registers_with(&mut self, password: &str, cseq: u32, contact: &str, seconds: u32) -> String {
        let expires = format!("Expires: {seconds}\r\n");
        let challenged = self.receive(ALICE, &register(cseq, contact, &expires));
        assert!(challenged.starts_with("SIP/2.0 401 "), "{challenged}");
        let challenge = Challenge::parse(line(&challenged, "WWW-Authenticate").as_bytes()).expect("a challenge");
        let (user, uri, body, cnonce, nc) = (&b"alice"[..], &b"sip:example.org"[..], &b""[..], &b"1"[..], 1);
        let secret = Secret::Password(password.as_bytes());
        let answer = Digest { user, secret, method: b"REGISTER", uri, body, cnonce, nc };
        let mut credentials = b"Authorization: ".to_vec();
        answer.write(&challenge, &mut credentials).expect("an answer");
        let credentials = String::from_utf8(credentials).expect("text");
        let text = register(cseq + 1, contact, &format!("{expires}{credentials}\r\n"));
        assert_eq!(self.receive(ALICE, &text), "", "the database is asked");
        self.answer()
    }

    /// What the first engine sends when the cache answers.
    fn hears(&mut self, remote: &Remote, in_time: bool) -> String {
        let answer = remote.says(in_time);
        self.work(|engine, now, out| engine.answered(now, answer, out))
    }

    /// Alice calls: what is answered to her INVITE with this password.
    fn calls(&mut self, number: u32, password: &[u8]) -> String {
        let challenged = self.receive(ALICE, &invite(number, 1, ""));
        assert!(challenged.starts_with("SIP/2.0 407 "), "{challenged}");
        self.receive(ALICE, &invite(number, 2, &credentials(password, "INVITE", &challenged, 1)))
    }

    fn pass(&mut self, ms: u64) {
        self.now = strowger_core::Now { mono: self.now.mono + ms, wall: self.now.wall + ms };
    }

    fn questions(&self) -> usize {
        self.database.tickets.lock().expect("no test fails while it holds this").len()
    }
}

#[test]
fn a_200_leaves_when_the_cache_has_the_credentials() {
    let (mut site, remote) = site("");
    assert_eq!(site.registers(1, "phone", 600), "", "the cache is asked");
    assert_eq!(remote.open(), 1);
    assert!(site.hears(&remote, true).starts_with("SIP/2.0 200 "));
    assert_eq!(site.shared.counts().registrations, 1);
    assert!(site.engines[0].waiting().is_nothing());
}

#[test]
fn who_is_registered_is_verified_from_the_cache_alone() {
    let (mut site, remote) = site("");
    site.registers(1, "phone", 600);
    site.hears(&remote, true);
    let before = site.questions();
    assert_eq!(site.calls(1, PASSWORD.as_bytes()), "", "it waits for the cache");
    let admitted = site.hears(&remote, true);
    assert!(is_admitted(&admitted), "{admitted}");
    assert_eq!(site.questions(), before, "the database is not asked");
    // A wrong password is one.
    site.calls(2, b"wrong");
    let refused = site.hears(&remote, true);
    assert!(refused.starts_with("SIP/2.0 407 "), "{refused}");
    assert_eq!(site.shared.counts().failed_authentications, 1);
}

#[test]
fn who_is_not_registered_is_challenged_and_not_banned() {
    let (mut site, remote) = site("");
    for number in 0..30 {
        assert_eq!(site.calls(number, PASSWORD.as_bytes()), "", "it waits for the cache");
        let refused = site.hears(&remote, true);
        assert!(refused.starts_with("SIP/2.0 407 "), "{refused}");
    }
    assert_eq!(site.questions(), 0);
    let counts = site.shared.counts();
    assert_eq!((counts.credentials_missing, counts.failed_authentications, counts.banned), (30, 0, 0));
}

/// In one process the cache answers at once.
#[test]
fn credentials_end_with_the_last_binding() {
    let mut site = with_bob("", local());
    let is_known = |site: &mut Site, number| is_admitted(&site.calls(number, PASSWORD.as_bytes()));
    assert!(site.registers(1, "desk", 600).starts_with("SIP/2.0 200 "));
    assert!(site.registers(1, "mobile", 120).starts_with("SIP/2.0 200 "));
    assert!(is_known(&mut site, 1));
    // The desk phone goes, and the other stays; then that goes too.
    assert!(site.registers(3, "desk", 0).starts_with("SIP/2.0 200 "));
    assert!(is_known(&mut site, 2));
    site.pass(119_000);
    assert!(is_known(&mut site, 3));
    site.pass(1_000);
    assert!(!is_known(&mut site, 4), "the end of the last binding");
    assert!(site.registers(5, "desk", 600).starts_with("SIP/2.0 200 "));
    assert!(is_known(&mut site, 5));
    assert!(site.registers(7, "desk", 0).starts_with("SIP/2.0 200 "));
    assert!(!is_known(&mut site, 6), "it unregistered");
}

#[test]
fn a_registration_that_fails_overwrites_nothing() {
    let mut site = with_bob("", local());
    assert!(site.registers(1, "phone", 600).starts_with("SIP/2.0 200 "));
    assert!(site.registers_with("wrong", 3, "phone", 600).starts_with("SIP/2.0 401 "));
    let answer = site.calls(1, PASSWORD.as_bytes());
    assert!(is_admitted(&answer), "{answer}");
}

#[test]
fn servers_that_share_the_cache_share_whom_they_have_registered() {
    let cache = local();
    let [mut first, mut second] = [(); 2].map(|()| with_bob("", cache.clone()));
    assert!(second.calls(1, PASSWORD.as_bytes()).starts_with("SIP/2.0 407 "));
    assert!(first.registers(1, "phone", 600).starts_with("SIP/2.0 200 "));
    let answer = second.calls(2, PASSWORD.as_bytes());
    assert!(is_admitted(&answer), "{answer}");
    assert_eq!(second.questions(), 0, "its database is not asked");
}

#[test]
fn a_cache_that_is_dead_has_its_stated_answers() {
    for (settings, status) in [("", 500), ("auth.credential_cache_required = false\n", 200)] {
        // It is silent, or known to be dead.
        for is_silent in [true, false] {
            let (mut site, remote) = site(settings);
            remote.state().is_down = !is_silent;
            let mut answer = site.registers(1, "phone", 600);
            if is_silent {
                assert_eq!(answer, "");
                answer = site.hears(&remote, false);
            }
            assert!(answer.starts_with(&format!("SIP/2.0 {status} ")), "{answer}");
            assert_eq!(site.shared.counts().credentials_not_stored, 1);
            assert_eq!(site.shared.counts().registrations, u64::from(status == 200));
            let mut answer = site.calls(1, PASSWORD.as_bytes());
            if is_silent {
                assert_eq!(answer, "");
                answer = site.hears(&remote, false);
            }
            assert!(answer.starts_with("SIP/2.0 500 "), "{answer}");
            assert_eq!(site.shared.counts().failed_lookups, 1);
            assert!(site.engines[0].waiting().is_nothing());
        }
    }
}

/// Allocations by which a build with assertions reads a message again whose Via was completed.
const ASSERTED: u64 = 3;

#[test]
fn a_request_that_waits_for_the_cache_costs_no_allocation() {
    let (mut site, remote) = site("");
    site.registers(1, "phone", 600);
    site.hears(&remote, true);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let message = |number: u32| {
        let credentials = credentials(PASSWORD.as_bytes(), "MESSAGE", &challenged, number);
        invite(number, 2, &credentials).replace("INVITE", "MESSAGE")
    };
    // What is the only one of its kind gives its memory back when it ends: there is always another one that waits.
    assert_eq!(site.receive(ALICE, &message(1)), "");
    remote.state().answers.clear();
    let mut made = [0; 2];
    for number in 2..700 {
        assert_eq!(site.receive(ALICE, &message(number)), "", "it waits");
        let waits = site.allocated;
        let answer = remote.says(true);
        let forwarded = site.work(|engine, now, out| engine.answered(now, answer, out));
        let goes_on = site.allocated;
        assert!(forwarded.starts_with("MESSAGE "), "{forwarded}");
        assert!(site.receive(BOB, &response(&forwarded, "200 OK")).starts_with("SIP/2.0 200 "));
        // Tables are at their full size when the first ones have been forgotten.
        site.wait(20);
        if number >= 500 {
            made[0] += waits;
            made[1] += goes_on;
        }
    }
    let twice = if cfg!(debug_assertions) { 200 * ASSERTED } else { 0 };
    assert!(made[0] <= twice + 2 && made[1] <= 2, "to wait {}, to go on {} in 200 requests", made[0], made[1]);
}
