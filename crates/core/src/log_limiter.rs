//! Rate limit of log lines about single requests and connections that were refused or failed.
//!
//! Peers decide the number of such lines by the requests and connections that they send: a scanner could fill the disk. Suppressed lines
//! are counted by kind, and the counts are logged.

use crate::source::counted;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Subject of a line. Each subject has its own share of lines, so that frequent lines of one subject do not suppress
/// those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogSubject {
    /// Connection that failed, or without a valid message.
    Connection,
    /// Message that could not be sent, or had no answer.
    Forwarding,
    /// Scanner, dropped.
    Scanner,
    /// Request that violates the RFC.
    Malformed,
    /// Credentials that were refused.
    Authentication,
    /// REGISTER that was refused.
    Registration,
    /// Another request that was refused.
    Request,
    /// Failed look-up of a name or a subscriber.
    Lookup,
}

const KINDS: usize = LogSubject::ALL.len();

impl LogSubject {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Connection,
        Self::Forwarding,
        Self::Scanner,
        Self::Malformed,
        Self::Authentication,
        Self::Registration,
        Self::Request,
        Self::Lookup,
    ];
}

/// Counters of the lines of the current minute, for the whole process.
#[derive(Debug)]
pub struct LogLimiter {
    most: AtomicU32,
    ipv6_prefix: u8,
    minute: Mutex<Minute>,
}

#[derive(Debug, Default)]
struct Minute {
    /// Start in milliseconds of [`crate::Now::mono`].
    began: u64,
    said: [u32; KINDS],
    /// Number of lines of each source and kind; there are no more entries than lines.
    sources: HashMap<(IpAddr, LogSubject), u32>,
    /// Suppressed lines since the last report.
    suppressed: Suppressed,
    asked: u64,
}

/// Suppressed lines by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suppressed([u64; KINDS]);

impl Suppressed {
    /// Returns the number of all kinds.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of this kind.
    pub fn of(&self, kind: LogSubject) -> u64 {
        self.0[kind as usize]
    }
}

const MINUTE: u64 = 60_000;

impl LogLimiter {
    /// Creates a limiter with a maximum of lines per minute. One source may write a tenth of the lines for one kind, so
    /// that it cannot suppress the lines of other sources. Half of the lines is reserved for the kinds in equal parts,
    /// so that frequent lines of one kind cannot suppress the other kinds. A source of IPv6 is a network of
    /// `ipv6_prefix` bits.
    pub fn new(most: u32, ipv6_prefix: u8) -> Self {
        Self { most: most.into(), ipv6_prefix, minute: Mutex::default() }
    }

    /// Sets the maximum of lines per minute.
    pub fn set(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    /// Tells whether a line of this kind about this source may be written at `now` (milliseconds). If not, counts the
    /// line as suppressed.
    pub fn allow(&self, kind: LogSubject, source: IpAddr, now: u64) -> bool {
        let (key, most) = ((counted(source, self.ipv6_prefix), kind), self.most.load(Relaxed));
        let mut minute = self.minute();
        if now >= minute.began.saturating_add(MINUTE) {
            (minute.began, minute.said, minute.sources) = (now, [0; KINDS], HashMap::new());
        }
        let of_source = minute.sources.get(&key).copied().unwrap_or(0);
        if of_source >= most.div_ceil(10) || !has_room(&minute.said, kind, most) {
            minute.suppressed.0[kind as usize] += 1;
            return false;
        }
        minute.said[kind as usize] += 1;
        minute.sources.insert(key, of_source + 1);
        true
    }

    /// Returns once a minute the lines that were suppressed since the last report. To be called periodically.
    pub fn suppressed(&self, now: u64) -> Suppressed {
        let mut minute = self.minute();
        if now < minute.asked.saturating_add(MINUTE) {
            return Suppressed::default();
        }
        minute.asked = now;
        std::mem::take(&mut minute.suppressed)
    }

    fn minute(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether another line of this kind leaves the reserves of the other kinds free.
fn has_room(said: &[u32; KINDS], kind: LogSubject, most: u32) -> bool {
    let kept = most / (2 * KINDS as u32);
    let taken = said.iter().enumerate().map(|(of, said)| if of == kind as usize { *said } else { kept.max(*said) });
    taken.sum::<u32>() < most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn a_source_has_a_tenth_of_all_lines_for_each_kind() {
        let log_limiter = LogLimiter::new(160, 64);
        let said = |kind, source, now| (0..50).filter(|_| log_limiter.allow(kind, ip(source), now)).count();
        assert_eq!(said(LogSubject::Scanner, 1, 5), 16);
        assert_eq!(said(LogSubject::Authentication, 1, 5), 16, "scans hide no guesses");
        // Many sources together may write all lines except the reserves of the six kinds that have no line yet.
        assert_eq!((2..100).map(|source| said(LogSubject::Scanner, source, 10_000)).sum::<usize>(), 160 - 32 - 60);
        assert!(log_limiter.minute().sources.len() <= 100);
        assert_eq!(said(LogSubject::Scanner, 200, 10_000), 0);
        // Each other kind has its part, even after many lines of all kinds.
        assert_eq!(said(LogSubject::Malformed, 200, 10_000), 10);
        assert_eq!(said(LogSubject::Authentication, 200, 10_000), 0);
        for kind in [
            LogSubject::Connection,
            LogSubject::Forwarding,
            LogSubject::Registration,
            LogSubject::Request,
            LogSubject::Lookup,
        ] {
            assert_eq!(said(kind, 300, 10_000), 10);
        }
        assert_eq!(log_limiter.minute().said.iter().sum::<u32>(), 160);
        assert_eq!(log_limiter.suppressed(59_999), Suppressed::default(), "the minute is not over");
        let suppressed = log_limiter.suppressed(60_000);
        assert_eq!(suppressed.of(LogSubject::Scanner), 100 * 50 - 16 - 68);
        assert_eq!((suppressed.of(LogSubject::Authentication), suppressed.of(LogSubject::Malformed)), (84, 40));
        assert_eq!(log_limiter.suppressed(120_000), Suppressed::default(), "said once");
        assert_eq!(said(LogSubject::Scanner, 1, 130_000), 16);
        assert_eq!(said(LogSubject::Scanner, 1, 200_000), 16, "another minute");
        assert_eq!(log_limiter.suppressed(200_000).of(LogSubject::Scanner), 2 * 34);
    }

    #[test]
    fn few_lines_and_none() {
        let log_limiter = LogLimiter::new(3, 64);
        let may_say = |source| log_limiter.allow(LogSubject::Request, ip(source), 0);
        assert_eq!([1, 1, 2, 3, 4].map(may_say), [true, false, true, true, false]);
        let silent = LogLimiter::new(0, 64);
        assert!(!silent.allow(LogSubject::Request, ip(1), 0));
        assert_eq!(silent.suppressed(u64::MAX).of(LogSubject::Request), 1);
    }
}
