use std::sync::LazyLock;

use strowger_store::clock::Moment;

use super::*;

/// Returns the time of [`clock`], for tests that wait in real time.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u64
}

fn clock() -> Clock {
    Arc::new(|| Moment { mono: now(), wall: 0 })
}

fn settings(dir: &tempfile::TempDir) -> SqliteSettings {
    SqliteSettings::new(dir.path().join("s.db"))
}

fn secret(n: u8) -> Ha1s {
    Ha1s { md5: Some([n; 16]), sha256: Some([n; 32]), sha512_256: None }
}

fn ask(engine: &mut SqliteSubscribers, question: Question<'_>) -> SubscriberAnswer {
    let mut answers = Vec::new();
    engine.answer(&[question.into()], &mut answers).unwrap();
    answers.remove(0)
}

fn credential<'a>(username: &'a str, realm: &'a str) -> Question<'a> {
    Question::Credential { username: username.as_bytes(), realm: realm.as_bytes() }
}

fn user<'a>(username: &'a str, domain: &'a str) -> Question<'a> {
    Question::User { username: username.as_bytes(), domain: domain.as_bytes() }
}

#[test]
fn a_file_without_room_and_one_that_is_held_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&SqliteSettings { busy_timeout: Duration::ZERO, ..settings(&dir) }).unwrap();
    let other = Connection::open(settings(&dir).path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(admin.add("alice", "a", "a", &secret(1), 0), Err(AdminError::Locked));
    other.execute_batch("ROLLBACK").unwrap();
    // The file may have no more pages than it has now.
    admin.connection.pragma_update_and_check(None, "max_page_count", 1, |_| Ok(())).unwrap();
    let full = (0..1_000).find_map(|n| admin.add(&n.to_string(), "a", "a", &secret(1), 0).err());
    assert_eq!(full, Some(AdminError::NoRoom));
}

#[test]
fn what_was_ordered_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
    assert_eq!(ask(&mut engine, credential("alice", "r")), SubscriberAnswer::Absent);

    admin.add("alice", "Example.COM", "r", &secret(1), 5).unwrap();
    let want = |ha1| {
        let (username, realm, domain) = ("alice".into(), "r".into(), "example.com".into());
        SubscriberAnswer::Credential(Arc::new(Credential { username, realm, domain, ha1 }))
    };
    assert_eq!(ask(&mut engine, credential("alice", "r")), want(secret(1)));
    assert_eq!(ask(&mut engine, credential("Alice", "r")), SubscriberAnswer::Absent, "names differ by case");
    assert_eq!(ask(&mut engine, user("alice", "example.com")), SubscriberAnswer::Exists);
    assert_eq!(ask(&mut engine, user("bob", "example.com")), SubscriberAnswer::Absent);
    let odd = Question::Credential { username: b"\xff' OR 1=1 --", realm: b"r" };
    assert_eq!(ask(&mut engine, odd), SubscriberAnswer::Absent);

    let mut notices = SqliteNotices::open(&settings(&dir)).unwrap();
    let new = Ha1s { sha512_256: Some([9; 32]), ..Ha1s::default() };
    admin.set_password("alice", "example.com", "r", &new, 6).unwrap();
    let Changes::Of(changed) = notices.changes().unwrap() else { panic!("it is not known what changed") };
    assert!(changed.contains(&credential("alice", "r").into()), "{changed:?}");
    assert_eq!(notices.changes(), Ok(Changes::None));
    assert_eq!(ask(&mut engine, credential("alice", "r")), want(new), "old algorithms are gone");

    admin.remove("alice", "example.com").unwrap();
    assert_eq!(ask(&mut engine, credential("alice", "r")), SubscriberAnswer::Absent);
    assert_eq!(ask(&mut engine, user("alice", "example.com")), SubscriberAnswer::Absent);
}

