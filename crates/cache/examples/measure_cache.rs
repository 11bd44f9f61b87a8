//! What the local cache takes and does: memory, stores and fetches, hit rate, latency beside a writer, the log.
//!
//! `cargo run --release -p strowger-cache --example measure_cache -- --entries 10000000`
//!
//! With the allocator of the server, which has the kernel give memory in pages of 2 MB where it can: of a read of a random entry among
//! millions, a good part is the look-up of its page. `--only memory` ends after the figures of a cache in memory alone.

#[path = "../tests/suite/references.rs"]
mod references;

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use references::{Order, Random, hit_rate, zipf};
use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::{LocalSettings, LogSettings};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NOW: u64 = 1_000_000;
const LIFE: Life = Life::ms(3_600_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut entries, mut folder, mut is_all) = (1_000_000, std::env::temp_dir(), true);
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        match (argument.as_str(), value) {
            ("--entries", Some(value)) => entries = value.parse().expect("a number of entries"),
            ("--folder", Some(value)) => folder = value.into(),
            ("--only", Some(value)) if value == "memory" => is_all = false,
            _ => panic!("measure_cache [--entries N] [--folder FOLDER] [--only memory]"),
        }
    }
    let folder = folder.join(format!("measure_cache-{}", std::process::id()));
    println!("{entries} entries, keys of 32 bytes, values of 48; a core: by processor time of the thread");
    in_memory(entries);
    if !is_all {
        return;
    }
    large_values();
    hit_rates((entries / 100).clamp(10_000, 100_000) as usize);
    beside_a_writer(entries, &folder);
    logged(entries.min(1_000_000), &folder);
    let _ = std::fs::remove_dir_all(&folder);
}

fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (at, bytes) in key.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&(n + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    key
}

fn value(n: u64) -> [u8; 48] {
    let mut value = [0; 48];
    value[..8].copy_from_slice(&n.to_le_bytes());
    value
}

fn in_memory(entries: u64) {
    let cache = LocalCache::new(LocalSettings { bytes: 16 << 30, ..LocalSettings::default() });
    let before = resident();
    rate("stores of new entries", entries, |n| done(cache.store(&key(n), &value(n), LIFE, NOW)));
    let each = (resident() - before) as f64 / entries as f64;
    let counted = cache.gauges().bytes as f64 / entries as f64;
    println!("{:<44} {each:>9.1} bytes resident, {counted:.1} by its own count (bound: 168)", "memory of an entry");
    let most = entries.min(5_000_000);
    let mut random = Random::new(1);
    let mut into = Vec::with_capacity(64);
    rate("fetches, keys at random", most, |_| {
        into.clear();
        assert!(cache.fetch(&key(random.below(entries)), NOW, &mut into).expect("a key within its bound"));
    });
    let by_zipf = zipf(entries as usize, 0.9, 1_000_000, 6);
    rate("fetches, keys by Zipf 0.9", by_zipf.len() as u64, |n| {
        into.clear();
        assert!(cache.fetch(&key(u64::from(by_zipf[n as usize])), NOW, &mut into).expect("a key within its bound"));
    });
    rate("fetches that find nothing", most, |_| {
        assert!(!cache.fetch(&key(entries * 2 + random.below(entries)), NOW, &mut into).expect("a key"));
    });
    rate("stores in place", most, |n| done(cache.store(&key(random.below(entries)), &value(n), LIFE, NOW)));
    let count = Count { by: 1, floor: Floor::Zero, life: LIFE };
    rate("counts", most, |_| done(cache.count(&key(u64::MAX - random.below(1000)), count, NOW)));
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let step = Instant::now();
        let is_clean = cache.sweep(NOW + 3_602_000, 1000);
        longest = longest.max(step.elapsed());
        if is_clean {
            break;
        }
    }
    assert!(cache.is_empty());
    let each = start.elapsed().as_nanos() as u64 / entries;
    println!("{:<44} {each:>9} ns an entry, longest step of 1000 looks {longest:?}", "all expire");
}

fn large_values() {
    let cache = LocalCache::new(LocalSettings { bytes: 256 << 20, ..LocalSettings::default() });
    let large = vec![7; 1 << 20];
    let mut random = Random::new(2);
    for n in 0..1000 {
        let length = 1 + random.below(1 << 20) as usize;
        cache.store(&key(n), &large[..length], LIFE, NOW).expect("room");
    }
    let mut into = Vec::with_capacity(large.len());
    let found: Vec<u64> = (0..1000).filter(|n| cache.fetch(&key(*n), NOW, &mut into).expect("a key")).collect();
    let start = Instant::now();
    let mut bytes = 0;
    for n in &found {
        into.clear();
        cache.fetch(&key(*n), NOW, &mut into).expect("a key");
        bytes += into.len();
    }
    let rate = bytes as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{:<44} {rate:>9.0} MB/s", "fetches of values of up to 1 MiB");
}

fn hit_rates(entries: usize) {
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
    let ours = hits as f64 / (requests.len() / 2) as f64;
    let of = |order| hit_rate(order, capacity, &requests) * 100.0;
    println!(
        "{:<44} {:>9.2} %; exact LRU {:.2}, LFU {:.2}, LFU that forgets nothing {:.2}",
        format!("hits, Zipf 0.9, {capacity} of {} keys", capacity * 10),
        ours * 100.0,
        of(Order::Lru),
        of(Order::Lfu),
        of(Order::PerfectLfu),
    );
}

