//! Log lines about single requests that were refused or failed: so many a minute and no more.
//!
//! Who sends requests decides how many such lines there would be: a scanner could fill the disk with them. What is left out is
//! counted, and the number said. Bans have lines of their own, which are few.

use crate::asked::Asked;
use crate::shard::Shard;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines there were in this minute, of the whole process.
#[derive(Debug)]
pub struct Refusals {
    most: u32,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    /// In milliseconds of [`strowger_core::Now::mono`].
    began: u64,
    said: u32,
    /// Lines of each source: there are no more sources than lines.
    sources: HashMap<IpAddr, u32>,
    left_out: u64,
}

const MINUTE: u64 = 60_000;

impl Refusals {
    /// So many lines a minute, and of one source a tenth: whoever is loud hides nobody else.
    pub fn new(most: u32) -> Self {
        Self { most, minute: Mutex::default() }
    }

    /// Whether a line about this source may be written at `now` (milliseconds). If not it is counted.
    pub fn may_say(&self, source: IpAddr, now: u64) -> bool {
        self.tidy(now);
        let mut minute = self.minute();
        let of_source = minute.sources.get(&source).copied().unwrap_or(0);
        if minute.said >= self.most || of_source >= self.most.div_ceil(10) {
            minute.left_out += 1;
            return false;
        }
        minute.said += 1;
        minute.sources.insert(source, of_source + 1);
        true
    }

    /// Says how many lines a minute that is over has left out; to be called now and then. Returns the number.
    pub fn tidy(&self, now: u64) -> u64 {
        let left_out = {
            let mut minute = self.minute();
            if now < minute.began.saturating_add(MINUTE) {
                return 0;
            }
            std::mem::replace(&mut *minute, Minute { began: now, ..Minute::default() }).left_out
        };
        if left_out > 0 {
            tracing::warn!(
                lines = left_out,
                "requests were refused or failed that no line says: log.refusals_per_minute"
            );
        }
        left_out
    }

    fn minute(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Whether a line may be written about this request.
    pub(crate) fn may_say(&self, asked: &Asked<'_, '_>) -> bool {
        self.shared.refusals.may_say(asked.request.arrival.remote.ip(), asked.now.mono)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn a_source_has_a_tenth_of_all_lines() {
        let refusals = Refusals::new(20);
        let said = |source, now| (0..50).filter(|_| refusals.may_say(ip(source), now)).count();
        assert_eq!(said(1, 5), 2);
        // Many sources together have no more than all.
        assert_eq!((2..100).map(|source| said(source, 10_000)).sum::<usize>(), 18);
        assert_eq!(refusals.minute().sources.len(), 10);
        assert_eq!(refusals.tidy(59_999), 0, "the minute is not over");
        assert_eq!(refusals.tidy(60_000), 99 * 50 - 20);
        assert_eq!(refusals.tidy(120_000), 0, "said once");
        assert_eq!(said(1, 130_000), 2);
        // Nobody has tidied: the next line does.
        assert_eq!(said(1, 200_000), 2);
        assert_eq!(refusals.minute().left_out, 48);
    }

    #[test]
    fn few_lines_and_none() {
        let refusals = Refusals::new(3);
        assert!(refusals.may_say(ip(1), 0) && !refusals.may_say(ip(1), 0) && refusals.may_say(ip(2), 0));
        let silent = Refusals::new(0);
        assert!(!silent.may_say(ip(1), 0));
        assert_eq!(silent.tidy(u64::MAX), 1);
    }
}
