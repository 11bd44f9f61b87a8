//! Pool of empty buffers.

/// Stack of buffers. It keeps as many buffers as were recently in use at the same time, and frees all others.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    buffers: Vec<Vec<u8>>,
    /// Least number of buffers in the pool since the last [`BufferPool::tidy`]: these were not needed.
    least: usize,
}

/// Largest capacity of a kept buffer. Few messages are longer, and over time they would enlarge every buffer.
const KEPT: usize = 4_096;

impl BufferPool {
    /// Returns a buffer with a copy of `bytes`.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let mut buffer = self.buffers.pop().unwrap_or_default();
        self.least = self.least.min(self.buffers.len());
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if (1..=KEPT).contains(&buffer.capacity()) {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.capacity() == 0
    }

    /// Frees the buffers that were not needed since the last call; call it periodically.
    pub(crate) fn tidy(&mut self) {
        self.buffers.drain(..self.least);
        if self.buffers.capacity() > 4 * self.buffers.len() {
            self.buffers.shrink_to(2 * self.buffers.len());
        }
        self.least = self.buffers.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_buffer_serves_again() {
        let mut pool = BufferPool::default();
        let first = pool.take(b"one");
        let at = first.as_ptr();
        pool.give(first);
        let again = pool.take(b"two");
        assert_eq!((&again[..], again.as_ptr()), (&b"two"[..], at));
    }

    #[test]
    fn what_is_not_needed_is_freed() {
        let mut pool = BufferPool::default();
        let buffers: Vec<_> = (0..1_000).map(|_| pool.take(b"message")).collect();
        buffers.into_iter().for_each(|buffer| pool.give(buffer));
        pool.tidy();
        // Ten at a time are needed from now on.
        for _ in 0..100 {
            let buffers: Vec<_> = (0..10).map(|_| pool.take(b"message")).collect();
            buffers.into_iter().for_each(|buffer| pool.give(buffer));
        }
        pool.tidy();
        assert_eq!(pool.buffers.len(), 10);
        pool.tidy();
        assert!(pool.is_empty());
    }

    #[test]
    fn long_messages_leave_nothing() {
        let mut pool = BufferPool::default();
        let long = pool.take(&[0; KEPT + 1]);
        pool.give(long);
        assert!(pool.is_empty());
    }
}
