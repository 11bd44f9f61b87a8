//! Next hops that failed: for a while other next hops are tried before them (RFC 3263 section 4.3).
//!
//! A target is a next hop by one transport and, if the transport is secure, by the name that the next hop proves. The
//! server sets a target aside in four cases: a request to it had no response at all, no connection to it could be made,
//! an ICMP error that quotes such a request reports it unreachable, or the target itself refuses requests by a 503 with
//! Retry-After. A response of another host does not count. A failure to send that this machine has caused does not
//! count either. Contacts of users are never set aside: a silent phone is away, which the expiry of its registration
//! and the end of its flow show (RFC 5626), and no other address replaces it.
//!
//! When the time of a target is over, one request may try it again. For other requests the target remains aside until a
//! response has arrived, or the same time has passed once more. Any response removes the target from the table, unless
//! the target itself has set the time by Retry-After.

use hashbrown::HashMap;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::proxy::TargetFailure;
use strowger_core::{PeerName, Target, Transport};

/// Targets of the process that failed. A lock is held only for the access to one target. Times are milliseconds of
/// [`strowger_core::Now::mono`].
pub(crate) struct TargetQuarantine {
    parts: Box<[Mutex<Part>]>,
    hasher: foldhash::quality::RandomState,
    /// Number of targets. If it is zero, a look-up costs one load.
    held: AtomicUsize,
}

type Part = HashMap<Key, Record, foldhash::quality::RandomState>;

/// Key of a target; its connection is no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    transport: Transport,
    address: SocketAddr,
    name: Option<PeerName>,
}

impl Key {
    const fn of(target: &Target) -> Self {
        Self { transport: target.transport, address: target.address, name: target.name }
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    failure: TargetFailure,
    /// Time for which the target was set aside last.
    time: u64,
    /// End of that time.
    until: u64,
    /// Set while one request tries the target again.
    is_tried: bool,
}

/// Target that is set aside, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantinedTarget {
    /// Transport of the target.
    pub transport: Transport,
    /// Address of the target.
    pub address: SocketAddr,
    /// Reason for which it is set aside.
    pub failure: TargetFailure,
    /// Milliseconds until the target may be tried again; 0 if the next request may try it.
    pub left: u64,
}

/// Times for which targets are set aside, in milliseconds, and their maximum number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time for targets that were silent or not reached.
    pub(crate) failed: u64,
    /// Maximum time for targets that refused requests themselves.
    pub(crate) said: u64,
    /// Maximum number of targets.
    pub(crate) most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Aside,
    /// Ready for one request to try it.
    Due,
}

const PARTS: usize = 64;

/// Multiple of the time of a target after which the target is forgotten if no request has tried it again.
const FORGOTTEN: u64 = 10;

