//! Assignment of keys to threads: while a change of a key is in progress on the connections of one thread, all requests
//! for the key use them. So changes of a key keep their order even across shards, and a fetch sees all earlier changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cluster;

/// Number of places for keys: two keys with one place use the same connections while either changes.
const PLACES: u64 = 4096;
/// Mask of a place's lower bits, which count changes in progress; the other bits are the thread.
const COUNT: u64 = (1 << THREAD) - 1;
const THREAD: u32 = 48;

/// Changes in progress of all threads of a cache.
pub(super) struct ChangesInProgress(Box<[AtomicU64]>);

impl Default for ChangesInProgress {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl ChangesInProgress {
    fn place(key: &[u8]) -> usize {
        (cluster::hash(key) % PLACES) as usize
    }

    /// Returns the thread for a request that changes nothing: `own`, unless another thread has a change of the key in
    /// progress.
    pub(super) fn thread_for(&self, key: &[u8], own: usize) -> usize {
        let held = self.0[Self::place(key)].load(Ordering::Acquire);
        if held & COUNT == 0 { own } else { (held >> THREAD) as usize }
    }

    /// Returns the thread for a change. The change counts as in progress until its claim is dropped.
    pub(super) fn claim(self: &Arc<Self>, key: &[u8], own: usize) -> (usize, Claim) {
        let place = Self::place(key);
        let own = (own as u64) << THREAD;
        let more = |held: u64| Some(if held & COUNT == 0 { own } else { held } + 1);
        let claimed = self.0[place].fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        let thread = claimed.map_or(own, |held| if held & COUNT == 0 { own } else { held }) >> THREAD;
        (thread as usize, Claim { order: self.clone(), place })
    }
}

/// Change in progress.
pub(super) struct Claim {
    order: Arc<ChangesInProgress>,
    place: usize,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.order.0[self.place].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_a_key_go_where_a_change_of_it_is_under_way() {
        let order = Arc::<ChangesInProgress>::default();
        assert_eq!(order.thread_for(b"key", 2), 2);
        let (thread, first) = order.claim(b"key", 1);
        assert_eq!((thread, order.thread_for(b"key", 2), order.thread_for(b"other", 2)), (1, 1, 2));
        let (thread, second) = order.claim(b"key", 2);
        assert_eq!(thread, 1);
        drop(first);
        assert_eq!(order.thread_for(b"key", 2), 1, "the other is still under way");
        drop(second);
        assert_eq!(order.thread_for(b"key", 2), 2);
        assert_eq!(order.claim(b"key", 0).0, 0);
        assert_eq!(order.claim(b"key", 3).0, 3);
    }
}
