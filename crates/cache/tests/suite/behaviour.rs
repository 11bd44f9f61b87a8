//! Behaviour of each request, by table.

use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::LocalSettings;

const NOW: u64 = 1_000_000;

fn cache() -> LocalCache {
    LocalCache::new(LocalSettings::default())
}

fn value(cache: &LocalCache, key: &[u8], now: u64) -> Option<Vec<u8>> {
    let mut into = b"before ".to_vec();
    let found = cache.fetch(key, now, &mut into).unwrap();
    assert!(into.starts_with(b"before "), "a value is appended");
    found.then(|| into.split_off(7))
}

#[test]
fn a_value_lives_as_long_as_was_said() {
    let cache = cache();
    for (life, ends) in [(Life::ms(1), NOW + 1), (Life::ms(5000), NOW + 5000), (Life::FOREVER, u64::MAX)] {
        cache.store(b"key", b"value", life, NOW).unwrap();
        assert_eq!(value(&cache, b"key", NOW), Some(b"value".into()));
        assert_eq!(value(&cache, b"key", (ends - 1).min(1 << 47)), Some(b"value".into()));
        if ends < u64::MAX {
            assert_eq!(value(&cache, b"key", ends), None);
        }
    }
}

#[test]
fn a_life_of_nothing_removes() {
    let cache = cache();
    cache.store(b"key", b"value", Life::FOREVER, NOW).unwrap();
    cache.store(b"key", b"value", Life::ms(0), NOW).unwrap();
    assert_eq!(value(&cache, b"key", NOW), None);
    assert_eq!(cache.len(), 0);
}

#[test]
fn another_value_has_another_life() {
    let cache = cache();
    cache.store(b"key", b"long", Life::ms(90_000), NOW).unwrap();
    cache.store(b"key", b"short", Life::ms(10), NOW).unwrap();
    assert_eq!(value(&cache, b"key", NOW + 10), None);
    cache.store(b"key", b"short", Life::ms(10), NOW).unwrap();
    cache.store(b"key", &[b'x'; 5000], Life::ms(90_000), NOW).unwrap();
    assert!(cache.sweep(NOW + 50_000, 100_000));
    assert_eq!(value(&cache, b"key", NOW + 50_000), Some(vec![b'x'; 5000]));
    assert_eq!(cache.len(), 1);
}

#[test]
fn only_what_is_absent_is_added() {
    let cache = cache();
    assert!(cache.add(b"key", b"first", Life::ms(10), NOW).unwrap().is_some());
    assert!(cache.add(b"key", b"second", Life::ms(10), NOW).unwrap().is_none());
    assert_eq!(value(&cache, b"key", NOW), Some(b"first".into()));
    assert!(cache.add(b"key", b"third", Life::ms(10), NOW + 10).unwrap().is_some());
    assert_eq!(value(&cache, b"key", NOW + 10), Some(b"third".into()));
}

#[test]
fn what_is_removed_is_gone() {
    let cache = cache();
    assert!(!cache.remove(b"key", NOW).unwrap().0);
    cache.store(b"key", b"value", Life::ms(10), NOW).unwrap();
    assert!(cache.remove(b"key", NOW).unwrap().0);
    assert!(!cache.remove(b"key", NOW).unwrap().0);
    cache.store(b"key", b"value", Life::ms(10), NOW).unwrap();
    assert!(!cache.remove(b"key", NOW + 10).unwrap().0, "its life had ended");
    assert_eq!(cache.gauges().removals, 1);
}

#[test]
fn counters_go_up_and_down_to_their_floor() {
    let cache = cache();
    let count = |by, floor| Count { by, floor, life: Life::ms(100) };
    let steps = [
        (count(5, Floor::Zero), Ok(5)),
        (count(-2, Floor::Zero), Ok(3)),
        (count(-9, Floor::Zero), Ok(0)),
        (count(-9, Floor::None), Ok(-9)),
        (count(3, Floor::None), Ok(-6)),
        (count(3, Floor::Zero), Ok(0)),
        (count(i64::MAX, Floor::Zero), Ok(i64::MAX)),
        (count(1, Floor::Zero), Err(CacheError::Refused)),
        (count(i64::MIN, Floor::None), Ok(-1)),
        (count(i64::MIN, Floor::None), Err(CacheError::Refused)),
        (count(i64::MIN, Floor::Zero), Ok(0)),
    ];
    for (step, (count, want)) in steps.into_iter().enumerate() {
        assert_eq!(cache.count(b"key", count, NOW).map(|(n, _)| n), want, "step {step}");
    }
    assert_eq!(value(&cache, b"key", NOW), Some(b"0".into()));
}

#[test]
fn a_counter_keeps_the_end_that_it_began_with() {
    let cache = cache();
    let count = Count { by: 1, floor: Floor::Zero, life: Life::ms(100) };
    for n in 1..=50 {
        assert_eq!(cache.count(b"key", count, NOW + n).unwrap().0, n as i64);
    }
    assert_eq!(cache.count(b"key", count, NOW + 101).unwrap().0, 1, "a new one");
}

#[test]
fn a_stored_number_is_a_counter_and_another_text_is_none() {
    let cache = cache();
    let count = Count { by: 1, floor: Floor::Zero, life: Life::FOREVER };
    for (text, want) in [("41", Some(42)), ("-3", Some(0)), ("", None), ("a", None), ("9".repeat(40).as_str(), None)] {
        cache.store(b"key", text.as_bytes(), Life::FOREVER, NOW).unwrap();
        assert_eq!(cache.count(b"key", count, NOW).ok().map(|(n, _)| n), want, "{text}");
        if want.is_none() {
            assert_eq!(value(&cache, b"key", NOW), Some(text.into()), "nothing has changed");
        }
    }
}

#[test]
fn a_sweep_frees_what_has_ended() {
    let cache = cache();
    for n in 0..10_000_u32 {
        cache.store(&n.to_le_bytes(), b"value", Life::ms(u64::from(n)), NOW).unwrap();
    }
    let before = cache.gauges().bytes;
    while !cache.sweep(NOW + 6_500, 100) {}
    // The current second is swept once it has ended.
    assert_eq!(cache.len(), 10_000 - 6_000);
    assert_eq!(cache.gauges().expired, 5_999);
    assert!(cache.gauges().bytes < before);
    while !cache.sweep(NOW + 20_000, 100) {}
    assert!(cache.is_empty());
    assert_eq!(cache.gauges().data, 0);
}

#[test]
fn figures_count_what_was_done() {
    let cache = cache();
    cache.store(b"a", b"value", Life::ms(10), NOW).unwrap();
    cache.store(b"b", b"value", Life::FOREVER, NOW).unwrap();
    for (key, now) in [(b"a", NOW), (b"b", NOW), (b"c", NOW), (b"a", NOW + 10)] {
        value(&cache, key, now);
    }
    cache.remove(b"b", NOW).unwrap();
    cache.store(b"", b"value", Life::FOREVER, NOW).unwrap_err();
    let g = cache.gauges();
    assert_eq!((g.hits, g.misses, g.stores, g.removals, g.expired), (2, 2, 2, 1, 1));
    assert_eq!((g.refused, g.evictions, g.entries, g.data), (1, 0, 0, 0));
}
