//! Credentials that only a cache has (`auth.credential_cache`). A verified REGISTER stores those of its user, for as long as
//! the registration lasts. Each server that shares the cache verifies all other requests of the user with them.

use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::question::{Question, QuestionKind};
use crate::registrant::Registrant;
use crate::reply::Reply;
use crate::stage::Unproven;
use crate::waiting::{LookupResult, Suspended};
use std::sync::Arc;
use strowger_cache::engine::Reply as CacheReply;
use strowger_cache::error::CacheError;
use strowger_cache::request::{CacheAnswer, Life};
use strowger_cache::ticket::{Answered, ReceiverId, Ticket};
use strowger_core::slots::Id;
use strowger_core::{Now, Outbox};
use strowger_store::credential_cache::{CredentialCache, Scratch, Whose, read};
use strowger_store::location::{ExistingBindings, Step};
use strowger_store::subscriber::{Credential, CredentialView};

/// Result of the look-up of a user who authenticates.
pub(crate) enum Found {
    Absent,
    /// Credential of the database.
    Credential(Arc<Credential>),
    /// Credential from the cache; its value is in the scratch buffer.
    InScratch,
}

impl Found {
    pub(crate) fn view<'a>(&'a self, scratch: &'a Scratch, whose: Whose<'_>) -> Option<CredentialView<'a>> {
        match self {
            Self::Absent => None,
            Self::Credential(credential) => Some(credential.view()),
            Self::InScratch => read(&scratch.value, whose),
        }
    }
}

/// Work of the cache for a registration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// No work.
    #[default]
    None,
    /// Store or removal in progress; the answers come under the ticket of the registration.
    Later {
        /// True for a store, false for a removal.
        stores: bool,
        /// Number of answers that are to come: one for each name that is removed.
        answers: u8,
    },
    /// Finished store or removal.
    Done,
    /// Failed store.
    Failed(CacheError),
}

impl Keeping {
    /// Tells whether a store is in progress.
    pub(crate) const fn stores(&self) -> bool {
        matches!(self, Self::Later { stores: true, .. })
    }

    /// Returns the number of answers that are still to come.
    pub(crate) const fn answers(&self) -> u8 {
        if let Self::Later { answers, .. } = self { *answers } else { 0 }
    }
}

/// Look-up of credentials.
impl Decider<'_> {
    /// Returns the cache of credentials, if the server has one.
    pub(crate) fn credentials(&self) -> Option<(&CredentialCache, ReceiverId)> {
        self.sinks.cached.as_ref().map(|(cache, receiver)| (cache, *receiver))
    }

    /// Looks up this user in the cache: at once if the cache is in this process or was asked before.
    pub(crate) fn find_registered(
        &self,
        handling: &Handling<'_, '_>,
        cache: &CredentialCache,
        whose: Whose<'_>,
        scratch: &mut Scratch,
    ) -> Result<Result<Found, CacheError>, Unproven> {
        let is_found = match &handling.progress.answers.registered {
            Some(Ok(value)) => {
                scratch.value.clear();
                scratch.value.extend_from_slice(value.as_deref().unwrap_or_default());
                Ok(value.is_some())
            }
            Some(Err(error)) => Err(*error),
            None if cache.is_local() => match cache.fetch(whose, Ticket::NONE, handling.now.mono, scratch) {
                CacheReply::Now(answer) => answer.map(|answer| answer == CacheAnswer::Found),
                // A cache in this process answers a fetch immediately.
                CacheReply::Later => Err(CacheError::Unavailable),
            },
            None => {
                let (username, realm) = (whose.username.into(), whose.realm.into());
                return Err(Unproven::Ask(Question::Registered { username, realm }));
            }
        };
        // The cache has no entry for a name that is too long for a key.
        let is_found = if is_found == Err(CacheError::Refused) { Ok(false) } else { is_found };
        Ok(is_found.map(|is_found| match is_found && read(&scratch.value, whose).is_some() {
            true => Found::InScratch,
            false => Found::Absent,
        }))
    }
}

