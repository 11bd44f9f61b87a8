//! Cache between memory and database, and its requests when its server is silent or gone.

use super::{SOON, Stage, ask, code, send};
use strowger_lab::backend;
use strowger_tests::account::authorized;
use strowger_tests::meter;
use strowger_tests::meter::Shows::{self, At, By};
use strowger_tests::program::REDIS;
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] =
    &[("a shared cache", shared_cache), ("credentials in a cache", credentials_in_a_cache)];

/// All metrics that the scene moves.
const METRICS: &[&str] = &[
    "cache_hits_total",
    "cache_misses_total",
    "cache_stores_total",
    "cache_requests_refused_total",
    "cache_requests_late_total",
    "cache_requests_failed_total",
    "cache_requests_in_flight",
    "cache_requests_bound",
    "cache_connections",
    "cache_connections_lost_total",
];

/// Returns a REGISTER; the name is the password.
fn register(wire: &mut Wire, user: &str) -> Request {
    let contact = format!("sip:x@{}", wire.local());
    let request = Request::register(user, "example.org", &contact, "udp", wire.local());
    let challenge = ask(wire, &request);
    authorized(&request, &challenge, user, user)
}

fn registers(wire: &mut Wire, user: &str) -> u16 {
    let request = register(wire, user);
    code(wire, &request)
}

/// Returns the additional changes by a look-up of an unknown user.
fn unknown<'a>(more: &[(&'a str, Shows)]) -> Vec<(&'a str, Shows)> {
    let always = [
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("failed_authentications_total", By(1)),
        ("challenges_total", By(2)),
    ];
    [more, &always].concat()
}

fn shared_cache() {
    if REDIS.path().is_none() {
        return meter::leave_out(METRICS);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut redis = backend::redis(folder.path()).expect("it starts");
    let cache = format!("{{ name = \"shared\", engine = \"redis\", servers = [\"{}\"]", redis.address());
    let lines = format!(
        "domains = [\"example.org\"]\nban.enabled = false\nstore.lookup_timeout = \"20s\"\n\
         store.cache = \"shared\"\ncache = [{cache}, timeout = \"3s\" }}]"
    );
    let mut stage = Stage::start(Setup::on(&[Udp]).with(&lines));
    let mut phone = stage.server.connect(Udp);
    stage.shows(&[
        ("cache_connections", At(2)),
        ("cache_requests_bound", At(10_000)),
        ("cache_requests_in_flight", At(0)),
    ]);
    // Another server, which starts later, has Alice in its database, and the first learns from it.
    let other = Stage::with_users(Setup::on(&[Udp]).with(&lines), &["alice"]);
    assert_eq!(registers(&mut other.server.connect(Udp), "alice"), 200);
    drop(other);
    assert_eq!(registers(&mut phone, "alice"), 200);
    stage.shows(&[
        ("cache_hits_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(1)),
    ]);
    assert_eq!(registers(&mut phone, "bob"), 401);
    stage.shows(&unknown(&[("cache_misses_total", By(1)), ("cache_stores_total", By(0))]));
    // A name too long for a key.
    assert_eq!(registers(&mut phone, &"c".repeat(1_100)), 401);
    stage.shows(&unknown(&[("cache_requests_refused_total", By(1))]));
    let request = register(&mut phone, "dave");
    redis.freeze();
    send(&mut phone, &request);
    stage.shows(&[
        ("cache_requests_in_flight", At(1)),
        ("requests_suspended_total", By(1)),
        ("challenges_total", By(1)),
    ]);
    assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(401));
    redis.thaw();
    stage.shows(&[
        ("cache_requests_late_total", By(1)),
        ("cache_stores_total", By(0)),
        ("cache_requests_in_flight", At(0)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("failed_authentications_total", By(1)),
        ("challenges_total", By(1)),
    ]);
    backend::stop_cache(&mut redis).expect("it ends");
    stage.shows(&[("cache_connections", At(0)), ("cache_connections_lost_total", By(2))]);
    assert_eq!(registers(&mut phone, "erin"), 401);
    stage.shows(&unknown(&[("cache_requests_failed_total", By(1))]));
    redis.start_again().expect("it starts");
    stage.shows(&[("cache_connections", At(2))]);
    stage.end();
}

/// Sends a message of Alice, with her password.
fn writes(wire: &mut Wire) -> u16 {
    let mut request = Request::new("MESSAGE", "sip:bob@example.org", "udp", wire.local());
    request.from = "<sip:alice@example.org>;tag=a".into();
    let challenge = ask(wire, &request);
    code(wire, &authorized(&request, &challenge, "alice", "alice"))
}

fn credentials_in_a_cache() {
    if REDIS.path().is_none() {
        return meter::leave_out(&["credentials_missing_total", "credentials_not_stored_total"]);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut redis = backend::redis(folder.path()).expect("it starts");
    let cache = format!("{{ name = \"shared\", engine = \"redis\", servers = [\"{}\"]", redis.address());
    let lines = format!(
        "domains = [\"example.org\"]\nauth.credential_cache = \"shared\"\ncache = [{cache}, timeout = \"3s\" }}]"
    );
    let mut stage = Stage::with_users(Setup::on(&[Udp]).with(&lines), &["alice"]);
    let mut phone = stage.server.connect(Udp);
    // One connection belongs to the shard, which sends requests, and two belong to the threads of the cache.
    stage.shows(&[("cache_connections", At(3))]);
    // She is not registered: that is no failed authentication.
    assert_eq!(writes(&mut phone), 407);
    stage.shows(&[
        ("credentials_missing_total", By(1)),
        ("cache_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(2)),
        ("failed_authentications_total", By(0)),
    ]);
    assert_eq!(registers(&mut phone, "alice"), 200);
    stage.shows(&[
        ("cache_stores_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(1)),
    ]);
    backend::stop_cache(&mut redis).expect("it ends");
    stage.shows(&[("cache_connections", At(0)), ("cache_connections_lost_total", By(3))]);
    assert_eq!(registers(&mut phone, "alice"), 500);
    stage.shows(&[
        ("credentials_not_stored_total", By(1)),
        ("cache_requests_failed_total", By(1)),
        ("challenges_total", By(1)),
        ("registrations_total", By(0)),
    ]);
    stage.end();
}
