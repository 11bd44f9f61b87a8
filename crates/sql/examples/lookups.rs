//! What a look-up of a subscriber costs: look-ups a second, and processor time of this process and of the database for each.
//!
//! `cargo run --release --locked -p strowger-sql --example lookups` starts a MariaDB and a PostgreSQL of its own with ten thousand subscribers.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use strowger_lab::backend::{Backend, MariaDb, PostgreSql};
use strowger_lab::sample::Usage;
use strowger_sql::subscribers::{self, SqlSettings};
use strowger_sql::{Realms, ServerSettings};
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::read_through::ReadThroughSettings;
use strowger_store::subscriber::{Answer, Ha1s, Question, Subscribers};
use strowger_store::ticket::Ticket;

const USERS: u64 = 10_000;
const REALM: &str = "stress.example";
/// Of a look-up each.
const RATE: u64 = 1_000;
const SECONDS: u64 = 5;
/// Look-ups under way where as many as possible are made.
const AT_ONCE: u64 = 256;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let columns = "username VARCHAR(64) NOT NULL, domain VARCHAR(64) NOT NULL, password VARCHAR(64) DEFAULT '' NOT NULL, \
                   ha1 VARCHAR(128) NOT NULL, ha1b VARCHAR(128) DEFAULT '' NOT NULL";
    let mariadb = MariaDb::start(folder.path())?;
    mariadb.execute(&format!(
        "CREATE TABLE subscriber (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, {columns}, CONSTRAINT account_idx UNIQUE (username, domain));
         INSERT INTO subscriber (username, domain, ha1) SELECT CONCAT('user', seq), '{REALM}', MD5(seq) FROM seq_1_to_{USERS};
         ANALYZE TABLE subscriber"
    ))?;
    measure("mariadb", &mariadb.url(), mariadb.server())?;
    drop(mariadb);
    let postgresql = PostgreSql::start(folder.path())?;
    postgresql.execute(&format!(
        "CREATE TABLE subscriber (id SERIAL PRIMARY KEY, {columns}, CONSTRAINT account_idx UNIQUE (username, domain));
         INSERT INTO subscriber (username, domain, ha1) SELECT 'user' || n, '{REALM}', md5(n::text) FROM generate_series(1, {USERS}) n;"
    ))?;
    postgresql.execute("ANALYZE subscriber")?;
    measure("postgresql", &postgresql.url(), postgresql.server())
}

fn no_hash(_: &str, _: &str, _: &str) -> Ha1s {
    Ha1s::default()
}

fn measure(name: &str, url: &str, database: &Backend) -> Result<(), AnyError> {
    let begun = Instant::now();
    let clock = Arc::new(move || Moment { mono: begun.elapsed().as_millis() as u64, wall: 0 });
    let now = || begun.elapsed().as_millis() as u64;
    let settings = SqlSettings {
        server: ServerSettings { url: url.parse()?, authorities: None },
        table: "subscriber".into(),
        realms: Realms::new([(REALM, vec![REALM])]),
        hash: no_hash,
    };
    // Nothing is remembered.
    let (found_ttl, absent_ttl) = (Duration::ZERO, Duration::ZERO);
    let cache = ReadThroughSettings { found_ttl, absent_ttl, ..ReadThroughSettings::default() };
    // Of this process and, since it started them, of the databases.
    let all = || Usage::of_tree(std::process::id());
    let before_start = memory();
    let started = subscribers::start(&settings, None, cache, clock)?;
    let (tx, answers) = mpsc::channel();
    let sink = started.subscribers.receiver(Arc::new(move |results: &[(u64, Result<Answer, StoreError>)]| {
        for (value, result) in results {
            let _gone = tx.send((*value, result.clone()));
        }
    }));
    let ask = |n: u64| -> Result<(), AnyError> {
        // Spread over all of them.
        let username = format!("user{}", n * 7_919 % USERS + 1);
        let question = Question::Credential { username: username.as_bytes(), realm: REALM.as_bytes() };
        started.subscribers.request(Ticket { sink, value: n }, question, now())?;
        started.subscribers.flush();
        Ok(())
    };
    let heard = || -> Result<u64, AnyError> {
        match answers.recv_timeout(Duration::from_secs(10))? {
            (value, Ok(Answer::Credential(_))) => Ok(value),
            (value, other) => Err(format!("look-up {value}: {other:?}").into()),
        }
    };
    let paced = |step: &dyn Fn(u64) -> Result<(), AnyError>| -> Result<(Duration, Duration), AnyError> {
        let (before, start) = ((all(), database.usage()), Instant::now());
        for n in 0..RATE * SECONDS {
            std::thread::sleep(
                (start + Duration::from_micros(n * 1_000_000 / RATE)).saturating_duration_since(Instant::now()),
            );
            step(n)?;
        }
        let theirs = database.usage().since(&before.1).total();
        Ok((all().since(&before.0).total().saturating_sub(theirs), theirs))
    };
    // Connections, statements and pages are warm then.
    for n in 0..1_000 {
        ask(n)?;
        heard()?;
    }
    let (idle, _) = paced(&|_| Ok(()))?;
    let (ours, theirs) = paced(&|n| {
        ask(n)?;
        heard().map(drop)
    })?;
    let each = |usage: Duration| usage.as_secs_f64() * 1e6 / (RATE * SECONDS) as f64;
    println!(
        "{name}: at {RATE}/s one by one {:.1} µs of this process a look-up (without the pace), {:.1} µs of the database",
        each(ours.saturating_sub(idle)),
        each(theirs)
    );
    let mut took: Vec<Duration> = Vec::new();
    for n in 0..5_000 {
        let start = Instant::now();
        ask(n)?;
        heard()?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    println!("{name}: one after the other p50 {:?}, p99 {:?}", took[took.len() / 2], took[took.len() * 99 / 100]);
    let (before, start) = ((all(), database.usage()), Instant::now());
    let (mut asked, mut answered) = (0, 0);
    while start.elapsed() < Duration::from_secs(SECONDS) {
        while asked - answered < AT_ONCE {
            ask(asked)?;
            asked += 1;
        }
        heard()?;
        answered += 1;
    }
    let length = start.elapsed().as_secs_f64();
    let theirs = database.usage().since(&before.1).total();
    let ours = all().since(&before.0).total().saturating_sub(theirs);
    while answered < asked {
        heard()?;
        answered += 1;
    }
    let each = |usage: Duration| usage.as_secs_f64() * 1e6 / answered as f64;
    println!(
        "{name}: {AT_ONCE} under way {:.0} look-ups/s, {:.1} µs of this process each, {:.1} µs of the database, {} connections, {} KB more than before",
        answered as f64 / length,
        each(ours),
        each(theirs),
        started.subscribers.gauges().connections,
        memory().saturating_sub(before_start)
    );
    Ok(())
}

/// Of this process, in kilobytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
