//! Credentials that stand in a cache alone, as in the study of caches: a REGISTER that was verified stores them, and what else the user
//! sends is verified from there, by each server that shares the cache.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use strowger_lab::backend::{self, Backend};
use strowger_tests::account::authorized;
use strowger_tests::binary::strowger;
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Tcp;
use strowger_tests::wire::Wire;

/// Where credentials of Alice stand.
const ALICE: &str = "strowger:registered:11:example.org:alice";
const PASSWORD: &str = "a password of Alice";
/// What an answer may take that comes at once, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(10);
/// What a cache has for an answer, and how much later the stated answer to a request may come.
const TIMEOUT: Duration = Duration::from_millis(400);
const LATE: Duration = Duration::from_millis(100);

/// What a server answers to a request that has shown the right password, for a user whom it does not know.
const VERIFIED: u16 = 404;
/// What it answers to one that has not.
const CHALLENGED: u16 = 407;

/// A server with the credentials in this cache.
fn setup(cache: &str, lines: &str) -> Setup {
    Setup::on(&[Tcp]).with(&format!(
        "domains = [\"example.org\"]\nban.enabled = false\nauth.credential_cache = \"shared\"\nstore.poll_interval = \"10ms\"\n\
         cache = [{{ name = \"shared\", timeout = \"{}ms\", {cache} }}]\n{lines}",
        TIMEOUT.as_millis()
    ))
}

fn of(engine: &str, server: &Backend) -> String {
    format!("engine = \"{engine}\", servers = [\"{}\"]", server.address())
}

fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    wire.send(&request.bytes()).expect("the server takes messages");
    wire.final_response(SOON).expect("an answer")
}

/// The status of a request of Alice with this password, and how long its answer took.
fn timed(server: &Server, request: impl Fn(SocketAddr) -> Request, password: &str) -> (u16, Duration) {
    let mut wire = server.connect(Tcp);
    let request = request(wire.local());
    let challenge = ask(&mut wire, &request);
    let request = authorized(&request, &challenge, "alice", password);
    let start = Instant::now();
    let answer = ask(&mut wire, &request);
    (status(&answer).expect("a response"), start.elapsed())
}

fn registers(seconds: u32) -> impl Fn(SocketAddr) -> Request {
    move |here| {
        let mut request = Request::register("alice", "example.org", "sip:alice@127.0.0.1", "tcp", here);
        request.headers.retain(|line| !line.starts_with("Expires"));
        request.with(format!("Expires: {seconds}"))
    }
}

fn writes(here: SocketAddr) -> Request {
    let mut request = Request::new("MESSAGE", "sip:bob@example.org", "tcp", here);
    request.from = "<sip:alice@example.org>;tag=a".into();
    request
}

fn register(server: &Server, password: &str) -> u16 {
    timed(server, registers(600), password).0
}

/// What becomes of a message of Alice.
fn message(server: &Server, password: &str) -> u16 {
    timed(server, writes, password).0
}

/// Alice is added, and registers once the server has heard of her.
fn add_alice(server: &Server) {
    server.add_user("alice@example.org", PASSWORD);
    assert!(wait::until(SOON, || register(server, PASSWORD) == 200));
}

/// Seconds that an entry of a Redis has left; -2: there is none.
fn left(redis: SocketAddr) -> i64 {
    let said = say(redis, &[&format!("TTL {ALICE}")]).remove(0);
    said.trim_matches([':', '\r', '\n']).parse().expect("a number")
}

