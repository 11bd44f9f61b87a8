//! Caches of each engine behave alike: in this process, Memcached alone and with three servers, Redis alone, by TLS
//! with a password, behind a Sentinel, and as a cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_cache::engine::CacheHandle;
use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::remote::{RemoteCache, RemoteSettings};
use strowger_cache::request::{CacheAnswer, Count, Floor, Life, Promise, Request};
use strowger_cache::servers::{Credentials, Endpoint, Service};
use strowger_cache::settings::LocalSettings;
use strowger_cache::waiting::WaitingCache;
use strowger_lab::backend::{self, Backend};
use strowger_net::tls;
use strowger_tests::certificate::Certificate;
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::{port, together, wait};

/// Bounds of keys and of values.
const KEY: usize = 1024;
const VALUE: usize = 1_000_000;
/// Deadline of these caches: the machine is busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Cache under test.
struct Asked {
    cache: WaitingCache,
    start: Instant,
    /// True if the cache's counters may be negative.
    counts_below_zero: bool,
}

impl Asked {
    fn local() -> Self {
        let settings = LocalSettings { key: KEY, value: VALUE, ..LocalSettings::default() };
        Self::of(CacheHandle::Local(Arc::new(LocalCache::new(settings))))
    }

    fn remote(service: Service, servers: &[SocketAddr]) -> Self {
        Self::with(settings(service, servers))
    }

    fn with(settings: RemoteSettings) -> Self {
        let counts_below_zero = settings.service != Service::Memcached;
        let remote = RemoteCache::start(settings).expect("a thread can be started");
        let mut this = Self { counts_below_zero, ..Self::of(CacheHandle::Remote(Arc::new(remote))) };
        // A group or a cluster may not have found its servers yet.
        let is_there = wait::until(Duration::from_secs(20), || {
            this.ask(Request::Fetch { key: b"there" }) == Ok(CacheAnswer::Absent)
        });
        assert!(is_there, "it is reached");
        this
    }

    fn of(engine: CacheHandle) -> Self {
        Self { cache: WaitingCache::new(engine), start: Instant::now(), counts_below_zero: true }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).expect("a test ends") + 1_000
    }

    fn ask(&mut self, request: Request<'_>) -> Result<CacheAnswer, CacheError> {
        let now = self.now();
        self.cache.ask_one(&request, now, TIMEOUT * 2).result
    }

    fn all(&mut self, requests: &[Request<'_>]) -> Vec<(Result<CacheAnswer, CacheError>, Vec<u8>)> {
        let now = self.now();
        let outcomes = self.cache.ask(requests, Promise::Held, now, TIMEOUT * 2);
        outcomes.into_iter().map(|outcome| (outcome.result, outcome.value.into_vec())).collect()
    }

    fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let (result, value) = self.all(&[Request::Fetch { key }]).remove(0);
        match result {
            Ok(CacheAnswer::Found) => Some(value),
            Ok(CacheAnswer::Absent) => None,
            other => panic!("{other:?} for {}", key.escape_ascii()),
        }
    }

    fn store(&mut self, key: &[u8], value: &[u8], life: Life) {
        assert_eq!(self.ask(Request::Store { key, value, life }), Ok(CacheAnswer::Stored), "{}", key.escape_ascii());
    }

    fn count(&mut self, key: &[u8], by: i64, floor: Floor, life: Life) -> Result<i64, CacheError> {
        match self.ask(Request::Count { key, count: Count { by, floor, life } })? {
            CacheAnswer::Count(counter) => Ok(counter),
            other => panic!("{other:?}"),
        }
    }
}

fn settings(service: Service, servers: &[SocketAddr]) -> RemoteSettings {
    let servers = servers.iter().map(|server| Endpoint::Tcp(server.ip().to_string(), server.port())).collect();
    RemoteSettings { timeout: TIMEOUT, key: KEY, value: VALUE, ..RemoteSettings::new(service, servers) }
}

