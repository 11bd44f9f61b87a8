//! Requirements on a database behind the cache.

use std::hash::Hash;

use crate::error::StoreError;

/// Owned question. A caller asks by a type that borrows its texts, which is [`Equivalent`](hashbrown::Equivalent) to
/// this one and has the same hash.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {
    /// Value that answers the question.
    type Value: Clone + Send + Sync + 'static;

    /// Returns the length of the question's texts in bytes.
    fn bytes(&self) -> usize;

    /// Tells whether the answer is negative.
    fn is_absent(answer: &Self::Value) -> bool;

    /// Tells whether the answer to this question may be cached. A question with many spellings may not: its answers
    /// would fill the cache, and a notice names only one spelling.
    fn is_kept(&self) -> bool {
        true
    }
}

/// Connection to a database. Lives on a thread of its own; may block, should have a deadline of its own.
pub trait LookupEngine: Send + 'static {
    /// Type of the engine's questions.
    type Key: Key;

    /// Writes the answer to each question into `answers`, in order. Logs the cause of a failure.
    ///
    /// # Errors
    /// None of the questions was answered; nothing is cached then.
    fn answer(
        &mut self,
        questions: &[Self::Key],
        answers: &mut Vec<<Self::Key as Key>::Value>,
    ) -> Result<(), StoreError>;
}

/// Changes in a database since the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes<K> {
    /// No change.
    None,
    /// Notices: the answers to these questions have changed.
    Of(Vec<K>),
    /// Unknown changes: any answer may be outdated. Follows from a new version, and from missed notices.
    All,
}

impl<K> Changes<K> {
    /// Combines two changes.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        match (self, more) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, one) | (one, Self::None) => one,
            (Self::Of(mut all), Self::Of(more)) => {
                all.extend(more);
                Self::Of(all)
            }
        }
    }
}

/// Reports outdated answers, on a connection of its own: by notices or by a version. Where a database has neither,
/// there is no watch, and only the lifetime limits an answer.
pub trait Watch: Send + 'static {
    /// Type of the engine's questions.
    type Key: Key;

    /// Returns the changes since the last call. Called several times a second. Logs the cause of a failure.
    ///
    /// # Errors
    /// The changes are unknown; cached answers stay usable as with a silent engine.
    fn changes(&mut self) -> Result<Changes<Self::Key>, StoreError>;

    /// Called when no caller can get the answers that the last [`changes`](Self::changes) named.
    fn voided(&mut self) {}
}

/// Watch of a version number, which differs after each change.
pub struct Version<K, F> {
    read: F,
    seen: Option<u64>,
    of: std::marker::PhantomData<fn() -> K>,
}

impl<K, F: FnMut() -> Result<u64, StoreError>> Version<K, F> {
    /// Creates the watch. `read` returns the version number.
    pub fn new(read: F) -> Self {
        Self { read, seen: None, of: std::marker::PhantomData }
    }
}

impl<K: Key, F: FnMut() -> Result<u64, StoreError> + Send + 'static> Watch for Version<K, F> {
    type Key = K;

    fn changes(&mut self) -> Result<Changes<K>, StoreError> {
        let version = (self.read)()?;
        Ok(if self.seen.replace(version) == Some(version) { Changes::None } else { Changes::All })
    }
}