#[test]
fn wrong_orders_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    admin.add("alice", "a.example", "r", &secret(1), 0).unwrap();
    let (username, domain) = (|| "alice".to_owned(), || "a.example".to_owned());
    assert_eq!(
        admin.add("alice", "A.example", "r", &secret(2), 0),
        Err(AdminError::Exists { username: username(), domain: domain() })
    );
    assert_eq!(
        admin.add("alice", "b.example", "r", &secret(2), 0),
        Err(AdminError::RealmTaken { username: username(), realm: "r".into(), domain: domain() })
    );
    assert_eq!(admin.add("bob", "a.example", "r", &Ha1s::default(), 0), Err(AdminError::NoSecret));
    assert_eq!(admin.add("", "a.example", "r", &secret(2), 0), Err(AdminError::NoName));
    let missing = || Err(AdminError::Missing { username: "bob".into(), domain: domain() });
    assert_eq!(admin.set_password("bob", "a.example", "r", &secret(2), 0), missing());
    assert_eq!(admin.remove_password("bob", "a.example", "r"), missing());
    assert_eq!(admin.remove("bob", "a.example"), missing());
    let listed = admin.list(None).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
    let SubscriberAnswer::Credential(alice) = ask(&mut engine, credential("alice", "r")) else {
        panic!("alice is gone")
    };
    assert_eq!(alice.ha1, secret(1));
}

#[test]
fn a_list_is_by_domain_and_shows_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    admin.add("bob", "b.example", "b.example", &secret(1), 1).unwrap();
    admin.add("carol", "a.example", "a.example", &secret(1), 2).unwrap();
    admin.add("alice", "a.example", "a.example", &secret(1), 3).unwrap();
    admin.set_password("alice", "a.example", "second", &secret(2), 4).unwrap();
    let names = |listed: Vec<Listed>| listed.into_iter().map(|l| l.username).collect::<Vec<_>>();
    assert_eq!(names(admin.list(None).unwrap()), ["alice", "carol", "bob"]);
    assert_eq!(names(admin.list(Some("B.example")).unwrap()), ["bob"]);
    let alice = &admin.list(Some("a.example")).unwrap()[0];
    let algorithms = || vec!["MD5".to_owned(), "SHA-256".to_owned()];
    assert_eq!(alice.realms, [("a.example".to_owned(), algorithms()), ("second".to_owned(), algorithms())]);
    assert_eq!((alice.created_at, alice.updated_at), (3, 4));
}

#[test]
fn a_removed_user_is_reported_until_it_is_settled() {
    use strowger_store::subscriber::Subscribers;
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let cache = ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() };
        start(&settings(&dir), cache, clock()).unwrap()
    };
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    for name in ["alice", "bob"] {
        admin.add(name, "a.example", "r", &secret(1), 0).unwrap();
    }
    admin.remove("alice", "A.example").unwrap();
    let until = |running: &CachedSubscribers, names: &[&str]| {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let removed = running.removed();
            if removed.iter().map(|r| &*r.username).eq(names.iter().copied()) {
                return removed;
            }
            assert!(Instant::now() < end, "{removed:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let noted = || -> i64 {
        let count = "SELECT count(*) FROM removed_subscriber";
        Connection::open(&settings(&dir).path).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
    };
    // Removed before the start, without any question.
    let running = start();
    let alice = until(&running, &["alice"]).remove(0);
    assert_eq!(&*alice.domain, "a.example");
    drop(running);
    let running = start();
    until(&running, &["alice"]);
    admin.remove("bob", "a.example").unwrap();
    until(&running, &["alice", "bob"]);
    running.settled(alice.id);
    assert_eq!(until(&running, &["bob"]).len(), 1);
    let end = Instant::now() + Duration::from_secs(20);
    while noted() != 1 {
        assert!(Instant::now() < end, "it is never forgotten");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(running);
    until(&start(), &["bob"]);
}

/// Each domain has a realm of its own, and in it an `alice` of its own.
#[test]
fn one_name_in_two_realms_is_two_users() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    for (domain, n) in [("a.example", 1), ("b.example", 2)] {
        admin.add("alice", domain, domain, &secret(n), 0).unwrap();
    }
    let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
    let mut of = |realm: &str| match ask(&mut engine, credential("alice", realm)) {
        SubscriberAnswer::Credential(found) => Some((found.domain.to_string(), found.ha1)),
        _ => None,
    };
    assert_eq!(of("a.example"), Some(("a.example".into(), secret(1))));
    assert_eq!(of("b.example"), Some(("b.example".into(), secret(2))));
    // A password that was left in another realm reserves the name there until the password is removed.
    admin.set_password("alice", "b.example", "shared", &secret(2), 0).unwrap();
    let taken = AdminError::RealmTaken { username: "alice".into(), realm: "shared".into(), domain: "b.example".into() };
    assert_eq!(admin.set_password("alice", "a.example", "shared", &secret(1), 0), Err(taken));
    admin.remove_password("alice", "B.example", "shared").unwrap();
    admin.set_password("alice", "a.example", "shared", &secret(1), 0).unwrap();
    assert_eq!(of("shared"), Some(("a.example".into(), secret(1))));
    assert_eq!(of("b.example"), Some(("b.example".into(), secret(2))));
    admin.remove("alice", "a.example").unwrap();
    assert_eq!((of("a.example"), of("shared")), (None, None));
    assert!(of("b.example").is_some());
}

