//! A cache in another process with the credentials of registered users: it acts at once, answers some time later, and
//! may miss the time-out. Servers of one site share the cache, and it outlives their processes.

use crate::random::Random;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strowger_cache::engine::{CacheHandle, RemoteEngine, Reply};
use strowger_cache::error::CacheError;
use strowger_cache::gauges::Gauges;
use strowger_cache::local::LocalCache;
use strowger_cache::request::{CacheAnswer, Promise, Request};
use strowger_cache::settings::LocalSettings;
use strowger_cache::ticket::{Answered, Receiver, ReceiverId, Receivers, Ticket};
use strowger_message::{Message, Method, Uri};
use strowger_store::credential_cache::{CredentialCache, Scratch, Whose};

/// Settings of such a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheManners {
    /// Shortest and longest delay in ms.
    pub delay: (u64, u64),
    /// Answers that miss the timeout, in thousandths.
    pub failures: u64,
}

/// Timeout of an answer in ms.
const TIMEOUT: u64 = 200;

pub(super) struct Credentials {
    entries: Arc<LocalCache>,
    receivers: Receivers,
    state: Mutex<State>,
}

struct State {
    random: Random,
    manners: CacheManners,
    /// Answers in transit, with their delays.
    answers: Vec<(ReceiverId, u64, Answered)>,
}

impl Credentials {
    pub(super) fn new(seed: u64) -> Self {
        let manners = CacheManners { delay: (0, 0), failures: 0 };
        Self {
            entries: Arc::new(LocalCache::new(LocalSettings::default())),
            receivers: Receivers::default(),
            state: Mutex::new(State { random: Random::new(seed), manners, answers: Vec::new() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers since the last call, for a server with such a cache.
    pub(super) fn answers(&self) -> Vec<(ReceiverId, u64, Answered)> {
        std::mem::take(&mut self.state().answers)
    }

    /// Changes the settings of the cache.
    pub(super) fn set_manners(&self, manners: CacheManners) {
        self.state().manners = manners;
    }

    /// Checks that the answer to a REGISTER agrees with the cache: a user has an entry in one of these realms while it
    /// has a contact.
    pub(super) fn check(&self, now: u64, realms: &[&str], response: &Message<'_>) -> Result<(), String> {
        let is_ok = response.status() == Some(200) && response.cseq().is_ok_and(|cseq| cseq.method == Method::Register);
        let Some(Uri::Sip(uri)) = response.to().ok().map(|to| to.addr.uri) else { return Ok(()) };
        if !is_ok {
            return Ok(());
        }
        let (cache, mut scratch) = (CredentialCache::new(CacheHandle::Local(self.entries.clone())), Scratch::default());
        let mut has = |realm: &&str| {
            let whose = Whose { username: uri.user.unwrap_or_default(), realm: realm.as_bytes() };
            cache.fetch(whose, Ticket::NONE, now, &mut scratch) == Reply::Now(Ok(CacheAnswer::Found))
        };
        let (has_entry, has_contact) = (realms.iter().any(&mut has), response.contacts().flatten().next().is_some());
        let may_fail = self.state().manners.failures > 0;
        match (has_contact, has_entry) {
            (true, false) => Err("a 200 to a REGISTER without an entry in the cache of credentials".to_owned()),
            (false, true) if realms.len() == 1 && !may_fail => {
                Err("a 200 to a REGISTER that leaves no contact, and an entry in the cache of credentials".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl RemoteEngine for Credentials {
    fn ask(&self, request: &Request<'_>, ticket: Ticket, now: u64) -> Result<(), CacheError> {
        let state = &mut *self.state();
        let is_late = state.random.chance(state.manners.failures);
        let mut value = Vec::new();
        // A late request may have been performed.
        let result = match is_late && state.random.chance(500) {
            true => Err(CacheError::TimedOut),
            false => {
                self.entries.ask(request, Promise::Held, ticket, now, &mut value).unwrap_or(Err(CacheError::TimedOut))
            }
        };
        let (shortest, longest) = state.manners.delay;
        let (delay, result) = match is_late {
            true => (TIMEOUT, Err(CacheError::TimedOut)),
            false => (state.random.between(shortest, longest), result),
        };
        let value = if result.is_ok() { value.into() } else { Box::default() };
        state.answers.push((ticket.receiver, delay, Answered { ticket: ticket.value, result, value }));
        Ok(())
    }

    fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// Clock of the world for answers.
pub(super) struct ByTheClock;

impl Receiver for ByTheClock {
    fn answered(&self, _answers: Vec<Answered>) {}
}
