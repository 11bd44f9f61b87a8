//! Cost and speed of the local cache: memory of an entry, stores and fetches, hits, a fetch during writes, the log
//! after a kill.
//!
//! `bench_cache [--entries N]`, ten million by default, with keys of 32 bytes and values of 48. Memory is that of the
//! allocator of the server, without huge pages as the server has it; so most of the time of a random fetch among
//! millions is the look-up of its page. "A core" is processor time of the calling thread. For the log, a separate
//! program stores without a pause and prints the number of its persisted entries. It is killed at a million, and the
//! printed number must be there. Exit code 1 when a figure is worse than its limit.

#[path = "../../../crates/cache/tests/suite/references.rs"]
mod references;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use references::{EvictionOrder, Random, hit_rate, zipf};
use serde_json::{Map, Value, json};
use strowger_benches::bar::Bar;
use strowger_benches::command_line::{Output, beside, run};
use strowger_benches::memory::{pss, without_huge_pages};
use strowger_benches::processor_time;
use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::log::{Moment, Receipt};
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::{LocalSettings, LogSettings};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Limit of the bytes of an entry: 1.3 times its key and value, and 64.
const ENTRY: f64 = 1.3 * (32.0 + 48.0) + 64.0;
/// Stores per second on one core.
const STORES: f64 = 300_000.0;
/// Fetches per second on one core.
const FETCHES: f64 = 2_000_000.0;
/// 99.9th percentile of fetches during writes, in microseconds.
const FETCH: f64 = 10.0;
/// Allowed loss of hits, per hundred requests, against the better of exact LRU and LFU.
const HITS: f64 = 2.0;
/// Seconds to load a million entries.
const LOAD: f64 = 1.0;

/// Entries of the log, whose load is timed.
const LOGGED: u64 = 1_000_000;
/// Maximum number of stores of the killed program that wait for its log.
const AHEAD: usize = 50_000;
/// Timed fetches during writes.
const TIMED: usize = 1_000_000;

const NOW: u64 = 1_000_000;
const AT: Moment = Moment { now: NOW, wall: NOW };
const LIFE: Life = Life::ms(3_600_000);
const WAIT: Duration = Duration::from_secs(60);

/// Memory and speed of the local cache.
#[derive(clap::Parser)]
struct Arguments {
    /// Entries in memory
    #[arg(long, value_name = "N", default_value = "10000000", value_parser = clap::value_parser!(u64).range(20_000..))]
    entries: u64,
    /// Where the logs are, in a folder of their own: a file system in memory would say nothing [default: that of this program]
    #[arg(long, value_name = "FOLDER", default_value_os_t = own_folder(), hide_default_value = true)]
    folder: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Runs as the program that is killed: the folder of its log.
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
}

fn own_folder() -> PathBuf {
    beside("").parent().map_or_else(|| ".".into(), Path::to_owned)
}

/// Results.
struct Seen {
    output: Output,
    bars: Vec<Bar>,
    /// Figures without a limit.
    others: Map<String, Value>,
}

impl Seen {
    fn bar(&mut self, bar: Bar) {
        self.bars.push(bar);
    }

    fn other(&mut self, what: &str, seen: f64, unit: &str) {
        self.output.say(&format!("  {what:<44} {seen:>10.1}  {unit}"));
        self.others.insert(what.into(), json!({"seen": seen, "unit": unit}));
    }
}

fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (at, bytes) in key.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&n.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    key
}

fn value(n: u64) -> [u8; 48] {
    let mut value = [0; 48];
    value[..8].copy_from_slice(&n.to_le_bytes());
    value
}

