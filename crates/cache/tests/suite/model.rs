//! Any sequence of requests gets the answers of a map with expiry.

use std::collections::HashMap;

use proptest::prelude::*;
use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::request::{Count, Floor, Life};
use strowger_cache::settings::{LocalSettings, LogSettings};

#[derive(Clone, Debug)]
enum Step {
    Store(u8, usize, u64),
    Add(u8, usize, u64),
    Fetch(u8),
    Remove(u8),
    Count(u8, i64, bool, u64),
    Pass(u64),
    Sweep(u32),
    /// Ends the cache and restores it from its log.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..40_u8;
    let length = prop_oneof![8 => 0..200_usize, 1 => 0..5000_usize, 1 => 4990..5010_usize];
    let life = prop_oneof![Just(0), 1..5000_u64, 1000..3_000_000_u64, Just(u64::MAX)];
    prop_oneof![
        6 => (key.clone(), length.clone(), life.clone()).prop_map(|(k, v, l)| Step::Store(k, v, l)),
        3 => (key.clone(), length, life.clone()).prop_map(|(k, v, l)| Step::Add(k, v, l)),
        6 => key.clone().prop_map(Step::Fetch),
        2 => key.clone().prop_map(Step::Remove),
        3 => (key, prop_oneof![-5..5_i64, any::<i64>()], any::<bool>(), life)
            .prop_map(|(k, by, zero, l)| Step::Count(k, by, zero, l)),
        2 => prop_oneof![1..3000_u64, 100_000..2_000_000_u64].prop_map(Step::Pass),
        1 => (1..200_u32).prop_map(Step::Sweep),
        1 => Just(Step::Restart),
    ]
}

/// Returns keys of one byte to about two hundred.
fn key(n: u8) -> Vec<u8> {
    vec![n; usize::from(n) * 5 + 1]
}

/// Returns values, some of which are numbers.
fn value(n: u8, length: usize) -> Vec<u8> {
    if length < 60 { length.to_string().into() } else { (0..length).map(|at| (at as u8) ^ n).collect() }
}

/// Values with their ends.
#[derive(Default)]
struct Model(HashMap<u8, (Vec<u8>, u64)>);

impl Model {
    fn at(&self, key: u8, now: u64) -> Option<&(Vec<u8>, u64)> {
        self.0.get(&key).filter(|(_, end)| *end > now)
    }

    fn count(&mut self, key: u8, count: Count, end: u64, now: u64) -> Result<i64, CacheError> {
        let (before, end) = match self.at(key, now) {
            None => (0, end),
            Some((value, end)) => {
                let text = String::from_utf8(value.clone()).map_err(|_| CacheError::Refused)?;
                (text.parse::<i64>().map_err(|_| CacheError::Refused)?, *end)
            }
        };
        let sum = i128::from(before) + i128::from(count.by);
        let sum = if count.floor == Floor::Zero { sum.max(0) } else { sum };
        let sum = i64::try_from(sum).map_err(|_| CacheError::Refused)?;
        self.0.insert(key, (sum.to_string().into(), end));
        Ok(sum)
    }
}

/// Runs the steps. `exact`: whether nothing is evicted, so that a missing value is an error, too.
fn run(settings: &LocalSettings, steps: Vec<Step>, exact: bool) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let mut now = 1_000_000;
    // The wall clock has another origin.
    let open = |now| {
        let log = LogSettings { segment: 20_000, ..LogSettings::new(folder.path()) };
        let (cache, report) =
            LocalCache::open(settings.clone(), log, Moment { now, wall: now + 1_700_000_000_000 }).unwrap();
        assert_eq!(report.damage, []);
        cache
    };
    let (mut cache, mut model) = (open(now), Model::default());
    for step in steps {
        let end = |life: u64| now.saturating_add(life);
        match step {
            Step::Store(k, length, life) => {
                let result = cache.store(&key(k), &value(k, length), Life::ms(life), now);
                if length > settings.value {
                    prop_assert_eq!(result, Err(CacheError::Refused));
                    continue;
                }
                prop_assert!(result.is_ok());
                model.0.insert(k, (value(k, length), end(life)));
            }
            Step::Add(k, length, life) => {
                let result = cache.add(&key(k), &value(k, length), Life::ms(life), now);
                if length > settings.value {
                    prop_assert_eq!(result, Err(CacheError::Refused));
                    continue;
                }
                let added = result.unwrap().is_some();
                let is_there = model.at(k, now).is_some();
                prop_assert!(added != is_there || (!exact && added));
                if added {
                    model.0.insert(k, (value(k, length), end(life)));
                }
            }
            Step::Fetch(k) => {
                let mut found = Vec::new();
                let is_found = cache.fetch(&key(k), now, &mut found).unwrap();
                let want = model.at(k, now).map(|(value, _)| value);
                if is_found || exact {
                    prop_assert_eq!(is_found.then_some(&found), want);
                }
            }
            Step::Remove(k) => {
                let (removed, _) = cache.remove(&key(k), now).unwrap();
                let was_there = model.at(k, now).is_some();
                prop_assert!(removed == was_there || (!exact && was_there));
                model.0.remove(&k);
            }
            Step::Count(k, by, zero, life) => {
                let floor = if zero { Floor::Zero } else { Floor::None };
                let count = Count { by, floor, life: Life::ms(life) };
                if !exact && !cache.fetch(&key(k), now, &mut Vec::new()).unwrap() {
                    model.0.remove(&k);
                }
                let result = cache.count(&key(k), count, now).map(|(n, _)| n);
                prop_assert_eq!(result, model.count(k, count, end(life), now));
            }
            Step::Pass(ms) => now += ms,
            Step::Sweep(most) => drop(cache.sweep(now, most)),
            Step::Restart => {
                drop(cache);
                cache = open(now);
            }
        }
        let gauges = cache.gauges();
        let largest = ((settings.value + settings.key) / 60 + 2) * 64;
        prop_assert!(gauges.bytes <= (settings.bytes + largest) as u64, "{:?}", gauges);
    }
    if exact {
        // An entry that ended more than a turn of the wheel ago may be found a second later.
        while !cache.sweep(now + 1_000, 1000) {}
        while !cache.sweep(now + 2_000, 1000) {}
        let left: Vec<_> = model.0.values().filter(|(_, end)| *end > now + 2_000).collect();
        let all = model.0.values().filter(|(_, end)| *end > now).count();
        prop_assert!((left.len()..=all).contains(&cache.len()), "{} of {}", cache.len(), left.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_it_is_a_map(steps in prop::collection::vec(step(), 1..200)) {
        run(&LocalSettings { bytes: 4 << 20, value: 5000, ..LocalSettings::default() }, steps, true)?;
    }

    #[test]
    fn without_room_what_is_found_is_the_last_value(steps in prop::collection::vec(step(), 1..300)) {
        run(&LocalSettings { bytes: 64 << 10, value: 5000, partitions: 1, ..LocalSettings::default() }, steps, false)?;
    }
}
