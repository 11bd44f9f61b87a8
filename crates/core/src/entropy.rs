//! Numbers that nobody can guess: branches, tags. The seed comes from outside; from there on the machine
//! is deterministic, so that a call can be replayed.

use sha2::{Digest, Sha256};

/// A stream of numbers: SHA-256 over seed and counter.
#[derive(Clone)]
pub struct Entropy {
    seed: [u8; 32],
    counter: u64,
    ready: [u64; 4],
    left: usize,
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

impl Entropy {
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0, ready: [0; 4], left: 0 }
    }

    /// A stream of its own for `label`, from the same seed.
    pub fn derive(&self, label: &[u8]) -> Self {
        Self::new(Sha256::new().chain_update(self.seed).chain_update(label).finalize().into())
    }

    pub fn u64(&mut self) -> u64 {
        if self.left == 0 {
            let block: [u8; 32] =
                Sha256::new().chain_update(self.seed).chain_update(self.counter.to_le_bytes()).finalize().into();
            self.counter += 1;
            for (word, eight) in self.ready.iter_mut().zip(block.chunks_exact(8)) {
                *word = u64::from_le_bytes(eight.try_into().expect("chunks of eight"));
            }
            self.left = 4;
        }
        self.left -= 1;
        self.ready[self.left]
    }
}

/// Sixteen hexadecimal digits of `n`.
pub fn hex(n: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (i, c) in text.iter_mut().enumerate() {
        *c = DIGITS[(n >> (60 - 4 * i)) as usize & 15];
    }
    text
}

/// [`hex`], appended.
pub fn write_hex(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&hex(n));
}
