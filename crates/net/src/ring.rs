//! Bounded queue from one thread to another, whose slots are filled and emptied in place. A buffer in a slot returns to the producer for reuse, so
//! that nothing is allocated once warm.

use crate::sync::{Arc, AtomicBool, AtomicUsize, UnsafeCell, fence};
use std::sync::atomic::Ordering::*;

/// A number on its own cache line, so that the two sides do not disturb each other.
#[repr(align(128))]
struct CachePadded(AtomicUsize);

struct Ring<T> {
    slots: Box<[UnsafeCell<T>]>,
    /// Number of emptied slots; only the consumer writes it.
    head: CachePadded,
    /// Number of filled slots; only the producer writes it.
    tail: CachePadded,
    /// True if the producer found no room and must be woken when there is some.
    starved: AtomicBool,
}

// SAFETY: a slot is touched by the producer only while it lies outside head..tail and by the consumer only while
// inside; the release stores of `tail` and `head` hand it over. So threads never share a `T`, they pass it on.
unsafe impl<T: Send> Sync for Ring<T> {}

pub(crate) struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    /// `head` as last read: it can only have grown since.
    head: usize,
    /// Number of emptied slots that were visited again, see [`Producer::reclaim`]; at most `head`, at least `tail` less the size.
    reclaimed: usize,
}

pub(crate) struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
}

/// Creates both ends of a ring of `size` slots, rounded up to a power of two.
pub(crate) fn ring<T: Default>(size: usize) -> (Producer<T>, Consumer<T>) {
    let slots = (0..size.max(2).next_power_of_two()).map(|_| UnsafeCell::new(T::default())).collect();
    let [head, tail] = [0, 0].map(|n| CachePadded(AtomicUsize::new(n)));
    let ring = Arc::new(Ring { slots, head, tail, starved: AtomicBool::new(false) });
    (Producer { ring: ring.clone(), tail: 0, head: 0, reclaimed: 0 }, Consumer { ring, head: 0 })
}

impl<T> Producer<T> {
    /// Calls `fill` for the next slot and passes the slot to the consumer. Returns false if there is no room; then
    /// [`Consumer::producer_waits`] will be true after the consumer has made room.
    pub(crate) fn push(&mut self, fill: impl FnOnce(&mut T)) -> bool {
        let size = self.ring.slots.len();
        if self.tail.wrapping_sub(self.head) == size {
            self.head = self.ring.head.0.load(Acquire);
            if self.tail.wrapping_sub(self.head) == size {
                self.ring.starved.store(true, Relaxed);
                fence(SeqCst);
                self.head = self.ring.head.0.load(Acquire);
                if self.tail.wrapping_sub(self.head) == size {
                    return false;
                }
            }
        }
        // SAFETY: fewer than `size` slots lie between head and tail, so this one is outside, ours until `tail` moves;
        // `&mut self` keeps a second producer away, and `Producer` cannot be cloned.
        self.ring.slots[self.tail & (size - 1)].with_mut(|slot| fill(unsafe { &mut *slot }));
        self.tail = self.tail.wrapping_add(1);
        if self.tail.wrapping_sub(self.reclaimed) > size {
            // `fill` has seen the old content of the slot.
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
        self.ring.tail.0.store(self.tail, Release);
        true
    }

    /// Calls `take` for each slot that was emptied since the last call, the oldest slot first.
    pub(crate) fn reclaim(&mut self, mut take: impl FnMut(&mut T)) {
        self.head = self.ring.head.0.load(Acquire);
        while self.reclaimed != self.head {
            let at = self.reclaimed & (self.ring.slots.len() - 1);
            // SAFETY: `reclaimed` lies behind head, so the consumer is done with the slot, and no more than `size` behind
            // tail, so it is not one that was filled again; `&mut self` keeps a second producer away.
            self.ring.slots[at].with_mut(|slot| take(unsafe { &mut *slot }));
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
    }

    /// Tells whether the next push will find room.
    pub(crate) fn has_room(&self) -> bool {
        self.tail.wrapping_sub(self.ring.head.0.load(Acquire)) < self.ring.slots.len()
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
        // SAFETY: the slot lies inside head..tail, so it is ours until `head` moves; `&mut self` keeps a second
        // consumer away, and `Consumer` cannot be cloned.
        self.ring.slots[self.head & (self.ring.slots.len() - 1)].with_mut(|slot| empty(unsafe { &mut *slot }));
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Release);
        true
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
    fn two_threads_pass_everything_in_order() {
        let (mut tx, mut rx) = ring::<(u64, Vec<u8>)>(16);
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

    #[test]
    fn slots_go_over_in_order_and_come_back() {
        const COUNT: u32 = 3;
        // All orders of voluntary yields, with up to three preemptions.
        let mut orders = loom::model::Builder::new();
        orders.preemption_bound = Some(3);
        orders.check(|| {
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
