//! The database of subscribers behind simulated servers: it answers after a delay, sometimes fails, and has outages.

use crate::random::Random;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_store::error::StoreError;
use strowger_store::subscriber::{Asked, Credential, Ha1s, Question, SubscriberAnswer};

/// A fault of a database in a period ([`Now::mono`](strowger_core::Now)).
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    pub from: u64,
    pub to: u64,
    pub kind: OutageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageKind {
    /// The database answers when the outage is over.
    Silent,
    Failing,
    /// The database takes this number of ms more.
    Slow(u64),
}

/// Returns the outage at this moment.
pub(super) fn outage(of: &[Outage], now: u64) -> Option<Outage> {
    of.iter().find(|outage| (outage.from..outage.to).contains(&now)).copied()
}

/// Returns a random error of a store.
pub(super) fn error(random: &mut Random) -> StoreError {
    *random.pick(&[StoreError::Unavailable, StoreError::TimedOut, StoreError::Refused, StoreError::Full])
}

/// Returns the password of a user: the first or a later one.
pub fn password(name: &str, version: u32) -> String {
    if version == 0 { name.to_owned() } else { format!("{name}#{version}") }
}

/// Subscribers of one domain, each with one password in each of its realms; servers may share it.
#[derive(Debug)]
pub struct Database {
    domain: String,
    /// Password changes of each user: time and number.
    users: HashMap<String, Vec<(u64, u32)>>,
    realms: Vec<String>,
    pub outages: Vec<Outage>,
    /// Batches of questions that fail, in thousandths.
    pub failures: u64,
    /// Shortest and longest time that it takes to answer, ms.
    pub delay: (u64, u64),
    credentials: Mutex<HashMap<(String, String, u32), Arc<Credential>>>,
}

/// Time of an answer of the database, and the answer.
pub(super) type TimedAnswer = (u64, Result<Vec<SubscriberAnswer>, StoreError>);

impl Database {
    pub fn new(domain: &str, realms: &[&str], users: impl IntoIterator<Item = String>) -> Self {
        Self {
            domain: domain.to_owned(),
            users: users.into_iter().map(|name| (name, Vec::new())).collect(),
            realms: realms.iter().map(|realm| (*realm).to_owned()).collect(),
            outages: Vec::new(),
            failures: 0,
            delay: (0, 0),
            credentials: Mutex::default(),
        }
    }

    /// Gives the user another password from this moment on.
    pub fn change_password(&mut self, user: &str, at: u64) -> u32 {
        let changes = self.users.entry(user.to_owned()).or_default();
        let version = changes.len() as u32 + 1;
        changes.push((at, version));
        version
    }

    /// Returns whether passwords change.
    pub fn changes(&self) -> bool {
        self.users.values().any(|changes| !changes.is_empty())
    }

    pub fn has_user(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// Returns whether a question may fail or be answered late.
    pub fn may_fail(&self) -> bool {
        self.failures > 0 || !self.outages.is_empty()
    }

    /// Questions whose answers have changed in this period.
    pub(super) fn changed(&self, since: u64, now: u64) -> Vec<Asked> {
        let mut changed: Vec<&String> = self
            .users
            .iter()
            .filter(|(_, changes)| changes.iter().any(|(at, _)| (since + 1..=now).contains(at)))
            .map(|(name, _)| name)
            .collect();
        changed.sort();
        let credentials = |name: &String| {
            let asked = |realm: &String| -> Asked {
                Question::Credential { username: name.as_bytes(), realm: realm.as_bytes() }.into()
            };
            self.realms.iter().map(asked).collect::<Vec<_>>()
        };
        changed.into_iter().flat_map(credentials).collect()
    }

    /// Returns the answers to questions that are asked now, and the time of these answers.
    pub(super) fn ask(&self, random: &mut Random, now: u64, questions: &[Asked]) -> TimedAnswer {
        let due = now + random.between(self.delay.0, self.delay.1);
        let answers = |at: u64| questions.iter().map(|asked| self.look(asked, at)).collect();
        match outage(&self.outages, now) {
            Some(Outage { kind: OutageKind::Failing, .. }) => (due, Err(error(random))),
            Some(Outage { kind: OutageKind::Silent, to, .. }) => {
                let due = to + random.between(self.delay.0, self.delay.1);
                if random.chance(300) { (due, Err(StoreError::TimedOut)) } else { (due, Ok(answers(to))) }
            }
            Some(Outage { kind: OutageKind::Slow(more), .. }) => (due + more, Ok(answers(now))),
            None if random.chance(self.failures) => (due, Err(error(random))),
            None => (due, Ok(answers(now))),
        }
    }

    fn look(&self, asked: &Asked, now: u64) -> SubscriberAnswer {
        let (name, is_here) = match asked.question() {
            Question::Credential { username, realm } => (username, self.realms.iter().any(|of| of.as_bytes() == realm)),
            Question::User { username, domain } => (username, self.domain.as_bytes() == domain),
        };
        let name = String::from_utf8_lossy(name);
        match (self.users.get(&*name).filter(|_| is_here), asked.question()) {
            (None, _) => SubscriberAnswer::Absent,
            (Some(_), Question::User { .. }) => SubscriberAnswer::Exists,
            (Some(changes), Question::Credential { realm, .. }) => {
                let version = changes.iter().rfind(|(at, _)| *at <= now).map_or(0, |(_, version)| *version);
                SubscriberAnswer::Credential(self.credential(&name, &String::from_utf8_lossy(realm), version))
            }
        }
    }

    fn credential(&self, name: &str, realm: &str, version: u32) -> Arc<Credential> {
        let mut credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), realm.to_owned(), version);
        credentials.entry(key).or_insert_with(|| Arc::new(make(name, &self.domain, realm, version))).clone()
    }

    /// Returns the number of the password from which a credential was made.
    pub(super) fn version(&self, credential: &Credential) -> u32 {
        let of = |(_, version): &(u64, u32)| {
            *self.credential(&credential.username, &credential.realm, *version) == *credential
        };
        let changes = self.users.get(&*credential.username).into_iter().flatten();
        changes.filter(|change| of(change)).map(|(_, version)| *version).next().unwrap_or(0)
    }

    /// Returns the number of the password of a user at this moment.
    pub(super) fn current(&self, name: &str, now: u64) -> u32 {
        let mut changes = self.users.get(name).into_iter().flatten();
        changes.rfind(|(at, _)| *at <= now).map_or(0, |(_, version)| *version)
    }
}

fn make(name: &str, domain: &str, realm: &str, version: u32) -> Credential {
    let password = password(name, version);
    let ha1 = Ha1Set::of_password(name.as_bytes(), realm.as_bytes(), password.as_bytes());
    let digest = |hash| ha1.of(hash).map(|ha1| ha1.value().as_bytes().to_vec());
    let ha1 = Ha1s {
        md5: digest(Hash::Md5).and_then(|ha1| ha1.try_into().ok()),
        sha256: digest(Hash::Sha256).and_then(|ha1| ha1.try_into().ok()),
        sha512_256: digest(Hash::Sha512_256).and_then(|ha1| ha1.try_into().ok()),
    };
    Credential { username: name.into(), realm: realm.into(), domain: domain.into(), ha1 }
}
