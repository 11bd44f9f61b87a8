//! The buffers of kept messages. Each call keeps the message that it sent last and the one that it received last, and tens
//! of thousands of calls rest at once: a short message does not stay in the buffer of the long one before it. The shelf has
//! buffers by size and exchanges them, so that nothing is allocated once warm.

/// Buffers whose sizes differ by less are taken for equal.
const STEP: usize = 64;
/// Sizes that are kept; a longer message has a buffer of its own.
const SIZES: usize = 64;
/// Buffers kept of each size.
const KEPT: usize = 4_096;

/// Of one shard: empty buffers, the first of up to `STEP` bytes, the next of twice as many, and so on.
#[derive(Debug)]
pub(super) struct Shelf {
    sizes: Box<[Vec<Vec<u8>>]>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { sizes: (0..SIZES).map(|_| Vec::new()).collect() }
    }
}

impl Shelf {
    /// Puts a message in the place of the one before it.
    pub(super) fn keep(&mut self, place: &mut Vec<u8>, bytes: &[u8]) {
        place.clear();
        let steps = bytes.len().div_ceil(STEP);
        if steps > 0 && place.capacity() / STEP != steps {
            let fitting = self.sizes.get_mut(steps - 1).and_then(Vec::pop);
            let other = std::mem::replace(place, fitting.unwrap_or_else(|| Vec::with_capacity(steps * STEP)));
            if let Some(kept) = (other.capacity() / STEP).checked_sub(1).and_then(|size| self.sizes.get_mut(size))
                && kept.len() < KEPT
            {
                kept.push(other);
            }
        }
        place.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_room_that_its_message_needs() {
        let (mut shelf, mut place) = (Shelf::default(), Vec::new());
        for len in [0, 1, 63, 64, 65, 700, 350, 480, 5_000, 20, 100_000, 0, 700] {
            shelf.keep(&mut place, &vec![7; len]);
            assert_eq!(place, vec![7; len]);
            assert!(len == 0 || place.capacity() < len + STEP, "{} for {len}", place.capacity());
        }
    }

    #[test]
    fn buffers_come_back() {
        let (mut shelf, mut one, mut other) = (Shelf::default(), Vec::new(), Vec::new());
        shelf.keep(&mut one, &[1; 600]);
        let long = one.as_ptr();
        shelf.keep(&mut one, &[1; 300]);
        shelf.keep(&mut other, &[1; 610]);
        assert_eq!(other.as_ptr(), long);
        assert_eq!(shelf.sizes.iter().map(Vec::len).sum::<usize>(), 0);
    }
}
