//! A number with one writer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread writes and any thread may read: an addition is a plain load and store.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Zero, for arrays of numbers.
    #[expect(clippy::declare_interior_mutable_const, reason = "each use of it is a number of its own")]
    pub const ZERO: Self = Self(AtomicU64::new(0));

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        // The number has one writer, so no atomic read-modify-write is needed.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds 1.
    #[inline]
    pub fn one(&self) {
        self.add(1);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn less(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Sets the number to `n`.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Returns the number.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Returns the value of a field in the log; `None` for 0.
pub fn counted(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}
