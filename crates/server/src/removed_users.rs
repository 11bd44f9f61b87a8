//! Users whose accounts were removed while this process runs. Route tokens from before the removal are no proof for them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use strowger_core::Now;
use strowger_core::routing::seconds;

/// Maximum number of entries. One more replaces the oldest.
const MOST: usize = 65_536;

/// Removed users by their address-of-record, each with the Unix second of the removal.
#[derive(Debug, Default)]
pub struct RemovedUsers {
    /// Whether the table has entries. Read without the lock.
    any: AtomicBool,
    users: Mutex<HashMap<Box<[u8]>, u32>>,
}

impl RemovedUsers {
    /// Adds a user who was removed at `now`. `lifetime`: lifetime of route tokens in seconds, after which the entry is dropped.
    pub fn note(&self, aor: &[u8], now: Now, lifetime: u32) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seconds(now);
        users.retain(|_, at| now.wrapping_sub(*at).cast_signed() <= lifetime.cast_signed());
        if users.len() >= MOST
            && let Some(oldest) = users.iter().max_by_key(|(_, at)| now.wrapping_sub(**at)).map(|(aor, _)| aor.clone())
        {
            users.remove(&oldest);
        }
        users.insert(aor.into(), now);
        self.any.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Returns whether this user was removed at or after `made` (Unix seconds). A later account of the same name is a new user.
    pub(crate) fn is_removed(&self, aor: &[u8], made: u32) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.get(aor).is_some_and(|at| at.wrapping_sub(made).cast_signed() >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_users_are_known_for_as_long_as_route_tokens_last() {
        let at = |second: u64| Now { mono: 0, wall: second * 1_000 };
        let users = RemovedUsers::default();
        assert!(users.is_empty() && !users.is_removed(b"alice@example.org", 100));
        users.note(b"alice@example.org", at(100), 60);
        assert!(!users.is_empty());
        for (made, is_removed) in [(0, true), (99, true), (100, true), (101, false)] {
            assert_eq!(users.is_removed(b"alice@example.org", made), is_removed, "{made}");
            assert!(!users.is_removed(b"bob@example.org", made));
        }
        users.note(b"bob@example.org", at(160), 60);
        assert!(users.is_removed(b"alice@example.org", 99));
        users.note(b"carol@example.org", at(161), 60);
        assert!(!users.is_removed(b"alice@example.org", 99) && users.is_removed(b"bob@example.org", 99));
        for n in 0..=MOST {
            users.note(n.to_string().as_bytes(), at(162), 60);
        }
        assert_eq!(users.users.lock().expect("no thread failed").len(), MOST);
        assert!(!users.is_removed(b"bob@example.org", 99), "it was removed first");
    }
}