/// Measures memory, and the speed of one thread.
fn in_memory(entries: u64, seen: &mut Seen) {
    // There is room for all of these entries, but not for many more, because memory is taken in steps of a part of
    // this.
    let cache = LocalCache::new(LocalSettings { bytes: entries as usize * 200, ..LocalSettings::default() });
    let before = pss();
    let stores = rate(entries, |n| done(cache.store(&key(n), &value(n), LIFE, NOW)));
    let each = (pss() - before) as f64 / entries as f64;
    seen.bar(Bar::most("bytes of an entry of 80", each, ENTRY));
    seen.other("the same by its own count", cache.gauges().bytes as f64 / entries as f64, "bytes");
    seen.bar(Bar::least("stores/s of a core, new entries", stores, STORES));
    let most = entries.min(5_000_000);
    let mut random = Random::new(1);
    let stores = rate(most, |n| done(cache.store(&key(random.below(entries)), &value(n), LIFE, NOW)));
    seen.bar(Bar::least("stores/s of a core, in place", stores, STORES));
    let mut into = Vec::with_capacity(64);
    let fetches = rate(most, |_| {
        into.clear();
        assert!(cache.fetch(&key(random.below(entries)), NOW, &mut into).expect("a key within its bound"));
    });
    seen.bar(Bar::least("fetches/s of a core, keys at random", fetches, FETCHES));
    let by_zipf = zipf(entries as usize, 0.9, 1_000_000, 6);
    let fetches = rate(by_zipf.len() as u64, |n| {
        into.clear();
        assert!(cache.fetch(&key(u64::from(by_zipf[n as usize])), NOW, &mut into).expect("a key within its bound"));
    });
    seen.bar(Bar::least("fetches/s of a core, keys by Zipf 0.9", fetches, FETCHES));
    let misses = rate(most, |_| {
        assert!(!cache.fetch(&key(entries * 2 + random.below(entries)), NOW, &mut into).expect("a key"));
    });
    seen.other("fetches that find nothing", misses, "/s of a core");
    let count = Count { by: 1, floor: Floor::Zero, life: LIFE };
    let counts = rate(most, |_| done(cache.count(&key(u64::MAX - random.below(1000)), count, NOW)));
    seen.other("counts", counts, "/s of a core");
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        let step = Instant::now();
        let is_clean = cache.sweep(NOW + 3_602_000, 1000);
        longest = longest.max(step.elapsed());
        if is_clean {
            break;
        }
    }
    assert!(cache.is_empty());
    seen.other("removal of an entry that has expired", start.elapsed().as_nanos() as f64 / entries as f64, "ns");
    seen.other("the longest 1,000 of them", longest.as_secs_f64() * 1e6, "µs");
}

/// Measures hits in a cache with room for a tenth of the keys.
fn hits(entries: usize, seen: &mut Seen) {
    let cache = LocalCache::new(LocalSettings { bytes: entries * 137, value: 100, ..LocalSettings::default() });
    let store = |n: u64| done(cache.store(&key(n), &value(n), LIFE, NOW));
    (0..entries as u64 * 2).for_each(|n| store(1 << 40 | n));
    let capacity = cache.len();
    let requests = zipf(capacity * 10, 0.9, capacity * 100, 3);
    let mut into = Vec::new();
    let mut hits = 0;
    for (at, n) in requests.iter().enumerate() {
        into.clear();
        if cache.fetch(&key(u64::from(*n)), NOW, &mut into).expect("a key") {
            hits += usize::from(at >= requests.len() / 2);
        } else {
            store(u64::from(*n));
        }
    }
    let ours = hits as f64 / (requests.len() - requests.len() / 2) as f64 * 100.0;
    let [lru, lfu, perfect] = [EvictionOrder::Lru, EvictionOrder::Lfu, EvictionOrder::PerfectLfu]
        .map(|order| hit_rate(order, capacity, &requests) * 100.0);
    seen.other("hits, Zipf 0.9, room for a tenth", ours, "%");
    seen.other("those of exact LRU", lru, "%");
    seen.other("those of exact LFU", lfu, "%");
    seen.other("those of LFU that forgets nothing", perfect, "%");
    seen.bar(Bar::most("points less than the better of LRU and LFU", lru.max(lfu) - ours, HITS));
}

