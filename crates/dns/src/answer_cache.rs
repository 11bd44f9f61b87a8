//! Kept answers about names, and their lifetimes.
//!
//! The name servers give each answer its lifetime. An answer that is used in the last part of its life is refreshed,
//! without delay for its users, so that a name in use never expires; an unused answer is forgotten. While the name
//! servers fail or do not answer, an expired answer is used (RFC 8767), and the name servers are asked again from time
//! to time.

use super::ResolverSettings;
use super::srv_order::Server;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers by name. All times are times of one clock, which the owner reads.
#[derive(Debug)]
pub(super) struct Kept<K> {
    answers: HashMap<K, CachedAnswer>,
    /// Maximum number of answers.
    most: usize,
    /// Names that are being refreshed ahead now, and their maximum number.
    asked: usize,
    most_asked: usize,
    /// Minimum time before the end of its life at which an answer is refreshed: a resolution may take this long.
    deadline: Duration,
    /// Time after a failure until the name servers are asked again.
    failure: Duration,
    stale: Duration,
}

#[derive(Debug)]
struct CachedAnswer {
    servers: Arc<[Server]>,
    until: Instant,
    /// Time from which a use refreshes the answer.
    ahead: Instant,
    is_asked: bool,
    /// True if the name servers did not answer the last time.
    has_failed: bool,
}

/// A kept answer.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) servers: Arc<[Server]>,
    /// True if the answer has expired.
    pub(super) is_stale: bool,
    /// True if the caller must ask now, and call [`Kept::is_asked`] afterwards.
    pub(super) is_to_be_asked: bool,
}

/// Longest lifetime of an answer, whatever the name servers say (RFC 8767 section 4).
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

impl<K: Hash + Eq> Kept<K> {
    pub(super) fn new(settings: &ResolverSettings) -> Self {
        let ResolverSettings { entries, ahead, deadline, failure, stale, .. } = *settings;
        Self { answers: HashMap::new(), most: entries, asked: 0, most_asked: ahead, deadline, failure, stale }
    }

    /// Returns the number of answers.
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns the kept answer of a name, if it may be used.
    pub(super) fn look(&mut self, key: &K, now: Instant) -> Option<Known> {
        let answer = self.answers.get_mut(key)?;
        let is_stale = now >= answer.until;
        // A question in progress ends soon, and no request waits for its answer.
        let may_be_stale = answer.has_failed || answer.is_asked;
        if is_stale && !(may_be_stale && now < answer.until + self.stale) {
            return None;
        }
        let is_to_be_asked = now >= answer.ahead && !answer.is_asked && self.asked < self.most_asked;
        if is_to_be_asked {
            answer.is_asked = true;
            self.asked += 1;
        }
        Some(Known { servers: answer.servers.clone(), is_stale, is_to_be_asked })
    }

    /// Returns an expired answer that may still be used (RFC 8767).
    pub(super) fn stale(&self, key: &K, now: Instant) -> Option<Arc<[Server]>> {
        let answer = self.answers.get(key)?;
        (now >= answer.until && now < answer.until + self.stale).then(|| answer.servers.clone())
    }

    /// Marks an expired answer as late: it is used at once until the name servers answer.
    pub(super) fn is_late(&mut self, key: &K, now: Instant) {
        // A new answer may have arrived just now.
        if let Some(answer) = self.answers.get_mut(key).filter(|answer| now >= answer.until) {
            (answer.has_failed, answer.ahead) = (true, now + self.failure);
        }
    }

    /// Notes the end, with any result, of a query that was sent before the expiry of an answer.
    pub(super) fn is_asked(&mut self, key: &K) {
        self.asked = self.asked.saturating_sub(1);
        if let Some(answer) = self.answers.get_mut(key) {
            answer.is_asked = false;
        }
    }

    /// Stores an answer of the name servers.
    pub(super) fn put(&mut self, key: K, servers: Arc<[Server]>, now: Instant, until: Instant) {
        let until = until.min(now + LONGEST);
        let time = until.saturating_duration_since(now);
        if time.is_zero() {
            self.answers.remove(&key);
            return;
        }
        if self.answers.len() >= self.most && !self.answers.contains_key(&key) {
            self.answers.retain(|_, answer| now < answer.until);
            if self.answers.len() >= self.most {
                return;
            }
        }
        // The last fifth of the lifetime, but early enough before its end for the new answer to arrive in time.
        let ahead = until - (time / 5).max(self.deadline).min(time / 2);
        let is_asked = self.answers.get(&key).is_some_and(|answer| answer.is_asked);
        self.answers.insert(key, CachedAnswer { servers, until, ahead, is_asked, has_failed: false });
    }

    /// Removes a name that no longer exists.
    pub(super) fn forget(&mut self, key: &K) {
        self.answers.remove(key);
    }

    /// Notes that the name servers gave no answer. Returns the kept answer if it may be used in the meantime.
    pub(super) fn fails(&mut self, key: &K, now: Instant) -> Option<Known> {
        let answer = self.answers.get_mut(key)?;
        (answer.has_failed, answer.ahead) = (true, now + self.failure);
        let known = Known { servers: answer.servers.clone(), is_stale: now >= answer.until, is_to_be_asked: false };
        (now < answer.until + self.stale).then_some(known)
    }

