//! Cost of a persisted registration: `store_writes [RATE] [SECONDS] [FOLDER]`, 5,000 a second for 5 seconds by default,
//! in a new folder below FOLDER (the current one by default: a file system in memory would prove nothing).
//!
//! For each durability: registrations at an even rate, half of them new and half refreshes, each timed from its call to
//! its ticket; then as fast as the queue accepts them. CPU is that of the whole process, the pacing thread included.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_benches::processor_time;
use strowger_store::binding::{Binding, Received};
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::journal::{Durability, Journal, JournalSettings};
use strowger_store::location::{ExistingBindings, LocationSettings, LocationTable, Step, UpdateError};
use strowger_store::ticket::{Refused, Ticket};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis())
        .expect("and before the year 500,000,000")
}

fn register(table: &LocationTable, ticket: Ticket, n: u64) -> Result<(), Refused> {
    // Every second one refreshes an earlier one.
    let user = if n.is_multiple_of(2) { n } else { n / 2 * 2 * 7919 % n };
    let aor = format!("sip:user{user:010}@example.com");
    let uri = format!("sip:user{user:010}@192.168.100.200:50600;transport=udp;ob");
    let call_id = format!("{user:020}@abcdefghijklmno");
    let now = now_ms();
    let binding = Binding {
        uri: uri.as_bytes(),
        call_id: call_id.as_bytes(),
        instance: b"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>",
        user_agent: b"Softphone 001 build 77.10",
        cseq: 1,
        expires_at: now + 3_600_000,
        updated_at: now,
        received: Some(Received { transport: 1, address: ([192, 0, 2, 1], 50_600).into() }),
        ..Binding::EMPTY
    };
    let decide = |current: &ExistingBindings<'_>| {
        Ok::<_, ()>(vec![match current.iter().next() {
            Some(old) => Step::Replace(old.id(), binding),
            None => Step::Add(binding),
        }])
    };
    match table.update(aor.as_bytes(), now, 5, ticket, decide) {
        Ok(_) => Ok(()),
        Err(UpdateError::Refused(refused)) => Err(refused),
        Err(other) => panic!("{other}"),
    }
}

struct Run {
    table: Arc<LocationTable>,
    journal: Journal,
    ticket: Ticket,
    latencies: Arc<Mutex<Vec<u32>>>,
    start: Instant,
}

fn start(path: &Path, durability: Durability) -> Run {
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let engine = SqliteBindings::open(&SqliteSettings { durability, ..SqliteSettings::new(path) });
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    // No data outlives this process, so one clock may be both.
    let clock = Arc::new(|| Moment { mono: now_ms(), wall: now_ms() });
    let (journal, _) = Journal::start(engine, &table, JournalSettings::default(), clock).expect("a new file loads");
    let latencies = Arc::new(Mutex::new(Vec::<u32>::new()));
    let start = Instant::now();
    let kept = Arc::clone(&latencies);
    let sink = journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
        let now = start.elapsed().as_micros() as u64;
        let mut kept = kept.lock().expect("nobody panics with it");
        kept.extend(results.iter().map(|(sent, result)| {
            result.expect("the disk works");
            (now - sent) as u32
        }));
    }));
    Run { table, journal, ticket: Ticket { sink, value: 0 }, latencies, start }
}

impl Run {
    fn send(&self, n: u64) -> Result<(), Refused> {
        let value = self.start.elapsed().as_micros() as u64;
        register(&self.table, Ticket { value, ..self.ticket }, n)
    }

    fn wait_for(&self, count: u64) {
        while (self.latencies.lock().expect("nobody panics with it").len() as u64) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn ms(sorted: &[u32], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len() - 1);
    f64::from(sorted[at]) / 1000.0
}

fn paced(path: PathBuf, durability: Durability, rate: u64, seconds: u64) {
    let run = start(&path, durability);
    let (begin, used) = (Instant::now(), processor_time::of_process());
    let total = rate * seconds;
    for n in 0..total {
        let due = Duration::from_nanos(1_000_000_000 * n / rate);
        if let Some(wait) = due.checked_sub(begin.elapsed()) {
            std::thread::sleep(wait);
        }
        run.send(n).expect("the queue has room");
    }
    run.wait_for(total);
    let (took, used) = (begin.elapsed(), processor_time::of_process() - used);
    let mut all = std::mem::take(&mut *run.latencies.lock().expect("nobody panics with it"));
    all.sort_unstable();
    let gauges = run.journal.gauges();
    println!(
        "{durability:?} at {rate}/s: {:.0} rows/s, ticket p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; {:.0} commits/s, \
         mean {} us, max {} us; {:.1} us CPU a row",
        total as f64 / took.as_secs_f64(),
        ms(&all, 0.5),
        ms(&all, 0.99),
        ms(&all, 1.0),
        gauges.groups as f64 / took.as_secs_f64(),
        gauges.commit_us / gauges.groups.max(1),
        gauges.commit_max_us,
        used.as_micros() as f64 / total as f64,
    );
}

/// Baseline: the bytes of a group, overwritten and synced at the pace of the groups.
fn bare(path: &Path) {
    use std::os::unix::fs::FileExt;
    const GROUP: usize = 40_000;
    const FILE: u64 = 16 << 20;
    let file = std::fs::File::create(path).expect("the folder can be written");
    file.write_all_at(&vec![0; FILE as usize], 0).expect("there is room");
    file.sync_all().expect("the disk works");
    let mut all: Vec<u32> = (0..600u64)
        .map(|n| {
            std::thread::sleep(Duration::from_millis(2));
            file.write_all_at(&[1; GROUP], n * GROUP as u64 % (FILE - GROUP as u64)).expect("there is room");
            let start = Instant::now();
            file.sync_data().expect("the disk works");
            start.elapsed().as_micros() as u32
        })
        .collect();
    all.sort_unstable();
    println!("bare fdatasync: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", ms(&all, 0.5), ms(&all, 0.99), ms(&all, 1.0));
}

fn unpaced(path: PathBuf, durability: Durability, seconds: u64) {
    let run = start(&path, durability);
    let (begin, mut n) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        match run.send(n) {
            Ok(()) => n += 1,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    run.wait_for(n);
    println!("{durability:?} unpaced: {:.0} rows/s", n as f64 / begin.elapsed().as_secs_f64());
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(default, |n| n.parse().expect("RATE and SECONDS are numbers"));
    let (rate, seconds) = (number(5000u64), number(5u64));
    let below = args.next().unwrap_or_else(|| ".".into());
    let folder = Path::new(&below).join(format!("store_writes.{}", std::process::id()));
    std::fs::create_dir(&folder).expect("the folder can be written");
    bare(&folder.join("bare"));
    for durability in [Durability::Crash, Durability::PowerLoss] {
        paced(folder.join(format!("{durability:?}.db")), durability, rate, seconds);
        unpaced(folder.join(format!("{durability:?}-unpaced.db")), durability, seconds.min(3));
    }
    bare(&folder.join("bare"));
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
