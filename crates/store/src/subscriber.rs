//! Subscribers: the users that may register, and their secrets.
//!
//! A shard asks [`Subscribers::cached`] first, which neither waits nor allocates. On a miss it calls
//! [`Subscribers::request`], suspends the transaction and continues; the answer comes back with the ticket.
//! [`CachedSubscribers`](crate::cached_subscribers::CachedSubscribers) implements the trait, with one
//! [cache](crate::read_through) for all engines. An engine only answers questions and may block on its own thread:
//! SQLite uses prepared statements, MariaDB and PostgreSQL one `IN` list per batch, Redis one pipeline.
//!
//! No clear password is stored or passed, only HA1 = H(username:realm:password) for each algorithm (RFC 8760, RFC 7616
//! section 3.4.2), computed by the caller. Realms and domains are compared byte by byte; the caller gives domains in
//! lower case.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;

use crate::error::StoreError;
use crate::read_through::{Changes, Key, LocalAsker, ReadThroughGauges, Task};
use crate::ticket::{Refused, SinkId, Ticket};

/// HA1s of one user and realm, one for each configured algorithm, as digests, not in hex.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Ha1s {
    /// MD5.
    pub md5: Option<[u8; 16]>,
    /// SHA-256.
    pub sha256: Option<[u8; 32]>,
    /// SHA-512/256.
    pub sha512_256: Option<[u8; 32]>,
}

impl Ha1s {
    /// Returns the algorithms that are set, by their names in the `algorithm` parameter, with their digests.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let md5 = self.md5.as_ref().map(|h| (MD5, h.as_slice()));
        let sha256 = self.sha256.as_ref().map(|h| (SHA_256, h.as_slice()));
        let sha512_256 = self.sha512_256.as_ref().map(|h| (SHA_512_256, h.as_slice()));
        [md5, sha256, sha512_256].into_iter().flatten()
    }

    /// Sets the digest of a named algorithm; `None` if the name is unknown or the length is wrong.
    pub fn set(&mut self, algorithm: &str, digest: &[u8]) -> Option<()> {
        match algorithm {
            MD5 => self.md5 = Some(digest.try_into().ok()?),
            SHA_256 => self.sha256 = Some(digest.try_into().ok()?),
            SHA_512_256 => self.sha512_256 = Some(digest.try_into().ok()?),
            _ => return None,
        }
        Some(())
    }
}

/// `algorithm` parameter of MD5.
pub const MD5: &str = "MD5";
/// `algorithm` parameter of SHA-256.
pub const SHA_256: &str = "SHA-256";
/// `algorithm` parameter of SHA-512/256.
pub const SHA_512_256: &str = "SHA-512-256";

/// Prints algorithm names only: an HA1 is equivalent to the password and must not reach a log.
impl fmt::Debug for Ha1s {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(algorithm, _)| algorithm)).finish()
    }
}

/// Proof of a user's identity in a realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// User name. A phone may append the domain in the `username` parameter; the secrets are those for the name as the
    /// phone wrote it.
    pub username: Box<str>,
    /// Realm.
    pub realm: Box<str>,
    /// Domain of the user: this credential authenticates `username@domain`.
    pub domain: Box<str>,
    /// The secrets.
    pub ha1: Ha1s,
}

/// Borrowed parts of a [`Credential`], from any source.
#[derive(Clone, Copy, Debug)]
pub struct CredentialView<'a> {
    /// See [`Credential::username`].
    pub username: &'a str,
    /// See [`Credential::domain`].
    pub domain: &'a str,
    /// The secrets.
    pub ha1: Ha1s,
}

impl Credential {
    /// Returns a view of the credential's parts.
    pub fn view(&self) -> CredentialView<'_> {
        CredentialView { username: &self.username, domain: &self.domain, ha1: self.ha1 }
    }
}

/// Splits a `username` parameter at its last `@`, because a phone may send its address in place of its name. Domains
/// are equal in upper and lower case, but the HA1s of their spellings differ.
pub fn parts_of(username: &[u8]) -> (&[u8], &[u8]) {
    username.split_at(username.iter().rposition(|byte| *byte == b'@').unwrap_or(username.len()))
}

/// Question to the subscriber database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question<'a> {
    /// The credential of a user in a realm.
    Credential {
        /// `username` of the Authorization header, unquoted.
        username: &'a [u8],
        /// `realm`, unquoted.
        realm: &'a [u8],
    },
    /// Existence of a user in a local domain (404 or 480, RFC 3261 section 16.5).
    User {
        /// User part, unescaped.
        username: &'a [u8],
        /// Domain in lower case.
        domain: &'a [u8],
    },
}

/// Owned copy of a [`Question`].
#[derive(Clone, PartialEq, Eq)]
pub struct Asked {
    is_user: bool,
    split: usize,
    text: Box<[u8]>,
}

impl Asked {
    /// Returns the question.
    pub fn question(&self) -> Question<'_> {
        let (username, second) = self.text.split_at(self.split);
        if self.is_user {
            Question::User { username, domain: second }
        } else {
            Question::Credential { username, realm: second }
        }
    }
}

