//! Several threads at once.

use std::sync::atomic::{AtomicBool, Ordering};

use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::{LocalSettings, LogSettings};

use crate::references::Random;

const NOW: u64 = 1_000_000;

/// Returns a value with its key, filled with one byte.
fn value(key: u64, fill: u8, length: usize) -> Vec<u8> {
    let mut value = key.to_le_bytes().to_vec();
    value.resize(8 + length, fill);
    value
}

#[test]
fn no_value_is_torn_or_another_keys() {
    let folder = tempfile::tempdir().unwrap();
    let settings = LocalSettings { bytes: 1 << 20, value: 4000, ..LocalSettings::default() };
    let log = LogSettings { segment: 1 << 20, queue: 8 << 20, ..LogSettings::new(folder.path()) };
    let open = |settings| LocalCache::open(settings, log.clone(), Moment { now: NOW, wall: NOW }).unwrap().0;
    let cache = open(settings);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cache = &cache;
        let workers: Vec<_> = (0..4_u64)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut random, mut into) = (Random::new(seed), Vec::new());
                    for now in (0..30_000).map(|n| NOW + n) {
                        let n = random.below(10_000);
                        let key = n.to_le_bytes();
                        let length = random.below(if n % 20 == 0 { 3900 } else { 200 }) as usize;
                        let value = value(n, random.next() as u8, length);
                        match random.below(10) {
                            0..=2 => drop(cache.store(&key, &value, Life::ms(20_000), now).unwrap()),
                            3 => drop(cache.add(&key, &value, Life::FOREVER, now).unwrap()),
                            4 => drop(cache.remove(&key, now).unwrap()),
                            _ => {
                                into.clear();
                                if cache.fetch(&key, now, &mut into).unwrap() {
                                    assert_eq!(into[..8], key);
                                    assert!(into[8..].windows(2).all(|two| two[0] == two[1]));
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let is_done = &is_done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                cache.sweep(NOW + 15_000, 100);
                cache.compact();
                assert!(cache.gauges().bytes <= (1 << 20) + 4096);
                std::thread::yield_now();
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    assert!(cache.gauges().evictions > 0);
    cache.compact();
    // Under load the log may have been behind, and then has a compaction to end.
    while cache.log_gauges().unwrap().compactions == 0 || cache.log_gauges().unwrap().failing == 1 {
        std::thread::yield_now();
    }
    let fetch = |cache: &LocalCache, n: u64| {
        let mut into = Vec::new();
        cache.fetch(&n.to_le_bytes(), NOW + 15_000, &mut into).unwrap().then_some(into)
    };
    let held: Vec<_> = (0..10_000).filter_map(|n| Some((n, fetch(&cache, n)?))).collect();
    drop(cache);
    let cache = open(LocalSettings { bytes: 32 << 20, ..LocalSettings::default() });
    assert!(held.len() > 1000);
    for (n, value) in held {
        assert_eq!(fetch(&cache, n), Some(value), "memory and log say the same of {n}");
    }
}

#[test]
fn no_count_is_lost() {
    let cache = LocalCache::new(LocalSettings::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let count = Count { by: 1, floor: Floor::Zero, life: Life::FOREVER };
                    cache.count(b"calls", count, NOW).unwrap();
                }
            });
        }
    });
    assert_eq!(cache.count(b"calls", Count { by: 0, floor: Floor::Zero, life: Life::FOREVER }, NOW).unwrap().0, 40_000);
}

#[test]
fn of_those_who_add_at_once_one_does() {
    let cache = LocalCache::new(LocalSettings::default());
    let added: usize = std::thread::scope(|scope| {
        let add = || {
            (0..2000_u32).filter(|n| cache.add(&n.to_le_bytes(), b"", Life::FOREVER, NOW).unwrap().is_some()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(added, 2000);
}
