//! Entries that stay if a tenth of them fits.

use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{Life, Promise, Request};
use strowger_cache::settings::LocalSettings;
use strowger_cache::ticket::Ticket;

use crate::references::{EvictionOrder, hit_rate, zipf};

const NOW: u64 = 1_000_000;

fn cache(entries: usize, partitions: usize) -> LocalCache {
    LocalCache::new(LocalSettings { bytes: entries * 140, key: 32, value: 48, partitions })
}

fn key(n: u32) -> [u8; 32] {
    std::array::from_fn(|at| n.to_le_bytes()[at % 4])
}

/// Fetches each key and stores the misses. Returns the share of hits in the second half.
fn serve(cache: &LocalCache, requests: &[u32]) -> f64 {
    let mut hits = 0;
    for (at, n) in requests.iter().enumerate() {
        if cache.fetch(&key(*n), NOW, &mut Vec::with_capacity(48)).unwrap() {
            hits += usize::from(at >= requests.len() / 2);
        } else {
            cache.store(&key(*n), &[7; 48], Life::FOREVER, NOW).unwrap();
        }
    }
    hits as f64 / (requests.len() - requests.len() / 2) as f64
}

/// Returns the number of entries at the bound.
fn capacity(cache: &LocalCache) -> usize {
    (0..40_000).for_each(|n| {
        cache.store(&key(1 << 30 | n), &[7; 48], Life::FOREVER, NOW).unwrap();
    });
    assert!(cache.gauges().evictions > 0);
    cache.len()
}

#[test]
fn hits_by_zipf_come_near_those_of_the_best_exact_order() {
    for partitions in [1, 16] {
        let cache = cache(10_000, partitions);
        let capacity = capacity(&cache);
        let requests = zipf(capacity * 10, 0.9, capacity * 100, 11);
        let ours = serve(&cache, &requests);
        let [lru, lfu, perfect] = [EvictionOrder::Lru, EvictionOrder::Lfu, EvictionOrder::PerfectLfu]
            .map(|order| hit_rate(order, capacity, &requests));
        println!(
            "{partitions} partitions: {ours:.4}, LRU {lru:.4}, LFU {lfu:.4}, LFU that forgets nothing {perfect:.4}"
        );
        assert!(ours > lru.max(lfu) - 0.02, "{ours}, LRU {lru}, LFU {lfu}");
        assert!(ours > perfect - 0.02, "{ours}, LFU that forgets nothing {perfect}");
    }
}

#[test]
fn keys_seen_once_do_not_push_out_those_in_use() {
    let cache = cache(10_000, 1);
    let in_use: Vec<u32> = (0..5_000).collect();
    for _ in 0..4 {
        serve(&cache, &in_use);
    }
    // Twenty times the capacity.
    serve(&cache, &(100_000..300_000).collect::<Vec<_>>());
    let left = in_use.iter().filter(|n| cache.fetch(&key(**n), NOW, &mut Vec::new()).unwrap()).count();
    assert!(left > 4_900, "{left}");
}

#[test]
fn what_was_in_use_once_gives_way_to_what_is() {
    let cache = cache(10_000, 1);
    let (old, new): (Vec<u32>, Vec<u32>) = ((0..8_000).collect(), (100_000..108_000).collect());
    for _ in 0..20 {
        serve(&cache, &old);
    }
    for _ in 0..20 {
        serve(&cache, &new);
    }
    assert!(serve(&cache, &new) > 0.95);
}

fn promised(cache: &LocalCache, n: u32) -> bool {
    let key = key(n | 1 << 31);
    let request = Request::Store { key: &key, value: &[9; 48], life: Life::FOREVER };
    cache.ask(&request, Promise::Kept, Ticket::NONE, NOW, &mut Vec::new()) != Some(Err(CacheError::Full))
}

fn has(cache: &LocalCache, n: u32) -> bool {
    cache.fetch(&key(n), NOW, &mut Vec::with_capacity(48)).unwrap()
}

/// Other entries evict only one another, and no promised entries.
#[test]
fn promised_entries_stay_beside_any_others() {
    for partitions in [1, 16] {
        let cache = cache(10_000, partitions);
        assert!((0..1_000).all(|n| promised(&cache, n)));
        for n in 0..100_000 {
            cache.store(&key(n), &[7; 48], Life::FOREVER, NOW).unwrap();
            // Entries in use move to the main queue, and go round in it.
            has(&cache, n / 2);
            has(&cache, n / 2);
        }
        assert!(cache.gauges().evictions > 80_000);
        let left = (0..1_000).filter(|n| has(&cache, n | 1 << 31)).count();
        assert_eq!(left, 1_000, "{partitions} partitions");
    }
}

#[test]
fn promised_entries_take_the_place_of_others_and_then_of_one_another() {
    let cache = cache(1_000, 1);
    let capacity = capacity(&cache) as u32;
    let most = capacity * 4 / 5;
    assert!((0..most).all(|n| promised(&cache, n)));
    assert!((0..most).all(|n| has(&cache, n | 1 << 31)), "entries that nothing was promised of gave way");
    assert!((most..3 * capacity).all(|n| promised(&cache, n)), "there is room for the last");
    assert!(cache.gauges().bytes <= cache.gauges().bound);
    assert!(has(&cache, (3 * capacity - 1) | 1 << 31));
    // No space is left for other entries: they are refused, and evict none.
    let held = cache.len();
    let stored = (0..100).filter(|n| cache.store(&key(*n), &[7; 48], Life::FOREVER, NOW).is_ok()).count();
    assert!(stored < 100 && cache.len() >= held, "{stored}");
}

/// The last store of a value determines whether it is promised.
#[test]
fn the_last_store_says_whether_an_entry_is_promised() {
    let cache = cache(1_000, 1);
    (0..100).for_each(|n| cache.store(&key(n | 1 << 31), &[7; 20], Life::FOREVER, NOW).map(drop).unwrap());
    assert!((0..100).all(|n| promised(&cache, n)));
    assert!((100..200).all(|n| promised(&cache, n)));
    (100..200).for_each(|n| cache.store(&key(n | 1 << 31), &[9; 48], Life::FOREVER, NOW).map(drop).unwrap());
    capacity(&cache);
    assert!((0..100).all(|n| has(&cache, n | 1 << 31)));
    assert!(!(100..200).any(|n| has(&cache, n | 1 << 31)));
}
