//! What becomes of the bindings of a user who is removed: they end within a second, also when the user was removed while no
//! server ran. Until then calls would go on to reach the phone of one who is no user any more, for as long as it had
//! registered; and who gets the same name next would share it with that phone.

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

/// A removal by its number, and what became of it on disk.
type Written = (u64, Result<(), StoreError>);

/// Ends them, step by step, and tells the subscribers' database when it is done.
pub(crate) struct Removals {
    /// Of this among the receivers of the journal; `NONE` without one.
    sink: SinkId,
    written: Arc<Mutex<Vec<Written>>>,
    stages: HashMap<u64, Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A REGISTER that was admitted just before the removal was seen may still be on its way to the table: a step later it is
    /// there.
    Seen,
    /// The journal has it.
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

    /// The next step of each removal; to be called a few times a second.
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
                        // The database is behind: the next step tries again.
                        Err(_) => continue,
                    }
                    // Before that a REGISTER may still have been admitted.
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

/// Of one who is no user any more the cache of credentials has none either. What the cache does not do now ends with
/// the life of that.
pub(crate) fn forget_credentials(now: Now, shared: &ProcessState, username: &str, domain: &str) {
    let Some(cache) = &shared.credentials else { return };
    let policy = shared.policy();
    let whose = Whose { username: username.as_bytes(), realm: policy.config.realm_of(domain).as_bytes() };
    cache.remove(whose, strowger_cache::ticket::Ticket::NONE, now.mono, &mut Scratch::default());
    cache.flush();
}
