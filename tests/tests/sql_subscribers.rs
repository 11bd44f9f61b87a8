//! Subscribers in the tables of a database server, read in place: as created by `kamailio-mysql-modules` and by
//! OpenSIPS 3, on MariaDB and PostgreSQL; and users during an outage of such a server.

mod bed;

use self::bed::Bed;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use strowger_backend::sql::subscribers::{self, SqlSettings};
use strowger_backend::sql::{Realms, ServerSettings};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_lab::backend::subscribers::KAMAILIO_TABLES;
use strowger_lab::backend::{self, Backend, MariaDb, PostgreSql};
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::read_through::ReadThroughSettings;
use strowger_store::subscriber::{Ha1s, Question, SubscriberAnswer, Subscribers};
use strowger_store::ticket::Ticket;
use strowger_tests::account::authorized;
use strowger_tests::binary::strowger;
use strowger_tests::call::exchange;
use strowger_tests::certificate::Certificate;
use strowger_tests::database::Database;
use strowger_tests::program::{MARIADB, MARIADBD, POSTGRESQL, REDIS, have, lacking};
use strowger_tests::server::{Server, Setup};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, fields, status};
use strowger_tests::together;
use strowger_tests::wire::Transport::Tcp;
use strowger_tests::wire::Wire;
use tempfile::TempDir;

/// Upper bound of the time until a server ends that refuses its configuration.
const START: Duration = Duration::from_secs(20);

fn ha1(hash: Hash, user: &str, realm: &str, password: &str) -> String {
    let set = Ha1Set::of_password(user.as_bytes(), realm.as_bytes(), password.as_bytes());
    let ha1 = set.of(hash).expect("each is made");
    ha1.value().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ha1_of_address(user: &str, domain: &str, password: &str) -> String {
    ha1(Hash::Md5, &format!("{user}@{domain}"), domain, password)
}

/// Registers `user@example.org` with credentials of this name and password. Returns the status, and the algorithms of
/// the challenge.
fn register_as(wire: &mut Wire, user: &str, name: &str, password: &str) -> (Option<u16>, Vec<String>) {
    let contact = format!("sip:{user}@{};transport=tcp", wire.local());
    let request = Request::register(user, "example.org", &contact, "tcp", wire.local());
    let challenge = exchange(wire, &request);
    let values = fields(&challenge, "WWW-Authenticate");
    let algorithm = |value: &String| {
        value.split("algorithm=").nth(1).and_then(|rest| rest.split([',', ' ']).next()).map(String::from)
    };
    let offered = values.iter().filter_map(algorithm).collect();
    (status(&exchange(wire, &authorized(&request, &challenge, name, password))), offered)
}

fn register(wire: &mut Wire, user: &str, password: &str) -> Option<u16> {
    register_as(wire, user, user, password).0
}

fn kamailio(bed: &Bed) {
    bed.add("alice", "example.org", "secret");
    bed.add("alice", "other.example", "of another");
    bed.insert("subscriber", &[("username", "bob"), ("domain", "example.org"), ("password", "in clear")]);
    let server = bed.start("");
    let mut wire = server.connect(Tcp);
    for (user, name, password, expected) in [
        ("alice", "alice", "secret", 200),
        ("alice", "alice@example.org", "secret", 200),
        ("alice", "alice", "wrong", 401),
        // Alice of a domain that this server does not have.
        ("alice", "alice", "of another", 401),
        ("alice", "alice@other.example", "of another", 401),
        // A database may compare these as equal to alice; digest does not.
        ("ALICE", "ALICE", "secret", 401),
        ("alice ", "alice ", "secret", 401),
        ("bob", "bob", "in clear", 200),
        ("bob", "bob@example.org", "in clear", 200),
        // The HA1 of a clear-text password is computed with the name of the credentials.
        ("bob", "bob@Example.ORG", "in clear", 200),
        ("bob", "bob", "", 401),
        ("zoe", "zoe", "secret", 401),
        // The server answers without a query, also for a name that is longer than its column.
        ("alice", "ålice", "secret", 401),
        ("alice", &"a".repeat(3_000), "secret", 401),
        ("alice", "' OR '1'='1", "secret", 401),
    ] {
        let user = user.trim();
        let (answer, offered) = register_as(&mut wire, user, name, password);
        assert_eq!(answer, Some(expected), "{user} as {name:?} with {password:?}");
        assert_eq!(offered, ["MD5"], "as by default");
    }
    // A clear-text password serves every algorithm.
    let server = bed.start("auth.algorithms = [\"SHA-256\", \"MD5\"]");
    let (answer, offered) = register_as(&mut server.connect(Tcp), "bob", "bob", "in clear");
    assert_eq!((answer, offered), (Some(200), vec!["SHA-256".to_owned(), "MD5".into()]));
}

fn opensips(bed: &Bed) {
    let of = |hash| ha1(hash, "alice", "example.org", "secret");
    let (md5, sha256, sha512) = (of(Hash::Md5), of(Hash::Sha256), of(Hash::Sha512_256));
    let alice = [
        ("username", "alice"),
        ("domain", "example.org"),
        ("ha1", &*md5),
        ("ha1_sha256", &sha256),
        ("ha1_sha512t256", &sha512),
    ];
    bed.insert("opensips", &alice);
    bed.execute("CREATE TABLE old AS SELECT username, domain, ha1 FROM opensips");
    for (table, offer, offered) in [
        ("opensips", "[\"MD5\"]", &["MD5"][..]),
        ("opensips", "[\"SHA-256\", \"MD5\"]", &["SHA-256", "MD5"]),
        ("opensips", "[\"SHA-512-256\"]", &["SHA-512-256"]),
        ("old", "[\"SHA-256\", \"MD5\"]", &["MD5"]),
    ] {
        let server = bed.start(&format!("store.subscriber_table = \"{table}\"\nauth.algorithms = {offer}"));
        let mut wire = server.connect(Tcp);
        let (answer, shown) = register_as(&mut wire, "alice", "alice", "secret");
        assert_eq!(
            (answer, &*shown),
            (Some(200), &offered.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..])
        );
        assert_eq!(register(&mut wire, "alice", "wrong"), Some(401), "{table} {offer}");
        let is_said = server.log().contains("algorithm not offered");
        assert_eq!(is_said, table == "old", "{}", server.log());
    }
}