impl From<Question<'_>> for Asked {
    fn from(question: Question<'_>) -> Self {
        let (is_user, a, b) = match question {
            Question::Credential { username, realm } => (false, username, realm),
            Question::User { username, domain } => (true, username, domain),
        };
        Self { is_user, split: a.len(), text: [a, b].concat().into_boxed_slice() }
    }
}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.question().hash(state);
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question().fmt(f)
    }
}

impl Equivalent<Asked> for Question<'_> {
    fn equivalent(&self, asked: &Asked) -> bool {
        *self == asked.question()
    }
}

impl Key for Asked {
    type Value = SubscriberAnswer;

    fn bytes(&self) -> usize {
        self.text.len()
    }

    fn is_absent(answer: &SubscriberAnswer) -> bool {
        *answer == SubscriberAnswer::Absent
    }

    /// Tells whether the answer may be cached. Each spelling of a domain in mixed case has another HA1 for the same
    /// user, so only answers for lower case are cached.
    fn is_kept(&self) -> bool {
        let Question::Credential { username, .. } = self.question() else { return true };
        !parts_of(username).1.iter().any(u8::is_ascii_uppercase)
    }
}

/// Answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberAnswer {
    /// Answer to [`Question::Credential`].
    Credential(Arc<Credential>),
    /// Answer to [`Question::User`].
    Exists,
    /// No such user or credential; answer to both questions.
    Absent,
}

/// Removed user, until the keeper of bindings has ended the user's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Unique number of the removal.
    pub id: u64,
    /// User name.
    pub username: Box<str>,
    /// Domain, in lower case.
    pub domain: Box<str>,
}

/// Receiver of answers. Runs on the reader's thread, so it must not block.
pub trait LookupSink: Send + Sync {
    /// Takes tickets with their answers.
    fn answered(&self, results: &[(u64, Result<SubscriberAnswer, StoreError>)]);
}

impl<F: Fn(&[(u64, Result<SubscriberAnswer, StoreError>)]) + Send + Sync> LookupSink for F {
    fn answered(&self, results: &[(u64, Result<SubscriberAnswer, StoreError>)]) {
        self(results);
    }
}

/// View of the subscribers for a shard. The caller gives the time: `now_ms` is
/// [`Moment::mono`](crate::clock::Moment::mono).
pub trait Subscribers: Send + Sync {
    /// Adds a receiver of answers.
    fn receiver(&self, sink: Arc<dyn LookupSink>) -> SinkId;

    /// Returns the cached answer at `now_ms`, or an error at once if the database does not answer. Allocates nothing
    /// for an answer.
    fn cached(&self, question: Question<'_>, now_ms: u64) -> Option<Result<SubscriberAnswer, StoreError>>;

    /// Asks the database. `ticket` comes back once: with the answer, or with an error at the deadline. Equal questions
    /// in flight are asked once.
    ///
    /// # Errors
    /// The queue is full or the threads have stopped; the ticket does not come back.
    fn request(&self, ticket: Ticket, question: Question<'_>, now_ms: u64) -> Result<(), Refused>;

    /// Sends the questions of the shard's round together.
    fn flush(&self) {}

    /// Returns the calling shard's own asker, used in place of [`flush`](Self::flush), and the tasks that the shard
    /// must run. Returns `None` if only threads ask.
    fn local(&self) -> Option<(LocalAsker<Asked>, Vec<Task>)> {
        None
    }

    /// Returns the cached answer to a question, and whether it is usable at `now_ms` without the database. For display
    /// only; no request is answered by it.
    fn kept(&self, _question: Question<'_>, _now_ms: u64) -> Option<(SubscriberAnswer, bool)> {
        None
    }

    /// Removes the cached answers to these questions. Returns how many answers it removed.
    fn void(&self, _questions: &[Asked]) -> usize {
        0
    }

    /// Removes all cached answers.
    fn forget(&self) {}

    /// Returns figures for the log and the metrics.
    fn gauges(&self) -> ReadThroughGauges {
        ReadThroughGauges::default()
    }

    /// Returns the removed users that are not yet [settled](Self::settled), including those removed before a restart.
    /// Once this returns a removed user, no earlier answer about this user is given any more.
    fn removed(&self) -> Vec<Removed> {
        Vec::new()
    }

    /// Tells whether an answering thread has ended unexpectedly; then every question is refused.
    fn has_ended(&self) -> bool {
        false
    }

    /// Marks this removal as complete: the bindings of the user are removed from memory and disk.
    fn settled(&self, _id: u64) {}
}

/// Watch for changed and removed subscribers. Lives on a thread of its own; may block.
pub trait SubscriberWatch: Send + 'static {
    /// Returns the questions whose answers have changed since the last call, by any program. Called several times a
    /// second.
    ///
    /// # Errors
    /// The changes are unknown.
    fn changes(&mut self) -> Result<Changes<Asked>, StoreError>;

    /// Returns the users removed by any program whose removal is not settled. Called after any change.
    ///
    /// # Errors
    /// The removals are unknown now; the caller asks again soon.
    fn removed(&mut self) -> Result<Vec<Removed>, StoreError> {
        Ok(Vec::new())
    }

    /// Deletes the notes of these removals.
    ///
    /// # Errors
    /// None is deleted; the caller asks again soon.
    fn settle(&mut self, _ids: &[u64]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Subscriber for display: no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// User name.
    pub username: String,
    /// Domain.
    pub domain: String,
    /// Each realm with the algorithms that have an HA1.
    pub realms: Vec<(String, Vec<String>)>,
    /// Milliseconds since 1970 UTC.
    pub created_at: u64,
    /// Milliseconds since 1970 UTC.
    pub updated_at: u64,
}

/// Reason why a subscriber command failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The user exists already.
    #[error("{username}@{domain} exists already")]
    Exists {
        /// User name.
        username: String,
        /// Domain.
        domain: String,
    },
    /// The user does not exist.
    #[error("there is no user {username}@{domain}")]
    Missing {
        /// User name.
        username: String,
        /// Domain.
        domain: String,
    },
    /// The realm has this name already. Digest identifies a user by name and realm alone, so a name is unique in a
    /// realm.
    #[error("realm {realm:?} has {username:?} of {domain} already; give this domain a realm of its own")]
    RealmTaken {
        /// User name.
        username: String,
        /// Realm.
        realm: String,
        /// Domain of the user that has a password there.
        domain: String,
    },
    /// No HA1 was given.
    #[error("a user needs an HA1 for at least one algorithm")]
    NoSecret,
    /// An empty name or domain.
    #[error("a user needs a name and a domain, and a realm")]
    NoName,
    /// Another process held the write lock longer than the wait limit.
    #[error("another process has been writing to the database; try again")]
    Locked,
    /// The disk is full, or the file has reached its limit.
    #[error("no room on disk; make room, then try again")]
    NoRoom,
    /// Any other error of the database.
    #[error("the database refused: {0}")]
    Database(String),
}

/// Administration of subscribers, from the command line or an admin API. Blocking.
pub trait SubscriberAdmin {
    /// Adds a user with the HA1s of one realm.
    ///
    /// # Errors
    /// [`AdminError`]; nothing has changed then. This holds for all methods of this trait.
    fn add(&mut self, username: &str, domain: &str, realm: &str, ha1: &Ha1s, now_ms: u64) -> Result<(), AdminError>;