fn beside_a_writer(entries: u64, folder: &Path) {
    let settings = LocalSettings { bytes: (entries as usize / 2 * 140).max(1 << 20), ..LocalSettings::default() };
    let at = Moment { now: NOW, wall: NOW };
    let log = LogSettings::new(folder.join("beside"));
    let (cache, _) = LocalCache::open(settings, log, at).expect("a folder");
    for n in 0..entries {
        cache.store(&key(n), &value(n), LIFE, NOW).expect("room");
    }
    let before = cache.gauges();
    let written = cache.log_gauges().expect("it has a log").written;
    let is_done = AtomicBool::new(false);
    let mut times = Vec::with_capacity(1_000_000);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in entries.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let _ = black_box(cache.store(&key(n), &value(n), LIFE, NOW));
                // One after the other.
                if n % 1000 == 0 {
                    cache.compact();
                }
                // 300,000 a second at most.
                while n - entries > start.elapsed().as_micros() as u64 * 3 / 10 {
                    std::thread::yield_now();
                }
            }
        });
        let mut random = Random::new(4);
        let mut into = Vec::with_capacity(64);
        while times.len() < 1_000_000 {
            into.clear();
            let key = key(random.below(entries));
            let start = Instant::now();
            let _ = black_box(cache.fetch(&key, NOW, &mut into));
            times.push(start.elapsed().as_nanos() as u32);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let after = cache.gauges();
    times.sort_unstable();
    let of = |share: f64| times[(times.len() as f64 * share) as usize];
    println!(
        "{:<44} {:>9} ns median, {} ns 99 %, {} ns 99.9 %, {} ns 99.99 %",
        "a fetch beside stores, evictions, compactions",
        of(0.5),
        of(0.99),
        of(0.999),
        of(0.9999)
    );
    let took = start.elapsed().as_secs_f64();
    let (stores, evictions) = (after.stores - before.stores, after.evictions - before.evictions);
    let log = cache.log_gauges().expect("it has a log");
    println!(
        "{:<44} {:>9.0} stores/s, {:.0} evictions/s; log: {:.0} changes/s, {} compactions ended, {} failures",
        "  meanwhile",
        stores as f64 / took,
        evictions as f64 / took,
        (log.written - written) as f64 / took,
        log.compactions,
        log.failures
    );
}

fn logged(entries: u64, folder: &Path) {
    let (settings, at) = (LocalSettings { bytes: 8 << 30, ..LocalSettings::default() }, Moment { now: NOW, wall: NOW });
    let log = LogSettings::new(folder.join("logged"));
    let (cache, _) = LocalCache::open(settings.clone(), log.clone(), at).expect("a folder");
    let start = Instant::now();
    let mut last = cache.kept();
    rate("stores with a log", entries, |n| last = cache.store(&key(n), &value(n), LIFE, NOW).expect("room"));
    cache.wait(last, Duration::from_secs(60)).expect("the log can be written");
    println!("{:<44} {:>9.0} entries/s", "  until all are kept", entries as f64 / start.elapsed().as_secs_f64());
    let mut waits: Vec<Duration> = (0..200)
        .map(|n| {
            let start = Instant::now();
            let receipt = cache.store(&key(n), &value(n), LIFE, NOW).expect("room");
            cache.wait(receipt, Duration::from_secs(60)).expect("the log can be written");
            start.elapsed()
        })
        .collect();
    waits.sort_unstable();
    println!("{:<44} {:>9?} median, {:?} 99 %", "  a lone store until it is kept", waits[100], waits[198]);
    let figures = cache.log_gauges().expect("it has a log");
    drop(cache);
    let (start, processor) = (Instant::now(), processor_time());
    let (cache, report) = LocalCache::open(settings.clone(), log.clone(), at).expect("the folder");
    assert_eq!((report.entries, report.damage.len()), (entries, 0));
    let took = (start.elapsed(), processor_time() - processor);
    let each = figures.bytes / figures.written;
    println!(
        "{:<44} {:>9?}, {:?} of a core; {each} bytes of the log each",
        format!("  {entries} loaded"),
        took.0,
        took.1
    );
    let start = Instant::now();
    cache.compact();
    // It ends on a thread that shows it by a figure alone.
    while cache.log_gauges().expect("it has a log").compactions == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{:<44} {:>9?}", "  compacted", start.elapsed());
}

/// What was asked was done, and the compiler does not know of what use it is.
fn done<T>(result: Result<T, CacheError>) {
    let _ = black_box(result.expect("there is room"));
}

/// Does `work` so often; prints how often in a second of a core, and of the clock.
fn rate(what: &str, times: u64, mut work: impl FnMut(u64)) {
    let (start, processor) = (Instant::now(), processor_time());
    (0..times).for_each(&mut work);
    let of = |took: Duration| times as f64 / took.as_secs_f64();
    let (by_core, by_clock) = (of(processor_time() - processor), of(start.elapsed()));
    println!("{what:<44} {by_core:>9.0} /s a core, {by_clock:.0} /s by the clock");
}

/// Time that the calling thread has spent on a processor.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}
