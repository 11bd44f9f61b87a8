//! Measures the cost of an accounting row, a binding and a kept call in a database server. Prints for each of them the
//! rows per second, and the processor time of this process and of the database.
//!
//! `cargo run --release --locked -p strowger-backend --example rows` starts its own MariaDB and PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use strowger_backend::accounting::Accounting;
use strowger_backend::accounting::writer::Settings;
use strowger_backend::sql::ServerSettings;
use strowger_backend::sql::accounting::ServerSink;
use strowger_backend::sql::bindings::ServerBindings;
use strowger_backend::sql::calls::{CallSettings, ServerCalls};
use strowger_backend::sql::lease::{self, Claim, Holder, Lease, Purpose};
use strowger_backend::sql::schema::{self, Part, SchemaCommand};
use strowger_lab::backend::{Backend, MariaDb, PostgreSql};
use strowger_measure::process::Usage;
use strowger_store::accounting::cdr::{Cdr, Row};
use strowger_store::accounting::sink::Sink;
use strowger_store::binding::{Binding, BindingId, Received};
use strowger_store::calls::{CallEngine, Change};
use strowger_store::journal::{BindingEngine, Durability, Write};

/// Rows of each measurement.
const ROWS: u64 = 50_000;
/// Bindings written, and read at a start.
const BINDINGS: u64 = 100_000;
/// Calls stored, renewed, read at a start and removed, and bytes of each.
const CALLS: u64 = 50_000;
const STATE: usize = 700;
/// Rows per group, as call rate and `accounting.group_interval` produce them.
const GROUPS: [usize; 6] = [1, 10, 50, 100, 500, 1_000];
/// Rows per second, by the writer of a server.
const RATE: u64 = 500;
const SECONDS: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(5);

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let mariadb = MariaDb::start(folder.path())?;
    measure("mariadb", &mariadb.url(), mariadb.server())?;
    drop(mariadb);
    let postgresql = PostgreSql::start(folder.path())?;
    measure("postgresql", &postgresql.url(), postgresql.server())
}

/// Returns a record of typical length.
fn cdr(number: u64) -> Box<Row> {
    let setup = 1_700_000_000_000 + number;
    Box::new(Row::Cdr(Cdr {
        // Spread like random ones.
        identity: format!("{:016x}{number:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        call_id: format!("1-{number}@127.0.0.1"),
        setup,
        ring: Some(setup + 20),
        answer: Some(setup + 40),
        end: Some(setup + 60),
        caller: format!("sip:user{}@stress.example", number % 10_000),
        callee: format!("sip:user{}@stress.example", (number + 1) % 10_000),
        user: format!("user{}", number % 10_000),
        account: String::new(),
        source: "127.0.0.1:5061".into(),
        transport: "udp".into(),
        gateway: "127.0.0.1:5062".into(),
        attempts: 1,
        outcome: "answered".into(),
        status: 200,
        cause: 16,
        ended_by: "caller".into(),
        codecs: "PCMA,PCMU".into(),
        far_call_id: String::new(),
        fields: Vec::new(),
        media: [None; 2],
    }))
}

/// Cost of a piece of work: elapsed time, processor time of this process and of the database.
struct Took {
    time: Duration,
    ours: Duration,
    theirs: Duration,
}

fn took<T>(database: &Backend, work: impl FnOnce() -> Result<T, AnyError>) -> Result<(T, Took), AnyError> {
    // Processor time of this process and of the databases, which are its child processes.
    let all = || Usage::of_tree(std::process::id());
    let (before, begun) = ((all(), database.usage()), Instant::now());
    let done = work()?;
    let time = begun.elapsed();
    let theirs = database.usage().since(&before.1).total();
    Ok((done, Took { time, ours: all().since(&before.0).total().saturating_sub(theirs), theirs }))
}

impl Took {
    fn say(&self, name: &str, what: &str, count: u64) {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{name}: {what}: {:.0}/s, {:.1} µs of this process each, {:.1} µs of the database",
            count as f64 / self.time.as_secs_f64(),
            each(self.ours),
            each(self.theirs)
        );
    }
}

