//! Thread that watches the database for changes, and voids changed answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Changes, Key, Shared, StopOnDrop, Watch};
use crate::error::StoreError;

impl<K: Key> Shared<K> {
    /// Voids the answers to these questions, including those on their way. Returns how many were cached.
    pub(super) fn void(&self, keys: &[K]) -> usize {
        let void = |key: &&K| {
            self.flights.void(self.cache.hash(*key), key);
            self.cache.void(key)
        };
        keys.iter().filter(void).count()
    }

    /// Voids changed answers. If the changes are unknown, the engine counts as silent.
    pub(super) fn hear(&self, changes: Result<Changes<K>, StoreError>) {
        match changes {
            Err(_) => return self.is_silent.store(true, Ordering::Relaxed),
            Ok(Changes::None) => {}
            Ok(Changes::Of(keys)) => {
                let voided = self.void(&keys);
                self.figures.voided.fetch_add(voided as u64, Ordering::Relaxed);
            }
            Ok(Changes::All) => {
                self.flights.void_all();
                self.cache.doubt();
                self.figures.doubted.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.is_broken() {
            self.flights.probe_now();
        }
    }
}

/// Polls the watch, and voids changed answers.
pub(super) fn watch<K: Key>(shared: &Arc<Shared<K>>, mut watch: Box<dyn Watch<Key = K>>) {
    let _stop = StopOnDrop(shared.clone());
    loop {
        let asked = catch_unwind(AssertUnwindSafe(|| watch.changes())).unwrap_or_else(|_| {
            tracing::error!(of = shared.settings.name, "asking the database what has changed panicked");
            Err(StoreError::Refused)
        });
        let is_known = asked.is_ok();
        shared.hear(asked);
        if is_known {
            watch.voided();
        }
        if !shared.flights.wait_poll() {
            return;
        }
    }
}