    /// Removes answers that may no longer be used, and frees their memory.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.answers.retain(|_, answer| now < answer.until + self.stale);
        let needed = self.answers.len();
        if self.answers.capacity() > 4 * needed {
            self.answers.shrink_to(2 * needed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::Transport;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn settings() -> ResolverSettings {
        ResolverSettings {
            entries: 2,
            ahead: 1,
            deadline: seconds(4),
            failure: seconds(5),
            stale: seconds(100),
            ..Default::default()
        }
    }

    fn servers(port: u16) -> Arc<[Server]> {
        Arc::new([Server::alone(Transport::Udp, vec![([192, 0, 2, 1], port).into()])])
    }

    /// Returns the kept answer as its port, `is_stale` and `is_to_be_asked`.
    fn seen(known: Option<Known>) -> Option<(u16, bool, bool)> {
        known.map(|known| (known.servers[0].addresses[0].port(), known.is_stale, known.is_to_be_asked))
    }

    #[test]
    fn a_name_that_is_used_at_the_end_of_its_time_is_asked_for_once() {
        let (mut kept, start) = (Kept::new(&settings()), Instant::now());
        let look = |kept: &mut Kept<&str>, at| seen(kept.look(&"a", start + seconds(at)));
        kept.put("a", servers(1), start, start + seconds(60));
        assert_eq!(look(&mut kept, 47), Some((1, false, false)));
        assert_eq!(look(&mut kept, 48), Some((1, false, true)));
        assert_eq!(look(&mut kept, 49), Some((1, false, false)), "it is being asked for");
        kept.put("a", servers(2), start + seconds(49), start + seconds(109));
        kept.is_asked(&"a");
        assert_eq!(look(&mut kept, 60), Some((2, false, false)));
        assert_eq!(look(&mut kept, 97), Some((2, false, true)));
        assert_eq!(look(&mut kept, 109), Some((2, true, false)), "while it is asked for");
        kept.is_asked(&"a");
        // No new answer has arrived and no failure was noted, so the kept answer expires.
        assert_eq!(look(&mut kept, 109), None);
    }

    #[test]
    fn a_short_time_is_left_at_half() {
        let (mut kept, start) = (Kept::new(&settings()), Instant::now());
        kept.put("a", servers(1), start, start + seconds(2));
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(seen(kept.look(&"a", at(999))), Some((1, false, false)));
        assert_eq!(seen(kept.look(&"a", at(1_000))), Some((1, false, true)));
        kept.put("b", servers(1), start, start);
        assert_eq!(seen(kept.look(&"b", start)), None);
    }

    /// Expired answers (RFC 8767).
    #[test]
    fn without_name_servers_an_answer_is_good_beyond_its_time() {
        let (mut kept, start) = (Kept::new(&settings()), Instant::now());
        let at = |n| start + seconds(n);
        kept.put("a", servers(1), start, at(60));
        assert_eq!(seen(kept.look(&"a", at(50))), Some((1, false, true)));
        assert_eq!(seen(kept.fails(&"a", at(54))), Some((1, false, false)));
        kept.is_asked(&"a");
        assert_eq!(seen(kept.look(&"a", at(58))), Some((1, false, false)));
        assert_eq!(seen(kept.look(&"a", at(61))), Some((1, true, true)));
        assert!(kept.stale(&"a", at(61)).is_some());
        kept.fails(&"a", at(65));
        kept.is_asked(&"a");
        assert_eq!(seen(kept.look(&"a", at(69))), Some((1, true, false)));
        kept.tidy(at(159));
        assert_eq!(seen(kept.look(&"a", at(159))), Some((1, true, true)));
        assert_eq!(seen(kept.look(&"a", at(160))), None);
        assert_eq!(seen(kept.fails(&"a", at(160))), None);
        kept.tidy(at(160));
        assert_eq!(kept.answers.capacity(), 0);
        // If no failure is known, the name servers are asked before the expired answer is used.
        kept.put("b", servers(2), start, at(60));
        assert_eq!(seen(kept.look(&"b", at(60))), None);
        assert!(kept.stale(&"b", at(59)).is_none() && kept.stale(&"b", at(60)).is_some());
        // While the first query for the name is late, other requests use the expired answer at once.
        kept.is_late(&"b", at(61));
        assert_eq!(seen(kept.look(&"b", at(61))), Some((2, true, false)));
        assert_eq!(seen(kept.fails(&"b", at(64))), Some((2, true, false)));
        kept.forget(&"b");
        assert_eq!(seen(kept.look(&"b", at(64))), None);
        assert!(kept.stale(&"b", at(64)).is_none(), "a name that does not exist any more");
        // An answer older than RFC 8767 allows is not used.
        assert!(kept.stale(&"a", at(160)).is_none());
    }

    #[test]
    fn answers_and_questions_are_bounded() {
        let (mut kept, start) = (Kept::new(&settings()), Instant::now());
        let at = |n| start + seconds(n);
        kept.put("a", servers(1), start, at(60));
        kept.put("b", servers(2), start, at(60));
        kept.put("c", servers(3), start, at(60));
        let all = ["a", "b", "c"].map(|name| seen(kept.look(&name, at(59))));
        assert_eq!(all, [Some((1, false, true)), Some((2, false, false)), None]);
        // Expired answers make room.
        kept.put("c", servers(3), at(60), at(120));
        assert_eq!((kept.answers.len(), seen(kept.look(&"c", at(60)))), (1, Some((3, false, false))));
    }
}
