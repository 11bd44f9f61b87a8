//! Bans: sources that fail to authenticate too often, and scanners, are ignored for a while.
//!
//! Many sources may guess the password of one account without failing often enough for a ban of any one of them. Then
//! the account itself is marked as guessed: from a source that has failed once for the account, no further password is
//! judged until the guessing has been over for a while. A right password is always accepted from a source that has not
//! failed, so no user can be locked out of an account this way.

use crate::failure_threshold::{Count, FailureCounter, Rule};
use aho_corasick::AhoCorasick;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use strowger_config as config;
use strowger_core::source::counted;

/// Ban list of the process, under settings that may change. Times are milliseconds of [`strowger_core::Now::mono`].
pub struct Bans {
    settings: config::Ban,
    scanners: Option<AhoCorasick>,
    counts: Arc<Counts>,
}

/// Counts that outlast a change of settings.
struct Counts {
    ipv6_prefix: u8,
    sources: FailureCounter<IpAddr>,
    accounts: FailureCounter<AccountKey>,
    /// Sources that failed for an account while it was being guessed.
    suspects: FailureCounter<(IpAddr, AccountKey)>,
    hasher: foldhash::quality::RandomState,
}

/// Account for which a source tried to prove a password. Unknown users are treated like existing ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account<'a> {
    /// User name of the credentials, without a domain of this realm after it: all spellings of a name are one account.
    pub name: &'a [u8],
    /// Realm of the password. Each realm may have a user of this name.
    pub realm: &'a str,
}

/// Hash of an account.
type AccountKey = u64;

/// Result of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// True if this failure bans its source.
    pub banned: bool,
    /// True if with this failure the account begins to count as being guessed.
    pub guessed: bool,
}

/// Number of bytes of a User-Agent in which a scanner's name is searched: scanners write their names first.
const LOOKED_AT: usize = 256;

impl Bans {
    /// Creates an empty list that watches this number of sources, and as many users. `ipv6_prefix`: length in bits of
    /// the IPv6 prefix that counts as one source.
    pub fn new(settings: config::Ban, entries: usize, ipv6_prefix: u8) -> Self {
        let counts = Counts {
            ipv6_prefix,
            sources: FailureCounter::new(entries),
            accounts: FailureCounter::new(entries),
            suspects: FailureCounter::new(entries),
            hasher: Default::default(),
        };
        Self::of(settings, Arc::new(counts))
    }

    /// Returns the same list under other settings. A banned source remains banned for the duration that was set when
    /// its ban began.
    #[must_use]
    pub fn with_settings(&self, settings: config::Ban) -> Self {
        Self::of(settings, self.counts.clone())
    }

    fn of(settings: config::Ban, counts: Arc<Counts>) -> Self {
        let names: Vec<&String> = settings.scanners.iter().filter(|name| !name.is_empty()).collect();
        let scanners = AhoCorasick::builder().ascii_case_insensitive(true).build(&names);
        // There are no names to search for, or more names than an automaton can hold.
        let scanners = scanners.ok().filter(|_| settings.enabled && !names.is_empty());
        Self { settings, scanners, counts }
    }

    /// Tells whether this source is banned at `now`.
    #[inline]
    pub fn is_banned(&self, source: IpAddr, now: u64) -> bool {
        // An exempt source may share its network with a banned one.
        self.counts.sources.is_held(&counted(source, self.counts.ipv6_prefix), now) && !self.is_exempt(source)
    }

    /// Tells whether this source has failed for this account while the account is being guessed, so that its next
    /// password is not to be judged.
    #[inline]
    pub fn is_suspect(&self, source: IpAddr, account: Account<'_>, now: u64) -> bool {
        let key = || (counted(source, self.counts.ipv6_prefix), self.key(account));
        self.counts.suspects.holds_any() && self.counts.suspects.is_held(&key(), now) && !self.is_exempt(source)
    }

    /// Counts one more failed authentication of this source, as this user.
    pub fn failed(&self, source: IpAddr, account: Account<'_>, now: u64) -> Failure {
        if self.is_exempt(source) {
            return Failure { banned: false, guessed: false };
        }
        let (source, account) = (counted(source, self.counts.ipv6_prefix), self.key(account));
        let banned = self.counts.sources.fails(source, now, self.rule(self.settings.failures)) == Count::Begins;
        let count = self.counts.accounts.fails(account, now, self.rule(self.settings.account_failures));
        if count != Count::Goes {
            return Failure { banned, guessed: count == Count::Begins };
        }
        self.counts.suspects.fails((source, account), now, self.rule(1));
        Failure { banned, guessed: false }
    }

