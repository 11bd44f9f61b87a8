//! The subscribers of a simulated server: a database that takes its time, and fails now and then.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_store::error::StoreError;
use strowger_store::subscriber::{Answer, Credential, Ha1s, LookupSink, Question, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

/// A question that outlives its asking: of a credential, or of a user; name and realm or domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeptQuestion {
    credential: bool,
    name: Vec<u8>,
    of: Vec<u8>,
}

impl KeptQuestion {
    fn new(question: Question<'_>) -> Self {
        let (credential, name, of) = match question {
            Question::Credential { username, realm } => (true, username, realm),
            Question::User { username, domain } => (false, username, domain),
        };
        Self { credential, name: name.to_vec(), of: of.to_vec() }
    }
}

/// Users of one domain, which is their realm too; each has its own name as password.
pub(crate) struct Users {
    known: HashMap<Vec<u8>, Arc<Credential>>,
    /// What was asked before is known at once.
    remembers: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cached: HashSet<KeptQuestion>,
    /// What was asked and not taken yet.
    asked: Vec<(u64, KeptQuestion)>,
}

impl Users {
    pub(crate) fn new(domain: &str, names: &[&str], remembers: bool) -> Self {
        let known = names.iter().map(|name| (name.as_bytes().to_vec(), Arc::new(credential(name, domain))));
        Self { known: known.collect(), remembers, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tickets and questions since this was last called.
    pub(crate) fn take(&self) -> Vec<(u64, KeptQuestion)> {
        std::mem::take(&mut self.state().asked)
    }

    /// What the database says.
    pub(crate) fn answer(&self, asked: KeptQuestion) -> Answer {
        let answer = self.look(&asked);
        if self.remembers {
            self.state().cached.insert(asked);
        }
        answer
    }

    fn look(&self, asked: &KeptQuestion) -> Answer {
        match self.known.get(&asked.name).filter(|known| known.realm.as_bytes() == asked.of) {
            Some(known) if asked.credential => Answer::Credential(known.clone()),
            Some(_) => Answer::Exists,
            None => Answer::Absent,
        }
    }
}

impl Subscribers for Users {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(&self, question: Question<'_>, _now_ms: u64) -> Option<Result<Answer, StoreError>> {
        let asked = KeptQuestion::new(question);
        self.state().cached.contains(&asked).then(|| Ok(self.look(&asked)))
    }

    fn request(&self, ticket: Ticket, question: Question<'_>, _now_ms: u64) -> Result<(), Refused> {
        self.state().asked.push((ticket.value, KeptQuestion::new(question)));
        Ok(())
    }
}

fn credential(name: &str, domain: &str) -> Credential {
    let ha1 = Ha1Set::of_password(name.as_bytes(), domain.as_bytes(), name.as_bytes());
    let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
    let ha1 = Ha1s { md5, ..Ha1s::default() };
    Credential { username: name.into(), realm: domain.into(), domain: domain.into(), ha1 }
}
