//! Location of the stored state of a number (a call): segment, offset and length in eight bytes.

use std::collections::HashMap;

/// Locations by number. A slot takes sixteen bytes and one control byte; at least seven in sixteen slots are used.
pub(crate) type Index = HashMap<u64, RecordLocation>;

/// Location of a record: twenty bits of the segment number, twenty-four of the offset, twenty of the record length.
///
/// Twenty bits distinguish all existing segments: with eight megabytes each they would be eight terabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordLocation(u64);

/// Longest record in bytes.
pub(crate) const LONGEST: u64 = (1 << 20) - 1;

/// Exclusive upper bound of offsets.
pub(crate) const FARTHEST: u64 = 1 << 24;

const SEGMENTS: u64 = 1 << 20;

impl RecordLocation {
    /// Creates a location. `length`: bytes of the whole record, at most [`LONGEST`]; `offset`: position of its first byte,
    /// below [`FARTHEST`].
    pub(crate) fn new(segment: u64, offset: u64, length: u64) -> Self {
        debug_assert!(offset < FARTHEST && length <= LONGEST);
        Self((segment % SEGMENTS) << 44 | offset << 20 | length)
    }

    pub(crate) const fn is_in(self, segment: u64) -> bool {
        self.segment() == segment % SEGMENTS
    }

    /// Returns the stored bits of the segment number.
    pub(crate) const fn segment(self) -> u64 {
        self.0 >> 44
    }

    #[cfg(test)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 >> 20 & (FARTHEST - 1)
    }

    pub(crate) const fn length(self) -> u64 {
        self.0 & LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_what_it_was_made_of() {
        for (segment, offset, length) in
            [(0, 0, 0), (1, 8, 30), (SEGMENTS + 5, FARTHEST - 1, LONGEST), (u64::MAX, 1, 2)]
        {
            let place = RecordLocation::new(segment, offset, length);
            assert_eq!((place.offset(), place.length()), (offset, length));
            assert!(place.is_in(segment) && !place.is_in(segment.wrapping_add(1)));
        }
    }
}