    /// Bans a scanner at once. Returns whether it was not banned before.
    pub fn scanner(&self, source: IpAddr, now: u64) -> bool {
        !self.is_exempt(source)
            && self.counts.sources.fails(counted(source, self.counts.ipv6_prefix), now, self.rule(1)) == Count::Begins
    }

    /// Tells whether this is the User-Agent of a scanner.
    pub fn is_scanner(&self, user_agent: &[u8]) -> bool {
        let start = &user_agent[..user_agent.len().min(LOOKED_AT)];
        self.scanners.as_ref().is_some_and(|names| names.is_match(start))
    }

    /// Returns the number of sources that are banned, or were until now.
    pub fn banned(&self) -> usize {
        self.counts.sources.held()
    }

    /// Returns the number of watched sources: banned ones, and those whose failures are counted.
    pub fn watched(&self) -> usize {
        self.counts.sources.len()
    }

    /// Returns at most `most` banned sources in the order of their addresses, beginning with `from`, with the moments
    /// ([`Now::mono`](strowger_core::Now)) at which their bans end. An IPv6 network is listed by its first address.
    pub fn list(&self, now: u64, from: Option<IpAddr>, most: usize) -> Vec<(IpAddr, u64)> {
        self.counts.sources.list(now, from, most)
    }

    /// Lifts the ban of this source, or all bans, and forgets the failures that led to them. Returns the number of
    /// lifted bans.
    pub fn lift(&self, source: Option<IpAddr>, now: u64) -> usize {
        let source = source.map(|source| counted(source, self.counts.ipv6_prefix));
        let is_meant = |key: &IpAddr| source.is_none_or(|source| source == *key);
        self.counts.suspects.forget(|(key, _)| is_meant(key), now);
        self.counts.sources.forget(is_meant, now)
    }

    /// Removes expired entries. Returns the number of banned sources.
    pub fn tidy(&self, now: u64) -> usize {
        let window = milliseconds(self.settings.window);
        self.counts.accounts.tidy(now, window);
        self.counts.suspects.tidy(now, window);
        self.counts.sources.tidy(now, window)
    }

    fn key(&self, account: Account<'_>) -> AccountKey {
        self.counts.hasher.hash_one(account)
    }

    fn is_exempt(&self, source: IpAddr) -> bool {
        !self.settings.enabled || self.settings.exempt.iter().any(|network| network.contains(source))
    }

    fn rule(&self, failures: u32) -> Rule {
        let (window, duration) = (milliseconds(self.settings.window), milliseconds(self.settings.duration));
        Rule { failures, window, duration }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bans(lines: config::Ban) -> Bans {
        let window = Duration::from_secs(10);
        let duration = Duration::from_secs(60);
        Bans::new(config::Ban { window, duration, exempt: Vec::new(), ..lines }, 65_536, 64)
    }

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    const NONE: Failure = Failure { banned: false, guessed: false };
    const BOB: Account<'static> = Account { name: b"bob", realm: "example.org" };

    #[test]
    fn a_source_that_fails_too_often_is_banned_for_a_while() {
        let bans = bans(config::Ban { failures: 3, ..config::Ban::default() });
        assert_eq!([bans.failed(ip(1), BOB, 0), bans.failed(ip(1), BOB, 1)], [NONE; 2]);
        assert!(bans.failed(ip(1), BOB, 2).banned);
        assert!(bans.is_banned(ip(1), 3) && !bans.is_banned(ip(2), 3));
        assert!(bans.is_banned(ip(1), 60_001) && !bans.is_banned(ip(1), 60_002));
        assert_eq!(bans.tidy(200_000), 0);
    }

    #[test]
    fn bans_are_listed_and_lifted() {
        let bans = bans(config::Ban { failures: 2, ..config::Ban::default() });
        for n in [1, 1, 2, 2, 3] {
            bans.failed(ip(n), BOB, 0);
        }
        let [first, second] = [(ip(1), 60_000), (ip(2), 60_000)];
        assert_eq!(bans.list(5, None, 100), [first, second]);
        assert_eq!((bans.list(5, None, 1), bans.list(5, Some(ip(2)), 1)), (vec![first], vec![second]));
        assert!(bans.list(5, Some(ip(3)), 100).is_empty());
        assert_eq!((bans.list(60_000, None, 100).len(), bans.banned()), (0, 2));
        assert_eq!((bans.lift(Some(ip(1)), 5), bans.lift(Some(ip(1)), 5), bans.lift(Some(ip(9)), 5)), (1, 0, 0));
        assert!(!bans.is_banned(ip(1), 5) && bans.is_banned(ip(2), 5));
        // The failures of the unbanned source are forgotten too.
        assert!(!bans.failed(ip(1), BOB, 6).banned);
        assert_eq!((bans.lift(None, 7), bans.banned()), (1, 0));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let bans = bans(config::Ban { failures: 3, ..config::Ban::default() });
        let of = |text: &str| text.parse::<IpAddr>().expect("an address");
        for address in ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"] {
            bans.failed(of(address), BOB, 0);
        }
        assert!(bans.is_banned(of("2001:db8::4"), 1) && !bans.is_banned(of("2001:db8:0:1::1"), 1));
        // A socket for both families shows an IPv4 address in this form.
        for _ in 0..3 {
            bans.failed(of("::ffff:192.0.2.1"), BOB, 0);
        }
        assert!(bans.is_banned(of("192.0.2.1"), 1) && !bans.is_banned(of("192.0.2.2"), 1));
    }

