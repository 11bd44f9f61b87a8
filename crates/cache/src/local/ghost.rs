//! Recently evicted keys, by 32 bits of their hash: a key stored again so soon is probably used repeatedly.

/// Keys of one bucket, the youngest first.
const WAYS: usize = 8;

/// Table that remembers about as many keys as it has places, and forgets the oldest first. Zero is no key.
pub(super) struct Ghost {
    places: Box<[u32]>,
}

impl Ghost {
    pub(super) fn new() -> Self {
        Self { places: Box::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// Remembers a key. The table has about as many places as there are `entries`.
    pub(super) fn remember(&mut self, hash: u32, entries: usize) {
        let places = (entries * 3 / 4).max(WAYS);
        // Typical entries have another size than before, so the remembered keys are dropped.
        if self.places.len() > places * 2 || self.places.len() * 2 < places {
            self.places = vec![0; places.next_multiple_of(WAYS)].into();
        }
        let bucket = self.bucket(hash);
        bucket.rotate_right(1);
        bucket[0] = hash | 1;
    }

    /// Tells whether the key was remembered, and forgets the key.
    pub(super) fn recall(&mut self, hash: u32) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let bucket = self.bucket(hash);
        let Some(at) = bucket.iter().position(|place| *place == hash | 1) else { return false };
        bucket[at..].rotate_left(1);
        bucket[WAYS - 1] = 0;
        true
    }

    fn bucket(&mut self, hash: u32) -> &mut [u32] {
        let buckets = self.places.len() / WAYS;
        let at = ((u64::from(hash) * buckets as u64) >> 32) as usize * WAYS;
        &mut self.places[at..at + WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut ghost = Ghost::new();
        (1..=9).for_each(|n| ghost.remember(n * 2, 8));
        assert!(!ghost.recall(2));
        assert!(ghost.recall(4));
        assert!(!ghost.recall(4), "once");
        assert!((3..=9).all(|n| ghost.recall(n * 2)));
    }
}
