//! Sources that fail to authenticate too often, and scanners, are not listened to for a while.

use crate::config;
use hashbrown::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The ban list of the process.
pub struct Bans {
    settings: config::Ban,
    parts: Box<[Mutex<HashMap<IpAddr, Record, foldhash::quality::RandomState>>]>,
    hasher: foldhash::quality::RandomState,
    /// How many sources are banned: while it is 0 nobody looks further.
    banned: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// When the counted failures began, in milliseconds of [`strowger_core::Now::mono`].
    since: u64,
    failures: u32,
    /// Banned until then; 0: not.
    until: u64,
}

/// What became of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Counted(u32),
    /// This failure was one too many.
    Banned,
    Exempt,
}

const PARTS: usize = 64;

impl Bans {
    pub fn new(settings: config::Ban) -> Self {
        Self {
            settings,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::quality::RandomState::default(),
            banned: AtomicUsize::new(0),
        }
    }

    /// Is this source banned at `now` (milliseconds)?
    #[inline]
    pub fn is_banned(&self, source: IpAddr, now: u64) -> bool {
        self.banned.load(Relaxed) > 0 && self.look(source, now)
    }

    #[cold]
    fn look(&self, source: IpAddr, now: u64) -> bool {
        let mut part = self.part(source);
        match part.get(&source) {
            Some(record) if record.until > now => true,
            Some(record) if record.until > 0 => {
                part.remove(&source);
                self.banned.fetch_sub(1, Relaxed);
                false
            }
            _ => false,
        }
    }

    /// One more failed authentication of this source.
    pub fn failed(&self, source: IpAddr, now: u64) -> Standing {
        let window = self.settings.window.as_millis() as u64;
        self.record(source, now, |record| {
            if now.saturating_sub(record.since) > window {
                (record.since, record.failures) = (now, 0);
            }
            record.failures += 1;
            record.failures
        })
    }

    /// A scanner: banned at once.
    pub fn scanner(&self, source: IpAddr, now: u64) -> Standing {
        self.record(source, now, |_| u32::MAX)
    }

    fn record(&self, source: IpAddr, now: u64, count: impl FnOnce(&mut Record) -> u32) -> Standing {
        if !self.settings.enabled || self.settings.exempt.iter().any(|n| n.contains(source)) {
            return Standing::Exempt;
        }
        let most = (self.settings.sources / PARTS).max(1);
        let mut part = self.part(source);
        if part.len() >= most && !part.contains_key(&source) {
            // The bound holds: whoever was counted longest ago goes, banned ones last.
            if let Some(oldest) = part.iter().min_by_key(|(_, r)| (r.until > now, r.since)).map(|(s, _)| *s)
                && part.remove(&oldest).is_some_and(|r| r.until > 0)
            {
                self.banned.fetch_sub(1, Relaxed);
            }
        }
        let record = part.entry(source).or_insert(Record { since: now, failures: 0, until: 0 });
        let failures = count(record);
        if failures < self.settings.failures {
            return Standing::Counted(failures);
        }
        if record.until == 0 {
            self.banned.fetch_add(1, Relaxed);
        }
        record.until = now + self.settings.duration.as_millis() as u64;
        record.failures = 0;
        Standing::Banned
    }

    /// Is this the User-Agent of a scanner?
    pub fn is_scanner(&self, user_agent: &[u8]) -> bool {
        self.settings.enabled
            && self
                .settings
                .scanners
                .iter()
                .any(|s| !s.is_empty() && user_agent.windows(s.len()).any(|w| w.eq_ignore_ascii_case(s.as_bytes())))
    }

    /// Forgets what is over. Returns how many sources are banned.
    pub fn tidy(&self, now: u64) -> usize {
        let window = self.settings.window.as_millis() as u64;
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(|e| e.into_inner());
            part.retain(|_, r| {
                let stays = if r.until > 0 { r.until > now } else { now.saturating_sub(r.since) <= window };
                if !stays && r.until > 0 {
                    self.banned.fetch_sub(1, Relaxed);
                }
                stays
            });
            if part.is_empty() {
                part.shrink_to_fit();
            }
        }
        self.banned.load(Relaxed)
    }

    fn part(
        &self,
        source: IpAddr,
    ) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Record, foldhash::quality::RandomState>> {
        use std::hash::BuildHasher;
        let part = &self.parts[self.hasher.hash_one(source) as usize % PARTS];
        part.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn bans(sources: usize) -> Bans {
        let window = Duration::from_secs(10);
        let duration = Duration::from_secs(60);
        Bans::new(config::Ban { failures: 3, window, duration, exempt: Vec::new(), sources, ..config::Ban::default() })
    }

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn three_failures_in_a_window_ban_for_a_while() {
        let bans = bans(1000);
        assert_eq!(bans.failed(ip(1), 0), Standing::Counted(1));
        assert_eq!(bans.failed(ip(1), 11_000), Standing::Counted(1));
        assert_eq!(bans.failed(ip(1), 12_000), Standing::Counted(2));
        assert!(!bans.is_banned(ip(1), 12_000));
        assert_eq!(bans.failed(ip(1), 13_000), Standing::Banned);
        assert!(bans.is_banned(ip(1), 13_000) && !bans.is_banned(ip(2), 13_000));
        assert!(bans.is_banned(ip(1), 72_999) && !bans.is_banned(ip(1), 73_000));
        assert_eq!(bans.tidy(200_000), 0);
    }

    #[test]
    fn exempt_networks_and_scanners() {
        let exempt = Bans::new(config::Ban::default());
        assert_eq!(exempt.scanner("127.0.0.1".parse().unwrap(), 0), Standing::Exempt);
        assert!(exempt.is_scanner(b"Friendly-Scanner/1") && !exempt.is_scanner(b"Linphone"));
        assert_eq!(bans(1000).scanner(ip(9), 0), Standing::Banned);
    }

    #[test]
    fn the_list_is_bounded() {
        let bans = bans(PARTS);
        for n in 0..10_000 {
            bans.failed(ip(n), n as u64);
        }
        let held: usize = bans.parts.iter().map(|p| p.lock().unwrap().len()).sum();
        assert!(held <= PARTS, "{held}");
    }
}
