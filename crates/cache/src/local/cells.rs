//! Memory of a partition: cells of 64 bytes, chained for each entry. Nothing is ever moved and no hole is too small.
//!
//! A cell begins with the number of the next cell of its entry. In the first cell of an entry its head follows; then
//! key and value extend through the chain. The number of the first cell is the number of the entry. An entry of 28
//! bytes takes one cell, each further 60 bytes another.

/// Bytes of a cell.
pub(super) const CELL: usize = 64;
/// Maximum number of cells of a chunk, plus one: few chunks, so that their list stays in the processor's cache.
const LARGEST: usize = 4096;
/// No cell.
pub(super) const NIL: u32 = !FIRST;
/// Mark in the number of the next cell: this cell is the first of an entry.
const FIRST: u32 = 1 << 31;

// Positions of the fields in the first cell of an entry.
const NEXT: usize = 0;
/// Links of the eviction queue.
pub(super) const QUEUE: usize = 4;
/// Links of the expiry wheel.
pub(super) const WHEEL: usize = 12;
const HASH: usize = 20;
const END: usize = 24;
const KEY_LENGTH: usize = 30;
const VALUE_LENGTH: usize = 32;
const MARKS: usize = 35;
const HEAD: usize = 36;
const REST: usize = 4;

/// End of an entry that never expires: later than any time.
pub(super) const NEVER: u64 = (1 << 48) - 1;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Cell([u8; CELL]);

/// Part of an entry within one cell; the following cells continue it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    cell: u32,
    bytes: &'a [u8],
}

/// Cells of a partition, in chunks, so that growing moves nothing.
pub(super) struct Cells {
    chunks: Vec<Box<[Cell]>>,
    /// Logarithm of the chunk size in numbers. A chunk has one cell less: the last number of each is unused. So a chunk
    /// takes a power of two of bytes, including the allocator's overhead for alignment to a cache line. One byte more,
    /// and an allocator with size classes may take a quarter more.
    shift: u32,
    /// First of the free cells, chained.
    free: u32,
    /// First cell that was never used.
    unused: u32,
    in_use: usize,
}

/// Returns how many cells an entry takes.
pub(super) const fn cells_of(key: usize, value: usize) -> usize {
    1 + (key + value).saturating_sub(CELL - HEAD).div_ceil(CELL - REST)
}

impl Cells {
    pub(super) fn new(budget: usize) -> Self {
        let cells = (budget / CELL / 64).clamp(8, LARGEST);
        Self { chunks: Vec::new(), shift: cells.ilog2(), free: NIL, unused: 0, in_use: 0 }
    }

    /// Returns the bytes of the cells in use.
    pub(super) const fn bytes(&self) -> usize {
        self.in_use * CELL
    }

    /// Adds an entry. Its links are not set.
    pub(super) fn add(&mut self, hash: u32, key: &[u8], value: &[u8], end: u64) -> u32 {
        let slot = self.chain(cells_of(key.len(), value.len()));
        let head = self.word(slot, NEXT) | FIRST;
        self.set_word(slot, NEXT, head);
        self.set_word(slot, HASH, hash);
        let length = u16::try_from(key.len()).expect("the bound of keys is below 64 KiB");
        self.cell_mut(slot).0[KEY_LENGTH..KEY_LENGTH + 2].copy_from_slice(&length.to_le_bytes());
        self.set_value_length(slot, value.len());
        self.set_end(slot, end);
        self.cell_mut(slot).0[MARKS] = 0;
        self.fill(slot, 0, key);
        self.fill(slot, key.len(), value);
        slot
    }

    /// Replaces the value of an entry. The entry stays in place, and its chain grows or shrinks.
    pub(super) fn replace(&mut self, slot: u32, value: &[u8]) {
        let key = self.key_length(slot);
        let (old, new) = (cells_of(key, self.value_length(slot)), cells_of(key, value.len()));
        if old != new {
            let mut last = slot;
            for _ in 1..old.min(new) {
                last = self.next(last);
            }
            let mark = self.word(last, NEXT) & FIRST;
            let rest = self.next(last);
            let more = if new > old { self.chain(new - old) } else { NIL };
            self.set_word(last, NEXT, more | mark);
            self.give_back(rest);
        }
        self.set_value_length(slot, value.len());
        self.fill(slot, key, value);
    }

