//! Scheduling of tests: some measure and need the machine for themselves, others only work.

use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

static MACHINE: RwLock<()> = RwLock::new(());

/// Niceness with a third of the share of others (sched(7)): other work is not delayed, and this work still completes
/// while endless work runs.
const NICE: i32 = 5;

/// Reserves the machine for a test that measures time: no other test of its program runs meanwhile.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A failed test leaves no state behind that could disturb the next test.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a share of the machine for a test that waits most of its time. Other such tests run meanwhile, but no test
/// that measures time.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test that measures to the millisecond and waits most of its time. It runs at first beside other such tests;
/// if it fails there, it has the machine for itself. Other programs may still disturb it, so it must pass once in four
/// attempts. A fault of the program under test fails all attempts.
///
/// # Panics
/// The test failed each time.
pub fn undisturbed(test: impl Fn() + RefUnwindSafe) {
    let in_company = || {
        let _shared = shared();
        catch_unwind(&test).is_ok()
    };
    if in_company() {
        return;
    }
    let _alone = alone();
    for _ in 0..2 {
        if catch_unwind(&test).is_ok() {
            return;
        }
    }
    test();
}

/// Runs work that never pauses. While other tests wait, the work and its children get less of the processor (nice(2)),
/// so that the deadlines of those tests are kept.
///
/// # Panics
/// The work panicked.
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
