//! Credentials of registered users that only a cache has: stored when a REGISTER was verified, with the lifetime of the
//! registration, and fetched to verify later requests of the user. There is no database behind it: without an entry the
//! user is unknown.
//!
//! Servers that share the cache share the credentials. An entry is equivalent to a password: read access to the cache
//! means access as any user in it.
//!
//! A key has the realm and the user name as the phone writes it. Only a domain in the name is converted to lower case,
//! so that all spellings of a domain share one entry, and none outlives the others. A value begins with its format
//! version and repeats realm and name, with the domain as the phone writes it: an entry under a wrong key, of another
//! version or damaged is ignored, and an entry stored for one spelling proves nothing for another.

use std::sync::Arc;

use strowger_cache::engine::{CacheHandle, Reply, Task};
use strowger_cache::request::{Life, Promise, Request};
use strowger_cache::ticket::{Receiver, ReceiverId, Ticket};

use crate::second_level::codec::{Rest, ha1s, text};
use crate::subscriber::{CredentialView, parts_of};

/// Format version of values.
const VERSION: u8 = 1;

/// Authentication name and realm of a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose<'a> {
    /// `username` of its credentials, unquoted.
    pub username: &'a [u8],
    /// `realm`, unquoted.
    pub realm: &'a [u8],
}

/// Buffers of one caller, used again for each request.
#[derive(Debug, Default)]
pub struct Scratch {
    key: Vec<u8>,
    /// Value found by an immediate fetch, or value to store.
    pub value: Vec<u8>,
}

/// View of the cache for shards.
#[derive(Clone)]
pub struct CredentialCache {
    engine: CacheHandle,
}

impl CredentialCache {
    /// Uses this cache.
    pub const fn new(engine: CacheHandle) -> Self {
        Self { engine }
    }

    /// Returns the same cache with connections of the calling shard, and the task that the shard must run. Returns
    /// `None` if the cache has no such connections.
    pub fn local(&self) -> Option<(Self, Task)> {
        self.engine.local().map(|(engine, task)| (Self { engine }, task))
    }

    /// Adds a receiver of answers.
    pub fn receiver(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        self.engine.register(receiver)
    }

    /// Tells whether fetches are answered at once, since the cache is in this process.
    pub const fn is_local(&self) -> bool {
        matches!(self.engine, CacheHandle::Local(_))
    }

    /// Fetches the credentials of this user. If the cache answers at once, the value is in `scratch`; otherwise it
    /// comes with the ticket. [`read`] decodes the value.
    pub fn fetch(&self, whose: Whose<'_>, ticket: Ticket, now_ms: u64, scratch: &mut Scratch) -> Reply {
        let Scratch { key, value } = scratch;
        write_key(whose, key);
        value.clear();
        self.engine.ask(&Request::Fetch { key }, Promise::Held, ticket, now_ms, value)
    }

    /// Stores the credentials of this user in place of earlier ones. Once the cache has answered, the credentials
    /// outlive the process if the cache does.
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
        // A store returns no value.
        self.engine.ask(&request, Promise::Kept, ticket, now_ms, &mut Vec::new())
    }

    /// Removes the entry of this user.
    pub fn remove(&self, whose: Whose<'_>, ticket: Ticket, now_ms: u64, scratch: &mut Scratch) -> Reply {
        write_key(whose, &mut scratch.key);
        let request = Request::Remove { key: &scratch.key };
        self.engine.ask(&request, Promise::Kept, ticket, now_ms, &mut Vec::new())
    }

    /// Sends the requests of the shard's round together.
    pub fn flush(&self) {
        self.engine.flush();
    }
}

/// Returns the key of this user's credentials, for a thread that may wait for the cache.
pub fn key(whose: Whose<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    write_key(whose, &mut key);
    key
}

/// Decodes the credential of this user; `None` if the value belongs to another user or spelling, has another version or
/// is damaged.
pub fn read<'a>(value: &'a [u8], whose: Whose<'_>) -> Option<CredentialView<'a>> {
    let (spelled, credential) = read_spelled(value, whose)?;
    (spelled == whose.username).then_some(credential)
}

/// Decodes the credential of this user in any spelling of its domain. Returns the spelling with which it was stored,
/// and the credential.
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

/// Writes the key. Length prefixes delimit the realm, so that no two users share a key.
fn write_key(whose: Whose<'_>, key: &mut Vec<u8>) {
    use std::io::Write;
    key.clear();
    // Writes to memory cannot fail.
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
    use strowger_cache::request::CacheAnswer;
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
        let cache = CredentialCache::new(CacheHandle::Local(Arc::new(LocalCache::new(LocalSettings::default()))));
        let receiver = cache.receiver(Arc::new(Silent::default()));
        (cache, Ticket { receiver, value: 1 })
    }

    #[test]
    fn credentials_live_as_long_as_the_registration() {
        let ((cache, ticket), mut scratch) = (cache(), Scratch::default());
        let mut fetch = |whose, now| match cache.fetch(whose, ticket, now, &mut scratch) {
            Reply::Now(Ok(CacheAnswer::Found)) => read(&scratch.value, whose).map(|found| found.ha1),
            Reply::Now(Ok(CacheAnswer::Absent)) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(fetch(ALICE, 0), None);
        let mut other = Scratch::default();
        for octet in [1, 2] {
            let stored = cache.store(ALICE, credential(octet), Life::ms(60_000), ticket, 1_000, &mut other);
            assert_eq!(stored, Reply::Now(Ok(CacheAnswer::Stored)));
            assert!(fetch(ALICE, 60_999) == Some(credential(octet).ha1), "the last one");
        }
        assert_eq!(fetch(ALICE, 61_000), None);
        assert_eq!(fetch(Whose { username: b"Alice", ..ALICE }, 1_000), None);
        assert_eq!(fetch(Whose { realm: b"example.com", ..ALICE }, 1_000), None);
        cache.store(ALICE, credential(3), Life::ms(60_000), ticket, 1_000, &mut other);
        assert_eq!(cache.remove(ALICE, ticket, 1_000, &mut other), Reply::Now(Ok(CacheAnswer::Removed)));
        assert_eq!(fetch(ALICE, 1_000), None);
    }

    /// An HA1 belongs to one spelling of an address, but the entry belongs to all spellings.
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
            assert_eq!(found == Reply::Now(Ok(CacheAnswer::Found)), is_found, "{whose:?}");
            assert_eq!(read(&scratch.value, whose).is_some(), is_read, "{whose:?}");
            let spelled = read_spelled(&scratch.value, whose).map(|(spelled, _)| spelled.to_vec());
            assert_eq!(spelled, is_found.then(|| upper.username.to_vec()), "{whose:?}");
        }
        assert_eq!(cache.remove(lower, ticket, 0, &mut scratch), Reply::Now(Ok(CacheAnswer::Removed)));
        assert_eq!(cache.fetch(upper, ticket, 0, &mut scratch), Reply::Now(Ok(CacheAnswer::Absent)));
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
