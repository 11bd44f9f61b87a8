//! Cache of credentials that is frozen, slow or gone: each request has its specified answer in time.

use std::path::Path;
use std::thread;
use std::time::Duration;

use strowger_lab::Error;
use strowger_lab::backend::{self, Backend};
use strowger_tests::control::json;
use strowger_tests::credential_cache::{
    CHALLENGED, PASSWORD, SOON, TIMEOUT, VERIFIED, add_alice, message, of, register, registers, setup, timed, writes,
};
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::Server;
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::{undisturbed, wait};

/// Allowed delay of an answer beyond the deadline of the cache.
const LATE: Duration = Duration::from_millis(100);
/// Longer than the deadline of the cache.
const SLOW: Duration = Duration::from_millis(500);
/// Shorter than the deadline.
const SLOWER: Duration = Duration::from_millis(150);

/// Asserts that a REGISTER gets this answer, and a message 500, within the deadline of the cache.
fn states_in_time(server: &Server, registered: u16, what: &str) {
    let [(first, after), (second, later)] = [timed(server, registers(600), PASSWORD), timed(server, writes, PASSWORD)];
    assert_eq!((first, second), (registered, 500), "{what}");
    assert!(after.max(later) < TIMEOUT + LATE, "{what}: {after:?}, {later:?}");
}

fn is_well(server: &Server) -> bool {
    register(server, PASSWORD) == 200 && message(server, PASSWORD) == VERIFIED
}

/// Configurations: lines, and the status of a REGISTER without the cache.
const NEEDS: [(&str, u16); 2] = [("", 500), ("auth.credential_cache_required = false", 200)];

/// Without an answer of the cache in time each request gets its specified answer, and after its recovery service is
/// normal. The configurations run at once, each with a cache of its own: they wait most of the time.
fn each_has_its_stated_answers(engine: &str, start: fn(&Path) -> Result<Backend, Error>) {
    thread::scope(|scope| {
        for (lines, registered) in NEEDS {
            scope.spawn(move || has_its_stated_answers(engine, start, lines, registered));
        }
    });
}

fn has_its_stated_answers(engine: &str, start: fn(&Path) -> Result<Backend, Error>, lines: &str, registered: u16) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut far = start(folder.path()).expect("it starts");
    let relay = SlowRelay::to(far.address());
    let cache = format!("engine = \"{engine}\", servers = [\"{}\"]", relay.address());
    let what = |state: &str| format!("{engine} is {state}, {lines}");
    let server = setup(&cache, lines).start();
    add_alice(&server);
    assert_eq!(message(&server, PASSWORD), VERIFIED);

    far.freeze();
    states_in_time(&server, registered, &what("frozen"));
    far.thaw();
    assert!(wait::until(SOON, || is_well(&server)), "{}", what("thawed"));

    relay.slow_down(SLOWER);
    let is_late_and_well = || {
        let (status, took) = timed(&server, writes, PASSWORD);
        status == VERIFIED && took >= SLOWER
    };
    assert!(wait::until(SOON, is_late_and_well), "{}", what("slower"));
    relay.slow_down(SLOW);
    states_in_time(&server, registered, &what("slow"));
    relay.slow_down(Duration::ZERO);
    assert!(wait::until(SOON, || is_well(&server)), "{}", what("fast again"));

    backend::stop_cache(&mut far).expect("it ends");
    let is_stated = || register(&server, PASSWORD) == registered && message(&server, PASSWORD) == 500;
    assert!(wait::until(SOON, is_stated), "{}", what("gone"));
    far.start_again().expect("it starts");
    // The restarted cache has lost its entries.
    assert!(wait::until(SOON, || message(&server, PASSWORD) == CHALLENGED), "{}", what("empty"));
    assert!(wait::until(SOON, || is_well(&server)), "{}", what("there again"));
}

#[test]
fn a_redis_that_is_frozen_slow_or_gone_has_its_stated_answers() {
    if have(&[REDIS]) {
        undisturbed(|| each_has_its_stated_answers("redis", backend::redis));
    }
}

#[test]
fn a_memcached_that_is_frozen_slow_or_gone_has_its_stated_answers() {
    if have(&[MEMCACHED]) {
        undisturbed(|| each_has_its_stated_answers("memcached", backend::memcached));
    }
}

/// The error of the Redis is in the log once, and no user is challenged as unregistered.
#[test]
fn a_redis_that_refuses_has_its_stated_answers_and_its_words_are_logged() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = backend::redis(folder.path()).expect("it starts");
    let server = setup(&of("redis", &far), "").start();
    add_alice(&server);
    let told = |lines: &[&str]| assert!(say(far.address(), lines).iter().all(|said| said == "+OK\r\n"), "{lines:?}");
    let state = || json(&server, &["caches", "list"])["caches"][0]["state"].clone();
    assert_eq!(state(), "works");

    told(&["CONFIG SET maxmemory 1"]);
    assert_eq!([(); 3].map(|()| register(&server, PASSWORD)), [500; 3]);
    let log = server.log_with("OOM command not allowed");
    assert_eq!(log.matches("OOM command not allowed").count(), 1, "{log}");
    assert_eq!(state(), "a server refuses requests: the log has its reason");

    told(&["CONFIG SET maxmemory 0", "ACL SETUSER default -get"]);
    assert_eq!((register(&server, PASSWORD), message(&server, PASSWORD)), (200, 500));
    server.log_with("NOPERM");
    told(&["ACL SETUSER default +get"]);
    assert_eq!(message(&server, PASSWORD), VERIFIED);
}