#[test]
fn passwords_that_fit_no_challenge_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let of = |realm: &'static str| UnusablePasswords::of(&settings(&dir), |_| realm, &[]).unwrap();
    assert_eq!(of("new"), []);
    assert!(!settings(&dir).path.exists(), "looking makes no file");
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    assert_eq!(of("new"), []);
    for name in ["alice", "bob", "carol"] {
        admin.add(name, "a.example", "old", &secret(1), 0).unwrap();
    }
    admin.add("dave", "a.example", "older", &secret(1), 0).unwrap();
    let domain = || "a.example".to_owned();
    let unusable = |users, realm: &str| UnusablePasswords {
        domain: domain(),
        users,
        realm: Some(realm.into()),
        ..UnusablePasswords::default()
    };
    assert_eq!(of("old"), [unusable(1, "older")]);
    assert_eq!(of("new"), [unusable(4, "old")]);
    for name in ["alice", "bob", "carol"] {
        admin.set_password(name, "a.example", "new", &secret(2), 0).unwrap();
    }
    assert_eq!(of("new"), [unusable(1, "older")], "an HA1 for the old realm does no harm");
    admin.connection.execute("DELETE FROM credential WHERE username = 'dave'", []).unwrap();
    assert_eq!(of("new"), [UnusablePasswords { domain: domain(), users: 1, ..UnusablePasswords::default() }]);
    admin.remove("dave", "a.example").unwrap();
    assert_eq!(of("new"), []);
    let lacking = |algorithms: &[&str]| {
        let found = UnusablePasswords::of(&settings(&dir), |_| "new", algorithms).unwrap();
        found.into_iter().flat_map(|unusable| unusable.lacking).collect::<Vec<_>>()
    };
    assert_eq!(lacking(&["MD5", "SHA-256"]), []);
    assert_eq!(lacking(&["MD5", "SHA-512-256"]), [("SHA-512-256".to_owned(), 3)]);
    admin.set_password("bob", "a.example", "new", &Ha1s { md5: None, ..secret(3) }, 0).unwrap();
    assert_eq!(lacking(&["MD5", "SHA-256"]), [("MD5".to_owned(), 1)]);
    std::fs::write(&settings(&dir).path, "this is no database, but long enough to look at".repeat(100)).unwrap();
    assert!(UnusablePasswords::of(&settings(&dir), |_| "new", &[]).is_err());
}

/// A realm that matches one domain does not match another.
#[test]
fn each_domain_is_looked_at_with_its_own_realm() {
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    for (name, domain, realm) in [
        ("alice", "a.example", "a.example"),
        ("alice", "b.example", "b.example"),
        ("bob", "b.example", "a.example"),
        ("bob", "c.example", "c.example"),
        ("carol", "c.example", "c.example"),
    ] {
        admin.add(name, domain, realm, &Ha1s { sha256: None, ..secret(1) }, 0).unwrap();
    }
    let of = |realm_of: fn(&str) -> &'static str, algorithms: &[&str]| {
        let found = UnusablePasswords::of(&settings(&dir), realm_of, algorithms).unwrap();
        let shown = |u: UnusablePasswords| (u.domain, u.users, u.realm.unwrap_or_default(), u.lacking.len());
        found.into_iter().map(shown).collect::<Vec<_>>()
    };
    let row = |domain: &str, users, realm: &str, lacking| (domain.to_owned(), users, realm.to_owned(), lacking);
    let own = |domain: &str| match domain {
        "a.example" => "a.example",
        "b.example" => "b.example",
        _ => "c.example",
    };
    assert_eq!(of(own, &["MD5"]), [row("b.example", 1, "a.example", 0)]);
    assert_eq!(
        of(own, &["SHA-256"]),
        [row("a.example", 0, "", 1), row("b.example", 1, "a.example", 1), row("c.example", 0, "", 1)]
    );
    assert_eq!(of(|_| "a.example", &[]), [row("b.example", 1, "b.example", 0), row("c.example", 2, "c.example", 0)]);
}