/// Look-up of credentials.
impl Engine {
    /// Queries the cache, and suspends the request. If the cache accepts no query, the stage has its answer at once.
    pub(crate) fn ask_credentials(
        &mut self,
        handling: &mut Handling<'_, '_>,
        username: &[u8],
        realm: &[u8],
        asks: QuestionKind,
    ) {
        let request = handling.request;
        // Without a cache no stage asks.
        let Some((cache, receiver)) = self.sinks.cached.clone() else { return };
        if !self.has_room_to_wait(request.arrival, request.message.bytes().len(), handling.progress.proof.in_dialog) {
            return self.reply(handling, Reply::overloaded());
        }
        let value = self.suspend(handling, asks);
        self.sinks.has_asked_cache = true;
        let mut scratch = self.sinks.scratch.take();
        let whose = Whose { username, realm };
        let asked = cache.fetch(whose, Ticket { receiver, value }, handling.now.mono, &mut scratch);
        let answer = match asked {
            CacheReply::Later => {
                self.sinks.scratch.set(scratch);
                return self.counters().parked.one();
            }
            CacheReply::Now(answer) => answer,
        };
        let found = answer.map(|answer| (answer == CacheAnswer::Found).then(|| scratch.value.as_slice().into()));
        self.sinks.scratch.set(scratch);
        if let Some(mut waiting) = self.resume(Id::from_u64(value)) {
            *handling.progress = waiting.progress.take();
        }
        if found == Err(CacheError::Full) {
            return self.reply(handling, Reply::overloaded());
        }
        handling.progress.answers.registered = Some(found);
        self.advance(handling);
    }

    /// Handles the answer of the cache to a suspended request, or to a registration.
    pub(crate) fn on_cache_answer(&mut self, now: Now, answered: Answered, out: &mut Outbox) {
        let Answered { ticket, result, value } = answered;
        match self.waiting.suspended.get(Id::from_u64(ticket)) {
            Some(Suspended::Request(_)) => {
                let found = result.map(|answer| (answer == CacheAnswer::Found).then_some(value));
                self.go_on(now, ticket, LookupResult::Registered(found), out);
            }
            Some(Suspended::Registration(_)) => self.credentials_kept(ticket, result.err(), out),
            None => (),
        }
    }
}

/// Storage of credentials.
impl Decider<'_> {
    /// Has the cache store the credentials of a registrant until its last binding ends. If a change of the registrant's
    /// own address of record leaves no binding, has the cache remove the credentials under each of its names instead.
    /// The caller holds the lock of the bindings, so that the cache gets registrations in order. `bindings`: end of the
    /// last binding, and whether the request names any.
    pub(crate) fn keep_credentials(
        &self,
        now: Now,
        registrant: &Registrant,
        aor: &[u8],
        bindings: (Option<u64>, bool),
        ticket: u64,
    ) -> Keeping {
        let Some((cache, receiver)) = self.credentials() else { return Keeping::None };
        let (whose, ticket) = (registrant.whose(), Ticket { receiver, value: ticket });
        let (end, names_any) = bindings;
        let mut scratch = self.sinks.scratch.take();
        let keeping = match end.filter(|end| *end > now.mono) {
            Some(end) => {
                let (credential, life) = (registrant.credential.view(), Life::ms(end - now.mono));
                match cache.store(whose, credential, life, ticket, now.mono, &mut scratch) {
                    CacheReply::Later => Keeping::Later { stores: true, answers: 1 },
                    CacheReply::Now(Ok(_)) => Keeping::Done,
                    CacheReply::Now(Err(error)) => Keeping::Failed(error),
                }
            }
            None if names_any && registrant.owns(aor, self.policy.identity()) => {
                let mut answers = 0;
                for username in registrant.names(&self.policy.config, self.policy.identity()) {
                    let whose = Whose { username: &username, ..whose };
                    // An entry that is not removed expires.
                    answers += u8::from(cache.remove(whose, ticket, now.mono, &mut scratch) == CacheReply::Later);
                }
                if answers == 0 { Keeping::Done } else { Keeping::Later { stores: false, answers } }
            }
            None => Keeping::None,
        };
        self.sinks.scratch.set(scratch);
        keeping
    }

    /// Counts a registration whose credentials are not in the cache. There is no warning for each phone, because the
    /// warnings would bury the cache's own lines.
    pub(crate) fn credentials_not_kept(&self, aor: &str, error: CacheError) {
        self.counters().credentials_not_stored.one();
        tracing::debug!(aor, %error, "credentials not stored");
    }
}

/// Returns the moment when the last binding ends after these steps.
pub(crate) fn last_end(current: &ExistingBindings<'_>, steps: &[Step<'_>]) -> Option<u64> {
    let is_gone = |id| {
        let goes = |step: &Step<'_>| matches!(step, Step::Remove(other) | Step::Replace(other, _) if *other == id);
        steps.iter().any(|step| goes(step) || matches!(step, Step::RemoveAll))
    };
    let made = steps.iter().filter_map(|step| match step {
        Step::Add(binding) | Step::Replace(_, binding) => Some(binding.expires_at),
        Step::Remove(_) | Step::RemoveAll => None,
    });
    current.iter().filter(|binding| !is_gone(binding.id())).map(|binding| binding.expires_at()).chain(made).max()
}