/// Users of a domain added by a reload are found at once.
fn domains(bed: &Bed) {
    bed.add("dave", "second.example", "his");
    bed.add("dave", "example.org", "of another");
    let mut server = bed.start("");
    let mut wire = server.connect(Tcp);
    let register = |wire: &mut Wire| {
        let contact = format!("sip:dave@{};transport=tcp", wire.local());
        let request = Request::register("dave", "second.example", &contact, "tcp", wire.local());
        let challenge = exchange(wire, &request);
        status(&challenge)
            .filter(|status| *status != 401)
            .or_else(|| status(&exchange(wire, &authorized(&request, &challenge, "dave", "his"))))
    };
    assert_ne!(register(&mut wire), Some(200));
    let second = "[[domain]]\nname = \"second.example\"\n";
    let text = std::fs::read_to_string(server.config()).expect("it was written");
    std::fs::write(server.config(), format!("{text}{second}")).expect("the folder can be written");
    server.process().signal(libc::SIGHUP);
    server.process().wait_for("configuration reloaded", 1, START);
    assert_eq!(register(&mut server.connect(Tcp)), Some(200));
}

/// A new password takes effect at once without a cache, and within its lifetime with one.
fn changed_password(bed: &Bed) {
    bed.add("carol", "example.org", "first");
    let change = |password: &str| {
        let ha1 = ha1(Hash::Md5, "carol", "example.org", password);
        bed.execute(&format!("UPDATE subscriber SET ha1 = '{ha1}' WHERE username = 'carol'"));
    };
    let server = bed.start("store.cache_lifetime = \"0s\"");
    let mut wire = server.connect(Tcp);
    assert_eq!(register(&mut wire, "carol", "first"), Some(200));
    change("second");
    assert_eq!(register(&mut wire, "carol", "first"), Some(401));
    assert_eq!(register(&mut wire, "carol", "second"), Some(200));
    // Long enough for two requests on a slow machine.
    let lifetime = Duration::from_secs(2);
    let server = bed.start("store.cache_lifetime = \"2s\"");
    let mut wire = server.connect(Tcp);
    let asked = Instant::now();
    assert_eq!(register(&mut wire, "carol", "second"), Some(200));
    change("third");
    let answer = register(&mut wire, "carol", "second");
    assert!(answer == Some(200) || asked.elapsed() > lifetime, "{answer:?}");
    let changed = Stopwatch::start();
    while register(&mut wire, "carol", "third") != Some(200) {
        assert!(changed.took().is_below(lifetime + Duration::from_millis(500)), "not seen after {:?}", changed.took());
        // Poll interval.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The cache before the database stores the database's answer, also for a user who authenticates by the whole address.
fn second_level(bed: &Bed) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache").display().to_string();
    is_known_to_the_cache(bed, "erin", &format!("folder = {path:?}"));
    if REDIS.path().is_some() {
        let redis = backend::redis(folder.path()).expect("it starts");
        is_known_to_the_cache(bed, "frank", &format!("engine = \"redis\", servers = [\"{}\"]", redis.address()));
    }
}

fn is_known_to_the_cache(bed: &Bed, user: &str, cache: &str) {
    bed.add(user, "example.org", "secret");
    let mut server = bed.start(&format!("store.cache = \"near\"\ncache = [{{ name = \"near\", {cache} }}]"));
    let address = format!("{user}@example.org");
    let register = |server: &Server| register_as(&mut server.connect(Tcp), user, &address, "secret").0;
    assert_eq!(register(&server), Some(200));
    server.stop();
    // From now on only the cache knows the user.
    bed.execute(&format!("DELETE FROM subscriber WHERE username = '{user}'"));
    server.start();
    assert_eq!(register(&server), Some(200));
}

fn tls(bed: &Bed) {
    bed.add("erin", "example.org", "secret");
    let protected =
        |authority: &Path| format!("store.subscribers = \"{}?tls=required&ca={}\"", bed.url(), authority.display());
    let server = bed.start(&protected(&bed.certificate.authority));
    assert_eq!(register(&mut server.connect(Tcp), "erin", "secret"), Some(200));
    // Only TLS: the database server counts its own connections.
    let query = match bed.database {
        Database::MariaDb(_) => {
            "SELECT COUNT(*) > 0 FROM information_schema.global_status WHERE variable_name = 'SSL_FINISHED_ACCEPTS' AND variable_value > 0"
        }
        Database::PostgreSql(_) => {
            "SELECT CAST(COUNT(*) > 0 AS int) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'strowger'"
        }
    };
    assert_eq!(bed.execute(query).trim(), "1");
    // A certificate of an untrusted authority.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let foreign = Certificate::in_folder(folder.path(), &["db.example"]);
    let refused = refusal(bed, &protected(&foreign.authority));
    assert!(refused.contains("cannot be reached") && refused.contains("certificate"), "{refused}");
}

/// Returns the log of a server that does not start with these lines.
#[track_caller]
fn refusal(bed: &Bed, lines: &str) -> String {
    let mut server = bed.prepare(lines).prepare();
    let process = server.try_start();
    let ended = process.end(START);
    assert!(!ended.success(), "{}", server.log());
    server.log()
}

fn wrong_settings(bed: &Bed) {
    let (user, kind) = match bed.database {
        Database::MariaDb(_) => ("Access denied for user 'strowger'", "mysql"),
        Database::PostgreSql(_) => ("password authentication failed for user \"strowger\"", "postgresql"),
    };
    bed.execute("CREATE TABLE nameless (id INT, domain VARCHAR(64), ha1 VARCHAR(64)); CREATE TABLE single (username VARCHAR(64), ha1 VARCHAR(64));");
    let wrong = bed.url().replace("strowger:strowger@", "strowger:hunter2hunter2@");
    let gone = format!("{kind}://u:hunter2hunter2@127.0.0.1:{}/d", strowger_tests::port::free());
    for (lines, parts) in [
        (format!("store.subscribers = \"{wrong}\""), &[user, "refused"][..]),
        (format!("store.subscribers = \"{gone}\""), &["cannot be reached", "refused"]),
        ("store.subscriber_table = \"subscribers\"".into(), &["no table \"subscribers\"", "store.subscriber_table"]),
        ("store.subscriber_table = \"nameless\"".into(), &["lacks the column \"username\"", "id, domain, ha1"]),
        (
            "store.subscriber_table = \"single\"\n[[domain]]\nname = \"second.example\"".into(),
            &["lacks the column \"domain\""],
        ),
        (
            "store.subscriber_table = \"single\"\nauth.algorithms = [\"SHA-256\"]".into(),
            &["offers SHA-256 alone", "have an HA1 for MD5"],
        ),
    ] {
        let said = refusal(bed, &lines);
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
    // A single domain needs no column for it.
    bed.insert("single", &[("username", "frank"), ("ha1", &ha1(Hash::Md5, "frank", "example.org", "secret"))]);
    let server = bed.start("store.subscriber_table = \"single\"");
    assert_eq!(register(&mut server.connect(Tcp), "frank", "secret"), Some(200));
    // These commands write no subscriber there.
    let output = Command::new(strowger())
        .args(["user", "list", "--config"])
        .arg(server.config())
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("change them there") && !said.contains("strowger:strowger"),
        "{said}"
    );
}

/// Tests that need no outage.
fn in_place(bed: &Bed) {
    kamailio(bed);
    opensips(bed);
    domains(bed);
    changed_password(bed);
    second_level(bed);
    tls(bed);
    wrong_settings(bed);
    let execute = |statements: &str| drop(bed.execute(statements));
    crate::data_sets::of_server(&bed.url(), &bed.certificate, bed.server(), &execute);
}

#[test]
fn subscribers_of_opensips_and_kamailio_are_read_in_place() {
    fn mariadb() {
        Bed::mariadb().iter().for_each(in_place);
    }
    fn postgresql() {
        Bed::postgresql().iter().for_each(in_place);
    }
    together(&[("mariadb", mariadb), ("postgresql", postgresql)]);
}

const DEADLINE: Duration = Duration::from_millis(500);
const STALE_WAIT: Duration = Duration::from_millis(200);
/// Additional time of a step while other tests have the processor.
const PATIENCE: Duration = Duration::from_millis(250);
/// Upper bound of the time until a returned server is found.
const BACK: Duration = Duration::from_secs(5);

/// Registers; returns the status, and the time that it took.
fn timed(wire: &mut Wire, user: &str) -> (Option<u16>, Took) {
    let begun = Stopwatch::start();
    (register(wire, user, "secret"), begun.took())
}

/// Alice is cached, `others` are not; the database is silent or stopped.
fn is_out(server: &mut Server, others: &[String]) {
    let mut wire = server.connect(Tcp);
    let (answer, took) = timed(&mut wire, "alice");
    assert_eq!(answer, Some(200));
    assert!(took.is_below(STALE_WAIT + PATIENCE), "the first waited for {took:?}");
    let mut late = Vec::new();
    for other in others {
        let (answer, took) = timed(&mut wire, "alice");
        assert_eq!(answer, Some(200));
        late.push(took);
        let (answer, took) = timed(&mut wire, other);
        assert_eq!(answer, Some(500), "{other}");
        assert!(took.is_below(DEADLINE + Duration::from_millis(100) + PATIENCE), "{other} waited for {took:?}");
    }
    late.sort();
    assert!(late[late.len() / 2].is_below(Duration::from_millis(50)), "who is known waits: {late:?}");
    // An unreachable database costs no processor time while no request comes.
    let (before, pause) = (server.process().cpu(), Duration::from_secs(1));
    std::thread::sleep(pause);
    let used = server.process().cpu() - before;
    assert!(used < pause / 20, "{used:?} in {pause:?}");
}

fn is_back(server: &Server, user: &str) {
    let (mut wire, begun) = (server.connect(Tcp), Stopwatch::start());
    while register(&mut wire, user, "secret") != Some(200) {
        assert!(begun.took().is_below(BACK), "not found again");
        // Poll interval.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn outages(bed: &mut Bed) {
    let others: Vec<String> = (0..40).map(|n| format!("user{n}")).collect();
    for user in others.iter().map(String::as_str).chain(["alice"]) {
        bed.add(user, "example.org", "secret");
    }
    let mut server =
        bed.start("store.cache_lifetime = \"0s\"\nstore.lookup_timeout = \"500ms\"\nlog.refusals_per_minute = 1000");
    let mut wire = server.connect(Tcp);
    assert_eq!(register(&mut wire, "alice", "secret"), Some(200));
    bed.server().freeze();
    is_out(&mut server, &others[..8]);
    server.process().wait_for("the database does not answer", 1, START);
    bed.server().thaw();
    is_back(&server, "user8");
    server.process().wait_for("the database answers again", 1, START);

    bed.stop();
    is_out(&mut server, &others[10..18]);
    bed.start_again();
    is_back(&server, "user18");
    server.process().wait_for("connected again", 1, START);
    // Restarted while no query ran: the next query finds the server.
    bed.stop();
    bed.start_again();
    let (answer, took) = timed(&mut server.connect(Tcp), "user20");
    assert_eq!(answer, Some(200));
    assert!(took.is_below(DEADLINE + PATIENCE), "{took:?}");
    // A refused statement: others continue, and the table is found again.
    bed.execute("ALTER TABLE subscriber RENAME TO moved");
    is_out(&mut server, &others[20..22].iter().map(|name| name.replace("user20", "user22")).collect::<Vec<_>>());
    server.process().wait_for("subscribers cannot be read", 1, START);
    bed.execute("ALTER TABLE moved RENAME TO subscriber");
    is_back(&server, "user23");
    slowness(bed);
}

/// With 300 ms for each answer a request of an uncached user waits for a connection and a statement, one of a cached
/// user does not.
fn slowness(bed: &Bed) {
    let relay = SlowRelay::to(bed.server().address());
    let url = bed.url().replace(&bed.server().address().to_string(), &relay.address().to_string());
    let server = bed.start(&format!(
        "store.cache_lifetime = \"0s\"\nlog.refusals_per_minute = 1000\nstore.subscribers = \"{url}\""
    ));
    let mut wire = server.connect(Tcp);
    assert_eq!(register(&mut wire, "alice", "secret"), Some(200));
    relay.slow_down(Duration::from_millis(300));
    let mut others: Vec<_> = (30..34)
        .map(|n| {
            let mut wire = server.connect(Tcp);
            std::thread::spawn(move || timed(&mut wire, &format!("user{n}")))
        })
        .collect();
    let mut late: Vec<Took> = Vec::new();
    while !others.iter().all(std::thread::JoinHandle::is_finished) {
        let (answer, took) = timed(&mut wire, "alice");
        assert_eq!(answer, Some(200));
        late.push(took);
    }
    for other in others.drain(..) {
        let (answer, took) = other.join().expect("it is answered");
        assert_eq!(answer, Some(200), "after {took:?}");
        assert!(took.is_below(Duration::from_secs(2) + PATIENCE), "{took:?}");
    }
    late.sort();
    assert!(late[late.len() * 9 / 10].is_below(Duration::from_millis(50)), "who is known waits: {late:?}");
}

#[test]
fn an_outage_of_a_database_server_is_none_for_users_who_are_known() {
    fn mariadb() {
        Bed::mariadb().iter_mut().for_each(outages);
    }
    fn postgresql() {
        Bed::postgresql().iter_mut().for_each(outages);
    }
    together(&[("mariadb", mariadb), ("postgresql", postgresql)]);
}

fn no_hash(_: &str, _: &str, _: &str) -> Ha1s {
    Ha1s::default()
}

/// Queries of one round leave together.
#[test]
fn a_thousand_users_are_few_statements() {
    let Some(bed) = Bed::mariadb() else { return };
    bed.execute(
        "INSERT INTO subscriber (username, domain, ha1) \
         SELECT CONCAT('user', seq), 'example.org', MD5(seq) FROM seq_1_to_1000 WHERE seq % 2 = 0",
    );
    let begun = Instant::now();
    let clock = Arc::new(move || Moment { mono: begun.elapsed().as_millis() as u64, wall: 0 });
    let settings = SqlSettings {
        server: ServerSettings { url: bed.url().parse().expect("a URL"), authorities: None },
        table: "subscriber".into(),
        realms: Realms::new([("example.org", vec!["example.org"])]),
        hash: no_hash,
    };
    let cache = ReadThroughSettings { deadline: Duration::from_secs(20), ..ReadThroughSettings::default() };
    let started = subscribers::start(&settings, None, cache, clock).expect("it starts");
    let (tx, answers) = mpsc::channel();
    let sink =
        started.subscribers.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
            for result in results {
                let _gone = tx.send(result.clone());
            }
        }));
    let executed = || -> u64 {
        let row = bed.execute("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'");
        row.split_whitespace().nth(1).and_then(|count| count.parse().ok()).expect("a count")
    };
    let before = executed();
    for n in 1..=1000 {
        let username = format!("user{n}");
        let question = Question::Credential { username: username.as_bytes(), realm: b"example.org" };
        started.subscribers.request(Ticket { sink, value: n }, question, 0).expect("there is room");
    }
    started.subscribers.flush();
    let mut found = 0;
    for _ in 0..1000 {
        let (n, answer) = answers.recv_timeout(Duration::from_secs(20)).expect("each is answered");
        match answer.expect("the database answers") {
            SubscriberAnswer::Credential(credential) => {
                assert!(n % 2 == 0 && *credential.username == format!("user{n}") && credential.ha1.md5.is_some());
                found += 1;
            }
            answer => assert!(n % 2 == 1 && answer == SubscriberAnswer::Absent, "{n} {answer:?}"),
        }
    }
    let statements = executed() - before;
    assert!(found == 500 && (4..=8).contains(&statements), "{found} users by {statements} statements");
    // By the index, without a scan of all rows.
    let plan = bed.execute("EXPLAIN SELECT ha1 FROM subscriber WHERE domain IN ('example.org') AND username IN ('user2', 'user4', 'user6')");
    assert!(plan.contains("account_idx") || plan.contains("username_idx"), "{plan}");
}
