//! Synchronization primitives of [`ring`](crate::ring) and [`bell`](crate::bell): those of the standard library, or
//! those of loom for tests of all interleavings (`make loom`).

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Mutex, atomic::AtomicBool, atomic::AtomicUsize, atomic::fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Mutex, atomic::AtomicBool, atomic::AtomicUsize, atomic::fence};

/// [`std::cell::UnsafeCell`] with loom's interface.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Gives the address of the value. The caller that accesses it ensures that no other thread does.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