    /// Frees an entry.
    pub(super) fn free(&mut self, slot: u32) {
        let next = self.next(slot);
        self.set_word(slot, NEXT, next);
        self.give_back(slot);
    }

    /// Returns the begin of an entry's value, if the entry has this key.
    #[inline(always)]
    pub(super) fn value_of(&self, slot: u32, hash: u32, key: &[u8]) -> Option<Piece<'_>> {
        if self.hash(slot) != hash || self.key_length(slot) != key.len() {
            return None;
        }
        let here = &self.cell(slot).0[HEAD..];
        match key.split_first_chunk::<{ CELL - HEAD }>() {
            None => value_behind(slot, here, key),
            Some((first, _)) if here != first => None,
            Some((_, [])) => Some(Piece { cell: slot, bytes: &[] }),
            Some((_, rest)) if rest.len() <= CELL - REST => {
                let next = self.next(slot);
                value_behind(next, &self.cell(next).0[REST..], rest)
            }
            Some((_, rest)) => self.value_further(slot, rest),
        }
    }

    /// Compares the remaining part of a key with the following cells. Returns the begin of the value after the key, if
    /// they are equal.
    #[inline(never)]
    fn value_further(&self, cell: u32, rest: &[u8]) -> Option<Piece<'_>> {
        let mut value = Piece { cell, bytes: &[] };
        for piece in rest.chunks(CELL - REST) {
            let next = self.next(value.cell);
            value = value_behind(next, &self.cell(next).0[REST..], piece)?;
        }
        Some(value)
    }

    /// Appends the key of an entry, then its value.
    pub(super) fn append(&self, slot: u32, out: &mut Vec<u8>) {
        let entry = Piece { cell: slot, bytes: &self.cell(slot).0[HEAD..] };
        self.append_from(entry, self.key_length(slot) + self.value_length(slot), out);
    }

    /// Appends `length` bytes, which begin with this piece.
    #[inline(always)]
    pub(super) fn append_from(&self, piece: Piece<'_>, length: usize, out: &mut Vec<u8>) {
        match piece.bytes.get(..length) {
            Some(all) => out.extend_from_slice(all),
            None => self.append_pieces(piece, length, out),
        }
    }

    #[inline(never)]
    fn append_pieces(&self, piece: Piece<'_>, length: usize, out: &mut Vec<u8>) {
        out.reserve(length);
        out.extend_from_slice(piece.bytes);
        let (mut cell, mut left) = (self.next(piece.cell), length - piece.bytes.len());
        while left > CELL - REST {
            // The compiler knows this length, so it copies the bytes without a call.
            out.extend_from_slice(&self.cell(cell).0[REST..]);
            (cell, left) = (self.next(cell), left - (CELL - REST));
        }
        out.extend_from_slice(&self.cell(cell).0[REST..REST + left]);
    }

    pub(super) fn hash(&self, slot: u32) -> u32 {
        self.word(slot, HASH)
    }

    pub(super) fn key_length(&self, slot: u32) -> usize {
        (self.end_and_key_length(slot) >> 48) as usize
    }

    pub(super) fn value_length(&self, slot: u32) -> usize {
        // The fourth byte has the marks.
        (self.word(slot, VALUE_LENGTH) & 0x00ff_ffff) as usize
    }

    pub(super) fn cells(&self, slot: u32) -> usize {
        cells_of(self.key_length(slot), self.value_length(slot))
    }

    /// Returns the end of the entry's life.
    pub(super) fn end(&self, slot: u32) -> u64 {
        self.end_and_key_length(slot) & NEVER
    }

    pub(super) fn set_end(&mut self, slot: u32, end: u64) {
        let end = end.min(NEVER).to_le_bytes();
        self.cell_mut(slot).0[END..END + 6].copy_from_slice(&end[..6]);
    }

    /// Returns the marks of the queues.
    pub(super) fn marks(&self, slot: u32) -> u8 {
        self.cell(slot).0[MARKS]
    }

    pub(super) fn set_marks(&mut self, slot: u32, marks: u8) {
        self.cell_mut(slot).0[MARKS] = marks;
    }

    /// Returns a link of an entry: the number of another entry.
    pub(super) fn link(&self, slot: u32, at: usize) -> u32 {
        self.word(slot, at)
    }

    pub(super) fn set_link(&mut self, slot: u32, at: usize, to: u32) {
        self.set_word(slot, at, to);
    }

    /// Returns the first entry with this number or a later one; `None` after the last entry. Inspects at most `most`
    /// cells; if that is not enough, returns the number with which to continue.
    pub(super) fn entry_from(&self, from: u32, most: u32) -> Result<Option<u32>, u32> {
        for slot in from..self.unused.min(from.saturating_add(most)) {
            if self.is_cell(slot) && self.word(slot, NEXT) & FIRST != 0 {
                return Ok(Some(slot));
            }
        }
        if from.saturating_add(most) >= self.unused { Ok(None) } else { Err(from + most) }
    }

    /// Writes bytes of an entry from `skip` on.
    fn fill(&mut self, slot: u32, skip: usize, bytes: &[u8]) {
        let (mut cell, mut from, mut skip, mut rest) = (slot, HEAD, skip, bytes);
        while !rest.is_empty() {
            let here = CELL - from;
            if skip < here {
                let (now, later) = rest.split_at(rest.len().min(here - skip));
                self.cell_mut(cell).0[from + skip..from + skip + now.len()].copy_from_slice(now);
                (rest, skip) = (later, skip + now.len());
            } else {
                skip -= here;
                (cell, from) = (self.next(cell), REST);
            }
        }
    }

    /// Takes this many cells and chains them. Unused cells are adjacent; the cells of a freed entry stay together.
    fn chain(&mut self, cells: usize) -> u32 {
        self.in_use += cells;
        let (first, mut last) = (self.one(), NIL);
        for _ in 1..cells {
            let from = if last == NIL { first } else { last };
            last = self.one();
            self.set_word(from, NEXT, last);
        }
        let end = if last == NIL { first } else { last };
        self.set_word(end, NEXT, NIL);
        first
    }

    fn one(&mut self) -> u32 {
        if self.free != NIL {
            let slot = self.free;
            self.free = self.next(slot);
            return slot;
        }
        let slot = self.unused;
        if slot as usize == self.chunks.len() << self.shift {
            self.chunks.push(vec![Cell([0; CELL]); (1 << self.shift) - 1].into());
        }
        assert!(slot < NIL, "a partition has less than 128 GiB");
        self.unused += if self.is_cell(slot + 1) { 1 } else { 2 };
        slot
    }

    /// Tells whether a number belongs to a cell.
    const fn is_cell(&self, number: u32) -> bool {
        let last = (1 << self.shift) - 1;
        number & last != last
    }

    /// Frees a chain whose entry mark is removed.
    fn give_back(&mut self, first: u32) {
        let mut last = NIL;
        let mut cell = first;
        while cell != NIL {
            self.in_use -= 1;
            last = cell;
            cell = self.next(cell);
        }
        if last != NIL {
            self.set_word(last, NEXT, self.free);
            self.free = first;
        }
    }

    fn set_value_length(&mut self, slot: u32, length: usize) {
        let length = u32::try_from(length).expect("the bound of values is below 16 MiB").to_le_bytes();
        self.cell_mut(slot).0[VALUE_LENGTH..VALUE_LENGTH + 3].copy_from_slice(&length[..3]);
    }

    /// Returns the end and the length of the key in one read: the end has six bytes, the length the next two.
    fn end_and_key_length(&self, slot: u32) -> u64 {
        let [a, b, c, d, e, f, g, h] = *self.cell(slot).0[END..].first_chunk().expect("it lies within a cell");
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    #[inline(always)]
    fn next(&self, cell: u32) -> u32 {
        self.word(cell, NEXT) & !FIRST
    }

    #[inline(always)]
    fn cell(&self, cell: u32) -> &Cell {
        &self.chunks[(cell >> self.shift) as usize][(cell & ((1 << self.shift) - 1)) as usize]
    }

    fn cell_mut(&mut self, cell: u32) -> &mut Cell {
        &mut self.chunks[(cell >> self.shift) as usize][(cell & ((1 << self.shift) - 1)) as usize]
    }

    fn word(&self, cell: u32, at: usize) -> u32 {
        let bytes = &self.cell(cell).0;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    fn set_word(&mut self, cell: u32, at: usize, word: u32) {
        self.cell_mut(cell).0[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Compares the remaining part of a key, which ends in this cell, with the bytes `here`. Returns the value after the
/// key, if they are equal.
#[inline(always)]
fn value_behind<'a>(cell: u32, here: &'a [u8], key: &[u8]) -> Option<Piece<'a>> {
    let (own, bytes) = here.split_at_checked(key.len())?;
    // The bytes are compared without a call, because there are few of them.
    let ((owns, own), (keys, key)) = (own.as_chunks::<8>(), key.as_chunks::<8>());
    (owns == keys && own.iter().zip(key).all(|(a, b)| a == b)).then_some(Piece { cell, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 31 + seed) as u8).collect()
    }

    fn check(cells: &Cells, slot: u32, key: &[u8], value: &[u8]) {
        let value_piece = cells.value_of(slot, 7, key).expect("it has this key");
        let (mut both, mut one) = (vec![1], vec![2]);
        cells.append(slot, &mut both);
        cells.append_from(value_piece, cells.value_length(slot), &mut one);
        assert_eq!(both[1..], [key, value].concat());
        assert_eq!(&one[1..], value);
    }

    #[test]
    fn what_is_written_is_read_at_every_length() {
        let mut cells = Cells::new(1 << 20);
        for (key, value) in [1, 27, 28, 29, 88, 250].into_iter().flat_map(|key| (0..200).map(move |value| (key, value)))
        {
            let (key, value) = (bytes(key, 1), bytes(value, 2));
            let slot = cells.add(7, &key, &value, 5000);
            check(&cells, slot, &key, &value);
            assert!(cells.value_of(slot, 8, &key).is_none());
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(cells.value_of(slot, 7, &other).is_none(), "differs at {at} of {}", key.len());
            }
            assert!(cells.value_of(slot, 7, &key[1..]).is_none());
            assert_eq!(cells.end(slot), 5000);
            assert_eq!(cells.bytes(), cells_of(key.len(), value.len()) * CELL);
            cells.free(slot);
            assert_eq!(cells.bytes(), 0);
        }
        assert!(cells.unused < 20, "cells are used again: {}", cells.unused);
    }

    #[test]
    fn a_chain_grows_and_shrinks_in_its_place() {
        let mut cells = Cells::new(1 << 20);
        let key = bytes(33, 4);
        let slot = cells.add(7, &key, b"", NEVER);
        cells.set_marks(slot, 0xa5);
        for length in [0, 1000, 3, 4, 5, 70_000, 100, 0] {
            let value = bytes(length, length);
            cells.replace(slot, &value);
            check(&cells, slot, &key, &value);
            assert_eq!((cells.marks(slot), cells.end(slot)), (0xa5, NEVER));
            assert_eq!(cells.bytes(), cells.cells(slot) * CELL);
        }
    }

    #[test]
    fn entries_are_found_by_walking() {
        // Several chunks.
        let mut cells = Cells::new(1 << 10);
        let slots: Vec<u32> = (0..20).map(|n| cells.add(7, &bytes(n * 20 + 1, n), b"value", NEVER)).collect();
        slots.iter().step_by(2).for_each(|slot| cells.free(*slot));
        let (mut found, mut from) = (Vec::new(), 0);
        loop {
            match cells.entry_from(from, 3) {
                Ok(Some(slot)) => {
                    found.push(slot);
                    from = slot + 1;
                }
                Ok(None) => break,
                Err(next) => from = next,
            }
        }
        assert_eq!(found, slots.iter().skip(1).step_by(2).copied().collect::<Vec<_>>());
    }
}
