//! Reusable buffers of the calls of one shard, and the numbers drawn as SIPp draws them.

use super::chance::Rand;
use super::run::Run;

/// Buffers and random numbers of one shard.
pub(super) struct BufferPool {
    pub(super) rand: Rand,
    buffers: Vec<Vec<u8>>,
    /// Start and end of elements in a message.
    pub(super) places: Vec<(usize, usize)>,
}

/// Limits: number of kept buffers, and capacity of each.
const KEPT: usize = 16;
const LARGEST: usize = 1 << 16;

impl BufferPool {
    pub(super) fn new(run: &Run) -> Self {
        Self { rand: Rand::new(run.rand), buffers: Vec::with_capacity(KEPT), places: Vec::new() }
    }

    /// Takes an empty buffer, which SHOULD be given back.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < KEPT && buffer.capacity() <= LARGEST {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_scenario::{Environment, Scenario};

    #[test]
    fn buffers_come_back_empty_and_large_ones_go() {
        let document = b"<?xml version=\"1.0\"?><scenario name=\"x\"><send><![CDATA[\nA b\n]]></send></scenario>";
        let scenario = Scenario::parse(document, "x".as_ref(), &Environment::default()).expect("a document");
        let mut pool = BufferPool::new(&Run::new(scenario.into()));
        let mut buffer = pool.buffer();
        buffer.extend_from_slice(b"some text");
        let room = buffer.capacity();
        pool.give(buffer);
        let again = pool.buffer();
        assert_eq!((again.len(), again.capacity()), (0, room));
        pool.give(Vec::with_capacity(LARGEST + 1));
        assert_eq!(pool.buffer().capacity(), 0);
    }
}
