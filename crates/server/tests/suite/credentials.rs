//! Credentials in a cache only: the requests of registered users are verified from the cache, without the database.

use crate::site::*;
use std::sync::{Arc, Mutex};
use strowger_cache::engine::{CacheHandle, RemoteEngine};
use strowger_cache::error::CacheError;
use strowger_cache::gauges::Gauges;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{CacheAnswer, Request};
use strowger_cache::settings::LocalSettings;
use strowger_cache::ticket::{Answered, Receivers, Ticket};
use strowger_server::engine::EngineInput;
use strowger_store::binding::Binding;
use strowger_store::credential_cache::CredentialCache;
use strowger_store::location::{Step, UpdateStatus};
use strowger_store::subscriber;
use strowger_store::ticket::Ticket as BindingTicket;

const PASSWORD: &str = "secret of alice";

/// Cache in another process. It carries out requests at once, and the test decides when its answer arrives.
struct Remote {
    local: LocalCache,
    receivers: Receivers,
    state: Mutex<State>,
}

struct State {
    is_down: bool,
    /// Results of the requests so far. The room is reserved, since its allocation would count for the engine that asks.
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

    /// Returns the number of answers that are still to come.
    fn open(&self) -> usize {
        self.state().answers.len()
    }

    /// Returns the answers of the cache, or its failure.
    fn says(&self, said: Result<(), CacheError>) -> EngineInput {
        let mut state = self.state();
        let value: Box<[u8]> = state.value.as_slice().into();
        let answers = state.answers.drain(..);
        EngineInput::Credentials(
            answers
                .map(|(ticket, result)| match said {
                    Ok(()) => Answered { ticket, result, value: value.clone() },
                    Err(error) => Answered { ticket, result: Err(error), value: Box::default() },
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

    fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

const AUTHENTICATES: &str = "registrar.authenticate = true\ntimers.t1 = \"10ms\"\n";

fn site(settings: &str) -> (Site, Arc<Remote>) {
    let remote = Remote::new();
    let cache = CredentialCache::new(CacheHandle::Remote(remote.clone()));
    (with_bob(settings, cache), remote)
}

/// Starts a site at which bob's phone is bound, as by an earlier REGISTER.
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

/// Tells whether a request was forwarded to bob.
fn is_admitted(sent: &str) -> bool {
    sent.contains("INVITE sip:bob@")
}

fn local() -> CredentialCache {
    CredentialCache::new(CacheHandle::Local(Arc::new(LocalCache::new(LocalSettings::default()))))
}

/// Writes alice's REGISTER of this contact, with its header lines.
fn register(cseq: u32, contact: &str, more: &str) -> String {
    format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKr{contact}{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:alice@example.org>\r\nCall-ID: {contact}\r\nCSeq: {cseq} REGISTER\r\n\
         Contact: <sip:{contact}@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

impl Site {
    /// Registers a contact of alice for this number of seconds. Returns the response after the answer of the database.
    fn registers(&mut self, cseq: u32, contact: &str, seconds: u32) -> String {
        self.registers_with(PASSWORD, cseq, contact, seconds)
    }

    fn registers_with(&mut self, password: &str, cseq: u32, contact: &str, seconds: u32) -> String {
        self.registers_as("alice", password, cseq, contact, seconds)
    }

    /// Registers alice by this spelling of her name.
    fn registers_as(&mut self, spelled: &str, password: &str, cseq: u32, contact: &str, seconds: u32) -> String {
        let expires = format!("Expires: {seconds}\r\n");
        let challenged = self.receive(ALICE, &register(cseq, contact, &expires));
        assert!(challenged.starts_with("SIP/2.0 401 "), "{challenged}");
        let request = ("REGISTER", "sip:example.org", &b""[..]);
        let credentials = strowger_rig::credentials(challenged.as_bytes(), spelled, password.as_bytes(), request, 1);
        let text = register(cseq + 1, contact, &format!("{expires}{credentials}\r\n"));
        assert_eq!(self.receive(ALICE, &text), "", "the database is asked");
        let known = credential_as(spelled, "alice", PASSWORD.as_bytes());
        let known = self.says(Ok(subscriber::SubscriberAnswer::Credential(known)));
        self.work(|engine, now, out| engine.answered(now, known, out))
    }

    /// Returns the messages that the first engine sends for the answer of the cache.
    fn hears(&mut self, remote: &Remote, said: Result<(), CacheError>) -> String {
        let answer = remote.says(said);
        self.work(|engine, now, out| engine.answered(now, answer, out))
    }

    /// Sends alice's INVITE with this password. Returns the response.
    fn calls(&mut self, number: u32, password: &[u8]) -> String {
        self.calls_as("alice", number, password)
    }

    /// Sends alice's INVITE by this spelling of her name.
    fn calls_as(&mut self, spelled: &str, number: u32, password: &[u8]) -> String {
        let challenged = self.receive(ALICE, &invite(number, 1, ""));
        assert!(challenged.starts_with("SIP/2.0 407 "), "{challenged}");
        let line = credentials_of(spelled, password, ("INVITE", "sip:bob@example.org"), &challenged, 1);
        self.receive(ALICE, &invite(number, 2, &line))
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
    assert!(site.hears(&remote, Ok(())).starts_with("SIP/2.0 200 "));
    assert_eq!(site.shared.counts().registrations, 1);
    assert!(site.engines[0].waiting().is_nothing());
}

#[test]
fn registered_users_are_verified_from_the_cache_alone() {
    let (mut site, remote) = site("");
    site.registers(1, "phone", 600);
    site.hears(&remote, Ok(()));
    let before = site.questions();
    assert_eq!(site.calls(1, PASSWORD.as_bytes()), "", "it waits for the cache");
    let admitted = site.hears(&remote, Ok(()));
    assert!(is_admitted(&admitted), "{admitted}");
    assert_eq!(site.questions(), before, "the database is not asked");
    // A wrong password counts as one.
    site.calls(2, b"wrong");
    let refused = site.hears(&remote, Ok(()));
    assert!(refused.starts_with("SIP/2.0 407 "), "{refused}");
    assert_eq!(site.shared.counts().failed_authentications, 1);
}

#[test]
fn unregistered_users_are_challenged_and_not_banned() {
    let (mut site, remote) = site("");
    for number in 0..30 {
        assert_eq!(site.calls(number, PASSWORD.as_bytes()), "", "it waits for the cache");
        let refused = site.hears(&remote, Ok(()));
        assert!(refused.starts_with("SIP/2.0 407 "), "{refused}");
    }
    assert_eq!(site.questions(), 0);
    let counts = site.shared.counts();
    assert_eq!((counts.credentials_missing, counts.failed_authentications, counts.banned), (30, 0, 0));
}

/// Covers a cache in the same process, which answers at once.
#[test]
fn credentials_end_with_the_last_binding() {
    let mut site = with_bob("", local());
    let is_known = |site: &mut Site, number| is_admitted(&site.calls(number, PASSWORD.as_bytes()));
    assert!(site.registers(1, "desk", 600).starts_with("SIP/2.0 200 "));
    assert!(site.registers(1, "mobile", 120).starts_with("SIP/2.0 200 "));
    assert!(is_known(&mut site, 1));
    // The desk phone unregisters and the other stays; then that one ends too.
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
fn a_registration_that_the_table_refuses_stores_nothing() {
    let mut site = with_bob("registrar.max_bindings = 1\n", local());
    assert!(site.registers(1, "phone", 600).starts_with("SIP/2.0 503 "));
    assert!(site.calls(1, PASSWORD.as_bytes()).starts_with("SIP/2.0 407 "));
    assert_eq!(site.shared.counts().credentials_missing, 1);
}

/// Covers the spellings of her phones: they may send her name or her address, each with its own HA1.
#[test]
fn credentials_by_each_spelling_end_with_the_last_binding() {
    let mut site = with_bob("", local());
    let mut number = 0;
    let mut known = |site: &mut Site| {
        SPELLINGS.map(|spelled| {
            number += 1;
            is_admitted(&site.calls_as(spelled, number, PASSWORD.as_bytes()))
        })
    };
    for (cseq, spelled, expected) in [
        (1, SPELLINGS[0], [true, false, false]),
        (3, SPELLINGS[1], [true, true, false]),
        // One entry serves all spellings of the domain: that of the last REGISTER.
        (5, SPELLINGS[2], [true, false, true]),
    ] {
        assert!(site.registers_as(spelled, PASSWORD, cseq, "phone", 600).starts_with("SIP/2.0 200 "));
        assert_eq!(known(&mut site), expected, "by {spelled}");
    }
    for (cseq, spelled) in [(10, SPELLINGS[0]), (20, SPELLINGS[1]), (30, SPELLINGS[2])] {
        assert!(site.registers_as(spelled, PASSWORD, cseq, "phone", 0).starts_with("SIP/2.0 200 "));
        assert_eq!(known(&mut site), [false; 3], "it unregistered by {spelled}");
        for (cseq, spelled) in [(cseq + 2, SPELLINGS[0]), (cseq + 4, SPELLINGS[2])] {
            assert!(site.registers_as(spelled, PASSWORD, cseq, "phone", 600).starts_with("SIP/2.0 200 "));
        }
    }
    assert_eq!(site.shared.counts().failed_authentications, 0, "none of them is a wrong password");
}

#[test]
fn a_200_to_an_unregistration_leaves_when_no_name_has_credentials() {
    let (mut site, remote) = site("");
    site.registers(1, "phone", 600);
    site.hears(&remote, Ok(()));
    assert_eq!(site.registers(3, "phone", 0), "", "the cache is asked");
    let last = remote.state().answers.pop().expect("an answer for each name");
    assert_eq!(site.hears(&remote, Ok(())), "");
    remote.state().answers.push(last);
    assert!(site.hears(&remote, Ok(())).starts_with("SIP/2.0 200 "));
    assert!(site.engines[0].waiting().is_nothing());
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
        // The cache is silent, refuses, or is known to be dead.
        for said in [Some(CacheError::TimedOut), Some(CacheError::Denied), None] {
            let (mut site, remote) = site(settings);
            remote.state().is_down = said.is_none();
            let mut answer = site.registers(1, "phone", 600);
            if let Some(error) = said {
                assert_eq!(answer, "");
                answer = site.hears(&remote, Err(error));
            }
            assert!(answer.starts_with(&format!("SIP/2.0 {status} ")), "{answer}");
            assert_eq!(site.shared.counts().credentials_not_stored, 1);
            assert_eq!(site.shared.counts().registrations, u64::from(status == 200));
            let mut answer = site.calls(1, PASSWORD.as_bytes());
            if let Some(error) = said {
                assert_eq!(answer, "");
                answer = site.hears(&remote, Err(error));
            }
            assert!(answer.starts_with("SIP/2.0 500 "), "{answer}");
            assert_eq!(site.shared.counts().failed_lookups, 1);
            assert!(site.engines[0].waiting().is_nothing());
        }
    }
}

#[test]
fn a_request_that_waits_for_the_cache_costs_no_allocation() {
    let (mut site, remote) = site("");
    site.registers(1, "phone", 600);
    site.hears(&remote, Ok(()));
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let message = |number: u32| {
        let credentials = credentials(PASSWORD.as_bytes(), "MESSAGE", &challenged, number);
        invite(number, 2, &credentials).replace("INVITE", "MESSAGE")
    };
    assert_eq!(site.receive(ALICE, &message(1)), "");
    remote.state().answers.clear();
    Site::allocates_nothing(site.allocations(message, |_| remote.says(Ok(()))));
}
