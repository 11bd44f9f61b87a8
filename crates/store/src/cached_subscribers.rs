//! The subscribers of any database, behind the cache, and which of them were removed.
//!
//! The cache tells of a removal once it says nothing of that user any more: [`SubscriberWatch::changes`] is read after
//! [`SubscriberWatch::removed`], and is void before that stands in [`Subscribers::removed`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{
    Changes, Engine, LocalAsker, LocalEngine, ReadThrough, ReadThroughGauges, ReadThroughSettings, Task, Watch,
};
use crate::subscriber::{Answer, Asked, LookupSink, Question, Removed, SubscriberWatch, Subscribers};
use crate::ticket::{Refused, SinkId, Ticket};

/// See [the module](self).
pub struct CachedSubscribers {
    cache: ReadThrough<Asked>,
    removals: Arc<Mutex<Removals>>,
    local: Option<Box<MakeLocal>>,
}

/// Makes the asker of a shard, and its tasks.
type MakeLocal = dyn Fn(&ReadThrough<Asked>) -> (LocalAsker<Asked>, Vec<Task>) + Send + Sync;

/// Users who were removed.
#[derive(Default)]
struct Removals {
    open: Vec<Removed>,
    /// Settled, and still noted in the database.
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
    pub fn start<E: Engine<Key = Asked>>(
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

    /// The same for a database that does not tell what changes: an answer is good for its lifetime, and a user who was removed is not
    /// [noticed](Subscribers::removed).
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start_unwatched<E: Engine<Key = Asked>>(
        first: E,
        connect: impl Fn() -> Result<E, StoreError> + Send + Sync + 'static,
        settings: ReadThroughSettings,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let cache = ReadThrough::start(first, connect, None, settings, clock)?;
        Ok(Self { cache, removals: Arc::default(), local: None })
    }

    /// Each shard asks by a connection of its own before the threads do, once it is made; `engine` makes one that is not connected
    /// yet, with a task that it needs beside it.
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
        self.cache.receiver(move |results: &[(u64, Result<Answer, StoreError>)]| sink.answered(results))
    }

    #[inline]
    fn cached(&self, question: Question<'_>, now_ms: u64) -> Option<Result<Answer, StoreError>> {
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

    fn kept(&self, question: Question<'_>, now_ms: u64) -> Option<(Answer, bool)> {
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

/// Reads removals beside changes.
struct RemovalWatch<W> {
    watch: W,
    removals: Arc<Mutex<Removals>>,
    /// The removed users could not be read or noted: the next poll does it.
    is_behind: bool,
    /// To be told when what changed is void.
    read: Option<Vec<Removed>>,
}

impl<W: SubscriberWatch> RemovalWatch<W> {
    /// Notes in the database what was settled. Whether all of it is noted.
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
        // Once more: it holds all of them.
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