/// Each has a database of its own, and Alice is in that of the first alone.
#[test]
fn a_phone_that_registered_at_one_server_is_verified_at_the_other() {
    if !have(&[REDIS, MEMCACHED]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = backend::redis(folder.path()).expect("it starts");
    let memcached = backend::memcached(folder.path()).expect("it starts");
    for cache in [of("redis", &redis), of("memcached", &memcached)] {
        let [first, second] = [(); 2].map(|()| setup(&cache, "").start());
        assert_eq!(message(&second, PASSWORD), CHALLENGED, "who is not registered is not known");
        add_alice(&first);
        assert_eq!((message(&first, PASSWORD), message(&second, PASSWORD)), (VERIFIED, VERIFIED));
        assert_eq!(message(&second, "another password"), CHALLENGED);
        assert_eq!(register(&second, PASSWORD), 401, "by its database she is no user there");
        assert_eq!(message(&second, PASSWORD), VERIFIED, "what fails takes nothing away");
        // Another device stays when this one goes, and then that goes too.
        let another = |seconds: u32| {
            move |here: SocketAddr| {
                let contact = "sip:alice@127.0.0.2";
                let mut request = Request::register("alice", "example.org", contact, "tcp", here);
                request.headers.retain(|line| !line.starts_with("Expires"));
                request.with(format!("Expires: {seconds}"))
            }
        };
        assert_eq!(timed(&first, another(60), PASSWORD).0, 200);
        assert_eq!(timed(&first, registers(0), PASSWORD).0, 200);
        assert_eq!(message(&second, PASSWORD), VERIFIED);
        assert_eq!(timed(&first, another(0), PASSWORD).0, 200);
        assert_eq!(message(&second, PASSWORD), CHALLENGED, "a 200 leaves when the entry is gone");
    }
}

#[test]
fn credentials_live_as_long_as_the_registration_and_change_with_it() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = backend::redis(folder.path()).expect("it starts");
    let server = setup(&of("redis", &redis), "registrar.min_expires = \"1s\"").start();
    add_alice(&server);
    assert!((590..=600).contains(&left(redis.address())), "{}", left(redis.address()));
    let value = say(redis.address(), &[&format!("GET {ALICE}")]).remove(0);
    assert!(!value.contains(PASSWORD));
    // A new password: the entry is that of the last registration that was verified.
    server.set_password("alice@example.org", "a new one");
    assert!(wait::until(SOON, || register(&server, "a new one") == 200));
    assert_eq!((message(&server, "a new one"), message(&server, PASSWORD)), (VERIFIED, CHALLENGED));
    assert_eq!(register(&server, PASSWORD), 401);
    assert_eq!(message(&server, "a new one"), VERIFIED);
    // It ends with the registration, without a word of the phone.
    assert_eq!(timed(&server, registers(1), "a new one").0, 200);
    assert!(wait::until(SOON, || message(&server, "a new one") == CHALLENGED));
    assert_eq!(left(redis.address()), -2);
    // One that is no user any more is none here either.
    assert_eq!(register(&server, "a new one"), 200);
    let removed = Command::new(strowger())
        .args(["user", "remove", "alice@example.org", "--config"])
        .arg(server.config())
        .output()
        .expect("the program runs");
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert!(wait::until(SOON, || left(redis.address()) == -2));
}

/// What the cache does not say in time has its stated answer, and when it answers again all is well.
#[test]
fn a_cache_that_is_frozen_or_gone_has_its_stated_answers() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut redis = backend::redis(folder.path()).expect("it starts");
    let cache = of("redis", &redis);
    for (lines, registered) in [("", 500), ("auth.credential_cache_required = false", 200)] {
        let server = setup(&cache, lines).start();
        add_alice(&server);
        assert_eq!(message(&server, PASSWORD), VERIFIED);
        redis.freeze();
        for (request, stated) in [(true, registered), (false, 500)] {
            let (status, took) = match request {
                true => timed(&server, registers(600), PASSWORD),
                false => timed(&server, writes, PASSWORD),
            };
            assert_eq!(status, stated, "{lines}");
            assert!(took < TIMEOUT + LATE, "{took:?}");
        }
        redis.thaw();
        assert!(wait::until(SOON, || register(&server, PASSWORD) == 200 && message(&server, PASSWORD) == VERIFIED));
        backend::stop_cache(&mut redis).expect("it ends");
        let is_stated = || register(&server, PASSWORD) == registered && message(&server, PASSWORD) == 500;
        assert!(wait::until(SOON, is_stated), "{lines}");
        redis.start_again().expect("it starts");
        // It has lost what it had.
        assert!(wait::until(SOON, || message(&server, PASSWORD) == CHALLENGED));
        assert!(wait::until(SOON, || register(&server, PASSWORD) == 200 && message(&server, PASSWORD) == VERIFIED));
    }
}

#[test]
fn credentials_in_a_folder_outlive_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = format!("folder = {:?}", folder.path().join("cache").display().to_string());
    let mut server = setup(&cache, "").start();
    add_alice(&server);
    server.kill();
    server.start();
    assert_eq!(message(&server, PASSWORD), VERIFIED, "the 200 to her REGISTER said so");
}