    #[test]
    fn a_banned_source_stays_banned_under_other_settings() {
        let before = bans(config::Ban { failures: 2, ..config::Ban::default() });
        before.failed(ip(1), BOB, 0);
        assert!(before.failed(ip(1), BOB, 0).banned && before.failed(ip(2), BOB, 0) == NONE);
        let scanners = vec!["probe".into()];
        let after = before.with_settings(config::Ban { failures: 3, scanners, ..before.settings.clone() });
        assert!(after.is_banned(ip(1), 1) && !after.is_banned(ip(2), 1));
        assert!(after.is_scanner(b"probe/1") && !before.is_scanner(b"probe/1"));
        // Earlier failures count, towards the new number.
        assert!(!after.failed(ip(2), BOB, 1).banned && after.failed(ip(2), BOB, 1).banned);
        assert!(before.is_banned(ip(2), 2), "requests that came before see it too");
        let off = after.with_settings(config::Ban { enabled: false, ..after.settings.clone() });
        assert!(!off.is_banned(ip(1), 1));
    }

    #[test]
    fn exempt_networks_and_scanners() {
        let exempt = Bans::new(config::Ban::default(), 65_536, 64);
        assert!(!exempt.scanner("127.0.0.1".parse().unwrap(), 0));
        assert!(exempt.is_scanner(b"Friendly-Scanner/1") && !exempt.is_scanner(b"Linphone"));
        assert!(exempt.is_scanner(b"Linphone (sipcli/1)") && !exempt.is_scanner(b""));
        // Only the start of the text is examined.
        let hidden = [&[b'x'; 250][..], b"sipcli"].concat();
        assert!(exempt.is_scanner(&hidden) && !exempt.is_scanner(&[&b"x"[..], &hidden].concat()));
        let bans = bans(config::Ban::default());
        assert!(bans.scanner(ip(9), 0) && !bans.scanner(ip(9), 0) && bans.is_banned(ip(9), 1));
        let off = Bans::new(config::Ban { enabled: false, ..config::Ban::default() }, 65_536, 64);
        assert!(!off.is_scanner(b"sipcli"));
        let none = Bans::new(config::Ban { scanners: vec![String::new()], ..config::Ban::default() }, 65_536, 64);
        assert!(!none.is_scanner(b"sipcli"));
    }

    /// Checks that many guessing sources together get little more than one guess each, and that no user is locked out.
    #[test]
    fn an_account_that_many_sources_guess_hears_each_of_them_once() {
        let bans = bans(config::Ban { failures: 10, account_failures: 20, ..config::Ban::default() });
        let judged = |source: u32, account: Account<'_>| {
            (0..10)
                .filter(|_| {
                    let judged = !bans.is_suspect(ip(source), account, 5);
                    judged && {
                        bans.failed(ip(source), account, 5);
                        true
                    }
                })
                .count()
        };
        assert_eq!([1, 2, 3, 4].map(|source| judged(source, BOB)), [10, 10, 1, 1]);
        // Other accounts are not affected, nor a source that has not failed, nor bob of another domain.
        assert!(bans.is_suspect(ip(3), BOB, 5) && !bans.is_suspect(ip(3), Account { realm: "example.net", ..BOB }, 5));
        assert!(!bans.is_suspect(ip(3), Account { name: b"ann", ..BOB }, 5));
        assert!(!bans.is_suspect(ip(5), BOB, 5));
        // The state ends when the guessing has been over for a while.
        assert!(bans.is_suspect(ip(3), BOB, 60_000) && !bans.is_suspect(ip(3), BOB, 60_005));
        assert!(!bans.failed(ip(6), BOB, 60_006).guessed);
    }

    #[test]
    fn guesses_at_an_account_are_reported_once() {
        let bans = bans(config::Ban { account_failures: 5, ..config::Ban::default() });
        let told: Vec<u32> = (1..20).filter(|n| bans.failed(ip(*n), BOB, 0).guessed).collect();
        assert_eq!(told, [5]);
    }
}
