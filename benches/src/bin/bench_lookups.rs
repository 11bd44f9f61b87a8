//! Cost of a look-up of a subscriber in a database server: `bench_lookups [--rounds N]`.
//!
//! Starts a MariaDB and a PostgreSQL of its own with ten thousand subscribers, without a cache. A round makes 1,000
//! look-ups per second, one by one, and measures the processor time of this process, which does the same work as the
//! server, and of the database. The cost of the pace without look-ups is measured too, and subtracted. Two further
//! figures have no limit: the duration of a look-up, and the number per second with 256 in progress. Needs the Debian
//! packages mariadb-server and postgresql. Exit code 1 when a look-up fails, or costs more than its limit.

use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use strowger_backend::sql::subscribers::{self, SqlSettings};
use strowger_backend::sql::{Realms, ServerSettings};
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Output, have, run};
use strowger_benches::median;
use strowger_lab::backend::{Backend, MariaDb, PostgreSql};
use strowger_lab::program::{MARIADB, MARIADBD, POSTGRESQL};
use strowger_measure::process::Usage;
use strowger_store::cached_subscribers::CachedSubscribers;
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::read_through::ReadThroughSettings;
use strowger_store::subscriber::{Ha1s, Question, SubscriberAnswer, Subscribers};
use strowger_store::ticket::{SinkId, Ticket};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USERS: u64 = 10_000;
const REALM: &str = "stress.example";
/// Look-ups a second.
const RATE: u64 = 1_000;
/// Microseconds of the server per look-up: limit and target.
const MOST: (f64, f64) = (80.0, 35.0);
/// Concurrent look-ups in the measurement of the highest rate.
const AT_ONCE: u64 = 256;
/// Sequential look-ups, each of which is timed.
const TIMED: u64 = 5_000;

/// The cost of a look-up in a database server.
#[derive(clap::Parser)]
struct Arguments {
    /// Rounds with each database; the median counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Seconds of each round
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

fn no_hash(_: &str, _: &str, _: &str) -> Ha1s {
    Ha1s::default()
}

/// The subscribers of one database, and a client for them.
struct Asker<'a> {
    name: &'static str,
    database: &'a Backend,
    subscribers: CachedSubscribers,
    sink: SinkId,
    answers: mpsc::Receiver<(u64, Result<SubscriberAnswer, StoreError>)>,
    begun: Instant,
}

