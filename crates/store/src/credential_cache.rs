//! Credentials of users who are registered, in a cache alone: stored when a REGISTER was verified, with the life of the registration, and
//! fetched to verify what the user sends until that ends. No database stands behind it: what is not there is not known.
//!
//! Servers that share the cache share the credentials. An entry is as good as a password: who can read the cache can be any user in it.
//!
//! A key has the realm and the user name as the phone writes it, but for a domain behind that, which is in lower case: so no spelling has an entry
//! that outlives the others. A value begins with the version of its form and holds both once more, the name with its domain as the phone writes it:
//! what stands under a wrong key, is of another version or damaged is none, and what was stored by another spelling proves nothing by this one.

use std::sync::Arc;

use strowger_cache::engine::{Engine, Reply, Task};
use strowger_cache::request::{Life, Promise, Request};
use strowger_cache::ticket::{Receiver, ReceiverId, Ticket};

use crate::second_level::codec::{Rest, ha1s, text};
use crate::subscriber::{CredentialView, parts_of};

/// The form of values.
const VERSION: u8 = 1;

/// Under which name a phone authenticates, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose<'a> {
    /// `username` of its credentials, unquoted.
    pub username: &'a [u8],
    /// `realm`, unquoted.
    pub realm: &'a [u8],
}

/// Memory of one caller, used again for each request.
#[derive(Debug, Default)]
pub struct Scratch {
    key: Vec<u8>,
    /// The value that a fetch found at once, or that is stored.
    pub value: Vec<u8>,
}

/// The cache as shards see it.
#[derive(Clone)]
pub struct CredentialCache {
    engine: Engine,
}

impl CredentialCache {
    /// In this cache.
    pub const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// The same cache for the calling shard alone, which then is to run the task, where it can ask by connections of its own.
    pub fn local(&self) -> Option<(Self, Task)> {
        self.engine.local().map(|(engine, task)| (Self { engine }, task))
    }

    /// Adds a receiver of answers.
    pub fn receiver(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        self.engine.register(receiver)
    }

    /// Whether fetches are answered at once: the cache is in this process.
    pub const fn is_local(&self) -> bool {
        matches!(self.engine, Engine::Local(_))
    }

    /// Fetches the credentials of this user. Found at once, the value is in `scratch`; else it comes with the ticket. [`read`] reads it.
    pub fn fetch(&self, whose: Whose<'_>, ticket: Ticket, now_ms: u64, scratch: &mut Scratch) -> Reply {
        let Scratch { key, value } = scratch;
        write_key(whose, key);
        value.clear();
        self.engine.ask(&Request::Fetch { key }, Promise::Held, ticket, now_ms, value)
    }

    /// Stores what proves this user, in place of what is there. What is answered outlives the process, where the cache does.
    pub fn store(
        &self,
        whose: Whose<'_>,
        credential: CredentialView<'_>,
        life: Life,
        ticket: Ticket,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Reply {
        let Scratch { key, value } = scratch;
        write_key(whose, key);
        write_value(whose, credential, value);
        let request = Request::Store { key, value, life };
        // A store finds no value.
        self.engine.ask(&request, Promise::Kept, ticket, now_ms, &mut Vec::new())
    }

    /// Removes what is there of this user.
    pub fn remove(&self, whose: Whose<'_>, ticket: Ticket, now_ms: u64, scratch: &mut Scratch) -> Reply {
        write_key(whose, &mut scratch.key);
        let request = Request::Remove { key: &scratch.key };
        self.engine.ask(&request, Promise::Kept, ticket, now_ms, &mut Vec::new())
    }

    /// A round of a shard has ended: what it asked leaves together.
    pub fn flush(&self) {
        self.engine.flush();
    }
}

/// The key under which the credentials of this user stand, for a thread that may wait.
pub fn key(whose: Whose<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    write_key(whose, &mut key);
    key
}

/// What a value says of this user; none if it is another's, of another spelling, of another version or damaged.
pub fn read<'a>(value: &'a [u8], whose: Whose<'_>) -> Option<CredentialView<'a>> {
    let (spelled, credential) = read_spelled(value, whose)?;
    (spelled == whose.username).then_some(credential)
}

/// What a value says of this user in any spelling of its domain, behind the spelling by which it was stored.
pub fn read_spelled<'a>(value: &'a [u8], whose: Whose<'_>) -> Option<(&'a [u8], CredentialView<'a>)> {
    let mut rest = Rest(value);
    let [version] = *rest.take()?;
    let (realm, spelled) = (rest.text()?, rest.text()?);
    let ((name, domain), (own_name, own_domain)) = (parts_of(spelled), parts_of(whose.username));
    let is_own = realm == whose.realm && name == own_name && domain.eq_ignore_ascii_case(own_domain);
    if version != VERSION || !is_own {
        return None;
    }
    let username = std::str::from_utf8(rest.text()?).ok()?;
    let domain = std::str::from_utf8(rest.text()?).ok()?;
    let ha1 = rest.ha1s()?;
    rest.0.is_empty().then_some((spelled, CredentialView { username, domain, ha1 }))
}

/// Lengths make it certain where a text ends: no two users have one key.
fn write_key(whose: Whose<'_>, key: &mut Vec<u8>) {
    use std::io::Write;
    key.clear();
    // Writing to memory cannot fail.
    let _ = write!(key, "strowger:registered:{}:", whose.realm.len());
    key.extend_from_slice(whose.realm);
    key.push(b':');
    let (name, domain) = parts_of(whose.username);
    key.extend_from_slice(name);
    key.extend(domain.iter().map(u8::to_ascii_lowercase));
}

