//! One partition of the location table: bindings in numbered slots, an index by address-of-record, a wheel of expiries.
//!
//! Overhead of a binding beside its packed block: a slot of 24 bytes and about 11 bytes of index. The wheel is a linked
//! list through the slots, so it needs no further memory, and a refreshed or removed binding leaves it at once.

use hashbrown::HashTable;

use crate::binding::PackedBinding;

/// Buckets of the wheel, one per second. A later expiry stays in its bucket for several turns.
const WHEEL: u64 = 1024;
const NIL: u32 = u32::MAX;
/// Mark in `prev`: this slot is the first of its bucket, whose number is in the other bits.
const HEAD_OF: u32 = 1 << 31;

struct Slot {
    /// `None`: the slot is free, and `next` is the next free slot.
    record: Option<PackedBinding>,
    prev: u32,
    next: u32,
}

pub(crate) struct Partition {
    slots: Vec<Slot>,
    free: u32,
    index: HashTable<u32>,
    /// First slot of each second; allocated with the first binding.
    wheel: Vec<u32>,
    /// Last second of completed clean-up.
    cleaned: u64,
}

impl Default for Partition {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NIL, index: HashTable::new(), wheel: Vec::new(), cleaned: 0 }
    }
}

impl Partition {
    /// Returns the slots of `aor`.
    pub(crate) fn of<'a>(&'a self, hash: u64, aor: &'a [u8]) -> impl Iterator<Item = u32> + use<'a> {
        self.index.iter_hash(hash).copied().filter(move |slot| self.at(*slot).aor() == aor)
    }

    /// Returns the binding in a slot that [`Partition::of`] or [`Partition::due`] returned.
    pub(crate) fn at(&self, slot: u32) -> &PackedBinding {
        self.slots[slot as usize].record.as_ref().expect("index and wheel name slots in use")
    }

    /// Returns the number of slots, including free ones.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the binding in a slot, `None` if it is free.
    pub(crate) fn slot(&self, slot: usize) -> Option<&PackedBinding> {
        self.slots.get(slot)?.record.as_ref()
    }

    /// Adds a binding; `rehash` computes the hash of an existing binding.
    pub(crate) fn insert(&mut self, hash: u64, record: PackedBinding, rehash: impl Fn(&PackedBinding) -> u64) {
        let expires_at = record.expires_at();
        let slot = self.take_slot(record);
        self.link(slot, expires_at);
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| {
            rehash(slots[*slot as usize].record.as_ref().expect("index and wheel name slots in use"))
        });
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) -> PackedBinding {
        self.unlink(slot);
        if let Ok(entry) = self.index.find_entry(hash, |s| *s == slot) {
            entry.remove();
        }
        let free = std::mem::replace(&mut self.free, slot);
        let place = &mut self.slots[slot as usize];
        place.next = free;
        place.record.take().expect("index and wheel name slots in use")
    }

    /// Collects up to `most` slots of bindings that expired at or before `now_ms`. Returns whether these are all such
    /// bindings.
    pub(crate) fn due(&mut self, now_ms: u64, most: usize, due: &mut Vec<u32>) -> bool {
        let now = now_ms / 1000;
        if self.wheel.is_empty() {
            self.cleaned = now;
            return true;
        }
        // After a long pause each bucket is visited once. The last second is visited again by the next call.
        let first = (self.cleaned + 1).max(now.saturating_sub(WHEEL - 1)).min(now);
        for second in first..=now {
            let mut slot = self.wheel[(second % WHEEL) as usize];
            while slot != NIL {
                if self.at(slot).expires_at() <= now_ms {
                    if due.len() == most {
                        return false;
                    }
                    due.push(slot);
                }
                slot = self.slots[slot as usize].next;
            }
            if second < now && due.is_empty() {
                self.cleaned = self.cleaned.max(second);
            }
        }
        true
    }

    fn take_slot(&mut self, record: PackedBinding) -> u32 {
        let new = Slot { record: Some(record), prev: NIL, next: NIL };
        if self.free != NIL {
            let slot = self.free;
            self.free = std::mem::replace(&mut self.slots[slot as usize], new).next;
            return slot;
        }
        if self.slots.len() == self.slots.capacity() {
            // The table grows by an eighth: doubling would leave half of the largest allocation unused.
            self.slots.reserve_exact(self.slots.len() / 8 + 8);
        }
        let slot = u32::try_from(self.slots.len()).ok().filter(|slot| slot & HEAD_OF == 0);
        let slot = slot.expect("two thousand million bindings in one partition do not fit into memory");
        self.slots.push(new);
        slot
    }

    fn bucket(&self, expires_at: u64) -> usize {
        // An expiry in the past goes into the bucket of the next clean-up.
        let second = (expires_at / 1000).max(self.cleaned + 1);
        (second % WHEEL) as usize
    }

    fn link(&mut self, slot: u32, expires_at: u64) {
        if self.wheel.is_empty() {
            self.wheel = vec![NIL; WHEEL as usize];
        }
        let bucket = self.bucket(expires_at);
        let head = std::mem::replace(&mut self.wheel[bucket], slot);
        self.slots[slot as usize].prev = HEAD_OF | bucket as u32;
        self.slots[slot as usize].next = head;
        if head != NIL {
            self.slots[head as usize].prev = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { prev, next, .. } = self.slots[slot as usize];
        if prev & HEAD_OF != 0 {
            self.wheel[(prev & !HEAD_OF) as usize] = next;
        } else {
            self.slots[prev as usize].next = next;
        }
        if next != NIL {
            self.slots[next as usize].prev = prev;
        }
    }
}
