//! What stays where there is room for a tenth.

use strowger_cache::local::LocalCache;
use strowger_cache::request::Life;
use strowger_cache::settings::LocalSettings;

use crate::references::{Order, hit_rate, zipf};

const NOW: u64 = 1_000_000;

fn cache(entries: usize, partitions: usize) -> LocalCache {
    LocalCache::new(LocalSettings { bytes: entries * 140, key: 32, value: 48, partitions })
}

fn key(n: u32) -> [u8; 32] {
    std::array::from_fn(|at| n.to_le_bytes()[at % 4])
}

/// Asks for each key and stores what is not found; the share of hits in the second half.
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

/// How many entries it holds at its bound.
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
        let [lru, lfu, perfect] =
            [Order::Lru, Order::Lfu, Order::PerfectLfu].map(|order| hit_rate(order, capacity, &requests));
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
    // Twenty times what there is room for.
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