/// Checks the common behaviour of all caches.
fn conforms(mut cache: Asked) {
    each_request_has_its_answer(&mut cache);
    values_come_back_as_they_were(&mut cache);
    keys_are_any_octets(&mut cache);
    counters_count(&mut cache);
    bounds_are_kept(&mut cache);
    many_requests_are_under_way_at_once(&mut cache);
    requests_for_a_key_keep_their_order(&mut cache);
    lives_end(&mut cache);
}

fn each_request_has_its_answer(cache: &mut Asked) {
    let life = Life::FOREVER;
    for (request, answer) in [
        (Request::Fetch { key: b"key" }, CacheAnswer::Absent),
        (Request::Store { key: b"key", value: b"value", life }, CacheAnswer::Stored),
        (Request::Fetch { key: b"key" }, CacheAnswer::Found),
        (Request::Add { key: b"key", value: b"other", life }, CacheAnswer::Present),
        (Request::Add { key: b"two", value: b"other", life }, CacheAnswer::Stored),
        (Request::Remove { key: b"key" }, CacheAnswer::Removed),
        (Request::Remove { key: b"key" }, CacheAnswer::Absent),
        (Request::Fetch { key: b"key" }, CacheAnswer::Absent),
        // Without a lifetime.
        (Request::Add { key: b"key", value: b"v", life: Life::NONE }, CacheAnswer::Stored),
        (Request::Fetch { key: b"key" }, CacheAnswer::Absent),
        (Request::Add { key: b"two", value: b"v", life: Life::NONE }, CacheAnswer::Present),
        (Request::Fetch { key: b"two" }, CacheAnswer::Found),
        (Request::Store { key: b"two", value: b"v", life: Life::NONE }, CacheAnswer::Stored),
        (Request::Fetch { key: b"two" }, CacheAnswer::Absent),
    ] {
        assert_eq!(cache.ask(request), Ok(answer), "{request:?}");
    }
}

fn values_come_back_as_they_were(cache: &mut Asked) {
    let octets: Vec<u8> = (0..=255).collect();
    let large = vec![b'x'; VALUE];
    for value in [&b""[..], b"value", b"12", b"9 ", b"9", b"-4", b" 9", b"a\r\nEN\r\n", b"$-1\r\n", &octets, &large] {
        for key in [&b"short"[..], &[b'k'; KEY]] {
            cache.store(key, value, Life::ms(60_000));
            assert_eq!(cache.value(key).as_deref(), Some(value), "{} bytes", value.len());
        }
    }
}

fn keys_are_any_octets(cache: &mut Asked) {
    let long = [b'k'; KEY];
    let keys: Vec<&[u8]> = vec![
        b"a",
        b"a ",
        b" a",
        b"a\r\n",
        b"a\r\nmd b\r\n",
        b"a\0",
        b"\xc3\xa9",
        b"{a}",
        b"sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        &long,
        &long[1..],
        &long[..250],
        &long[..251],
    ];
    for key in &keys {
        cache.store(key, key, Life::ms(60_000));
    }
    for key in &keys {
        assert_eq!(cache.value(key).as_deref(), Some(*key), "its own");
    }
    for key in keys {
        assert_eq!(cache.ask(Request::Remove { key }), Ok(CacheAnswer::Removed));
    }
}