fn measure(name: &str, url: &str, database: &Backend) -> Result<(), AnyError> {
    let settings = ServerSettings { url: url.parse()?, authorities: None };
    schema::carry_out(
        &settings,
        &[Part::Accounting, Part::Bindings, Part::Calls, Part::Leases],
        SchemaCommand::Init,
        false,
        0,
    )?;
    let mut sink = ServerSink::new(&settings, PATIENCE, false)?;
    sink.open()?;
    let mut next = 0;
    for group in GROUPS {
        // Small groups take long.
        let groups = (ROWS / group as u64).min(2_000);
        let rows: Vec<Vec<Box<Row>>> = (0..groups)
            .map(|_| {
                let rows = (next..next + group as u64).map(cdr).collect();
                next += group as u64;
                rows
            })
            .collect();
        let ((), took) = took(database, || {
            for rows in &rows {
                sink.write(rows, 0)?;
            }
            Ok(())
        })?;
        took.say(name, &format!("records in groups of {group}"), groups * group as u64);
    }
    drop(sink);
    let folder = tempfile::tempdir()?;
    for linger in [100, 500, 1_000].map(Duration::from_millis) {
        let mut writing = Settings::new(folder.path().join("spool"));
        writing.group.linger = linger;
        let sink = Box::new(ServerSink::new(&settings, PATIENCE, false)?);
        let accounting = Accounting::start(sink, writing, Arc::new(|| 0))?;
        let ((), took) = took(database, || {
            let begun = Instant::now();
            for n in 0..RATE * SECONDS {
                let at = begun + Duration::from_micros(n * 1_000_000 / RATE);
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                accounting.submit(cdr(next + n));
            }
            drop(accounting);
            Ok(())
        })?;
        next += RATE * SECONDS;
        took.say(name, &format!("records at {RATE}/s, groups of {linger:?} (with the pace)"), RATE * SECONDS);
    }
    bindings(name, &settings, database)?;
    calls(name, &settings, database)
}

fn lease(settings: &ServerSettings, purpose: Purpose) -> Result<Arc<Lease>, AnyError> {
    let holder = Holder { name: "this example".into(), process: String::new(), has_ended: |_| false };
    let leases = lease::acquire(&[(settings.clone(), purpose)], &holder, Claim::IfFree, &AtomicBool::new(false))?;
    Ok(Arc::new(leases.and_then(|mut leases| leases.pop()).ok_or("no lease")?))
}

fn bindings(name: &str, settings: &ServerSettings, database: &Backend) -> Result<(), AnyError> {
    let mut engine = ServerBindings::open(settings, Durability::Crash, PATIENCE, lease(settings, Purpose::Bindings)?)?;
    engine.load(0, BindingId::of_node(0), &mut |_, _, _| ())?;
    let aors: Vec<String> = (0..BINDINGS).map(|n| format!("sip:user{n}@stress.example")).collect();
    let write = |n: u64| {
        let binding = Binding {
            aor: aors[n as usize].as_bytes(),
            uri: b"sip:user@192.0.2.17:5060;transport=udp",
            call_id: b"a84b4c76e66710@192.0.2.17",
            user_agent: b"Phone 1.0",
            cseq: 1,
            expires_at: 1 << 47,
            updated_at: 1_700_000_000_000,
            received: Some(Received { transport: 0, address: ([192, 0, 2, 17], 5060).into() }),
            ..Binding::EMPTY
        };
        Write::Put(BindingId(n + 1), binding, "udp:192.0.2.1:5060")
    };
    for (what, group) in [("new bindings", 500), ("refreshed bindings", 500), ("refreshed bindings", 50)] {
        let groups = (BINDINGS / group).min(if group == 500 { BINDINGS } else { 500 });
        let ((), took) = took(database, || {
            for n in 0..groups {
                engine.commit(&mut (n * group..(n + 1) * group).map(write))?;
            }
            Ok(())
        })?;
        took.say(name, &format!("{what} in groups of {group}"), groups * group);
    }
    drop(engine);
    let mut engine = ServerBindings::open(settings, Durability::Crash, PATIENCE, lease(settings, Purpose::Bindings)?)?;
    let mut loaded = 0;
    let (_, took) = took(database, || Ok(engine.load(0, BindingId::of_node(0), &mut |_, _, _| loaded += 1)?))?;
    println!("{name}: {loaded} bindings loaded in {:?}", took.time);
    Ok(())
}

fn calls(name: &str, settings: &ServerSettings, database: &Backend) -> Result<(), AnyError> {
    let calls = CallSettings { node: 0, form: 1, patience: PATIENCE };
    let open =
        || -> Result<_, AnyError> { Ok(ServerCalls::open(settings, calls, lease(settings, Purpose::Calls(0))?)?) };
    let failed = |error: strowger_store::calls::Failure| error.to_string();
    let mut engine = open()?;
    engine.load(&mut |_, _| ())?;
    // Spread like hashes, and not text.
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = Change::State((0..STATE).map(|n| n as u8).collect());
    for (what, change, group) in [
        ("new calls", &state, 50),
        ("new calls", &state, 1_000),
        ("renewed calls", &state, 1_000),
        ("ended calls", &Change::Removed, 1_000),
        ("new calls", &state, 1_000),
    ] {
        let calls = if group == 50 { CALLS / 10 } else { CALLS };
        let ((), took) = took(database, || {
            for first in (0..calls).step_by(group as usize) {
                let changes: Vec<(u64, &Change)> = (first..first + group).map(|n| (number(n), change)).collect();
                engine.write(&changes).map_err(failed)?;
            }
            Ok(())
        })?;
        took.say(name, &format!("{what} in groups of {group}"), calls);
    }
    drop(engine);
    let mut engine = open()?;
    let mut loaded = 0;
    let (_, took) = took(database, || Ok(engine.load(&mut |_, _| loaded += 1)?))?;
    println!("{name}: {loaded} calls loaded in {:?}", took.time);
    Ok(())
}
