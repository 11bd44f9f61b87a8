//! Bounded queue from one thread to another, whose slots are filled and emptied in place. A buffer in a slot returns to the producer for reuse, so
//! that nothing is allocated once warm.
//!
//! A ring has no slots until its first use. Its slots are in segments: if the producer finds the last segment full, it adds one of twice the size, up
//! to the size of the ring. The consumer empties a segment before it goes on to the next one, and both ends drop a segment that they have left.

use crate::sync::{Arc, AtomicBool, AtomicUsize, UnsafeCell, fence};
use std::sync::atomic::Ordering::*;

/// Slots of the first segment. Loom has one, so that its few steps include growth.
const FIRST: usize = if cfg!(loom) { 1 } else { 64 };

/// A number on its own cache line, so that the two sides do not disturb each other.
#[repr(align(128))]
struct CachePadded(AtomicUsize);

/// Positions of both ends. A position is a number of slots since the start, in all segments.
struct Ring {
    /// Number of emptied slots; only the consumer writes it.
    head: CachePadded,
    /// Number of filled slots; only the producer writes it.
    tail: CachePadded,
    /// True if the producer found no room and must be woken when there is some.
    starved: AtomicBool,
}

/// Slots of consecutive positions, used in turn; their number is a power of two, or zero before the first use of the ring.
struct Segment<T> {
    slots: Box<[UnsafeCell<T>]>,
    /// True: the producer has left this segment and never touches `next` again.
    has_next: AtomicBool,
    next: UnsafeCell<Option<Next<T>>>,
}

/// Next segment, and its first position.
struct Next<T> {
    start: usize,
    segment: Arc<Segment<T>>,
}

// SAFETY: a slot is touched by the producer only while its position lies outside head..tail and by the consumer only
// while inside; the release stores of `tail` and `head` hand it over. `next` is touched by the producer before the
// release store of `has_next` and by the consumer after it. So threads never share a `T`, they pass it on.
unsafe impl<T: Send> Sync for Segment<T> {}

impl<T: Default> Segment<T> {
    fn new(size: usize) -> Arc<Self> {
        let slots = (0..size).map(|_| UnsafeCell::new(T::default())).collect();
        Arc::new(Self { slots, has_next: AtomicBool::new(false), next: UnsafeCell::new(None) })
    }
}

pub(crate) struct Producer<T> {
    ring: Arc<Ring>,
    /// Maximum number of filled slots: a power of two.
    size: usize,
    segment: Arc<Segment<T>>,
    /// First position in `segment`.
    start: usize,
    /// Earlier segments with slots to reclaim, the oldest first, each with the position after its last one.
    earlier: Vec<(Arc<Segment<T>>, usize)>,
    tail: usize,
    /// `head` as last read: it can only have grown since.
    head: usize,
    /// Position of the next slot to visit again, see [`Producer::reclaim`]: at most `head`. No slot from there on was filled again.
    reclaimed: usize,
}

pub(crate) struct Consumer<T> {
    ring: Arc<Ring>,
    segment: Arc<Segment<T>>,
    head: usize,
}

/// Creates both ends of a ring of at most `size` slots, rounded up to a power of two.
pub(crate) fn ring<T: Default>(size: usize) -> (Producer<T>, Consumer<T>) {
    let [head, tail] = [0, 0].map(|n| CachePadded(AtomicUsize::new(n)));
    let ring = Arc::new(Ring { head, tail, starved: AtomicBool::new(false) });
    let segment = Segment::new(0);
    let consumer = Consumer { ring: ring.clone(), segment: segment.clone(), head: 0 };
    let size = size.max(2).next_power_of_two();
    (Producer { ring, size, segment, start: 0, earlier: Vec::new(), tail: 0, head: 0, reclaimed: 0 }, consumer)
}

impl<T: Default> Producer<T> {
    /// Calls `fill` for the next slot and passes the slot to the consumer. Returns false if there is no room; then
    /// [`Consumer::producer_waits`] will be true after the consumer has made room.
    pub(crate) fn push(&mut self, fill: impl FnOnce(&mut T)) -> bool {
        if (self.filled() == self.size || self.is_segment_full()) && !self.make_room() {
            return false;
        }
        let size = self.segment.slots.len();
        // SAFETY: fewer than `size` slots of this segment lie between head and tail, so this one is outside, ours until
        // `tail` moves; `&mut self` keeps a second producer away, and `Producer` cannot be cloned.
        self.segment.slots[self.tail & (size - 1)].with_mut(|slot| fill(unsafe { &mut *slot }));
        self.tail = self.tail.wrapping_add(1);
        if self.tail.wrapping_sub(self.start) > size && self.tail.wrapping_sub(self.reclaimed) > size {
            // `fill` has seen the old content of the slot. What was not reclaimed of earlier segments is dropped.
            self.reclaimed = self.tail.wrapping_sub(size);
            self.drop_reclaimed();
        }
        self.ring.tail.0.store(self.tail, Release);
        true
    }

