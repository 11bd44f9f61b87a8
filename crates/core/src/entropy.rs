//! Unpredictable numbers for branches and tags. The seed is given from outside; from the seed on the generator is
//! deterministic, so that a call can be replayed.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// Number generator: ChaCha with 12 rounds, from a seed.
pub struct Entropy {
    seed: [u8; 32],
    stream: ChaCha12Rng,
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

impl Entropy {
    /// Creates the generator of `seed`: 256 random bits from outside. The same seed gives the same numbers.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, stream: ChaCha12Rng::from_seed(seed) }
    }

    /// Returns a separate generator for `label`, from the same seed.
    pub fn derive(&self, label: &[u8]) -> Self {
        Self::new(Sha256::new().chain_update(self.seed).chain_update(label).finalize().into())
    }

    /// Returns the next number of 64 bits.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        self.stream.next_u64()
    }
}

/// Returns the sixteen hexadecimal digits of `n`.
pub fn hex(n: u64) -> [u8; 16] {
    let mut text = [0; 16];
    text[..8].copy_from_slice(&eight_digits((n >> 32) as u32));
    text[8..].copy_from_slice(&eight_digits(n as u32));
    text
}

/// Computes eight digits at once, each in a byte of one word, because a look-up of each digit would take a kilobyte of
/// code at every call.
fn eight_digits(n: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let n = u64::from(n);
    let n = (n | n << 16) & 0x0000_ffff_0000_ffff;
    let n = (n | n << 8) & 0x00ff_00ff_00ff_00ff;
    let n = (n | n << 4) & (0x0f * EACH);
    let is_letter = ((n + 6 * EACH) >> 4) & EACH;
    (n + u64::from(b'0') * EACH + is_letter * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// Appends the digits of [`hex`].
pub fn write_hex(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&hex(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits() {
        let mut numbers = Entropy::new([7; 32]);
        let drawn = (0..10_000).map(|_| numbers.u64());
        for n in drawn.chain([0, u64::MAX, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]) {
            assert_eq!(hex(n), format!("{n:016x}").as_bytes());
        }
    }
}