fn counters_count(cache: &mut Asked) {
    let life = Life::ms(60_000);
    let key: &[u8] = b"counter";
    for (by, want) in [(5, 5), (-2, 3), (-9, 0), (0, 0), (12, 12), (-3, 9), (i64::MIN, 0)] {
        assert_eq!(cache.count(key, by, Floor::Zero, life), Ok(want), "{by}");
        assert_eq!(cache.value(key), Some(want.to_string().into()));
    }
    assert_eq!(cache.count(b"from below", -4, Floor::Zero, life), Ok(0));
    if cache.counts_below_zero {
        let key: &[u8] = b"below";
        for (by, floor, want) in [
            (-9, Floor::None, Ok(-9)),
            (3, Floor::None, Ok(-6)),
            (3, Floor::Zero, Ok(0)),
            (i64::MAX, Floor::Zero, Ok(i64::MAX)),
            (1, Floor::Zero, Err(CacheError::Refused)),
            (i64::MIN, Floor::None, Ok(-1)),
            (i64::MIN, Floor::None, Err(CacheError::Refused)),
            (i64::MIN, Floor::Zero, Ok(0)),
        ] {
            assert_eq!(cache.count(key, by, floor, life), want, "{by} {floor:?}");
        }
    } else {
        assert_eq!(cache.count(b"below", -1, Floor::None, life), Err(CacheError::Refused));
        assert_eq!(cache.count(b"below", 1, Floor::None, life), Ok(1));
    }
    // A stored number is a counter, under any key, and another text is not.
    for key in [&b"stored"[..], b"stored under a key with spaces"] {
        cache.store(key, b"41", life);
        assert_eq!(cache.count(key, 1, Floor::Zero, life), Ok(42));
        assert_eq!(cache.value(key), Some(b"42".into()));
        cache.store(key, b"text", life);
        assert_eq!(cache.count(key, 1, Floor::Zero, life), Err(CacheError::Refused));
        assert_eq!(cache.value(key), Some(b"text".into()));
    }
    // A counter without a lifetime is counted and not stored.
    assert_eq!(cache.count(b"brief", 7, Floor::Zero, Life::NONE), Ok(7));
    assert_eq!(cache.count(b"brief", -7, Floor::Zero, Life::NONE), Ok(0));
    assert_eq!(cache.value(b"brief"), None);
}

fn bounds_are_kept(cache: &mut Asked) {
    let (key, value) = (vec![b'k'; KEY + 1], vec![b'v'; VALUE + 1]);
    for key in [&b""[..], &key] {
        assert_eq!(cache.ask(Request::Fetch { key }), Err(CacheError::Refused));
        assert_eq!(cache.ask(Request::Remove { key }), Err(CacheError::Refused));
    }
    let life = Life::FOREVER;
    assert_eq!(cache.ask(Request::Store { key: b"key", value: &value, life }), Err(CacheError::Refused));
    assert_eq!(cache.value(b"key"), None);
}

fn many_requests_are_under_way_at_once(cache: &mut Asked) {
    let keys: Vec<Vec<u8>> = (0..2_000).map(|n| format!("many:{n}").into_bytes()).collect();
    let life = Life::ms(60_000);
    let stores: Vec<Request<'_>> = keys.iter().map(|key| Request::Store { key, value: key, life }).collect();
    assert!(cache.all(&stores).iter().all(|(result, _)| *result == Ok(CacheAnswer::Stored)));
    let fetches: Vec<Request<'_>> = keys.iter().map(|key| Request::Fetch { key }).collect();
    for (key, (result, value)) in keys.iter().zip(cache.all(&fetches)) {
        assert_eq!((result, &value), (Ok(CacheAnswer::Found), key));
    }
}

fn requests_for_a_key_keep_their_order(cache: &mut Asked) {
    let values: Vec<Vec<u8>> = (0..500).map(|n| vec![b'v'; n]).collect();
    let mut requests = Vec::new();
    for value in &values {
        requests.push(Request::Store { key: b"order", value, life: Life::ms(60_000) });
        requests.push(Request::Fetch { key: b"order" });
    }
    let answers = cache.all(&requests);
    for (value, answers) in values.iter().zip(answers.chunks(2)) {
        assert_eq!(answers[1], (Ok(CacheAnswer::Found), value.clone()));
    }
}

