//! Subscribers of any database, behind the cache, and the removed users.
//!
//! A removal is reported only when the cache has no answer about the removed user any more:
//! [`SubscriberWatch::changes`] is read after [`SubscriberWatch::removed`], and the changed answers are voided before
//! the user appears in [`Subscribers::removed`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{
    Changes, LocalAsker, LocalEngine, LookupEngine, ReadThrough, ReadThroughGauges, ReadThroughSettings, Task, Watch,
};
use crate::subscriber::{Asked, LookupSink, Question, Removed, SubscriberAnswer, SubscriberWatch, Subscribers};
use crate::ticket::{Refused, SinkId, Ticket};

/// Subscribers behind the cache; see [the module](self).
pub struct CachedSubscribers {
    cache: ReadThrough<Asked>,
    removals: Arc<Mutex<Removals>>,
    local: Option<Box<MakeLocal>>,
}

/// Factory of a shard's asker and its tasks.
type MakeLocal = dyn Fn(&ReadThrough<Asked>) -> (LocalAsker<Asked>, Vec<Task>) + Send + Sync;

/// Removed users.
#[derive(Default)]
struct Removals {
    open: Vec<Removed>,
    /// Settled removals whose notes are still in the database.
    settled: Vec<u64>,
}

fn lock(removals: &Mutex<Removals>) -> MutexGuard<'_, Removals> {
    removals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedSubscribers {
    /// Starts the threads; see [`ReadThrough::start`].
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start<E: LookupEngine<Key = Asked>>(
        first: E,
        connect: impl Fn() -> Result<E, StoreError> + Send + Sync + 'static,
        watch: impl SubscriberWatch,
        settings: ReadThroughSettings,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let removals = Arc::<Mutex<Removals>>::default();
        let watch = RemovalWatch { watch, removals: removals.clone(), is_behind: true, read: None };
        let cache = ReadThrough::start(first, connect, Some(Box::new(watch)), settings, clock)?;
        Ok(Self { cache, removals, local: None })
    }

    /// Starts the threads for a database that reports no changes: only the lifetime limits an answer, and a removed
    /// user is not [reported](Subscribers::removed).
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start_unwatched<E: LookupEngine<Key = Asked>>(
        first: E,
        connect: impl Fn() -> Result<E, StoreError> + Send + Sync + 'static,
        settings: ReadThroughSettings,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let cache = ReadThrough::start(first, connect, None, settings, clock)?;
        Ok(Self { cache, removals: Arc::default(), local: None })
    }

    /// Gives each shard its own connection, which is used before the threads. `engine` returns an engine that is not
    /// connected yet, with an optional task that must run while the engine is used.
    #[must_use]
    pub fn with_local<E, F>(mut self, engine: F) -> Self
    where
        E: LocalEngine<Key = Asked>,
        F: Fn() -> (E, Option<Task>) + Send + Sync + 'static,
    {
        self.local = Some(Box::new(move |cache| {
            let (own, beside) = engine();
            let (asker, task) = cache.local(own);
            (asker, beside.into_iter().chain([task]).collect())
        }));
        self
    }
}

impl Subscribers for CachedSubscribers {
    fn receiver(&self, sink: Arc<dyn LookupSink>) -> SinkId {
        self.cache.receiver(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| sink.answered(results))
    }

    #[inline]
    fn cached(&self, question: Question<'_>, now_ms: u64) -> Option<Result<SubscriberAnswer, StoreError>> {
        self.cache.cached(question, now_ms)
    }

    fn request(&self, ticket: Ticket, question: Question<'_>, now_ms: u64) -> Result<(), Refused> {
        self.cache.request(ticket, question, now_ms)
    }

    fn flush(&self) {
        self.cache.flush();
    }

    fn local(&self) -> Option<(LocalAsker<Asked>, Vec<Task>)> {
        self.local.as_ref().map(|make| make(&self.cache))
    }

    fn kept(&self, question: Question<'_>, now_ms: u64) -> Option<(SubscriberAnswer, bool)> {
        self.cache.kept(question, now_ms)
    }

    fn void(&self, questions: &[Asked]) -> usize {
        self.cache.void(questions)
    }

    fn forget(&self) {
        self.cache.forget();
    }

    fn gauges(&self) -> ReadThroughGauges {
        self.cache.gauges()
    }

    fn removed(&self) -> Vec<Removed> {
        lock(&self.removals).open.clone()
    }

    fn has_ended(&self) -> bool {
        self.cache.has_ended()
    }

    fn settled(&self, id: u64) {
        let mut removals = lock(&self.removals);
        removals.open.retain(|removed| removed.id != id);
        removals.settled.push(id);
    }
}

/// Watch that reads removals together with changes.
struct RemovalWatch<W> {
    watch: W,
    removals: Arc<Mutex<Removals>>,
    /// Set if the removed users could not be read or settled: the next poll tries again.
    is_behind: bool,
    /// Removals to report when the changed answers are void.
    read: Option<Vec<Removed>>,
}

impl<W: SubscriberWatch> RemovalWatch<W> {
    /// Deletes the notes of settled removals from the database. Returns whether all of them are deleted.
    fn settle(&mut self) -> bool {
        let settled = lock(&self.removals).settled.clone();
        let is_noted = settled.is_empty() || self.watch.settle(&settled).is_ok();
        if is_noted {
            lock(&self.removals).settled.retain(|id| !settled.contains(id));
        }
        is_noted
    }
}

impl<W: SubscriberWatch> Watch for RemovalWatch<W> {
    type Key = Asked;

    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        let is_noted = self.settle();
        let changes = self.watch.changes()?;
        if changes == Changes::None && !self.is_behind {
            self.is_behind = !is_noted;
            return Ok(changes);
        }
        let removed = self.watch.removed();
        self.is_behind = !is_noted || removed.is_err();
        self.read = removed.ok();
        // The changes are read once more, after the removals, so that they include all removed users.
        let more = self.watch.changes().unwrap_or(Changes::All);
        Ok(changes.and(more))
    }

    fn voided(&mut self) {
        let Some(mut read) = self.read.take() else { return };
        let mut removals = lock(&self.removals);
        read.retain(|removed| !removals.settled.contains(&removed.id));
        removals.open = read;
    }
}
