//! Doubly linked list through entries.

use super::cells::{Cells, NIL};

/// First and last entry. Each call names the links that the list uses.
#[derive(Clone, Copy)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NIL, last: NIL };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    pub(super) fn push_back(&mut self, cells: &mut Cells, at: usize, slot: u32) {
        cells.set_link(slot, at, self.last);
        cells.set_link(slot, at + 4, NIL);
        match self.last {
            NIL => self.first = slot,
            last => cells.set_link(last, at + 4, slot),
        }
        self.last = slot;
    }

    pub(super) fn push_front(&mut self, cells: &mut Cells, at: usize, slot: u32) {
        cells.set_link(slot, at, NIL);
        cells.set_link(slot, at + 4, self.first);
        match self.first {
            NIL => self.last = slot,
            first => cells.set_link(first, at, slot),
        }
        self.first = slot;
    }

    pub(super) fn unlink(&mut self, cells: &mut Cells, at: usize, slot: u32) {
        let (before, after) = (cells.link(slot, at), cells.link(slot, at + 4));
        match before {
            NIL => self.first = after,
            before => cells.set_link(before, at + 4, after),
        }
        match after {
            NIL => self.last = before,
            after => cells.set_link(after, at, before),
        }
    }
}