/// An entry lives until its end, and disappears some time later: Memcached counts in seconds.
fn lives_end(cache: &mut Asked) {
    let life = Life::ms(1_500);
    let start = Instant::now();
    cache.store(b"brief", b"value", life);
    cache.store(b"brief with spaces", b"value", life);
    cache.store(b"long", b"value", Life::ms(40 * 86_400_000));
    assert_eq!(cache.ask(Request::Add { key: b"added", value: b"value", life }), Ok(CacheAnswer::Stored));
    assert_eq!(cache.count(b"calls", 1, Floor::Zero, life), Ok(1));
    let keys = [&b"brief"[..], b"brief with spaces", b"added", b"calls"];
    let all = |cache: &mut Asked| keys.map(|key| cache.value(key).is_some());
    let there = all(cache);
    if start.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(there, [true; 4]);
    }
    let mut counted = 1;
    let is_gone = wait::until(Duration::from_secs(15), || {
        // A counter keeps its original end, however often it is changed.
        let counter = cache.count(b"calls", 1, Floor::Zero, life).expect("a counter");
        let is_new = counter == 1;
        assert!(is_new || counter == counted + 1, "{counter} after {counted}");
        counted = counter;
        is_new && keys[..3].iter().all(|key| cache.value(key).is_none())
    });
    assert!(is_gone, "{:?}", all(cache));
    // Clocks have whole milliseconds, and the first millisecond may be almost over.
    assert!(start.elapsed() > Duration::from_millis(1_499), "none ends early");
    assert_eq!(cache.value(b"long"), Some(b"value".into()));
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn local() {
    conforms(Asked::local());
}

fn memcached() {
    let folder = folder();
    let server = backend::memcached(folder.path()).expect("it starts");
    conforms(Asked::remote(Service::Memcached, &[server.address()]));
}

fn memcached_of_three_servers_with_a_password() {
    let folders = [folder(), folder(), folder()];
    let servers = folders.each_ref().map(|folder| {
        let file = folder.path().join("users");
        std::fs::write(&file, "strowger:open-sesame\n").expect("the folder can be written");
        let argument = format!("--auth-file={}", file.display());
        backend::memcached_with(folder.path(), &[&argument]).expect("it starts")
    });
    let addresses = servers.each_ref().map(Backend::address);
    let credentials = |password: &str| Some(Credentials { user: "strowger".into(), password: password.into() });
    let own = credentials("open-sesame");
    conforms(Asked::with(RemoteSettings { credentials: own, ..settings(Service::Memcached, &addresses) }));
    // Each server has its share of the keys.
    let mut own = addresses.map(|address| {
        let credentials = credentials("open-sesame");
        Asked::with(RemoteSettings { credentials, ..settings(Service::Memcached, &[address]) })
    });
    let shares = own.each_mut().map(|server| {
        let keys: Vec<Vec<u8>> = (0..2_000).map(|n| format!("many:{n}").into_bytes()).collect();
        let fetches: Vec<Request<'_>> = keys.iter().map(|key| Request::Fetch { key }).collect();
        server.all(&fetches).iter().filter(|(result, _)| *result == Ok(CacheAnswer::Found)).count()
    });
    assert!(shares.iter().sum::<usize>() == 2_000 && shares.iter().all(|share| *share > 500), "{shares:?}");
    // A wrong password, and none.
    for credentials in [credentials("sesame"), None] {
        let settings = RemoteSettings { credentials, ..settings(Service::Memcached, &addresses) };
        let mut cache =
            WaitingCache::new(CacheHandle::Remote(Arc::new(RemoteCache::start(settings).expect("a thread"))));
        let outcome = cache.ask_one(&Request::Fetch { key: b"long" }, 0, TIMEOUT * 2);
        assert_eq!(outcome.result, Err(CacheError::Unavailable));
    }
    // A password that Memcached's protocol cannot transmit.
    let settings = settings(Service::Memcached, &addresses);
    let refused = RemoteCache::start(RemoteSettings { credentials: credentials("open sesame"), ..settings });
    assert!(refused.is_err_and(|error| error.to_string().contains("space")));
}

fn redis() {
    let folder = folder();
    let mut server = backend::redis(folder.path()).expect("it starts");
    conforms(Asked::remote(Service::Redis { database: 3 }, &[server.address()]));
    // Another database has no entries.
    let mut other = Asked::remote(Service::Redis { database: 0 }, &[server.address()]);
    assert_eq!(other.value(b"long"), None);
    // Requests are answered again when the server returns.
    backend::stop_cache(&mut server).expect("it ends");
    server.start_again().expect("it starts");
    let is_back =
        wait::until(Duration::from_secs(20), || other.ask(Request::Fetch { key: b"long" }) == Ok(CacheAnswer::Absent));
    assert!(is_back);
}

