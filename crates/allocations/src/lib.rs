//! A counting allocator for tests and benches: it proves that code allocates nothing.
//!
//! ```
//! use std::alloc::System;
//! use strowger_allocations::{Counting, of_thread};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting<System> = Counting(System);
//!
//! let before = of_thread();
//! drop(std::hint::black_box(Box::new(1)));
//! assert_eq!(of_thread() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An allocator with counters. A block that grows or shrinks counts as one more allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting<A>(pub A);

static PROCESS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static SET_ASIDE: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Returns the allocations by the calling thread so far.
pub fn of_thread() -> u64 {
    THREAD.get()
}

/// Returns the allocations so far by all threads that were not set aside at the time.
pub fn of_process() -> u64 {
    PROCESS.load(Relaxed)
}

/// Excludes the calling thread, which runs the test, from the allocations of the process from now on.
pub fn set_aside() {
    SET_ASIDE.set(true);
}

/// Runs `work`, and returns its result with the maximum number of bytes that the calling thread held during `work` in
/// addition to those before. Memory that another thread frees for this thread stays counted.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let made = work();
    (made, usize::try_from(MOST.get() - before).unwrap_or(0))
}

/// Counts a change of held bytes, and an allocation. A thread that is about to end has no counters any more.
fn count(bytes: isize, allocation: bool) {
    if allocation {
        let _ = THREAD.try_with(|n| n.set(n.get() + 1));
        if !SET_ASIDE.try_with(Cell::get).unwrap_or(true) {
            PROCESS.fetch_add(1, Relaxed);
        }
    }
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

/// Converts a size to a signed number; no allocation is greater than `isize::MAX`.
const fn difference(size: usize) -> isize {
    size.cast_signed()
}

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting touches no memory of the
// caller's and allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(difference(layout.size()), true);
        // SAFETY: the caller's promise is that of this function.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(difference(layout.size()), true);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-difference(layout.size()), false);
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(difference(size) - difference(layout.size()), true);
        // SAFETY: as above.
        unsafe { self.0.realloc(at, layout, size) }
    }
}
