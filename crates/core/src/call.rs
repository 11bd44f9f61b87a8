//! Owner of a call: a keyed hash of its Call-ID that the kernel's packet filter can compute too.

use crate::hmac::Hmac;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a Call-ID that the packet filter reads, since its program is unrolled over them. For a
/// longer Call-ID the filter computes another hash, and the shard that gets the message passes it on.
pub const FILTERED: usize = 64;

/// Number of buckets between hash and shard.
pub const BUCKETS: usize = 256;

/// Returns the hash of a Call-ID (its value without white space around). It uses arithmetic of 32 bits, byte by byte, as the classic packet
/// filter does. It is keyed and covers the whole Call-ID, so that no peer can forge one to reach a certain shard.
#[inline]
pub fn hash(secret: u32, call_id: &[u8]) -> u32 {
    finish(fold(secret ^ BASIS, call_id))
}

const BASIS: u32 = 0x811c_9dc5;

#[inline]
fn fold(mut h: u32, bytes: &[u8]) -> u32 {
    for &b in bytes {
        h = (h ^ b as u32).wrapping_mul(0x0100_0193);
    }
    h
}

#[inline]
const fn finish(mut h: u32) -> u32 {
    h ^= h >> 15;
    h = h.wrapping_mul(0x2c1b_3c6d);
    h ^ (h >> 12)
}

/// Appends three digits to the beginning of a Call-ID, such that the whole is in the bucket `wanted`. Returns false if no digits do
/// that, about once in nine million cases; the text is then unchanged.
pub(crate) fn end_in(secret: u32, wanted: u8, call_id: &mut Vec<u8>) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let begun = fold(secret ^ BASIS, call_id);
    let digits = |n: usize| [DIGITS[n >> 8], DIGITS[n >> 4 & 15], DIGITS[n & 15]];
    let found = (0..4_096).map(digits).find(|digits| bucket(finish(fold(begun, digits))) == wanted);
    call_id.extend(found.into_iter().flatten());
    found.is_some()
}

/// Returns the bucket of a hash, 0 to 255.
#[inline]
pub const fn bucket(hash: u32) -> u8 {
    (hash >> 24) as u8
}

/// Returns a hash in this bucket, 0 to 255: that of a Call-ID that belongs to another bucket than its hash tells.
#[inline]
pub const fn in_bucket(hash: u32, bucket: u8) -> u32 {
    hash & 0x00ff_ffff | (bucket as u32) << 24
}

/// Keys of the hashes of Call-IDs. They are derived from the server's secret, so that the next process, which takes over calls, has the
/// same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKeys {
    /// Key of [`hash`].
    pub buckets: u32,
    /// Key of tables of calls.
    pub tables: u64,
}

impl CallKeys {
    /// Derives the keys from the secret of a server.
    pub fn derive(secret: &[u8]) -> Self {
        let [a, b, c, d, bytes @ ..] = Hmac::derive(secret, b"strowger calls 1").mac(&[b"keys"]);
        let tables = u64::from_le_bytes(*bytes.first_chunk().expect("eight of twenty-eight bytes"));
        Self { buckets: u32::from_le_bytes([a, b, c, d]), tables }
    }
}

/// Set of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSet([u64; BUCKETS / 64]);

impl BucketSet {
    /// No bucket: initial set of a shard.
    pub const NONE: Self = Self([0; BUCKETS / 64]);
    /// All 256 buckets: set of the only shard of a process.
    pub const ALL: Self = Self([u64::MAX; BUCKETS / 64]);

    /// Returns the set of buckets for which `member` is true.
    pub fn of(member: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::NONE;
        for bucket in (0..=u8::MAX).filter(|&bucket| member(bucket)) {
            set.0[usize::from(bucket / 64)] |= 1 << (bucket % 64);
        }
        set
    }

    /// Tells whether this bucket, 0 to 255, is in the set.
    #[inline]
    pub const fn contains(self, bucket: u8) -> bool {
        self.0[(bucket / 64) as usize] >> (bucket % 64) & 1 == 1
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] | others.0[n]))
    }

    /// Returns the set without the others.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] & !others.0[n]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_buckets() {
        let (odd, high) = (BucketSet::of(|bucket| bucket % 2 == 1), BucketSet::of(|bucket| bucket >= 100));
        for bucket in 0..=u8::MAX {
            let (is_odd, is_high) = (bucket % 2 == 1, bucket >= 100);
            assert_eq!((odd.contains(bucket), high.contains(bucket)), (is_odd, is_high));
            assert_eq!(odd.with(high).contains(bucket), is_odd || is_high);
            assert_eq!(odd.without(high).contains(bucket), is_odd && !is_high);
        }
        assert_eq!((bucket(in_bucket(0xab12_3456, 7)), in_bucket(0xab12_3456, 7)), (7, 0x0712_3456));
        assert_eq!((BucketSet::of(|_| true), BucketSet::of(|_| false)), (BucketSet::ALL, BucketSet::NONE));
    }

    #[test]
    fn buckets_are_even() {
        let mut count = [0u32; BUCKETS];
        for i in 0..256_000 {
            count[bucket(hash(7, format!("{i}-4711@127.0.0.1").as_bytes())) as usize] += 1;
        }
        assert!(count.iter().all(|&c| (700..1300).contains(&c)), "{count:?}");
    }

    /// Checks that Call-IDs with a long common beginning do not select one shard.
    #[test]
    fn a_long_common_beginning_does_not_aim() {
        let mut count = [0u32; BUCKETS];
        for i in 0..256_000 {
            count[bucket(hash(7, format!("{}{i}", "a".repeat(100)).as_bytes())) as usize] += 1;
        }
        assert!(count.iter().all(|&c| (700..1300).contains(&c)), "{count:?}");
    }
}