/// Measures fetches while another thread stores, which evicts, and the log is written and compacted.
fn beside_a_writer(entries: u64, folder: &Path, seen: &mut Seen) -> Result<(), String> {
    let settings = LocalSettings { bytes: (entries as usize / 2 * 140).max(1 << 20), ..LocalSettings::default() };
    let (cache, _) = LocalCache::open(settings, LogSettings::new(folder), AT).map_err(|error| error.to_string())?;
    let figures = || (cache.gauges(), cache.log_gauges().expect("it has a log"));
    for n in 0..entries {
        cache.store(&key(n), &value(n), LIFE, NOW).expect("room");
    }
    let before = figures();
    let is_done = AtomicBool::new(false);
    let mut times = Vec::with_capacity(TIMED);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in entries.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let _ = black_box(cache.store(&key(n), &value(n), LIFE, NOW));
                // These runs follow one another.
                if n.is_multiple_of(1000) {
                    cache.compact();
                }
                // At most 300,000 per second.
                while n - entries > start.elapsed().as_micros() as u64 * 3 / 10 {
                    std::thread::yield_now();
                }
            }
        });
        let mut random = Random::new(4);
        let mut into = Vec::with_capacity(64);
        while times.len() < TIMED {
            into.clear();
            let key = key(random.below(entries));
            let start = Instant::now();
            let _ = black_box(cache.fetch(&key, NOW, &mut into));
            times.push(start.elapsed().as_nanos() as u32);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let (took, after) = (start.elapsed().as_secs_f64(), figures());
    times.sort_unstable();
    let of = |share: f64| f64::from(times[(times.len() as f64 * share) as usize]) / 1e3;
    let rate = |before: u64, after: u64| (after - before) as f64 / took;
    let (evictions, changes) = (rate(before.0.evictions, after.0.evictions), rate(before.1.written, after.1.written));
    if evictions == 0.0 || changes == 0.0 || after.1.failures > 0 {
        return Err(format!("{evictions} evictions and {changes} changes of the log a second, {:?}", after.1));
    }
    seen.other("a fetch beside a writer, median", of(0.5) * 1e3, "ns");
    seen.bar(Bar::most("a fetch beside a writer, 99.9 %, µs", of(0.999), FETCH));
    seen.other("the same, 99.99 %", of(0.9999), "µs");
    seen.other("stores meanwhile", rate(before.0.stores, after.0.stores), "/s");
    seen.other("evictions meanwhile", evictions, "/s");
    seen.other("changes that the log wrote meanwhile", changes, "/s");
    seen.other("compactions that ended", (after.1.compactions - before.1.compactions) as f64, "");
    Ok(())
}

/// Measures stores with a log, and the wait of a single store for it.
fn logged(entries: u64, folder: &Path, seen: &mut Seen) -> Result<(), String> {
    let settings = LocalSettings { bytes: 8 << 30, ..LocalSettings::default() };
    let (cache, _) = LocalCache::open(settings, LogSettings::new(folder), AT).map_err(|error| error.to_string())?;
    let text = |error: CacheError| error.to_string();
    let start = Instant::now();
    let mut last = cache.kept();
    let stores = rate(entries, |n| last = cache.store(&key(n), &value(n), LIFE, NOW).expect("room"));
    seen.bar(Bar::least("stores/s of a core, with a log", stores, STORES));
    cache.wait(last, WAIT).map_err(text)?;
    seen.other("until all of them are kept", entries as f64 / start.elapsed().as_secs_f64(), "/s by the clock");
    let mut waits = Vec::new();
    for n in 0..200 {
        let start = Instant::now();
        let receipt = cache.store(&key(n), &value(n), LIFE, NOW).map_err(text)?;
        cache.wait(receipt, WAIT).map_err(text)?;
        waits.push(start.elapsed().as_secs_f64() * 1e6);
    }
    waits.sort_unstable_by(f64::total_cmp);
    seen.other("a lone store until it is kept, median", waits[100], "µs");
    let figures = cache.log_gauges().expect("it has a log");
    seen.other("bytes of the log for a change", figures.bytes as f64 / figures.written as f64, "bytes");
    Ok(())
}

/// Stores without a pause, in the program that is killed. Prints the number of persisted entries after each thousand.
fn child(folder: &Path) -> Result<bool, String> {
    let settings = LocalSettings { bytes: 8 << 30, ..LocalSettings::default() };
    let (cache, _) = LocalCache::open(settings, LogSettings::new(folder), AT).map_err(|error| error.to_string())?;
    let mut receipts: Vec<Receipt> = Vec::with_capacity(2 * LOGGED as usize);
    let mut kept = 0;
    let mut out = std::io::stdout().lock();
    for n in 0.. {
        receipts.push(cache.store(&key(n), &value(n), LIFE, NOW).map_err(|error| error.to_string())?);
        if !receipts.len().is_multiple_of(1000) {
            continue;
        }
        if receipts.len() > AHEAD {
            cache.wait(receipts[receipts.len() - AHEAD], WAIT).map_err(|error| error.to_string())?;
        }
        let last = cache.kept();
        while receipts.get(kept).is_some_and(|receipt| *receipt <= last) {
            kept += 1;
        }
        writeln!(out, "{kept}").map_err(|error| error.to_string())?;
    }
    Ok(true)
}

