//! Changes on their way into the log: as bytes, for each partition separately, in order.

use crate::request::Promise;

/// Kind of a stored value: the end of its life (u64, wall clock in milliseconds), length of the key (u16), key, value.
pub(super) const STORED: u8 = 1;
/// Kind of a removal: the key.
pub(super) const REMOVED: u8 = 2;
/// Kind of a promised value: payload as of [`STORED`].
pub(super) const PROMISED: u8 = 3;

/// End of an unlimited life, in the log.
pub(super) const NEVER: u64 = u64::MAX;

/// Changes of a partition that wait for the log thread.
pub(crate) struct Changes {
    /// Changes, each after its kind and length (u32).
    bytes: Vec<u8>,
    most: usize,
    /// Lead of the wall clock over the clock of the cache, in milliseconds.
    ahead: i64,
    never: u64,
    /// False while the log cannot be written: changes are ignored.
    is_taking: bool,
    /// Set when a change was lost because `most` was reached.
    has_gap: bool,
}

impl Changes {
    /// Creates a queue of at most `most` bytes; more changes leave a gap. Lives that end at `never` have no end.
    pub(crate) const fn new(most: usize, ahead: i64, never: u64) -> Self {
        Self { bytes: Vec::new(), most, ahead, never, is_taking: true, has_gap: false }
    }

    /// Notes a stored value. `fill` appends `length` bytes, of which the first `key` bytes are the key.
    pub(crate) fn store(
        &mut self,
        end: u64,
        promise: Promise,
        key: usize,
        length: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let kind = if promise == Promise::Kept { PROMISED } else { STORED };
        let end = if end >= self.never { NEVER } else { end.saturating_add_signed(self.ahead) };
        self.push(kind, 10 + length, |out| {
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&u16::try_from(key).expect("the bound of keys is below 64 KiB").to_le_bytes());
            fill(out);
        });
    }

    /// Notes a removal.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.push(REMOVED, key.len(), |out| out.extend_from_slice(key));
    }

    /// Tells whether half of the space is free, so that changes which can wait may be noted.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes.len() < self.most / 2
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Exchanges the changes for an empty vector. Returns whether there was a gap, and clears the gap.
    pub(super) fn swap(&mut self, with: &mut Vec<u8>) -> bool {
        std::mem::swap(&mut self.bytes, with);
        std::mem::take(&mut self.has_gap)
    }

    /// Starts or stops noting changes.
    pub(super) fn take(&mut self, is_taking: bool) {
        self.bytes.clear();
        (self.is_taking, self.has_gap) = (is_taking, false);
    }

    fn push(&mut self, kind: u8, length: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_taking {
            return;
        }
        // A change larger than the whole space still passes if no other waits.
        if self.has_gap || (!self.bytes.is_empty() && self.bytes.len() + length > self.most) {
            self.has_gap = true;
            return;
        }
        self.bytes.push(kind);
        let length = u32::try_from(length).expect("keys and values are bounded");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        fill(&mut self.bytes);
    }
}

/// Iterates over the changes in bytes of [`Changes`]: kind and payload.
pub(super) fn each(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk().expect("a change has its length before it");
        let (payload, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        bytes = rest;
        Some((*kind, payload))
    })
}

/// Change in the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Stored { end: u64, promise: Promise, key: &'a [u8], value: &'a [u8] },
    Removed { key: &'a [u8] },
}

/// Reads a record. Returns `None` if it is no record of a cache.
pub(super) fn read(kind: u8, payload: &[u8]) -> Option<Change<'_>> {
    match kind {
        STORED | PROMISED => {
            let (end, rest) = payload.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let (key, value) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            let promise = if kind == PROMISED { Promise::Kept } else { Promise::Held };
            Some(Change::Stored { end: u64::from_le_bytes(*end), promise, key, value })
        }
        REMOVED => Some(Change::Removed { key: payload }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_were_made() {
        let mut changes = Changes::new(1000, -3, 500);
        changes.store(10, Promise::Kept, 3, 8, |out| out.extend_from_slice(b"keyvalue"));
        changes.remove(b"other");
        changes.store(500, Promise::Held, 3, 3, |out| out.extend_from_slice(b"key"));
        let mut bytes = Vec::new();
        assert!(!changes.swap(&mut bytes));
        let read: Vec<_> = each(&bytes).map(|(kind, payload)| read(kind, payload).unwrap()).collect();
        let want = [
            Change::Stored { end: 7, promise: Promise::Kept, key: b"key", value: b"value" },
            Change::Removed { key: b"other" },
            Change::Stored { end: NEVER, promise: Promise::Held, key: b"key", value: b"" },
        ];
        assert_eq!(read, want);
    }

    #[test]
    fn beyond_the_bound_there_is_a_gap_and_nothing_behind_it() {
        let mut changes = Changes::new(20, 0, NEVER);
        changes.remove(&[b'a'; 30]);
        changes.remove(b"b");
        changes.remove(b"c");
        let mut bytes = Vec::new();
        assert!(changes.swap(&mut bytes));
        assert_eq!(each(&bytes).count(), 1);
        changes.take(false);
        changes.remove(b"d");
        assert!(!changes.swap(&mut Vec::new()));
        assert_eq!(changes.len(), 0);
    }

    #[test]
    fn no_bytes_of_a_record_panic() {
        for kind in 0..5 {
            (0..14).for_each(|length| assert_eq!(read(kind, &vec![255; length]).is_some(), kind == REMOVED));
        }
        assert_eq!(read(STORED, &[255; 14]), None);
    }
}
