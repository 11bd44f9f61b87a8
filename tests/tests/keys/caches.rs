//! Caches in the configuration, as the second level of cached subscribers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_lab::backend::{self, Backend};
use strowger_tests::account::authorized;
use strowger_tests::certificate::Certificate;
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::Tcp;
use strowger_tests::{port, wait};

use super::{ask, code};

/// Cache key of Alice's credential.
const ALICE: &str = "strowger:credential:11:example.org:alice";
const PASSWORD: &str = "a password of Alice";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Starts a server with this cache between memory and its database; memory forgets at once.
fn start(cache: &str, lines: &str) -> Server {
    let lines = format!(
        "domains = [\"example.org\"]\nban.enabled = false\nstore.cache = \"shared\"\n\
         cache = [{{ name = \"shared\", {cache} }}]\n{lines}"
    );
    Setup::on(&[Tcp]).with(&lines).start()
}

fn redis(server: &Backend) -> String {
    format!("engine = \"redis\", servers = [\"{}\"]", server.address())
}

/// Returns the status of a REGISTER of Alice with this password.
fn register(server: &Server, password: &str) -> u16 {
    register_as(server, "alice", password)
}

/// Returns the status of a REGISTER of this user with this password.
fn register_as(server: &Server, user: &str, password: &str) -> u16 {
    let mut wire = server.connect(Tcp);
    let contact = format!("sip:{user}@127.0.0.1");
    let request = Request::register(user, "example.org", &contact, "tcp", wire.local());
    let challenge = ask(&mut wire, &request);
    code(&ask(&mut wire, &authorized(&request, &challenge, user, password)))
}

/// Tells whether a Redis has the key of Alice. `before`: commands that are sent first.
fn has(redis: SocketAddr, before: &[&str]) -> bool {
    let ask = format!("EXISTS {ALICE}");
    let said = say(redis, &[before, &[&ask]].concat());
    said.last().is_some_and(|said| said == ":1\r\n")
}

/// Registers Alice, and asserts that her credential is stored in the server's Redis, or is not.
fn learns(server: &Server, redis: SocketAddr, before: &[&str], comes: bool) {
    server.add_user("alice@example.org", PASSWORD);
    let is_known = wait::until(Duration::from_secs(60), || register(server, PASSWORD) == 200);
    assert!(is_known, "she is in the database");
    // A write that is not made will not appear within a minute either.
    let limit = Duration::from_secs(if comes { 120 } else { 1 });
    let came = wait::until(limit, || {
        // The server forgets her credential when it gets the notice of the new user.
        assert_eq!(register(server, PASSWORD), 200);
        has(redis, before)
    });
    assert_eq!(came, comes);
}

#[test]
fn what_a_server_learns_is_in_its_cache() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = folder();
    let cache = backend::redis(folder.path()).expect("it starts");
    let server = start(&format!("{}, database = 5", redis(&cache)), "store.cache_lifetime = \"20m\"");
    learns(&server, cache.address(), &["SELECT 5"], true);
    assert!(!has(cache.address(), &["SELECT 0"]));
    // The entry has the configured lifetime, and contains no password. Both are checked in one look. The look is repeated if
    // the server has just dropped the entry: the notice of the new user may come late.
    let kept = wait::look(Duration::from_secs(10), || {
        assert_eq!(register(&server, PASSWORD), 200);
        let said = say(cache.address(), &["SELECT 5", &format!("TTL {ALICE}"), &format!("GET {ALICE}")]);
        let life = said[1].trim_matches([':', '\r', '\n']).parse::<u64>().ok()?;
        (!said[2].starts_with("$-1")).then(|| (life, said[2].clone()))
    });
    let (life, credential) = kept.expect("she is in the cache");
    assert!((1_100..=1_200).contains(&life), "{life}");
    assert!(!credential.contains(PASSWORD));
    // A changed password takes effect at once, and the earlier credential is gone.
    server.set_password("alice@example.org", "another password");
    let is_new = wait::until(Duration::from_secs(10), || register(&server, "another password") == 200);
    assert!(is_new && register(&server, PASSWORD) == 401);
}

/// One server learns from its database, and the other server learns from the first through the cache. Each has a
/// database of its own, which shows the source of an answer.
#[test]
fn servers_that_share_a_cache_share_what_they_learn() {
    if !have(&[REDIS, MEMCACHED]) {
        return;
    }
    let folder = folder();
    let redis_server = backend::redis(folder.path()).expect("it starts");
    let memcached = backend::memcached(folder.path()).expect("it starts");
    let memcached = format!("engine = \"memcached\", servers = [\"{}\"]", memcached.address());
    for cache in [redis(&redis_server), memcached] {
        let [first, second] = [(); 2].map(|()| start(&cache, ""));
        let mut users = 0;
        let is_shared = wait::until(Duration::from_secs(20), || {
            // A new user each time. When the first server gets the notice of the new user, it removes the cached
            // answer; if the second asks just then, its database has no such user, and both cache that for a while.
            users += 1;
            let user = format!("user{users}");
            first.add_user(&format!("{user}@example.org"), PASSWORD);
            assert!(wait::until(Duration::from_secs(10), || register_as(&first, &user, PASSWORD) == 200));
            register_as(&second, &user, PASSWORD) == 200
        });
        assert!(is_shared, "{cache}");
    }
}