fn write_value(whose: Whose<'_>, credential: CredentialView<'_>, value: &mut Vec<u8>) {
    value.clear();
    value.push(VERSION);
    for part in [whose.realm, whose.username, credential.username.as_bytes(), credential.domain.as_bytes()] {
        text(part, value);
    }
    ha1s(&credential.ha1, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscriber::Ha1s;
    use proptest::prelude::*;
    use std::sync::Mutex;
    use strowger_cache::local::LocalCache;
    use strowger_cache::request::Answer;
    use strowger_cache::settings::LocalSettings;
    use strowger_cache::ticket::Answered;

    const ALICE: Whose<'_> = Whose { username: b"alice", realm: b"example.org" };

    #[derive(Default)]
    struct Silent(Mutex<Vec<Answered>>);

    impl Receiver for Silent {
        fn answered(&self, answers: Vec<Answered>) {
            self.0.lock().unwrap().extend(answers);
        }
    }

    fn credential(octet: u8) -> CredentialView<'static> {
        let ha1 = Ha1s { md5: Some([octet; 16]), sha256: None, sha512_256: Some([octet; 32]) };
        CredentialView { username: "alice", domain: "example.org", ha1 }
    }

    fn cache() -> (CredentialCache, Ticket) {
        let cache = CredentialCache::new(Engine::Local(Arc::new(LocalCache::new(LocalSettings::default()))));
        let receiver = cache.receiver(Arc::new(Silent::default()));
        (cache, Ticket { receiver, value: 1 })
    }

    #[test]
    fn credentials_live_as_long_as_the_registration() {
        let ((cache, ticket), mut scratch) = (cache(), Scratch::default());
        let mut fetch = |whose, now| match cache.fetch(whose, ticket, now, &mut scratch) {
            Reply::Now(Ok(Answer::Found)) => read(&scratch.value, whose).map(|found| found.ha1),
            Reply::Now(Ok(Answer::Absent)) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(fetch(ALICE, 0), None);
        let mut other = Scratch::default();
        for octet in [1, 2] {
            let stored = cache.store(ALICE, credential(octet), Life::ms(60_000), ticket, 1_000, &mut other);
            assert_eq!(stored, Reply::Now(Ok(Answer::Stored)));
            assert!(fetch(ALICE, 60_999) == Some(credential(octet).ha1), "the last one");
        }
        assert_eq!(fetch(ALICE, 61_000), None);
        assert_eq!(fetch(Whose { username: b"Alice", ..ALICE }, 1_000), None);
        assert_eq!(fetch(Whose { realm: b"example.com", ..ALICE }, 1_000), None);
        cache.store(ALICE, credential(3), Life::ms(60_000), ticket, 1_000, &mut other);
        assert_eq!(cache.remove(ALICE, ticket, 1_000, &mut other), Reply::Now(Ok(Answer::Removed)));
        assert_eq!(fetch(ALICE, 1_000), None);
    }

    /// The HA1 of an address is that of one spelling; the entry is that of all.
    #[test]
    fn spellings_of_a_domain_share_an_entry() {
        let ((cache, ticket), mut scratch) = (cache(), Scratch::default());
        let of = |username: &'static str| Whose { username: username.as_bytes(), ..ALICE };
        let (upper, lower) = (of("alice@EXAMPLE.org"), of("alice@example.org"));
        cache.store(upper, credential(1), Life::ms(60_000), ticket, 0, &mut scratch);
        for (whose, is_found, is_read) in
            [(upper, true, true), (lower, true, false), (ALICE, false, false), (of("Alice@example.org"), false, false)]
        {
            let found = cache.fetch(whose, ticket, 0, &mut scratch);
            assert_eq!(found == Reply::Now(Ok(Answer::Found)), is_found, "{whose:?}");
            assert_eq!(read(&scratch.value, whose).is_some(), is_read, "{whose:?}");
            let spelled = read_spelled(&scratch.value, whose).map(|(spelled, _)| spelled.to_vec());
            assert_eq!(spelled, is_found.then(|| upper.username.to_vec()), "{whose:?}");
        }
        assert_eq!(cache.remove(lower, ticket, 0, &mut scratch), Reply::Now(Ok(Answer::Removed)));
        assert_eq!(cache.fetch(upper, ticket, 0, &mut scratch), Reply::Now(Ok(Answer::Absent)));
    }

    proptest! {
        #[test]
        fn a_value_is_read_for_its_own_user_alone(
            realm in "[a-b:]{0,3}", username in "[a-b:]{0,3}", other_realm in "[a-b:]{0,3}", other in "[a-b:]{0,3}",
            cut in any::<prop::sample::Index>()
        ) {
            let whose = Whose { username: username.as_bytes(), realm: realm.as_bytes() };
            let another = Whose { username: other.as_bytes(), realm: other_realm.as_bytes() };
            let (mut value, mut key, mut other_key) = (Vec::new(), Vec::new(), Vec::new());
            write_value(whose, credential(7), &mut value);
            write_key(whose, &mut key);
            write_key(another, &mut other_key);
            prop_assert_eq!(whose == another, key == other_key);
            let found = read(&value, whose).map(|found| (found.username, found.domain, found.ha1));
            prop_assert_eq!(found, Some(("alice", "example.org", credential(7).ha1)));
            prop_assert_eq!(read(&value, another).is_some(), whose == another);
            prop_assert!(read(&value[..cut.index(value.len())], whose).is_none());
            value.push(0);
            prop_assert!(read(&value, whose).is_none());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            read(&bytes, ALICE);
        }
    }
}
