//! Whose turn it is: some tests measure and want the machine for themselves, others wait more than they work.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// For a test that measures: no other of its program that takes its turn runs meanwhile.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed leaves nothing behind that the next could be hurt by.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// For one that does not measure: it runs beside others of the kind.
pub fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}
