//! Which shard owns a call: a keyed hash of its Call-ID that the kernel's packet filter can compute too.

/// Bytes of a Call-ID that the filter reads: its program is unrolled over them. What is longer it takes for another, and the
/// shard that gets it passes it on.
pub const FILTERED: usize = 64;

/// How many buckets lie between hash and shard.
pub const BUCKETS: usize = 256;

/// The hash of a Call-ID (its value without white space around). Arithmetic of 32 bits, byte by byte, as
/// the classic packet filter has it; keyed, and over all of it, so that nothing on the wire can be forged to reach a shard.
#[inline]
pub fn hash(secret: u32, call_id: &[u8]) -> u32 {
    let mut h = secret ^ 0x811c_9dc5;
    for &b in call_id {
        h = (h ^ b as u32).wrapping_mul(0x0100_0193);
    }
    h ^= h >> 15;
    h = h.wrapping_mul(0x2c1b_3c6d);
    h ^ (h >> 12)
}

/// The bucket of a hash, 0 to 255.
#[inline]
pub const fn bucket(hash: u32) -> u8 {
    (hash >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_even() {
        let mut count = [0u32; BUCKETS];
        for i in 0..256_000 {
            count[bucket(hash(7, format!("{i}-4711@127.0.0.1").as_bytes())) as usize] += 1;
        }
        assert!(count.iter().all(|&c| (700..1300).contains(&c)), "{count:?}");
    }

    /// Call-IDs that begin alike do not lead to one shard.
    #[test]
    fn a_long_common_beginning_does_not_aim() {
        let mut count = [0u32; BUCKETS];
        for i in 0..256_000 {
            count[bucket(hash(7, format!("{}{i}", "a".repeat(100)).as_bytes())) as usize] += 1;
        }
        assert!(count.iter().all(|&c| (700..1300).contains(&c)), "{count:?}");
    }
}
