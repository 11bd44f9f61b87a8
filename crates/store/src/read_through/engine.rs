//! What a database must do to stand behind the cache.

use std::hash::Hash;

use crate::error::StoreError;

/// A question with its texts, so that it can be kept. A caller asks by a type that borrows them, which is
/// [`Equivalent`](hashbrown::Equivalent) to this one and has the same hash.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {
    /// What comes back.
    type Answer: Clone + Send + Sync + 'static;

    /// Bytes of its texts.
    fn bytes(&self) -> usize;

    /// Whether the answer is that there is none.
    fn is_absent(answer: &Self::Answer) -> bool;

    /// Whether an answer is kept. One of a question that has many spellings is not: they would take many places, and what voids
    /// one names none of the others.
    fn is_kept(&self) -> bool {
        true
    }
}

/// One connection to a database. Lives on a thread of its own; may block, should give up after its own deadline.
pub trait Engine: Send + 'static {
    /// What it is asked.
    type Key: Key;

    /// Answers each question, in their order. Logs in words what went wrong.
    ///
    /// # Errors
    /// None of them was answered; nothing is cached then.
    fn answer(
        &mut self,
        questions: &[Self::Key],
        answers: &mut Vec<<Self::Key as Key>::Answer>,
    ) -> Result<(), StoreError>;
}

/// What has changed in a database since it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes<K> {
    /// Nothing.
    None,
    /// The answers to these questions: notices.
    Of(Vec<K>),
    /// Something: of each answer it is unknown whether it is still so. A version tells no more, and notices that were missed.
    All,
}

impl<K> Changes<K> {
    /// Both.
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

/// Tells which answers are not so any more, by a connection of its own: by notices or by a version. Where a database has neither, there is
/// no watch, and an answer is good for its lifetime.
pub trait Watch: Send + 'static {
    /// What the engine is asked.
    type Key: Key;

    /// What has changed since the last call. Asked some times a second. Logs in words what went wrong.
    ///
    /// # Errors
    /// It is not known; what is known stays good as if the engine were silent.
    fn changes(&mut self) -> Result<Changes<Self::Key>, StoreError>;

    /// No caller gets any more what the last [`changes`](Self::changes) said is changed.
    fn voided(&mut self) {}
}

/// A watch by a number that is another one after each change.
pub struct Version<K, F> {
    read: F,
    seen: Option<u64>,
    of: std::marker::PhantomData<fn() -> K>,
}

impl<K, F: FnMut() -> Result<u64, StoreError>> Version<K, F> {
    /// `read` reads the number.
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
