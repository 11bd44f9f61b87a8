//! Slots of the calls of one shard.

use super::call::Call;

/// Slots of calls. The table grows by segments, so that no call moves in memory.
#[derive(Debug, Default)]
pub(super) struct Calls {
    segments: Vec<Vec<Call>>,
    len: usize,
}

/// Calls in a segment, a power of two.
const SEGMENT: usize = 256;

impl Calls {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, call: Call) {
        if self.len.is_multiple_of(SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(call);
            self.len += 1;
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Call> {
        self.segments.get(slot / SEGMENT)?.get(slot % SEGMENT)
    }
}

impl std::ops::Index<usize> for Calls {
    type Output = Call;

    #[inline]
    fn index(&self, slot: usize) -> &Call {
        &self.segments[slot / SEGMENT][slot % SEGMENT]
    }
}

impl std::ops::IndexMut<usize> for Calls {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Call {
        &mut self.segments[slot / SEGMENT][slot % SEGMENT]
    }
}
