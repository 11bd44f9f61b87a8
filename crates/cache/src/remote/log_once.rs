//! Logged messages about servers: an outage seen by the connections of several threads is logged once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::servers::Endpoint;

/// Maximum number of remembered texts of a server.
const WORDS: usize = 8;

/// Messages about the servers of a cache.
#[derive(Default)]
pub(super) struct LogOnce(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Unreachable servers, each with a thread that noticed.
    missing: Vec<(Endpoint, usize)>,
    /// Texts that are not logged again before this time.
    words: Vec<(Endpoint, String, Instant)>,
}

impl LogOnce {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a thread does not reach a server. Returns whether it is the first such thread.
    pub(super) fn missed(&self, server: &Endpoint, thread: usize) -> bool {
        let missing = &mut self.known().missing;
        let is_first = missing.iter().all(|(other, _)| other != server);
        missing.push((server.clone(), thread));
        is_first
    }

    /// Notes that a thread reaches a server again, or does not need it any more. Returns whether it was the last such
    /// thread.
    pub(super) fn reached(&self, server: &Endpoint, thread: usize) -> bool {
        let missing = &mut self.known().missing;
        let before = missing.len();
        missing.retain(|(other, by)| other != server || *by != thread);
        missing.len() < before && missing.iter().all(|(other, _)| other != server)
    }

    /// Removes all notes of an ended thread.
    pub(super) fn forget(&self, thread: usize) {
        self.known().missing.retain(|(_, by)| *by != thread);
    }

    /// Tells whether this text about a server must be logged: it was not logged during the last `pause`, and not too
    /// many other texts were.
    pub(super) fn is_news(&self, server: &Endpoint, words: &str, pause: Duration) -> bool {
        let now = Instant::now();
        let known = &mut self.known().words;
        known.retain(|(_, _, until)| now < *until);
        let mut of_server = known.iter().filter(|(other, ..)| other == server);
        let is_news = of_server.clone().count() < WORDS && of_server.all(|(_, said, _)| said != words);
        if is_news {
            known.push((server.clone(), words.into(), now + pause));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> Endpoint {
        Endpoint::Tcp("192.0.2.1".into(), port)
    }

    #[test]
    fn an_outage_begins_with_the_first_thread_and_ends_with_the_last() {
        let (said, one, other) = (LogOnce::default(), server(1), server(2));
        assert!(!said.reached(&one, 0), "it was not missed");
        assert!(said.missed(&one, 0) && !said.missed(&one, 1) && said.missed(&other, 1));
        assert!(!said.reached(&one, 0));
        assert!(said.reached(&one, 1) && !said.reached(&one, 1));
        said.forget(1);
        assert!(said.missed(&other, 0), "the thread that missed it has ended");
    }

    #[test]
    fn the_same_words_are_no_news() {
        let (said, long) = (LogOnce::default(), Duration::from_secs(60));
        let is_news = |words: &str| said.is_news(&server(1), words, long);
        assert!(is_news("a") && !is_news("a") && is_news("b") && said.is_news(&server(2), "a", long));
        assert!((2..WORDS).all(|n| is_news(&n.to_string())) && !is_news("one more"));
        assert!(said.is_news(&server(3), "a", Duration::ZERO) && said.is_news(&server(3), "a", Duration::ZERO));
    }
}