fn redis_by_a_socket_of_the_file_system() {
    let folder = folder();
    let path = folder.path().join("redis.socket");
    let socket = path.display().to_string();
    let _server = backend::redis_with(folder.path(), &["--unixsocket", &socket]).expect("it starts");
    let endpoint = socket.parse().expect("a path");
    let settings = settings(Service::Redis { database: 0 }, &[]);
    conforms(Asked::with(RemoteSettings { servers: vec![endpoint], ..settings }));
}

fn redis_by_tls_with_a_password() {
    let folder = folder();
    let files = Certificate::in_folder(folder.path(), &["cache.example"]);
    let tls_port = port::free();
    let path = |path: &Path| path.display().to_string();
    let (chain, key, authority) = (path(&files.chain), path(&files.key), path(&files.authority));
    let tls_port_text = tls_port.to_string();
    #[rustfmt::skip]
    let arguments = [
        "--requirepass", "open sesame", "--tls-port", &tls_port_text, "--tls-cert-file", &chain, "--tls-key-file", &key,
        "--tls-ca-cert-file", &authority, "--tls-auth-clients", "no",
    ];
    let _server = backend::redis_with(folder.path(), &arguments).expect("it starts");
    let tls = tls::Client { authorities: Some(files.authority.clone()), ..tls::Client::default() };
    let tls = Some(tls.load().expect("the authority can be read"));
    let credentials = |password: &str| Some(Credentials { user: String::new(), password: password.into() });
    let of = |host: &str| RemoteSettings {
        servers: vec![Endpoint::Tcp(host.into(), tls_port)],
        tls: tls.clone(),
        ..settings(Service::Redis { database: 0 }, &[])
    };
    conforms(Asked::with(RemoteSettings { credentials: credentials("open sesame"), ..of("localhost") }));
    // A wrong password, none, and a certificate of an untrusted authority.
    let other = tls::Client::default().load().expect("nothing to read");
    for settings in [
        RemoteSettings { credentials: credentials("sesame"), ..of("localhost") },
        RemoteSettings { credentials: None, ..of("localhost") },
        RemoteSettings { credentials: credentials("open sesame"), tls: Some(other), ..of("localhost") },
    ] {
        let mut cache =
            WaitingCache::new(CacheHandle::Remote(Arc::new(RemoteCache::start(settings).expect("a thread"))));
        let outcome = cache.ask_one(&Request::Fetch { key: b"long" }, 0, TIMEOUT * 2);
        assert_eq!(outcome.result, Err(CacheError::Unavailable));
    }
}

fn redis_behind_a_sentinel() {
    let folders = [folder(), folder(), folder()];
    let mut master = backend::redis(folders[0].path()).expect("it starts");
    let port = master.address().port().to_string();
    let replica = backend::redis_with(folders[1].path(), &["--replicaof", "127.0.0.1", &port]).expect("it starts");
    let sentinel = backend::sentinel(folders[2].path(), "west", master.address()).expect("it starts");
    let service = Service::Sentinel { group: "west".into(), database: 0, credentials: None };
    let mut cache = Asked::remote(service, &[sentinel.address()]);
    cache.store(b"before", b"value", Life::FOREVER);
    // The Sentinel must know the replica, and the replica the value.
    let is_followed = wait::until(Duration::from_secs(20), || {
        say(sentinel.address(), &["SENTINEL replicas west"])[0].contains("master-link-status\r\n$2\r\nok")
            && say(replica.address(), &["GET before"])[0].contains("value")
    });
    assert!(is_followed);
    backend::stop_cache(&mut master).expect("it ends");
    // The replica becomes the master, and each connection must find the new master: the hash of a key selects its
    // connection.
    let is_found = wait::until(Duration::from_secs(30), || {
        (0..32_u8).all(|n| {
            let stored = cache.ask(Request::Store { key: &[b'@', n], value: b"value", life: Life::FOREVER });
            stored == Ok(CacheAnswer::Stored)
        })
    });
    assert!(is_found, "{:?}", say(sentinel.address(), &["SENTINEL master west"]));
    assert_eq!(cache.value(b"before"), Some(b"value".into()));
    conforms(cache);
}

