//! Bounds of keys, values and memory.

use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::LocalSettings;

use crate::references::Random;

const NOW: u64 = 1_000_000;

#[test]
fn keys_and_values_beyond_their_bounds_are_refused() {
    let cache = LocalCache::new(LocalSettings { key: 10, value: 100, ..LocalSettings::default() });
    let store = |key: usize, value: usize| cache.store(&vec![1; key], &vec![2; value], Life::FOREVER, NOW).map(|_| ());
    assert_eq!(store(10, 100), Ok(()));
    for (key, value) in [(0, 1), (11, 1), (1, 101)] {
        assert_eq!(store(key, value), Err(CacheError::Refused), "{key} {value}");
    }
    let count = Count { by: 1, floor: Floor::Zero, life: Life::FOREVER };
    assert_eq!(cache.count(&[1; 11], count, NOW), Err(CacheError::Refused));
    assert_eq!(cache.fetch(&[1; 11], NOW, &mut Vec::new()), Err(CacheError::Refused));
    assert_eq!(cache.remove(&[], NOW), Err(CacheError::Refused));
    assert_eq!(cache.gauges().refused, 6);
    assert_eq!(cache.len(), 1);
}

#[test]
fn bytes_stay_within_their_bound() {
    let bytes = 1 << 20;
    let cache = LocalCache::new(LocalSettings { bytes, value: 20_000, ..LocalSettings::default() });
    let mut random = Random::new(5);
    for round in 0..40_000_u64 {
        let length = if random.below(20) == 0 { random.below(20_000) } else { random.below(200) };
        let key = random.below(5000).to_le_bytes();
        let life = if random.below(2) == 0 { Life::FOREVER } else { Life::ms(random.below(60_000)) };
        cache.store(&key, &vec![3; length as usize], life, NOW + round).unwrap();
        if round % 1000 == 0 {
            assert!(cache.gauges().bytes <= bytes as u64 + 64 * 20, "{:?}", cache.gauges());
        }
    }
    let g = cache.gauges();
    assert!(g.evictions > 1000, "{g:?}");
    assert!(g.bytes > bytes as u64 * 3 / 4, "and it is used: {g:?}");
}

#[test]
fn an_entry_that_never_fits_leaves_no_older_value_behind() {
    let cache = LocalCache::new(LocalSettings { bytes: 64 << 10, ..LocalSettings::default() });
    cache.store(b"key", b"small", Life::FOREVER, NOW).unwrap();
    assert_eq!(cache.store(b"key", &[1; 60_000], Life::FOREVER, NOW), Err(CacheError::Full));
    assert!(!cache.fetch(b"key", NOW, &mut Vec::new()).unwrap());
    assert_eq!(cache.gauges().refused, 1);
}

#[test]
fn the_largest_value_fits_into_the_default_cache() {
    let cache = LocalCache::new(LocalSettings::default());
    let value: Vec<u8> = (0..1 << 20).map(|n: u32| n as u8).collect();
    for n in 0..200_u32 {
        cache.store(&n.to_le_bytes(), &value, Life::FOREVER, NOW).unwrap();
        let mut into = Vec::new();
        assert!(cache.fetch(&n.to_le_bytes(), NOW, &mut into).unwrap());
        assert!(into == value);
    }
    assert!(cache.gauges().bytes <= 64 << 20);
}

#[test]
fn what_has_ended_gives_way_first() {
    let cache = LocalCache::new(LocalSettings { bytes: 64 << 10, key: 8, value: 8, partitions: 1 });
    for n in 0..10_000_u64 {
        cache.store(&n.to_le_bytes(), b"value", Life::ms(10), NOW + n * 10).unwrap();
    }
    let g = cache.gauges();
    assert_eq!(g.evictions, 0, "{g:?}");
    assert!(g.expired > 8000, "{g:?}");
}
