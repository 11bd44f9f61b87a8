//! Users whose accounts were removed while this process runs. Route tokens from before the removal are no proof for them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use strowger_core::Now;
use strowger_core::routing::AccountHash;

/// Maximum number of entries. A further entry replaces the oldest.
const MOST: usize = 65_536;

/// Removed users, each with the moment of the removal ([`Now::mono`]), which does not change if the wall clock is
/// stepped. Entries do not expire, because refreshes of a dialog can keep its old route token in use for any time.
#[derive(Debug, Default)]
pub struct RemovedUsers {
    /// Set once there was a removal. It is read without the lock.
    any: AtomicBool,
    users: Mutex<Removals>,
}

#[derive(Debug, Default)]
struct Removals {
    of_user: HashMap<AccountHash, u64>,
    /// Moment of the last removal.
    last: u64,
}

impl RemovedUsers {
    /// Adds a user who was removed at `now`.
    pub fn note(&self, account: AccountHash, now: Now) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.of_user.len() >= MOST
            && let Some(oldest) = users.of_user.iter().min_by_key(|(_, at)| **at).map(|(account, _)| *account)
        {
            users.of_user.remove(&oldest);
        }
        users.of_user.insert(account, now.mono);
        users.last = now.mono;
        self.any.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Returns whether this user was removed since a route token of this age (seconds) was written. A later account of
    /// the same name is a new user. With a negative age the user counts as removed, because a clock was set back at an
    /// unknown moment. If the account is `None`, the proof states no account and may belong to any removed user.
    pub(crate) fn is_removed(&self, account: Option<AccountHash>, now: Now, age: i32) -> bool {
        if self.is_empty() {
            return false;
        }
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = match account {
            Some(account) => users.of_user.get(&account).copied(),
            None => Some(users.last),
        };
        let since = |at: u64| (now.mono.saturating_sub(at) / 1_000).cast_signed();
        removed.is_some_and(|at| age < 0 || i64::from(age) >= since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strowger_core::routing::{Identity, Router};

    #[test]
    fn removed_users_are_known_by_their_account() {
        let router = Router::new(Arc::new(Identity::new(Vec::new(), ["example.org"], &[])), b"secret", 60);
        let account = |name: &str| router.account(name.as_bytes(), b"example.org");
        let (alice, bob) = (account("alice"), account("bob"));
        let at = |second: u64| Now { mono: second * 1_000, wall: 1_700_000_000_000 };
        let users = RemovedUsers::default();
        assert!(users.is_empty() && !users.is_removed(Some(alice), at(100), 9) && !users.is_removed(None, at(100), 9));
        users.note(alice, at(100));
        assert!(!users.is_empty());
        // Ten seconds later.
        for (age, is_removed) in [(110, true), (11, true), (10, true), (9, false), (0, false), (-1, true)] {
            assert_eq!(users.is_removed(Some(alice), at(110), age), is_removed, "{age}");
            assert_eq!(users.is_removed(None, at(110), age), is_removed, "{age}: no account is stated");
            assert!(!users.is_removed(Some(bob), at(110), age));
            assert!(!users.is_removed(Some(AccountHash::NONE), at(110), age));
        }
        users.note(bob, at(100_000_000));
        assert!(users.is_removed(Some(alice), at(100_000_000), i32::MAX), "no time ends it");
        for n in 0..MOST - 1 {
            users.note(account(&n.to_string()), at(100_000_001));
        }
        assert_eq!(users.users.lock().expect("no thread failed").of_user.len(), MOST);
        assert!(!users.is_removed(Some(alice), at(100_000_001), i32::MAX), "she was removed first");
        assert!(users.is_removed(Some(bob), at(100_000_001), 1));
    }
}