#[test]
fn a_cache_may_want_a_password_and_tls() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = folder();
    let files = Certificate::in_folder(folder.path(), &["cache.example"]);
    let tls_port = port::free().to_string();
    let path = |path: &std::path::Path| path.display().to_string();
    let (chain, key, authority) = (path(&files.chain), path(&files.key), path(&files.authority));
    #[rustfmt::skip]
    let arguments = [
        "--requirepass", "sesame", "--tls-port", &tls_port, "--tls-cert-file", &chain, "--tls-key-file", &key,
        "--tls-ca-cert-file", &authority, "--tls-auth-clients", "no",
    ];
    let cache = backend::redis_with(folder.path(), &arguments).expect("it starts");
    let authorities = format!("tls.outbound_ca = {authority:?}");
    let plain = redis(&cache);
    let tls = format!("engine = \"redis\", servers = [\"localhost:{tls_port}\"], tls = true");
    for (cache_lines, lines, comes) in [
        (format!("{plain}, password = \"sesame\""), "", true),
        (format!("{plain}, password = \"sesame\", user = \"default\""), "", true),
        (format!("{plain}, password = \"sesame\", user = \"another\""), "", false),
        (format!("{plain}, password = \"semolina\""), "", false),
        (plain, "", false),
        (format!("{tls}, password = \"sesame\""), &*authorities, true),
        (format!("{tls}, password = \"sesame\""), "", false),
    ] {
        // Caches have the authorities of the start.
        if strowger_tests::reload::is_wanted() && !lines.is_empty() {
            continue;
        }
        say(cache.address(), &["AUTH sesame", "FLUSHALL"]);
        learns(&start(&cache_lines, lines), cache.address(), &["AUTH sesame"], comes);
    }
}

#[test]
fn a_cache_may_be_a_group_or_a_cluster() {
    if !have(&[REDIS]) {
        return;
    }
    let folders = [folder(), folder(), folder()];
    let master = backend::redis(folders[0].path()).expect("it starts");
    let watching = backend::sentinel(folders[1].path(), "west", master.address()).expect("it starts");
    let sentinel = format!("{}, mode = \"sentinel\"", redis(&watching));
    learns(&start(&format!("{sentinel}, group = \"west\""), ""), master.address(), &[], true);
    say(master.address(), &["FLUSHALL"]);
    learns(&start(&format!("{sentinel}, group = \"east\""), ""), master.address(), &[], false);
    // The Sentinel requires a password, and the master none.
    let told = say(watching.address(), &["ACL SETUSER default resetpass >sesame", "ACL SETUSER west on >open +@all"]);
    assert_eq!(told, ["+OK\r\n"; 2]);
    for (lines, comes) in [
        ("", false),
        (", sentinel_password = \"open\"", false),
        (", sentinel_password = \"sesame\"", true),
        (", sentinel_user = \"west\", sentinel_password = \"open\"", true),
    ] {
        say(master.address(), &["FLUSHALL"]);
        let server = start(&format!("{sentinel}, group = \"west\"{lines}"), "");
        learns(&server, master.address(), &[], comes);
        if lines.is_empty() {
            server.log_with("the server says: NOAUTH");
        }
    }
    let cluster = backend::redis_of_cluster(folders[2].path()).expect("it starts");
    assert_eq!(say(cluster.address(), &["CLUSTER ADDSLOTSRANGE 0 16383"]), ["+OK\r\n"]);
    let is_whole = || say(cluster.address(), &["CLUSTER INFO"])[0].contains("cluster_state:ok");
    assert!(wait::until(Duration::from_secs(20), is_whole));
    learns(&start(&format!("{}, mode = \"cluster\"", redis(&cluster)), ""), cluster.address(), &[], true);
}

#[test]
fn a_cache_that_is_silent_is_waited_for_so_long() {
    if !have(&[REDIS]) {
        return;
    }
    let folder = folder();
    let cache = backend::redis(folder.path()).expect("it starts");
    for (timeout, is_long) in [("1500ms", true), ("50ms", false)] {
        // Nothing is cached, so that the cost of a frozen cache is visible.
        let server = start(&format!("{}, timeout = \"{timeout}\"", redis(&cache)), "");
        server.add_user("alice@example.org", PASSWORD);
        let is_connected = || !say(cache.address(), &["INFO clients"])[0].contains("connected_clients:1\r\n");
        assert!(wait::until(Duration::from_secs(10), is_connected));
        // Time for the notice of the new user to reach server and cache before the cache becomes silent.
        std::thread::sleep(Duration::from_millis(900));
        cache.freeze();
        let start = Instant::now();
        assert_eq!(register(&server, PASSWORD), 200, "the database is asked");
        let took = start.elapsed();
        cache.thaw();
        assert_eq!(took >= Duration::from_millis(1_500), is_long, "{took:?} with {timeout}");
    }
}