impl<'a> Asker<'a> {
    fn start(name: &'static str, url: &str, database: &'a Backend) -> Result<Self, String> {
        let begun = Instant::now();
        let clock = Arc::new(move || Moment { mono: begun.elapsed().as_millis() as u64, wall: 0 });
        let url = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let settings = SqlSettings {
            server: ServerSettings { url, authorities: None },
            table: "subscriber".into(),
            realms: Realms::new([(REALM, vec![REALM])]),
            hash: no_hash,
        };
        // No cache.
        let (found_ttl, absent_ttl) = (Duration::ZERO, Duration::ZERO);
        let cache = ReadThroughSettings { found_ttl, absent_ttl, ..ReadThroughSettings::default() };
        let started = subscribers::start(&settings, None, cache, clock).map_err(|error| format!("{name}: {error}"))?;
        let (tx, answers) = mpsc::channel();
        let sink =
            started.subscribers.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
                for (value, result) in results {
                    let _gone = tx.send((*value, result.clone()));
                }
            }));
        Ok(Self { name, database, subscribers: started.subscribers, sink, answers, begun })
    }

    fn ask(&self, n: u64) -> Result<(), String> {
        // Spread over all users.
        let username = format!("user{}", n * 7_919 % USERS + 1);
        let question = Question::Credential { username: username.as_bytes(), realm: REALM.as_bytes() };
        let ticket = Ticket { sink: self.sink, value: n };
        let now = self.begun.elapsed().as_millis() as u64;
        self.subscribers.request(ticket, question, now).map_err(|refused| format!("{}: {refused:?}", self.name))?;
        self.subscribers.flush();
        Ok(())
    }

    fn heard(&self) -> Result<(), String> {
        match self.answers.recv_timeout(Duration::from_secs(10)) {
            Ok((_, Ok(SubscriberAnswer::Credential(_)))) => Ok(()),
            other => Err(format!("{}: {other:?} for the HA1 of a user", self.name)),
        }
    }

    fn asked(&self, n: u64) -> Result<(), String> {
        self.ask(n)?;
        self.heard()
    }

    /// Returns the processor time of this process for `work`, and of the database.
    fn cost(&self, work: impl FnOnce() -> Result<(), String>) -> Result<[Duration; 2], String> {
        // The sum of this process and of the database, which is its child.
        let all = || Usage::of_tree(std::process::id());
        let before = (all(), self.database.usage());
        work()?;
        let database = self.database.usage().since(&before.1).total();
        Ok([all().since(&before.0).total().saturating_sub(database), database])
    }

    /// Runs `step` this number of times, evenly.
    fn paced(&self, times: u64, step: impl Fn(u64) -> Result<(), String>) -> Result<[Duration; 2], String> {
        self.cost(|| {
            let start = Instant::now();
            (0..times).try_for_each(|n| {
                let due = start + Duration::from_micros(n * 1_000_000 / RATE);
                // A fixed pace is the purpose here.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                step(n)
            })
        })
    }

    fn measure(&self, arguments: &Arguments) -> Result<(Bar, Value), String> {
        let (name, Arguments { rounds, seconds, output }) = (self.name, arguments);
        // Warms up connections, statements and pages.
        (0..1_000).try_for_each(|n| self.asked(n))?;
        let times = RATE * seconds;
        let each = |usage: Duration, times: u64| usage.as_secs_f64() * 1e6 / times as f64;
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for number in 1..=*rounds {
            let [idle, _] = self.paced(times, |_| Ok(()))?;
            let [all, database] = self.paced(times, |n| self.asked(n))?;
            own.push(each(all.saturating_sub(idle), times));
            theirs.push(each(database, times));
            output.say(&format!(
                "{number:>5} {name:<11} {:>6.1} µs of the server a look-up, {:>6.1} of the database",
                own[own.len() - 1],
                theirs[theirs.len() - 1]
            ));
        }
        let mut took = Vec::new();
        for n in 0..TIMED {
            let start = Instant::now();
            self.asked(n)?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        took.sort_unstable_by(f64::total_cmp);
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        output.say(&format!("      {name:<11} {p50:>6.0} µs a look-up takes (median), {p99:.0} (99 %)"));
        let (mut answered, start) = (0, Instant::now());
        let [busy, of_database] = self.cost(|| {
            let mut asked = 0;
            while start.elapsed() < Duration::from_secs(*seconds) {
                while asked - answered < AT_ONCE {
                    self.ask(asked)?;
                    asked += 1;
                }
                self.heard()?;
                answered += 1;
            }
            (answered..asked).try_for_each(|_| self.heard())?;
            answered = asked;
            Ok(())
        })?;
        let rate = answered as f64 / start.elapsed().as_secs_f64();
        let (busy, of_database) = (each(busy, answered), each(of_database, answered));
        let connections = self.subscribers.gauges().connections;
        output.say(&format!(
            "      {name:<11} {rate:>6.0} look-ups/s with {AT_ONCE} under way on {connections} connections: {busy:.1} µs of the server, {of_database:.1} of the database"
        ));
        let value = json!({
            "server_us": own, "database_us": theirs, "p50_us": p50, "p99_us": p99,
            "at_once": {"under_way": AT_ONCE, "rate": rate, "server_us": busy, "database_us": of_database},
        });
        let what = format!("{name}, {RATE} look-ups/s: µs of the server each");
        Ok((Bar::most(&what, median(own), MOST.0).aiming_at(MOST.1), value))
    }
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    have(&[MARIADBD, MARIADB, POSTGRESQL])?;
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let text = |error: strowger_lab::Error| error.to_string();
    let columns = "username VARCHAR(64) NOT NULL, domain VARCHAR(64) NOT NULL, password VARCHAR(64) DEFAULT '' NOT NULL, \
                   ha1 VARCHAR(128) NOT NULL, ha1b VARCHAR(128) DEFAULT '' NOT NULL";
    let key = "CONSTRAINT account_idx UNIQUE (username, domain)";
    let mut seen = (Vec::new(), Map::new());
    let mut add = |name: &str, (bar, value): (Bar, Value)| {
        seen.0.push(bar);
        seen.1.insert(name.into(), value);
    };
    let mariadb = MariaDb::start(folder.path()).map_err(text)?;
    let made = mariadb.execute(&format!(
        "CREATE TABLE subscriber (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, {columns}, {key});
         INSERT INTO subscriber (username, domain, ha1) SELECT CONCAT('user', seq), '{REALM}', MD5(seq) FROM seq_1_to_{USERS};
         ANALYZE TABLE subscriber"
    ));
    made.map_err(text)?;
    add("mariadb", Asker::start("mariadb", &mariadb.url(), mariadb.server())?.measure(arguments)?);
    drop(mariadb);
    let postgresql = PostgreSql::start(folder.path()).map_err(text)?;
    let made = postgresql.execute(&format!(
        "CREATE TABLE subscriber (id SERIAL PRIMARY KEY, {columns}, {key});
         INSERT INTO subscriber (username, domain, ha1) SELECT 'user' || n, '{REALM}', md5(n::text) FROM generate_series(1, {USERS}) n;"
    ));
    made.and_then(|_| postgresql.execute("ANALYZE subscriber")).map_err(text)?;
    add("postgresql", Asker::start("postgresql", &postgresql.url(), postgresql.server())?.measure(arguments)?);
    Ok(arguments.output.judge(&seen.0, &Value::Object(seen.1)))
}

fn main() -> ExitCode {
    run(measure)
}
