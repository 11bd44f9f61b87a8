//! Credentials in a cache alone, as in the study of caches: a verified REGISTER stores them, and each server that
//! shares the cache verifies the user's other requests with them.

use std::net::SocketAddr;
use std::process::Command;

use strowger_lab::backend;
use strowger_tests::account::authorized;
use strowger_tests::binary::strowger;
use strowger_tests::control::{json, run};
use strowger_tests::credential_cache::{
    ALICE, CHALLENGED, PASSWORD, SOON, VERIFIED, add_alice, message, of, register, registers, setup, timed,
};
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::Server;
use strowger_tests::text::{Request, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Tcp;

/// Returns the remaining seconds of an entry in Redis; -2: no entry.
fn left(redis: SocketAddr) -> i64 {
    let said = say(redis, &[&format!("TTL {ALICE}")]).remove(0);
    said.trim_matches([':', '\r', '\n']).parse().expect("a number")
}

/// Each server has a database of its own, and Alice is in the first alone.
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
        // Another device stays registered when this device leaves; then the other device leaves, too.
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
    // After a new password the entry is that of the last verified registration.
    server.set_password("alice@example.org", "a new one");
    assert!(wait::until(SOON, || register(&server, "a new one") == 200));
    assert_eq!((message(&server, "a new one"), message(&server, PASSWORD)), (VERIFIED, CHALLENGED));
    assert_eq!(register(&server, PASSWORD), 401);
    assert_eq!(message(&server, "a new one"), VERIFIED);
    // The entry in the cache ends with the registration, without a request of the phone.
    assert_eq!(timed(&server, registers(1), "a new one").0, 200);
    assert!(wait::until(SOON, || message(&server, "a new one") == CHALLENGED));
    assert_eq!(left(redis.address()), -2);
    // A removed user loses the entry, too.
    assert_eq!(register(&server, "a new one"), 200);
    let removed = Command::new(strowger())
        .args(["user", "remove", "alice@example.org", "--config"])
        .arg(server.config())
        .output()
        .expect("the program runs");
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert!(wait::until(SOON, || left(redis.address()) == -2));
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

/// An operator's change takes effect at once: the command drops her credentials.
#[test]
fn an_operator_sees_and_drops_the_credentials_of_a_registered_user() {
    let has_redis = have(&[REDIS]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = has_redis.then(|| backend::redis(folder.path()).expect("it starts"));
    let shared = redis.as_ref().map(|redis| of("redis", redis));
    for cache in ["memory = \"1MiB\""].into_iter().chain(shared.as_deref()) {
        let server = setup(cache, "").start();
        add_alice(&server);
        assert_eq!(message(&server, PASSWORD), VERIFIED);
        let order = |words: &[&str]| {
            let output = run(&server, &[&["caches"], words].concat());
            (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let kept = json(&server, &["caches", "user", "alice@example.org"]);
        let registered = |row: &&serde_json::Value| row["question"] == "registered" && row["place"] == "shared";
        let row =
            kept["kept"].as_array().and_then(|all| all.iter().find(registered)).unwrap_or_else(|| panic!("{kept}"));
        assert_eq!(
            (&row["name"], &row["within"], &row["exists"]),
            (&"alice".into(), &"example.org".into(), &true.into())
        );
        assert!(row["algorithms"].as_array().is_some_and(|all| !all.is_empty()), "{row}");
        let (_, text) = order(&["user", "alice@example.org"]);
        assert!(text.contains("registered alice in example.org: HA1 for "), "{text}");
        let (code, text) = order(&["drop", "alice@example.org"]);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = order(&["user", "alice@example.org"]);
        assert_eq!((code, text.as_str()), (Some(1), "nothing is kept of alice@example.org\n"));
        assert_eq!(message(&server, PASSWORD), CHALLENGED);
        assert_eq!(register(&server, PASSWORD), 200);
        assert_eq!(message(&server, PASSWORD), VERIFIED, "the database knows her");
        // Credentials that only the cache has stay with `--all`.
        assert_eq!(order(&["drop", "--all"]).0, Some(0));
        assert_eq!(message(&server, PASSWORD), VERIFIED);
        let Some(redis) = redis.as_ref().filter(|_| cache.contains("redis")) else { continue };
        redis.freeze();
        let (code, text) = order(&["drop", "alice@example.org"]);
        assert!(code == Some(1) && text.contains("the cache shared does not answer"), "{text}");
        redis.thaw();
    }
}

/// Number of made-up users requested by a stranger: three times as many as fit into 1 MiB.
const UNKNOWN: usize = 15_000;

fn asks_for_unknown_users(server: &Server) {
    let mut wire = server.connect(Tcp);
    let here = wire.local();
    for chunk in 0..UNKNOWN / 100 {
        for n in 0..100 {
            let target = format!("sip:nobody-{chunk}-{n}-{:->60}@example.org", "");
            wire.send(&Request::new("OPTIONS", &target, "tcp", here).bytes()).expect("the server takes messages");
        }
        for _ in 0..100 {
            let answer = wire.final_response(SOON).expect("an answer");
            assert_eq!(status(&answer), Some(404), "{}", String::from_utf8_lossy(&answer));
        }
    }
}

fn write_as(server: &Server, user: &str) -> u16 {
    let mut wire = server.connect(Tcp);
    let mut ask = |request: &Request| {
        wire.send(&request.bytes()).expect("the server takes messages");
        (wire.final_response(SOON).expect("an answer"), wire.local())
    };
    let mut request = Request::new("MESSAGE", "sip:bob@example.org", "tcp", server.address(Tcp));
    request.from = format!("<sip:{user}@example.org>;tag=a");
    let (challenge, _) = ask(&request);
    status(&ask(&authorized(&request, &challenge, user, PASSWORD)).0).expect("a response")
}

/// One cache is used for both purposes; `check` warns about this.
#[test]
fn unknown_users_evict_no_registered_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"];
    let redis = have(&[REDIS]).then(|| backend::redis_with(folder.path(), &arguments).expect("it starts"));
    let shared = redis.as_ref().map(|redis| of("redis", redis));
    for cache in ["memory = \"1MiB\""].into_iter().chain(shared.as_deref()) {
        let lines = "store.cache = \"shared\"\nstore.cache_lifetime = \"1ms\"";
        let server = setup(cache, lines).start();
        let users: Vec<String> = (0..12).map(|n| format!("user{n}")).collect();
        for user in &users {
            server.add_user(&format!("{user}@example.org"), PASSWORD);
        }
        let registers = |user: &String| {
            let mut wire = server.connect(Tcp);
            let request = Request::register(user, "example.org", "sip:x@127.0.0.1", "tcp", wire.local());
            wire.send(&request.bytes()).expect("the server takes messages");
            let challenge = wire.final_response(SOON).expect("an answer");
            wire.send(&authorized(&request, &challenge, user, PASSWORD).bytes()).expect("the server takes messages");
            status(&wire.final_response(SOON).expect("an answer")) == Some(200)
        };
        assert!(users.iter().all(|user| wait::until(SOON, || registers(user))));
        asks_for_unknown_users(&server);
        for user in &users {
            assert_eq!(write_as(&server, user), VERIFIED, "{cache}: {user}");
        }
        if let Some(redis) = redis.as_ref().filter(|_| cache.contains("redis")) {
            let keys = say(redis.address(), &["KEYS strowger:*"]).remove(0);
            assert!(keys.contains("strowger:registered:") && !keys.contains("nobody"), "{keys}");
            let log = server.log_with("cache server may evict credentials of registered users");
            assert!(log.contains("allkeys-lru") && log.contains("noeviction"), "{log}");
            assert_eq!(log.matches("may evict credentials").count(), 1, "{log}");
        }
    }
}