    /// Reads how far the consumer is, and adds a segment if the last one is full. Returns false if the ring has no room.
    #[cold]
    fn make_room(&mut self) -> bool {
        self.head = self.ring.head.0.load(Acquire);
        if self.filled() == self.size {
            self.ring.starved.store(true, Relaxed);
            fence(SeqCst);
            self.head = self.ring.head.0.load(Acquire);
            if self.filled() == self.size {
                return false;
            }
        }
        if self.is_segment_full() {
            self.grow();
        }
        true
    }

    /// Adds a segment of twice the size, which begins at `tail`. The last segment is full and the ring is not, so the
    /// segment is smaller than the ring.
    fn grow(&mut self) {
        let segment = Segment::new((2 * self.segment.slots.len()).clamp(FIRST.min(self.size), self.size));
        let next = Next { start: self.tail, segment: segment.clone() };
        // SAFETY: the consumer does not touch `next` before `has_next` is true, and `&mut self` keeps a second producer
        // away.
        self.segment.next.with_mut(|place| unsafe { *place = Some(next) });
        self.segment.has_next.store(true, Release);
        let before = std::mem::replace(&mut self.segment, segment);
        if self.reclaimed != self.tail {
            self.earlier.push((before, self.tail));
        }
        self.start = self.tail;
    }
}

impl<T> Producer<T> {
    /// Returns the number of filled slots, at the most.
    const fn filled(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Tells whether all slots of the last segment may be filled.
    fn is_segment_full(&self) -> bool {
        // The consumer may still be in a segment before it.
        self.filled().min(self.tail.wrapping_sub(self.start)) == self.segment.slots.len()
    }

    /// Drops the segments without slots to reclaim.
    #[inline]
    fn drop_reclaimed(&mut self) {
        while self
            .earlier
            .first()
            .is_some_and(|(_, end)| self.tail.wrapping_sub(self.reclaimed) <= self.tail.wrapping_sub(*end))
        {
            self.earlier.remove(0);
        }
    }

    /// Calls `take` for each slot that was emptied since the last call, the oldest slot first. Slots of an earlier segment
    /// are dropped instead if a later segment was filled once over since.
    pub(crate) fn reclaim(&mut self, mut take: impl FnMut(&mut T)) {
        self.head = self.ring.head.0.load(Acquire);
        while self.reclaimed != self.head {
            let segment = self.earlier.first().map_or(&self.segment, |(segment, _)| segment);
            let at = self.reclaimed & (segment.slots.len() - 1);
            // SAFETY: `reclaimed` lies behind head, so the consumer is done with the slot, and `push` moves it on before
            // the slot is filled again; `&mut self` keeps a second producer away.
            segment.slots[at].with_mut(|slot| take(unsafe { &mut *slot }));
            self.reclaimed = self.reclaimed.wrapping_add(1);
            self.drop_reclaimed();
        }
    }

    /// Tells whether the next push will find room.
    pub(crate) fn has_room(&self) -> bool {
        self.tail.wrapping_sub(self.ring.head.0.load(Acquire)) < self.size
    }

    /// Tells whether a later [`Producer::reclaim`] will find slots.
    pub(crate) fn has_unreclaimed(&self) -> bool {
        self.reclaimed != self.tail
    }
}

impl<T> Consumer<T> {
    /// Returns the number of filled slots.
    pub(crate) fn len(&self) -> usize {
        self.ring.tail.0.load(Acquire).wrapping_sub(self.head)
    }

    /// Calls `empty` for the oldest filled slot and returns the slot to the producer. Returns false if no slot is
    /// filled.
    pub(crate) fn pop(&mut self, empty: impl FnOnce(&mut T)) -> bool {
        if self.len() == 0 {
            return false;
        }
        if self.segment.has_next.load(Acquire) {
            self.go_on();
        }
        // SAFETY: the slot lies inside head..tail, so it is ours until `head` moves; `&mut self` keeps a second
        // consumer away, and `Consumer` cannot be cloned.
        self.segment.slots[self.head & (self.segment.slots.len() - 1)].with_mut(|slot| empty(unsafe { &mut *slot }));
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Release);
        true
    }

