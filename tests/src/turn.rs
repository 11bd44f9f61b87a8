//! Whose turn it is: some tests measure and want the machine for themselves, others only work.

use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

static MACHINE: Mutex<()> = Mutex::new(());

/// A third of the share of others (sched(7)): work beside it is not held up, and it comes to its end beside work without an end.
const NICE: i32 = 5;

/// For a test that measures: no other of its program runs meanwhile.
pub fn alone() -> MutexGuard<'static, ()> {
    // A test that failed leaves nothing behind that the next could be hurt by.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that measures to the millisecond: no other of its program runs meanwhile. Others use the machine as well, so it may be disturbed:
/// it has to hold once in four times. What the program under test does wrong spoils all of them.
///
/// # Panics
/// The test did, each time.
pub fn undisturbed(test: impl Fn() + RefUnwindSafe) {
    let _alone = alone();
    for _ in 0..3 {
        if catch_unwind(&test).is_ok() {
            return;
        }
    }
    test();
}

/// For one that works all the time: it and what it starts have the processor when the others wait (nice(2)), so that
/// theirs come when they are due.
///
/// # Panics
/// The work did.
pub fn in_background<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let nice = || {
            // SAFETY: plain numbers; 0 is this thread, whose threads and processes inherit it.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            work()
        };
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let worker = thread::Builder::new().name(name).spawn_scoped(scope, nice).expect("a thread can be started");
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
