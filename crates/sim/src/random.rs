//! Random numbers from a seed.

/// SplitMix64: small, fast, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `from` to `to`, both included.
    pub const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.u64() % (to - from + 1)
    }

    /// Returns true with this probability, in thousandths.
    pub const fn chance(&mut self, thousandths: u64) -> bool {
        self.u64() % 1000 < thousandths
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.u64() as usize % from.len()]
    }
}
