//! Store of message bytes that transactions keep, in chains of small blocks: little waste, no allocation once warm.

use crate::segments::{self, Segments};
use std::num::NonZeroU32;

/// Bytes of text in one block.
const TEXT: usize = 120;
/// Number of blocks of a segment: nearly 32 KB. The size is a little below 32 KB, because an allocator may add a few
/// bytes to align a segment, and its next larger size class would be a third larger.
const SEGMENT: usize = 255;
const NONE: u32 = u32::MAX;

/// Returns the memory of a kept message of this length.
pub(crate) const fn memory_of(bytes: usize) -> usize {
    let blocks = bytes.div_ceil(TEXT);
    size_of::<Block>() * if blocks == 0 { 1 } else { blocks }
}

/// Handle of a stored message. It is not checked: its holder must free it once and must not use it afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredMessage(NonZeroU32);

impl StoredMessage {
    /// Returns the first block of the chain.
    const fn first(&self) -> u32 {
        self.0.get() - 1
    }
}

/// Kept messages of one shard.
#[derive(Debug, Default)]
pub(crate) struct MessageStore {
    segments: Segments<Segment>,
    bytes: usize,
    messages: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Next block of the chain, or next free block of the segment.
    next: u32,
    /// Bytes of the message from this block on.
    len: u32,
    text: [u8; TEXT],
}

#[derive(Debug)]
struct Segment {
    free: u32,
    used: u32,
    blocks: Box<[Block]>,
}

impl segments::Segment for Segment {
    fn new(number: usize) -> Box<Self> {
        let first = (number * SEGMENT) as u32;
        let end = first + SEGMENT as u32;
        let blocks =
            (first + 1..=end).map(|n| Block { next: if n == end { NONE } else { n }, len: 0, text: [0; TEXT] });
        Box::new(Self { free: first, used: 0, blocks: blocks.collect() })
    }

    fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn is_full(&self) -> bool {
        self.free == NONE
    }
}

impl MessageStore {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes of all kept messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of kept messages.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of allocated segments, 32 KB each.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.segments.held()
    }

    /// Returns the bytes that the segments take.
    pub(crate) fn memory(&self) -> usize {
        self.segments.held() * (size_of::<Segment>() + SEGMENT * size_of::<Block>())
    }

    /// Stores a copy of the message, and returns its handle.
    ///
    /// # Panics
    /// With a message of 4 GiB or more, or when 512 GiB are stored.
    pub(crate) fn store(&mut self, message: &[u8]) -> StoredMessage {
        let whole = u32::try_from(message.len()).expect("a message is far smaller than 4 GiB");
        let first = self.take();
        let (mut at, mut rest) = (first, message);
        self.block_mut(at).len = whole;
        loop {
            let (text, more) = rest.split_at(rest.len().min(TEXT));
            let next = if more.is_empty() { NONE } else { self.take() };
            let block = self.block_mut(at);
            block.text[..text.len()].copy_from_slice(text);
            block.next = next;
            if more.is_empty() {
                break;
            }
            self.block_mut(next).len = more.len() as u32;
            (at, rest) = (next, more);
        }
        self.bytes += message.len();
        self.messages += 1;
        StoredMessage(NonZeroU32::MIN.saturating_add(first))
    }

    /// Appends the message to `out`.
    pub(crate) fn append_to(&self, kept: &StoredMessage, out: &mut Vec<u8>) {
        let mut at = kept.first();
        out.reserve(self.block(at).len as usize);
        while at != NONE {
            let block = self.block(at);
            out.extend_from_slice(&block.text[..(block.len as usize).min(TEXT)]);
            at = block.next;
        }
    }

    /// Returns the length of the message in bytes.
    pub(crate) fn len(&self, kept: &StoredMessage) -> usize {
        self.block(kept.first()).len as usize
    }

    pub(crate) fn free(&mut self, kept: StoredMessage) {
        self.bytes -= self.len(&kept);
        self.messages -= 1;
        let mut at = kept.first();
        while at != NONE {
            let number = at as usize / SEGMENT;
            let segment = &mut self.segments[number];
            let block = &mut segment.blocks[at as usize % SEGMENT];
            let next = block.next;
            block.next = segment.free;
            segment.free = at;
            segment.used -= 1;
            self.segments.gave(number);
            at = next;
        }
    }

    /// Frees spare memory, as [`crate::slots::Slots::tidy`] does.
    pub(crate) fn tidy(&mut self) -> bool {
        self.segments.tidy()
    }

    fn take(&mut self) -> u32 {
        let (_, at) = self.segments.take(|segment| {
            let at = segment.free;
            segment.free = segment.blocks[at as usize % SEGMENT].next;
            segment.used += 1;
            at
        });
        at
    }

    fn block(&self, at: u32) -> &Block {
        &self.segments[at as usize / SEGMENT].blocks[at as usize % SEGMENT]
    }

    fn block_mut(&mut self, at: u32) -> &mut Block {
        &mut self.segments[at as usize / SEGMENT].blocks[at as usize % SEGMENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(store: &MessageStore, kept: &StoredMessage) -> Vec<u8> {
        let mut out = b"before".to_vec();
        store.append_to(kept, &mut out);
        out.split_off(6)
    }

    #[test]
    fn messages_of_every_length_come_back() {
        let mut store = MessageStore::new();
        let messages: Vec<Vec<u8>> = (0..1000usize).map(|n| (0..n).map(|i| (i * 7 + n) as u8).collect()).collect();
        let mut kept: Vec<StoredMessage> = messages.iter().map(|m| store.store(m)).collect();
        assert_eq!(store.bytes(), (0..1000).sum::<usize>());
        assert!(memory_of(0) == 128 && memory_of(120) == 128 && memory_of(121) == 256);
        assert!(store.memory() >= (0..1000).map(memory_of).sum::<usize>());
        // Every second message is freed, and its blocks are reused for other messages.
        let mut odd = Vec::new();
        for (n, k) in kept.drain(..).enumerate() {
            if n % 2 == 0 { store.free(k) } else { odd.push((n, k)) }
        }
        let again: Vec<(usize, StoredMessage)> = (0..1000).step_by(2).map(|n| (n, store.store(&messages[n]))).collect();
        for (n, k) in odd.iter().chain(&again) {
            assert_eq!((read(&store, k), store.len(k)), (messages[*n].clone(), *n));
        }
        for (_, k) in odd.into_iter().chain(again) {
            store.free(k);
        }
        assert_eq!((store.bytes(), store.messages()), (0, 0));
        let mut periods = 0;
        while store.tidy() {
            periods += 1;
            assert!(periods < 4);
        }
        assert_eq!(store.segments(), 0);
    }
}