    /// Replaces the HA1s of a user in one realm. Algorithms that are not in `ha1` are removed.
    fn set_password(
        &mut self,
        username: &str,
        domain: &str,
        realm: &str,
        ha1: &Ha1s,
        now_ms: u64,
    ) -> Result<(), AdminError>;

    /// Removes the HA1s of a user in one realm, if there are any. The HA1s of other realms stay.
    fn remove_password(&mut self, username: &str, domain: &str, realm: &str) -> Result<(), AdminError>;

    /// Removes a user with all HA1s.
    fn remove(&mut self, username: &str, domain: &str) -> Result<(), AdminError>;

    /// Lists the users of a domain, or of all, sorted by domain and name.
    fn list(&mut self, domain: Option<&str>) -> Result<Vec<Listed>, AdminError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let ha1 = Ha1s { md5: Some([0xab; 16]), sha512_256: Some([0xcd; 32]), ..Ha1s::default() };
        let credential = Credential { username: "alice".into(), realm: "r".into(), domain: "d".into(), ha1 };
        let printed = format!("{credential:?}");
        assert!(printed.contains("MD5") && printed.contains("SHA-512-256"), "{printed}");
        for secret in ["171", "ab", "205", "cd"] {
            assert!(!printed.to_lowercase().contains(secret), "{printed}");
        }
    }

    #[test]
    fn one_spelling_of_a_domain_is_kept() {
        let is_kept = |username: &str| {
            Asked::from(Question::Credential { username: username.as_bytes(), realm: b"Office" }).is_kept()
        };
        assert!(
            ["alice", "Alice", "alice@example.org", "Alice@example.org", "A@B@example.org", "@"]
                .iter()
                .all(|n| is_kept(n))
        );
        assert!(!["alice@example.Org", "alice@EXAMPLE.ORG", "a@b@C"].iter().any(|n| is_kept(n)));
        assert!(Asked::from(Question::User { username: b"a@B", domain: b"example.org" }).is_kept());
        assert_eq!(parts_of(b"a@b@c"), (&b"a@b"[..], &b"@c"[..]));
        assert_eq!(parts_of(b"alice"), (&b"alice"[..], &b""[..]));
    }

    #[test]
    fn digests_have_their_length() {
        let mut ha1 = Ha1s::default();
        assert_eq!(ha1.set("MD5", &[1; 16]), Some(()));
        assert_eq!(ha1.set("SHA-256", &[2; 32]), Some(()));
        assert_eq!(ha1.set("SHA-256", &[2; 16]), None);
        assert_eq!(ha1.set("SHA-1", &[2; 20]), None);
        assert_eq!(ha1.iter().collect::<Vec<_>>(), [("MD5", &[1; 16][..]), ("SHA-256", &[2; 32][..])]);
    }
}
