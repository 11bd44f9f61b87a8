//! A cache at its bound allocates nothing, whichever entries come and go.

use std::alloc::System;

use strowger_allocations::{Counting, of_thread};
use strowger_cache::local::LocalCache;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::LocalSettings;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

#[test]
fn requests_of_a_full_cache_allocate_nothing() {
    let cache = LocalCache::new(LocalSettings { bytes: 4 << 20, value: 1000, ..LocalSettings::default() });
    let mut into = Vec::with_capacity(1000);
    let mut work = |from: u64| {
        for n in from..from + 50_000 {
            let (key, now) = ((n % 45_000).to_le_bytes(), n);
            into.clear();
            cache.fetch(&key, now, &mut into).unwrap();
            cache.store(&key, &[1; 600][..n as usize % 600], Life::ms(30_000), now).unwrap();
            let count = Count { by: 1, floor: Floor::Zero, life: Life::ms(10_000) };
            cache.count(&[b'c', n as u8 % 7], count, now).unwrap();
            cache.remove(&(n % 1000).to_le_bytes(), now).unwrap();
            cache.sweep(now, 10);
        }
    };
    (0..4).for_each(|round| work(round * 50_000));
    let before = of_thread();
    work(200_000);
    assert_eq!(of_thread() - before, 0);
    assert!(cache.gauges().evictions > 10_000, "{:?}", cache.gauges());
}