/// The program that is killed; it also ends if an error comes first.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _it_has_ended = self.0.kill();
        let _it_has_ended = self.0.wait();
    }
}

/// Kills a storing program when this number of entries is persisted, and loads its log.
fn killed(entries: u64, folder: &Path, seen: &mut Seen) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.arg("--child").arg(folder).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().map_err(|error| error.to_string())?);
    let mut lines = BufReader::new(child.0.stdout.take().ok_or("it has no output")?);
    let mut said = 0;
    let mut is_killed = false;
    let mut line = String::new();
    // Only complete lines before the kill count, because the last line may be truncated.
    while lines.read_line(&mut line).map_err(|error| error.to_string())? > 0 && line.ends_with('\n') {
        said = line.trim().parse().map_err(|_| format!("the program that is killed said {line:?}"))?;
        line.clear();
        if said >= entries && !is_killed {
            child.0.kill().map_err(|error| error.to_string())?;
            is_killed = true;
        }
    }
    drop(child);
    if !is_killed {
        return Err("the program that is killed ended by itself".into());
    }
    let settings = LocalSettings { bytes: 8 << 30, ..LocalSettings::default() };
    let (start, processor) = (Instant::now(), processor_time::of_thread());
    let opened = LocalCache::open(settings, LogSettings::new(folder), AT);
    let (took, processor) = (start.elapsed().as_secs_f64(), processor_time::of_thread() - processor);
    let (cache, report) = opened.map_err(|error| error.to_string())?;
    let mut into = Vec::with_capacity(64);
    let is_there = |n: &u64| {
        into.clear();
        cache.fetch(&key(*n), NOW, &mut into).expect("a key within its bound") && into == value(*n)
    };
    let there = (0..said).filter(is_there).count() as u64;
    seen.other("entries acknowledged before kill -9", said as f64, "");
    seen.other("entries loaded", report.entries as f64, "");
    seen.bar(Bar::most("acknowledged entries that are missing", (said - there) as f64, 0.0));
    let scale = LOGGED as f64 / report.entries as f64;
    seen.bar(Bar::most("seconds to load 1,000,000 entries", took * scale, LOAD));
    seen.other("the same of a core", processor.as_secs_f64() * scale, "s");
    let start = Instant::now();
    cache.compact();
    while cache.log_gauges().is_none_or(|figures| figures.compactions == 0) {
        if start.elapsed() > WAIT {
            return Err("the log was not compacted".into());
        }
        // The log runs on another thread, whose end is visible only in a figure.
        std::thread::sleep(Duration::from_millis(1));
    }
    seen.other("its compaction", start.elapsed().as_secs_f64(), "s");
    Ok(())
}

/// Checks a result, and hides its use from the compiler.
fn done<T>(result: Result<T, CacheError>) {
    let _ = black_box(result.expect("there is room"));
}

/// Runs `work` this number of times. Returns the number of runs per second on one core.
fn rate(times: u64, work: impl FnMut(u64)) -> f64 {
    let before = processor_time::of_thread();
    (0..times).for_each(work);
    times as f64 / (processor_time::of_thread() - before).as_secs_f64()
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    without_huge_pages();
    if let Some(folder) = &arguments.child {
        return child(folder);
    }
    let Arguments { entries, output, .. } = *arguments;
    let folder = tempfile::Builder::new().prefix("bench_cache-").tempdir_in(&arguments.folder);
    let folder = folder.map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
    let below = |name: &str| folder.path().join(name);
    output.say(&format!("{entries} entries, keys of 32 bytes, values of 48"));
    let mut seen = Seen { output, bars: Vec::new(), others: Map::new() };
    let logs = entries.min(LOGGED);
    in_memory(entries, &mut seen);
    hits((entries / 100).clamp(10_000, 100_000) as usize, &mut seen);
    beside_a_writer(entries, &below("beside"), &mut seen)?;
    logged(logs, &below("logged"), &mut seen)?;
    killed(logs, &below("killed"), &mut seen)?;
    Ok(output.judge(&seen.bars, &Value::Object(seen.others)))
}

fn main() -> ExitCode {
    run(measure)
}