    /// Goes on to the next segment if `head` is its first position. A consumer that sees a position as filled also sees that its segment exists: the
    /// producer stores `has_next` before `tail`.
    #[cold]
    fn go_on(&mut self) {
        let next = self.segment.next.with_mut(|next| {
            // SAFETY: `has_next` is true, so the producer does not touch `next` any more; `&mut self` keeps a second
            // consumer away.
            let next = unsafe { &mut *next };
            next.take_if(|next| next.start == self.head)
        });
        if let Some(next) = next {
            self.segment = next.segment;
        }
    }

    /// Tells, after slots were emptied, whether the producer waits for room and must be woken.
    pub(crate) fn producer_waits(&self) -> bool {
        fence(SeqCst);
        self.ring.starved.load(Relaxed) && self.ring.starved.swap(false, AcqRel)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_and_says_when_there_is_room() {
        let (mut tx, mut rx) = ring::<u32>(3);
        assert!((0..4).all(|i| tx.push(|slot| *slot = i)));
        assert!(!tx.push(|_| unreachable!()));
        let mut seen = None;
        assert!(rx.pop(|slot| seen = Some(*slot)));
        assert_eq!((seen, rx.len()), (Some(0), 3));
        assert!(rx.producer_waits() && !rx.producer_waits());
        assert!(tx.push(|slot| *slot = 4));
    }

    #[test]
    fn emptied_slots_are_reclaimed_once_and_filled_ones_never() {
        let (mut tx, mut rx) = ring::<u32>(4);
        let mut seen = Vec::new();
        for i in 1..=3 {
            assert!(tx.push(|slot| *slot = i));
        }
        tx.reclaim(|slot| seen.push(*slot));
        assert!(seen.is_empty() && tx.has_unreclaimed());
        assert!(rx.pop(|_| ()) && rx.pop(|_| ()));
        tx.reclaim(|slot| seen.push(std::mem::take(slot)));
        assert_eq!(seen, [1, 2]);
        // A slot that is filled again before it was reclaimed is seen by the filling thread, and is not reclaimed
        // later.
        assert!(rx.pop(|_| ()));
        let filled: Vec<u32> = (4..=7)
            .map(|i| {
                let mut before = 0;
                assert!(tx.push(|slot| before = std::mem::replace(slot, i)));
                before
            })
            .collect();
        assert_eq!(filled, [0, 0, 0, 3]);
        tx.reclaim(|slot| seen.push(*slot));
        assert_eq!(seen, [1, 2]);
        for i in 4..=7 {
            assert!(rx.pop(|slot| assert_eq!(*slot, i)));
        }
        tx.reclaim(|slot| seen.push(*slot));
        assert_eq!(seen, [1, 2, 4, 5, 6, 7]);
        assert!(!tx.has_unreclaimed());
    }

    #[test]
    fn a_ring_has_the_slots_that_its_use_needs() {
        let (mut tx, mut rx) = ring::<u32>(8 * FIRST);
        assert_eq!((tx.segment.slots.len(), tx.has_room(), rx.len()), (0, true, 0));
        // One value at a time needs the first segment only, however many pass.
        for i in 0..10 * FIRST as u32 {
            assert!(tx.push(|slot| *slot = i) && rx.pop(|slot| assert_eq!(*slot, i)));
            tx.reclaim(|_| ());
        }
        assert_eq!((tx.segment.slots.len(), rx.segment.slots.len()), (FIRST, FIRST));
        let first = Arc::downgrade(&tx.segment);
        // In the earlier segments too a slot counts as one of the ring.
        let filled = (0..).take_while(|&i| tx.push(|slot| *slot = i)).count();
        assert_eq!((filled, rx.len(), tx.has_room()), (8 * FIRST, 8 * FIRST, false));
        assert!(first.upgrade().is_some());
        let mut reclaimed = Vec::new();
        for i in 0..filled as u32 {
            assert!(rx.pop(|slot| assert_eq!(*slot, i)));
            tx.reclaim(|slot| reclaimed.push(*slot));
        }
        assert!(reclaimed.iter().copied().eq(0..filled as u32) && !tx.has_unreclaimed());
        assert!(first.upgrade().is_none() && tx.earlier.is_empty());
        assert!(Arc::ptr_eq(&tx.segment, &rx.segment));
    }

    #[test]
    fn what_was_not_reclaimed_in_time_is_dropped_with_its_segment() {
        let (mut tx, mut rx) = ring::<Option<Arc<()>>>(4 * FIRST);
        let value = Arc::new(());
        for _ in 0..=FIRST {
            assert!(tx.push(|slot| *slot = Some(value.clone())));
        }
        // The consumer leaves the values in the slots.
        assert!((0..=FIRST).all(|_| rx.pop(|_| ())));
        assert_eq!((tx.earlier.len(), Arc::strong_count(&value)), (1, FIRST + 2));
        for _ in 0..2 * FIRST {
            assert!(tx.push(|slot| *slot = None) && rx.pop(|_| ()));
        }
        assert_eq!((tx.earlier.len(), Arc::strong_count(&value)), (0, 1));
        tx.reclaim(|slot| assert!(slot.is_none()));
        assert!(!tx.has_unreclaimed());
    }

    #[test]
    fn two_threads_pass_everything_in_order() {
        for size in [16, 16 * FIRST] {
            pass_in_order(size);
        }
    }

    fn pass_in_order(size: usize) {
        let (mut tx, mut rx) = ring::<(u64, Vec<u8>)>(size);
        let producer = std::thread::spawn(move || {
            for i in 0..200_000u64 {
                let fill = |slot: &mut (u64, Vec<u8>)| {
                    slot.0 = i;
                    slot.1.clear();
                    slot.1.extend_from_slice(&i.to_le_bytes());
                };
                while !tx.push(fill) {
                    std::hint::spin_loop();
                }
                if i % 3 == 0 {
                    tx.reclaim(|slot| slot.1 = Vec::new());
                }
            }
        });
        for i in 0..200_000u64 {
            while !rx.pop(|slot| assert_eq!((slot.0, &slot.1[..]), (i, &i.to_le_bytes()[..]))) {
                std::hint::spin_loop();
            }
        }
        producer.join().unwrap();
        assert_eq!(rx.len(), 0);
    }
}

/// Tests in all orders of the two threads' steps.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::sync::Notify;
    use loom::thread;

