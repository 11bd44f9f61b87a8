//! Buffers of kept messages. Each call keeps the last message that it sent and the last that it received, and tens of
//! thousands of calls are idle at once, so a short message must not occupy the buffer of a long one. The pool exchanges
//! buffers by size, so that a warm shard allocates nothing.

/// Difference in size below which buffers count as equal.
const STEP: usize = 64;
/// Number of pooled sizes; a longer message has a buffer of its own.
const SIZES: usize = 64;
/// Limit of buffers of each size.
const KEPT: usize = 4_096;

/// Empty buffers of one shard: the first list has buffers up to `STEP` bytes, the next up to twice that size, and so
/// on.
#[derive(Debug)]
pub(super) struct MessagePool {
    sizes: Box<[Vec<Vec<u8>>]>,
}

impl Default for MessagePool {
    fn default() -> Self {
        Self { sizes: (0..SIZES).map(|_| Vec::new()).collect() }
    }
}

impl MessagePool {
    /// Replaces the message in `place`.
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
        let (mut messages, mut place) = (MessagePool::default(), Vec::new());
        for len in [0, 1, 63, 64, 65, 700, 350, 480, 5_000, 20, 100_000, 0, 700] {
            messages.keep(&mut place, &vec![7; len]);
            assert_eq!(place, vec![7; len]);
            assert!(len == 0 || place.capacity() < len + STEP, "{} for {len}", place.capacity());
        }
    }

    #[test]
    fn buffers_come_back() {
        let (mut messages, mut one, mut other) = (MessagePool::default(), Vec::new(), Vec::new());
        messages.keep(&mut one, &[1; 600]);
        let long = one.as_ptr();
        messages.keep(&mut one, &[1; 300]);
        messages.keep(&mut other, &[1; 610]);
        assert_eq!(other.as_ptr(), long);
        assert_eq!(messages.sizes.iter().map(Vec::len).sum::<usize>(), 0);
    }
}
