//! References for eviction: exact LRU, two kinds of exact LFU, and requests by Zipf's law.

use std::collections::{BTreeSet, HashMap};

/// Pseudorandom numbers: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns `requests` keys below `keys`, the n-th most frequent of which has the weight n^-exponent.
pub(crate) fn zipf(keys: usize, exponent: f64, requests: usize, seed: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let weight = |n: usize| (n as f64).powf(-exponent);
    let sums: Vec<f64> = (1..=keys)
        .map(|n| {
            sum += weight(n);
            sum
        })
        .collect();
    let mut random = Random::new(seed);
    let mut draw = || {
        let at = random.unit() * sum;
        sums.partition_point(|sum| *sum <= at).min(keys - 1) as u32
    };
    (0..requests).map(|_| draw()).collect()
}

/// Order in which a reference evicts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvictionOrder {
    /// Least recently used.
    Lru,
    /// Least frequently used since it was stored; among equals the least recently used.
    Lfu,
    /// Least frequently used since the beginning, including times without the entry.
    PerfectLfu,
}

/// Returns the share of hits in the second half of the requests.
pub(crate) fn hit_rate(order: EvictionOrder, capacity: usize, requests: &[u32]) -> f64 {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let mut held: HashMap<u32, (usize, usize)> = HashMap::new();
    let mut by_rank: BTreeSet<(usize, usize, u32)> = BTreeSet::new();
    let mut hits = 0;
    for (at, key) in requests.iter().enumerate() {
        let before = held.remove(key);
        let count = match order {
            EvictionOrder::Lru => 0,
            EvictionOrder::Lfu => before.map_or(0, |(count, _)| count) + 1,
            EvictionOrder::PerfectLfu => {
                let count = counts.entry(*key).or_default();
                *count += 1;
                *count
            }
        };
        if let Some((count, used)) = before {
            by_rank.remove(&(count, used, *key));
            hits += usize::from(at >= requests.len() / 2);
        } else if held.len() == capacity
            && let Some((_, _, evicted)) = by_rank.pop_first()
        {
            held.remove(&evicted);
        }
        held.insert(*key, (count, at));
        by_rank.insert((count, at, *key));
    }
    hits as f64 / (requests.len() - requests.len() / 2) as f64
}