impl TargetQuarantine {
    pub(crate) fn new() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::quality::RandomState::default(),
            held: AtomicUsize::new(0),
        }
    }

    /// Tells whether any target is on the table.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    /// Returns the number of targets on the table.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Notes that a target has failed. Returns the milliseconds for which this failure sets the target aside; `None` if
    /// the target is set aside already, or must not be.
    pub(crate) fn fails(&self, target: &Target, failure: TargetFailure, now: u64, times: Times) -> Option<u64> {
        let time = match failure {
            TargetFailure::NoTcp => return None,
            TargetFailure::Silent | TargetFailure::Unsent => times.failed,
            TargetFailure::Unavailable { seconds } => (u64::from(seconds) * 1_000).min(times.said),
        };
        if time == 0 {
            return None;
        }
        let key = Key::of(target);
        let mut part = self.part(&key);
        let record = Record { failure, time, until: now + time, is_tried: false };
        if let Some(before) = part.get_mut(&key) {
            // Requests that were in progress when the target was set aside fail one after the other: they do not
            // prolong its time. A longer time that the target itself names does.
            let goes_on = before.until > now && !before.is_tried;
            let is_longer = matches!(failure, TargetFailure::Unavailable { .. }) && record.until > before.until;
            if goes_on && !is_longer {
                return None;
            }
            *before = record;
            return Some(time);
        }
        if self.held() >= times.most {
            return None;
        }
        part.insert(key, record);
        self.held.fetch_add(1, Relaxed);
        Some(time)
    }

    /// Notes that a target has answered. Returns whether the answer removed the target from the table.
    #[inline]
    pub(crate) fn answers(&self, target: &Target, now: u64) -> bool {
        self.holds_any() && self.take_off(target, now)
    }

    #[cold]
    fn take_off(&self, target: &Target, now: u64) -> bool {
        let key = Key::of(target);
        let mut part = self.part(&key);
        // A target that refuses new requests for a while still answers those of existing calls.
        let stays = |record: &Record| matches!(record.failure, TargetFailure::Unavailable { .. }) && record.until > now;
        let goes = part.get(&key).is_some_and(|record| !stays(record));
        if goes {
            part.remove(&key);
            self.held.fetch_sub(1, Relaxed);
        }
        goes
    }

    /// Moves the targets of one candidate that are set aside after the other targets. The order is otherwise unchanged,
    /// and also if all targets are set aside. `may_try`: whether the first target is tried now; it may be one whose
    /// time is over, which this request then tries again. Returns whether the first target is not set aside.
    #[inline]
    pub(crate) fn order(&self, targets: &mut [Target], now: u64, may_try: bool) -> bool {
        !self.holds_any() || self.sort(targets, now, may_try)
    }

    #[cold]
    fn sort(&self, targets: &mut [Target], now: u64, may_try: bool) -> bool {
        let mut free = 0;
        for at in 0..targets.len() {
            let is_free = match self.state(&targets[at], now) {
                State::Free => true,
                State::Aside => false,
                // Only the first target is certain to be tried.
                State::Due => free == 0 && may_try && self.try_again(&targets[at], now),
            };
            if is_free {
                targets[free..=at].rotate_right(1);
                free += 1;
            }
        }
        free > 0
    }

    fn state(&self, target: &Target, now: u64) -> State {
        let key = Key::of(target);
        match self.part(&key).get(&key) {
            Some(record) if record.until > now => State::Aside,
            // The time that the target named in its refusal is over.
            Some(Record { failure: TargetFailure::Unavailable { .. }, .. }) | None => State::Free,
            Some(_) => State::Due,
        }
    }

    /// Tells whether this request is the one that tries the target again.
    fn try_again(&self, target: &Target, now: u64) -> bool {
        let key = Key::of(target);
        let mut part = self.part(&key);
        // Another shard may have changed the time first.
        let Some(record) = part.get_mut(&key).filter(|record| record.until <= now) else { return false };
        (record.until, record.is_tried) = (now + record.time, true);
        true
    }

    /// Lists targets on the table, `most` of them at most.
    pub(crate) fn list(&self, now: u64, most: usize) -> Vec<QuarantinedTarget> {
        let mut list = Vec::new();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let aside = |(key, record): (&Key, &Record)| QuarantinedTarget {
                transport: key.transport,
                address: key.address,
                failure: record.failure,
                left: record.until.saturating_sub(now),
            };
            list.extend(part.iter().map(aside).take(most - list.len()));
        }
        list
    }

    /// Forgets targets that refused requests for a time that is over, and targets that no request has tried for long.
    pub(crate) fn tidy(&self, now: u64) {
        if !self.holds_any() {
            return;
        }
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let before = part.len();
            part.retain(|_, record| {
                let beyond = match record.failure {
                    TargetFailure::Unavailable { .. } | TargetFailure::NoTcp => 0,
                    TargetFailure::Silent | TargetFailure::Unsent => FORGOTTEN * record.time,
                };
                record.until + beyond > now
            });
            self.held.fetch_sub(before - part.len(), Relaxed);
            if part.is_empty() {
                part.shrink_to_fit();
            }
        }
    }

    fn part(&self, key: &Key) -> MutexGuard<'_, Part> {
        let part = &self.parts[self.hasher.hash_one(key) as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::ListenerId;

    const TIMES: Times = Times { failed: 30_000, said: 300_000, most: 6_400 };
    const SILENT: TargetFailure = TargetFailure::Silent;

    fn at(port: u16) -> Target {
        Target::new(Transport::Udp, ListenerId(0), SocketAddr::from(([192, 0, 2, 1], port)))
    }

    /// Returns the ports of three targets in the order in which they are tried.
    fn ports(table: &TargetQuarantine, now: u64, may_try: bool) -> [u16; 3] {
        let mut targets = [1, 2, 3].map(at);
        table.order(&mut targets, now, may_try);
        targets.map(|target| target.address.port())
    }

    #[test]
    fn a_target_that_fails_is_tried_last_and_again_by_one_request() {
        let table = TargetQuarantine::new();
        assert_eq!(ports(&table, 0, true), [1, 2, 3]);
        assert_eq!(table.fails(&at(1), SILENT, 0, TIMES), Some(30_000));
        assert_eq!(table.fails(&at(1), SILENT, 20_000, TIMES), None, "of a request that was under way");
        assert_eq!(ports(&table, 29_999, true), [2, 3, 1]);
        assert_eq!(ports(&table, 30_000, false), [2, 3, 1], "what needs an answer tries it");
        assert_eq!(ports(&table, 30_000, true), [1, 2, 3]);
        assert_eq!(ports(&table, 30_001, true), [2, 3, 1], "one request");
        assert_eq!(table.fails(&at(1), SILENT, 32_000, TIMES), Some(30_000));
        assert_eq!(ports(&table, 61_999, true), [2, 3, 1]);
        assert_eq!(ports(&table, 62_000, true), [1, 2, 3]);
        assert!(table.answers(&at(1), 62_100) && !table.answers(&at(1), 62_100));
        assert_eq!((ports(&table, 62_100, true), table.held()), ([1, 2, 3], 0));
    }

    /// Checks that a trial request whose outcome is unknown, since its caller has cancelled it, is followed by another
    /// trial.
    #[test]
    fn a_trial_without_an_end_is_followed_by_another() {
        let table = TargetQuarantine::new();
        table.fails(&at(1), SILENT, 0, TIMES);
        assert_eq!(ports(&table, 30_000, true), [1, 2, 3]);
        assert_eq!([59_999, 60_000].map(|now| ports(&table, now, true)), [[2, 3, 1], [1, 2, 3]]);
    }

    #[test]
    fn their_order_stays_where_all_are_set_aside_or_another_is_before() {
        let table = TargetQuarantine::new();
        for port in [2, 3] {
            table.fails(&at(port), SILENT, 0, TIMES);
        }
        assert_eq!(ports(&table, 1, true), [1, 2, 3]);
        assert_eq!(ports(&table, 40_000, true), [1, 2, 3]);
        assert!(table.order(&mut [at(2)], 40_000, true), "nothing was claimed for one that is not tried");
        for port in [1, 3] {
            table.fails(&at(port), SILENT, 40_001, TIMES);
        }
        assert_eq!(ports(&table, 40_002, true), [1, 2, 3]);
    }

    #[test]
    fn a_target_by_another_transport_or_name_is_another() {
        let table = TargetQuarantine::new();
        let tls = |name: Option<u32>| {
            let name = name.map(|n| PeerName(std::num::NonZeroU32::new(n).expect("it is not 0")));
            Target { transport: Transport::Tls, name, ..at(1) }
        };
        table.fails(&tls(Some(7)), TargetFailure::Unsent, 0, TIMES);
        for other in [at(1), tls(None), tls(Some(8))] {
            assert!(table.order(&mut [other], 1, true) && !table.answers(&other, 1), "{other:?}");
        }
        assert!(!table.order(&mut [tls(Some(7))], 1, true));
    }

    /// Checks RFC 3261 section 21.5.4: a target that refuses requests for a time is set aside for that time up to a
    /// maximum. The target answers the BYEs of its calls meanwhile.
    #[test]
    fn one_that_says_for_how_long_is_left_in_peace_so_long_and_no_longer_than_may_be() {
        let table = TargetQuarantine::new();
        let unavailable = |seconds| TargetFailure::Unavailable { seconds };
        assert_eq!(table.fails(&at(1), unavailable(120), 0, TIMES), Some(120_000));
        assert!(!table.answers(&at(1), 1_000));
        assert_eq!([119_999, 120_000, 120_001].map(|now| ports(&table, now, true)), [[2, 3, 1], [1, 2, 3], [1, 2, 3]]);
        assert_eq!(table.fails(&at(2), unavailable(u32::MAX), 0, TIMES), Some(300_000));
        assert_eq!(table.fails(&at(3), unavailable(0), 0, TIMES), None);
        table.tidy(120_000);
        assert_eq!(table.held(), 1);
        let never = Times { failed: 0, said: 0, most: 10 };
        let none = [SILENT, unavailable(9)].map(|failure| table.fails(&at(4), failure, 0, never));
        assert_eq!(none, [None, None]);
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let table = TargetQuarantine::new();
        for port in 0..u16::MAX {
            table.fails(&at(port), SILENT, 0, TIMES);
        }
        assert_eq!((table.held(), table.list(0, 10).len()), (6_400, 10));
        table.tidy(300_000);
        assert_eq!(table.held(), 6_400);
        table.tidy(330_000);
        assert_eq!(table.held(), 0);
    }
}
