//! Users named by rules and failures: the log reports those that the database does not have.
//!
//! The server looks them up once for each configuration. Calls do not wait for it, and skip users without a phone.

use std::sync::{Arc, Mutex, PoisonError};
use strowger_core::Now;
use strowger_core::shown::shown;
use strowger_server::process_state::ProcessState;
use strowger_server::rule_targets::NamedUser;
use strowger_store::error::StoreError;
use strowger_store::subscriber::{Question, SubscriberAnswer, Subscribers};
use strowger_store::ticket::{SinkId, Ticket};

/// Maximum number of questions at a time; it leaves room for the look-ups of calls.
const MOST: usize = 32;

/// Queries the database for the users that a configuration names.
pub(crate) struct NamedUsers {
    sink: SinkId,
    asked: Arc<Mutex<Asked>>,
    /// Users still to be looked up under the first name of their domain.
    waiting: Vec<NamedUser>,
    /// Number of configurations before the current one; `None`: no configuration has been examined.
    configurations: Option<u64>,
}

/// Users being looked up, each at the number of its ticket.
#[derive(Default)]
struct Asked {
    users: Vec<NamedUser>,
    /// Ticket number of the first user.
    first: u64,
    /// Users to look up under the next name of their domain.
    again: Vec<NamedUser>,
}

impl Asked {
    /// Handles the answer about a user, who was looked up under the first name of its domain.
    fn take(&mut self, mut user: NamedUser, answer: &Result<SubscriberAnswer, StoreError>) {
        if !matches!(answer, Ok(SubscriberAnswer::Absent)) {
            return;
        }
        let domain = user.domains.remove(0);
        if user.domains.is_empty() {
            let (place, name, domain) = (&user.place, shown(&user.username), shown(&domain));
            tracing::warn!(%place, user = %format_args!("{name}@{domain}"), "a rule names an unknown user");
        } else {
            self.again.push(user);
        }
    }
}

impl NamedUsers {
    pub(crate) fn new(subscribers: &dyn Subscribers) -> Self {
        let asked = Arc::<Mutex<Asked>>::default();
        let answers = asked.clone();
        let sink = subscribers.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
            let mut asked = answers.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, answer) in results {
                let place = number.checked_sub(asked.first).and_then(|place| usize::try_from(place).ok());
                if let Some(user) = place.and_then(|place| asked.users.get(place)).cloned() {
                    asked.take(user, answer);
                }
            }
        }));
        Self { sink, asked, waiting: Vec::new(), configurations: None }
    }

    /// Looks up some of the users that a new configuration names. The caller calls this function a few times a second.
    pub(crate) fn step(&mut self, now: Now, shared: &ProcessState, subscribers: &dyn Subscribers) {
        let configurations = Some(shared.configurations());
        if self.configurations != configurations {
            self.configurations = configurations;
            let policy = shared.policy();
            // Without passwords any phone may register as any user.
            let is_asked = policy.config.registrar.authenticate;
            self.waiting = if is_asked { policy.named_users() } else { Vec::new() };
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.first += asked.users.len() as u64;
            asked.users.clear();
            asked.again.clear();
        }
        self.waiting.append(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner).again);
        for _ in 0..MOST {
            let Some(user) = self.waiting.pop() else { return };
            let Some(domain) = user.domains.first() else { continue };
            let question = Question::User { username: &user.username, domain };
            if let Some(answer) = subscribers.cached(question, now.mono) {
                self.asked.lock().unwrap_or_else(PoisonError::into_inner).take(user, &answer);
                continue;
            }
            let value = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.users.push(user.clone());
                asked.first + asked.users.len() as u64 - 1
            };
            if subscribers.request(Ticket { sink: self.sink, value }, question, now.mono).is_err() {
                // No answer will come for that ticket.
                self.waiting.push(user);
                break;
            }
        }
        subscribers.flush();
    }
}
