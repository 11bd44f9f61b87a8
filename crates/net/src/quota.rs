//! Log lines about single requests and connections that were refused or failed: so many a minute and no more.
//!
//! Who sends requests and makes connections decides how many such lines there would be: a scanner could fill the disk with them.
//! What is left out is counted, for somebody to say.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::source::counted;

/// How many lines there were in this minute, of the whole process.
#[derive(Debug)]
pub struct Quota {
    most: u32,
    ipv6_prefix: u8,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    /// In milliseconds of [`strowger_core::Now::mono`].
    began: u64,
    said: u32,
    /// Lines of each source: there are no more sources than lines.
    sources: HashMap<IpAddr, u32>,
    /// Since it was last asked for.
    left_out: u64,
    asked: u64,
}

const MINUTE: u64 = 60_000;

impl Quota {
    /// So many lines a minute, and of one source a tenth: a loud one hides no other. Of IPv6 a source is a network of so many
    /// bits.
    pub fn new(most: u32, ipv6_prefix: u8) -> Self {
        Self { most, ipv6_prefix, minute: Mutex::default() }
    }

    /// Whether a line about this source may be written at `now` (milliseconds). If not it is counted.
    pub fn may_say(&self, source: IpAddr, now: u64) -> bool {
        let source = counted(source, self.ipv6_prefix);
        let mut minute = self.minute();
        if now >= minute.began.saturating_add(MINUTE) {
            (minute.began, minute.said, minute.sources) = (now, 0, HashMap::new());
        }
        let of_source = minute.sources.get(&source).copied().unwrap_or(0);
        if minute.said >= self.most || of_source >= self.most.div_ceil(10) {
            minute.left_out += 1;
            return false;
        }
        minute.said += 1;
        minute.sources.insert(source, of_source + 1);
        true
    }

    /// How many lines were left out since this was last answered, once a minute; to be asked now and then. 0: nothing is to be said.
    pub fn left_out(&self, now: u64) -> u64 {
        let mut minute = self.minute();
        if now < minute.asked.saturating_add(MINUTE) {
            return 0;
        }
        minute.asked = now;
        std::mem::take(&mut minute.left_out)
    }

    fn minute(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
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
        let quota = Quota::new(20, 64);
        let said = |source, now| (0..50).filter(|_| quota.may_say(ip(source), now)).count();
        assert_eq!(said(1, 5), 2);
        // Many sources together have no more than all.
        assert_eq!((2..100).map(|source| said(source, 10_000)).sum::<usize>(), 18);
        assert_eq!(quota.minute().sources.len(), 10);
        assert_eq!(quota.left_out(59_999), 0, "the minute is not over");
        assert_eq!(quota.left_out(60_000), 99 * 50 - 20);
        assert_eq!(quota.left_out(120_000), 0, "said once");
        assert_eq!(said(1, 130_000), 2);
        assert_eq!(said(1, 200_000), 2, "another minute");
        assert_eq!(quota.left_out(200_000), 2 * 48);
    }

    #[test]
    fn few_lines_and_none() {
        let quota = Quota::new(3, 64);
        assert!(quota.may_say(ip(1), 0) && !quota.may_say(ip(1), 0) && quota.may_say(ip(2), 0));
        let silent = Quota::new(0, 64);
        assert!(!silent.may_say(ip(1), 0));
        assert_eq!(silent.left_out(u64::MAX), 1);
    }
}