fn redis_as_a_cluster() {
    let folders = [folder(), folder(), folder()];
    let servers = folders.each_ref().map(|folder| backend::redis_of_cluster(folder.path()).expect("it starts"));
    let addresses = servers.each_ref().map(Backend::address);
    let slots = ["0 5460", "5461 10922", "10923 16383"];
    let cluster_port = |place: usize| {
        let port = addresses[place].port();
        let said = say(addresses[place], &["CONFIG GET cluster-port"]).remove(0);
        let text = said.lines().last().expect("a port").to_owned();
        (port, text)
    };
    for (place, slots) in slots.iter().enumerate() {
        let said = say(addresses[place], &[&format!("CLUSTER ADDSLOTSRANGE {slots}")]);
        assert_eq!(said, ["+OK\r\n"]);
    }
    for place in 1..3 {
        let (port, cluster_port) = cluster_port(place);
        let said = say(addresses[0], &[&format!("CLUSTER MEET 127.0.0.1 {port} {cluster_port}")]);
        assert_eq!(said, ["+OK\r\n"]);
    }
    let is_whole = wait::until(Duration::from_secs(30), || {
        let knows = |address: &SocketAddr| {
            let said = say(*address, &["CLUSTER INFO"]).remove(0);
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        addresses.iter().all(knows)
    });
    assert!(is_whole, "{:?}", say(addresses[0], &["CLUSTER INFO", "CLUSTER NODES"]));
    // One known node is sufficient to find the other nodes.
    conforms(Asked::remote(Service::Cluster, &addresses[1..2]));
    // A slot migrates while its keys are requested.
    let mut cache = Asked::remote(Service::Cluster, &addresses[..1]);
    cache.store(b"foo", b"value", Life::FOREVER);
    let id = |place: usize| say(addresses[place], &["CLUSTER MYID"])[0].lines().nth(1).expect("an id").to_owned();
    let (from, to) = (id(2), id(0));
    // `foo` is in slot 12182 of the third server.
    let said = say(addresses[0], &[&format!("CLUSTER SETSLOT 12182 IMPORTING {from}")]);
    let more = say(addresses[2], &[&format!("CLUSTER SETSLOT 12182 MIGRATING {to}")]);
    assert_eq!([said, more].concat(), ["+OK\r\n", "+OK\r\n"]);
    assert_eq!(cache.value(b"foo"), Some(b"value".into()));
    // A missing key is asked of the other server.
    assert_eq!(cache.value(b"{foo}2"), None);
    cache.store(b"{foo}2", b"two", Life::FOREVER);
    let moved = format!("MIGRATE 127.0.0.1 {} foo 0 5000", addresses[0].port());
    assert_eq!(say(addresses[2], &[&moved]), ["+OK\r\n"]);
    assert_eq!(cache.value(b"foo"), Some(b"value".into()));
    for address in [addresses[0], addresses[2]] {
        assert_eq!(say(address, &[&format!("CLUSTER SETSLOT 12182 NODE {to}")]), ["+OK\r\n"]);
    }
    assert_eq!(cache.value(b"foo"), Some(b"value".into()));
    assert_eq!(cache.value(b"{foo}2"), Some(b"two".into()));
}

#[test]
fn caches_of_each_engine_answer_alike() {
    if have(&[REDIS, MEMCACHED]) {
        together(&[
            ("local", local),
            ("memcached", memcached),
            ("memcached_of_three_servers_with_a_password", memcached_of_three_servers_with_a_password),
            ("redis", redis),
            ("redis_by_a_socket_of_the_file_system", redis_by_a_socket_of_the_file_system),
            ("redis_by_tls_with_a_password", redis_by_tls_with_a_password),
            ("redis_behind_a_sentinel", redis_behind_a_sentinel),
            ("redis_as_a_cluster", redis_as_a_cluster),
        ]);
    }
}
