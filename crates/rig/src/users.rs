//! Subscribers in memory, with a cache before them as in a server: an engine waits for the answer to its first question
//! about a user, but not to the second.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_store::error::StoreError;
use strowger_store::subscriber::{Asked, Credential, Ha1s, LookupSink, Question, SubscriberAnswer, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

/// Database of users.
#[derive(Default)]
pub(crate) struct Users(Mutex<State>);

/// Name and domain.
type Address = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct State {
    /// Realm and HA1s of each user.
    users: HashMap<Address, (Vec<u8>, Ha1s)>,
    /// Questions whose answers are cached.
    cached: HashSet<Asked>,
    /// Questions of the last call of an engine.
    asked: Vec<(u64, Asked)>,
}

/// Returns the HA1s of a password.
pub fn ha1s(name: &str, realm: &str, password: &str) -> Ha1s {
    let set = Ha1Set::of_password(name.as_bytes(), realm.as_bytes(), password.as_bytes());
    let bytes = |hash| set.of(hash).map(|ha1| ha1.value().as_bytes().to_vec());
    Ha1s {
        md5: bytes(Hash::Md5).and_then(|bytes| bytes.try_into().ok()),
        sha256: bytes(Hash::Sha256).and_then(|bytes| bytes.try_into().ok()),
        sha512_256: bytes(Hash::Sha512_256).and_then(|bytes| bytes.try_into().ok()),
    }
}

impl Users {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a user, or changes the password.
    pub(crate) fn set(&self, name: &str, domain: &str, realm: &str, password: &str) {
        let mut state = self.state();
        let key = (name.into(), domain.to_ascii_lowercase().into());
        state.users.insert(key, (realm.into(), ha1s(name, realm, password)));
        state.cached.clear();
    }

    /// Removes a user.
    pub(crate) fn remove(&self, name: &str, domain: &str) {
        let (mut state, user): (_, Address) = (self.state(), (name.into(), domain.into()));
        state.users.remove(&user);
        state.cached.clear();
    }

    /// Takes the questions since the last call, each with its answer.
    pub(crate) fn answers(&self) -> Vec<(u64, Result<SubscriberAnswer, StoreError>)> {
        let mut state = self.state();
        let asked = std::mem::take(&mut state.asked);
        let answers = asked.into_iter().map(|(ticket, asked)| {
            let answer = state.answer(asked.question());
            state.cached.insert(asked);
            (ticket, Ok(answer))
        });
        answers.collect()
    }
}

impl State {
    fn answer(&self, question: Question<'_>) -> SubscriberAnswer {
        match question {
            Question::Credential { username, realm } => {
                let is_it = |((name, _), (own, _)): &(&Address, &(Vec<u8>, Ha1s))| name == username && own == realm;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into();
                self.users.iter().find(is_it).map_or(SubscriberAnswer::Absent, |((name, domain), (realm, ha1))| {
                    let [username, realm, domain] = [name, realm, domain].map(|part| text(part));
                    SubscriberAnswer::Credential(Arc::new(Credential { username, realm, domain, ha1: *ha1 }))
                })
            }
            Question::User { username, domain } => {
                let user: Address = (username.into(), domain.into());
                if self.users.contains_key(&user) { SubscriberAnswer::Exists } else { SubscriberAnswer::Absent }
            }
        }
    }
}

impl Subscribers for Users {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(&self, question: Question<'_>, _now_ms: u64) -> Option<Result<SubscriberAnswer, StoreError>> {
        let state = self.state();
        state.cached.contains(&Asked::from(question)).then(|| Ok(state.answer(question)))
    }

    fn request(&self, ticket: Ticket, question: Question<'_>, _now_ms: u64) -> Result<(), Refused> {
        self.state().asked.push((ticket.value, question.into()));
        Ok(())
    }
}