#[test]
fn an_order_counts_in_a_running_server_soon() {
    use strowger_store::subscriber::Subscribers;
    use strowger_store::ticket::Ticket;
    let dir = tempfile::tempdir().unwrap();
    let poll = Duration::from_millis(100);
    let cache = ReadThroughSettings { poll, ..ReadThroughSettings::default() };
    let running = start(&settings(&dir), cache, clock()).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let sink = running.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
        for (_, result) in results {
            let _gone = tx.send(result.clone());
        }
    }));
    let question = credential("alice", "r");
    let ask = || {
        running.request(Ticket { sink, value: 0 }, question, now()).unwrap();
        running.flush();
        rx.recv_timeout(Duration::from_secs(20)).unwrap().unwrap()
    };
    assert_eq!(ask(), SubscriberAnswer::Absent);
    assert_eq!(running.cached(question, now()), Some(Ok(SubscriberAnswer::Absent)));

    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    admin.add("alice", "example.com", "r", &secret(1), 0).unwrap();
    let start = Instant::now();
    while running.cached(question, now()).is_some() {
        assert!(start.elapsed() < Duration::from_secs(20), "the cache never heard of it");
        std::thread::sleep(Duration::from_millis(5));
    }
    let SubscriberAnswer::Credential(alice) = ask() else { panic!("alice is not found") };
    assert_eq!(alice.ha1, secret(1));
}

#[test]
fn one_changed_user_voids_one_answer() {
    use strowger_store::subscriber::Subscribers;
    use strowger_store::ticket::Ticket;
    let dir = tempfile::tempdir().unwrap();
    let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
    for name in ["alice", "bob"] {
        admin.add(name, "a.example", "r", &secret(1), 0).unwrap();
    }
    let cache = ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() };
    let running = start(&settings(&dir), cache, clock()).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let sink = running.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
        let _gone = tx.send(results.len());
    }));
    let all = [credential("alice", "r"), credential("bob", "r"), user("alice", "a.example"), user("bob", "a.example")];
    for question in all {
        running.request(Ticket { sink, value: 0 }, question, now()).unwrap();
        running.flush();
        rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    let until = |known: [bool; 4]| {
        let end = Instant::now() + Duration::from_secs(20);
        while all.map(|question| running.cached(question, now()).is_some()) != known {
            assert!(Instant::now() < end, "{:?}", all.map(|question| running.cached(question, now())));
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    until([true; 4]);
    admin.set_password("alice", "a.example", "r", &secret(2), 0).unwrap();
    until([false, true, true, true]);
    admin.remove("bob", "a.example").unwrap();
    until([false, false, true, false]);
    assert_eq!(running.gauges().doubted, 0);
    // A connection to another file of the same name would read it with the log of the open file, so it is refused.
    let other = dir.path().join("other.db");
    drop(SqliteAdmin::open(&SqliteSettings::new(&other)).unwrap());
    let number = FileNumber::named(&settings(&dir).path);
    std::fs::rename(&other, settings(&dir).path).unwrap();
    assert_eq!(Opened::again(&settings(&dir), number).err(), Some(StoreError::Unavailable));
}

#[test]
fn more_notices_than_are_kept_void_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut notices = SqliteNotices::open(&settings(&dir)).unwrap();
    assert_eq!(notices.changes(), Ok(Changes::None));
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) \
        INSERT INTO subscriber SELECT i, 'user' || i, 'a', 0, 0 FROM n";
    notices.file.connection.execute(many, []).unwrap();
    assert_eq!(notices.changes(), Ok(Changes::All));
    assert_eq!(notices.changes(), Ok(Changes::None));
    notices.file.connection.execute("DELETE FROM subscriber WHERE id = 7", []).unwrap();
    assert_eq!(notices.changes(), Ok(Changes::Of(vec![user("user7", "a").into()])));
}
