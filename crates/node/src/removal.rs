//! Removal of the bindings of removed users: these bindings end within a second, even if a user was removed while no
//! server ran. Otherwise calls would reach the phone of a removed user until its registration expires, and a new user
//! of the same name would share that registration.

use crate::identity::canonical_aor;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use strowger_core::Now;
use strowger_server::process_state::ProcessState;
use strowger_store::credential_cache::{Scratch, Whose};
use strowger_store::error::StoreError;
use strowger_store::journal::Journal;
use strowger_store::location::{Step, UpdateStatus};
use strowger_store::subscriber::Subscribers;
use strowger_store::ticket::{SinkId, Ticket};

/// Number of a removal, and the result of writing it.
type Written = (u64, Result<(), StoreError>);

/// Ends the bindings step by step, and reports completed removals to the database of subscribers.
pub(crate) struct Removals {
    /// Own receiver of the journal; `NONE` without a journal.
    sink: SinkId,
    written: Arc<Mutex<Vec<Written>>>,
    stages: HashMap<u64, Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The removal was seen. A REGISTER that was admitted just before may still be on its way to the table, and arrives within one step.
    Seen,
    /// The journal is writing the end of the bindings.
    Writing,
}

impl Removals {
    pub(crate) fn new(journal: Option<&Journal>) -> Self {
        let written = Arc::<Mutex<Vec<Written>>>::default();
        let results = written.clone();
        let sink = journal.map_or(SinkId::NONE, |journal| {
            journal.receiver(Arc::new(move |more: &[Written]| {
                results.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(more);
            }))
        });
        Self { sink, written, stages: HashMap::new() }
    }

    /// Advances each removal by a step. The caller calls this function a few times a second.
    pub(crate) fn step(&mut self, now: Now, shared: &ProcessState, subscribers: &dyn Subscribers) {
        let written = std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, result) in written {
            self.stages.remove(&id);
            if result.is_ok() {
                subscribers.settled(id);
            }
        }
        for removed in subscribers.removed() {
            match self.stages.get(&removed.id) {
                None => {
                    self.stages.insert(removed.id, Stage::Seen);
                }
                Some(Stage::Writing) => (),
                Some(Stage::Seen) => {
                    let stored = format!("{}@{}", removed.username, removed.domain);
                    let aor = canonical_aor(shared.policy().identity(), stored.as_bytes());
                    let aor = String::from_utf8_lossy(&aor);
                    let ticket = Ticket { sink: self.sink, value: removed.id };
                    let mut ended = 0;
                    let all = |current: &strowger_store::location::ExistingBindings<'_>| {
                        ended = current.len();
                        Ok::<_, ()>(if ended > 0 { vec![Step::RemoveAll] } else { Vec::new() })
                    };
                    match shared.location.update(aor.as_bytes(), now.mono, 0, ticket, all) {
                        Ok(UpdateStatus::Done) => {
                            self.stages.remove(&removed.id);
                            subscribers.settled(removed.id);
                        }
                        Ok(UpdateStatus::Pending) => {
                            self.stages.insert(removed.id, Stage::Writing);
                        }
                        // The database is overloaded: the next step tries again.
                        Err(_) => continue,
                    }
                    // The route tokens end only now, because a REGISTER could still have been admitted before.
                    shared.end_routes_of(removed.username.as_bytes(), removed.domain.as_bytes(), now);
                    forget_credentials(now, shared, &removed.username, &removed.domain);
                    if ended > 0 {
                        tracing::info!(%aor, bindings = ended, "user removed: the registrations end");
                    }
                }
            }
        }
    }
}

/// Removes the credentials of a removed user from the cache of credentials. If the cache fails, the credentials stay
/// until they expire.
pub(crate) fn forget_credentials(now: Now, shared: &ProcessState, username: &str, domain: &str) {
    let Some(cache) = &shared.credentials else { return };
    let policy = shared.policy();
    let whose = Whose { username: username.as_bytes(), realm: policy.config.realm_of(domain).as_bytes() };
    cache.remove(whose, strowger_cache::ticket::Ticket::NONE, now.mono, &mut Scratch::default());
    cache.flush();
}