    /// Runs the test in all orders of voluntary yields, with up to three preemptions.
    fn check(test: impl Fn() + Sync + Send + 'static) {
        let mut orders = loom::model::Builder::new();
        orders.preemption_bound = Some(3);
        orders.check(test);
    }

    /// The first slots come into being while the consumer looks for them, and more of them while it empties the first.
    #[test]
    fn slots_go_over_in_order_and_come_back() {
        const COUNT: u32 = 3;
        check(|| {
            let (mut tx, mut rx) = ring::<u32>(2);
            let consumer = thread::spawn(move || {
                let mut next = 1;
                while next <= COUNT {
                    match rx.pop(|slot| assert_eq!(std::mem::replace(slot, 10 * next), next)) {
                        true => next += 1,
                        false => thread::yield_now(),
                    }
                }
            });
            let mut back = Vec::new();
            for i in 1..=COUNT {
                // A slot shows its old content once, unless it was reclaimed before.
                while !tx.push(|slot| back.extend((std::mem::replace(slot, i) > 0).then_some(()))) {
                    thread::yield_now();
                }
                tx.reclaim(|slot| {
                    assert_eq!(std::mem::take(slot) % 10, 0, "it is the consumer's still");
                    back.push(());
                });
            }
            consumer.join().unwrap();
            tx.reclaim(|slot| back.extend((std::mem::take(slot) > 0).then_some(())));
            assert_eq!(back.len(), COUNT as usize);
            assert!(!tx.has_unreclaimed());
        });
    }

    /// A consumer that ends early leaves segments behind which the producer has added or adds. Loom counts what is never dropped.
    #[test]
    fn segments_are_dropped_whichever_end_goes_first() {
        check(|| {
            let (mut tx, mut rx) = ring::<u32>(4);
            let consumer = thread::spawn(move || {
                let mut next = 1;
                for _ in 0..2 {
                    if rx.pop(|slot| assert_eq!(*slot, next)) {
                        next += 1;
                    }
                }
            });
            for i in 1..=4 {
                assert!(tx.push(|slot| *slot = i), "there is room for all");
            }
            drop(tx);
            consumer.join().unwrap();
        });
    }

    #[test]
    fn a_producer_that_found_no_room_hears_of_some() {
        loom::model(|| {
            let (mut tx, mut rx) = ring::<u32>(2);
            let room = Arc::new(Notify::new());
            let waiter = room.clone();
            assert!(tx.push(|slot| *slot = 1) && tx.push(|slot| *slot = 2));
            let consumer = thread::spawn(move || {
                assert!(rx.pop(|_| ()));
                if rx.producer_waits() {
                    waiter.notify();
                }
            });
            // Spurious wake-ups are possible.
            while !tx.push(|slot| *slot = 3) {
                room.wait();
            }
            consumer.join().unwrap();
        });
    }
}
