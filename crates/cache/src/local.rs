//! Local engine: entries in the memory of this process, in partitions with a short lock each.

mod cells;
mod ghost;
mod index;
mod list;
mod partition;
mod wheel;

use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::quality::RandomState;
use strowger_files::{FileLock, LockError};

use self::partition::Partition;
use crate::error::CacheError;
use crate::gauges::{Gauges, LogGauges};
use crate::log::changes::{Change, Changes};
use crate::log::{Keeper, LoadReport, LogState, Moment, OpenSegment, Receipt, create, load};
use crate::request::{CacheAnswer, Count, Life, Promise, Request};
use crate::settings::{LocalSettings, LogSettings};
use crate::ticket::{Receivers, Ticket};

/// Entries that a sweep inspects under one lock.
const LOOKS: u32 = 64;
/// Smallest memory of a partition, so that its fixed cost is relatively small.
const LEAST: usize = 64 << 10;

/// Cache in the memory of this process, used by all its threads at once. A drop writes the changes that the log lacks.
///
/// `now` is in milliseconds by a clock of the caller's choice that does not go backwards; threads may differ by some milliseconds.
pub struct LocalCache {
    shared: Arc<Shared>,
    log: Option<Arc<LogState>>,
    /// Maximum number of bytes of changes that wait for the log.
    queue: usize,
    keeper: Option<JoinHandle<()>>,
    /// First partition of the next sweep.
    swept: AtomicU64,
    /// Requests refused before they reached a partition.
    refused: AtomicU64,
}

impl LocalCache {
    /// Creates a cache that is only in memory.
    pub fn new(settings: LocalSettings) -> Self {
        Self {
            shared: Arc::new(Shared::new(settings)),
            log: None,
            queue: 0,
            keeper: None,
            swept: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Opens a cache with a log: loads its entries, and logs all further changes. Damaged records are skipped and
    /// reported.
    ///
    /// # Errors
    /// The folder cannot be created or read, another cache uses it, or the thread could not be started. A folder that
    /// becomes unwritable later is no error: the cache continues in memory ([`LogGauges::failing`]) and tries again.
    pub fn open(settings: LocalSettings, log: LogSettings, at: Moment) -> io::Result<(Self, LoadReport)> {
        Self::open_on(settings, log, at, Box::new(create))
    }

    pub(crate) fn open_on(
        settings: LocalSettings,
        log: LogSettings,
        at: Moment,
        open: OpenSegment,
    ) -> io::Result<(Self, LoadReport)> {
        let lock = FileLock::of_folder(&log.folder, "lock", Duration::ZERO).map_err(|error| match error {
            LockError::InUse(_) => io::Error::new(io::ErrorKind::ResourceBusy, "another cache has this folder"),
            LockError::Unusable { error, .. } => error,
        })?;
        let mut cache = Self::new(settings);
        let ahead = at.wall.cast_signed().wrapping_sub(at.now.cast_signed());
        let (segments, mut report) = load(&log.folder, |change| cache.load(change, ahead, at.now))?;
        for (path, damage) in &report.damage {
            tracing::warn!(segment = %path.display(), "a segment of the cache is damaged: {damage}");
        }
        report.entries = cache.len() as u64;
        for part in 0..cache.shared.parts() {
            let partition = &mut *cache.shared.part(part);
            partition.counts = partition::Counts::default();
            partition.changes = Some(Changes::new(log.queue / cache.shared.parts(), ahead, cells::NEVER));
        }
        let state = Arc::new(LogState::new());
        cache.queue = log.queue;
        let keeper = Keeper::new(cache.shared.clone(), state.clone(), log, segments, lock, open);
        let thread = std::thread::Builder::new().name("cache-log".into());
        cache.keeper = Some(thread.spawn(move || keeper.run())?);
        cache.log = Some(state);
        Ok((cache, report))
    }

    /// Appends the value of a key to `into`. Returns `Ok(false)` if the key has no value.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: the key is beyond its bound.
    pub fn fetch(&self, key: &[u8], now: u64, into: &mut Vec<u8>) -> Result<bool, CacheError> {
        let (hash, mut partition) = self.partition(key)?;
        Ok(partition.fetch(hash, key, now, into))
    }

    /// Stores a value, replacing an existing value.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: key or value is beyond its bound, nothing has changed. [`CacheError::Full`]: a
    /// partition has no space for it; the key has no value then.
    pub fn store(&self, key: &[u8], value: &[u8], life: Life, now: u64) -> Result<Receipt, CacheError> {
        self.store_as(Promise::Held, (key, value), life, now)
    }

    fn store_as(
        &self,
        promise: Promise,
        (key, value): (&[u8], &[u8]),
        life: Life,
        now: u64,
    ) -> Result<Receipt, CacheError> {
        self.check(value)?;
        let (hash, mut partition) = self.partition(key)?;
        let stored = partition.store(hash, (key, value), life.end(now), promise, now);
        let receipt = self.noted(partition);
        stored.map(|()| receipt)
    }

    /// Stores a value for a key that has none. Returns `Ok(None)` if the key has a value.
    ///
    /// # Errors
    /// See [`store`](Self::store).
    pub fn add(&self, key: &[u8], value: &[u8], life: Life, now: u64) -> Result<Option<Receipt>, CacheError> {
        self.check(value)?;
        let (hash, mut partition) = self.partition(key)?;
        if partition.contains(hash, key, now) {
            return Ok(None);
        }
        let stored = partition.store(hash, (key, value), life.end(now), Promise::Held, now);
        let receipt = self.noted(partition);
        stored.map(|()| Some(receipt))
    }

    /// Changes a counter; returns its new value.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: the key is beyond its bound, the value is no number or would overflow; nothing has
    /// changed. [`CacheError::Full`]: see [`store`](Self::store).
    pub fn count(&self, key: &[u8], count: Count, now: u64) -> Result<(i64, Receipt), CacheError> {
        let (hash, mut partition) = self.partition(key)?;
        let counted = partition.count(hash, key, count, now);
        let receipt = self.noted(partition);
        counted.map(|counter| (counter, receipt))
    }

    /// Removes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: the key is beyond its bound.
    pub fn remove(&self, key: &[u8], now: u64) -> Result<(bool, Receipt), CacheError> {
        let (hash, mut partition) = self.partition(key)?;
        let removed = partition.remove(hash, key, now);
        let receipt = self.noted(partition);
        Ok((removed, receipt))
    }

    /// Handles a request. Returns `Some` with the answer, and appends a found value to `into`. Returns `None` if the
    /// ticket comes back with the answer once the change is logged; only [`Promise::Kept`] with a log waits for this.
    pub fn ask(
        &self,
        request: &Request<'_>,
        promise: Promise,
        ticket: Ticket,
        now: u64,
        into: &mut Vec<u8>,
    ) -> Option<Result<CacheAnswer, CacheError>> {
        let done = match *request {
            Request::Fetch { key } => {
                let answer = |found| if found { CacheAnswer::Found } else { CacheAnswer::Absent };
                return Some(self.fetch(key, now, into).map(answer));
            }
            Request::Store { key, value, life } => {
                self.store_as(promise, (key, value), life, now).map(|receipt| (CacheAnswer::Stored, receipt))
            }
            Request::Add { key, value, life } => match self.add(key, value, life, now) {
                Ok(None) => return Some(Ok(CacheAnswer::Present)),
                Ok(Some(receipt)) => Ok((CacheAnswer::Stored, receipt)),
                Err(error) => Err(error),
            },
            Request::Count { key, count } => self.count(key, count, now).map(|(n, r)| (CacheAnswer::Count(n), r)),
            Request::Remove { key } => {
                let answer = |removed| if removed { CacheAnswer::Removed } else { CacheAnswer::Absent };
                self.remove(key, now).map(|(removed, receipt)| (answer(removed), receipt))
            }
        };
        match (done, promise, &self.log) {
            (Ok((answer, receipt)), Promise::Kept, Some(log)) => log.answer_when_kept(receipt, ticket, answer),
            (done, ..) => Some(done.map(|(answer, _)| answer)),
        }
    }

    /// Returns the receivers of tickets; `None` without a log, because each request is then answered at once.
    pub fn receivers(&self) -> Option<&Receivers> {
        self.log.as_ref().map(|log| &log.receivers)
    }

    /// Returns the receipt up to which all changes are in the log: passed to the kernel, or synced if the settings say
    /// so. Without a log it is the largest receipt.
    pub fn kept(&self) -> Receipt {
        self.log.as_ref().map_or(Receipt(u64::MAX), |log| log.kept())
    }

    /// Blocks until [`kept`](Self::kept) has reached this receipt. Shards must not call this.
    ///
    /// # Errors
    /// [`CacheError::TimedOut`], or the present failure of the log.
    pub fn wait(&self, receipt: Receipt, most: Duration) -> Result<(), CacheError> {
        self.log.as_ref().map_or(Ok(()), |log| log.wait(receipt, most))
    }

    /// Starts a compaction of the log now, if none is running.
    pub fn compact(&self) {
        if let Some(log) = &self.log {
            log.compact();
        }
    }

    /// Removes expired entries, and inspects about `most` entries; must be called several times a second. Even without
    /// this, fetches never return expired entries. Returns false if more entries may have expired.
    pub fn sweep(&self, now: u64, most: u32) -> bool {
        let parts = self.shared.parts();
        let (mut left, mut clean) = (most, 0);
        while left > 0 && clean < parts {
            let part = self.swept.load(Ordering::Relaxed) as usize % parts;
            let mut looks = LOOKS.min(left);
            left -= looks;
            let is_clean = self.shared.part(part).sweep(now, &mut looks);
            left += looks;
            if is_clean {
                clean += 1;
                self.swept.fetch_add(1, Ordering::Relaxed);
            } else {
                clean = 0;
            }
        }
        clean == parts
    }

    /// Returns the number of entries, including expired ones that are not swept yet.
    pub fn len(&self) -> usize {
        (0..self.shared.parts()).map(|part| self.shared.part(part).len()).sum()
    }

    /// Tells whether the cache has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            refused: self.refused.load(Ordering::Relaxed),
            bound: self.shared.settings.bytes as u64,
            ..Gauges::default()
        };
        for part in 0..self.shared.parts() {
            let partition = self.shared.part(part);
            let counts = partition.counts;
            gauges.hits += counts.hits;
            gauges.misses += counts.misses;
            gauges.stores += counts.stores;
            gauges.removals += counts.removals;
            gauges.evictions += counts.evictions;
            gauges.expired += counts.expired;
            gauges.refused += counts.refused;
            gauges.entries += partition.len() as u64;
            gauges.bytes += partition.bytes() as u64;
            gauges.data += partition.data() as u64;
        }
        gauges
    }

    /// Returns figures of the log, if there is one.
    pub fn log_gauges(&self) -> Option<LogGauges> {
        let log = self.log.as_ref()?;
        let queued = |part| self.shared.part(part).changes.as_ref().map_or(0, Changes::len) as u64;
        let queued = (0..self.shared.parts()).map(queued).sum();
        Some(LogGauges { queued, bound: self.queue as u64, ..log.gauges() })
    }

    /// Writes the changes that the log lacks, and ends the thread of the log.
    pub fn close(mut self) {
        self.end();
    }

    fn check(&self, value: &[u8]) -> Result<(), CacheError> {
        if value.len() > self.shared.settings.value { Err(self.refuse()) } else { Ok(()) }
    }

    #[inline(always)]
    fn partition(&self, key: &[u8]) -> Result<(u32, MutexGuard<'_, Partition>), CacheError> {
        if key.is_empty() || key.len() > self.shared.settings.key {
            return Err(self.refuse());
        }
        Ok(self.shared.of(key))
    }

    #[cold]
    fn refuse(&self) -> CacheError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        CacheError::Refused
    }

    /// Returns the receipt of a completed change, and releases its partition.
    fn noted(&self, partition: MutexGuard<'_, Partition>) -> Receipt {
        let Some(log) = &self.log else { return Receipt(0) };
        // The receipt is taken under the lock, so that a later change has no smaller receipt.
        let receipt = log.receipt();
        drop(partition);
        log.wake();
        receipt
    }

    /// Applies a change from the log. `ahead`: lead of the wall clock over the cache's clock.
    fn load(&self, change: Change<'_>, ahead: i64, now: u64) {
        let (key, value, end, promise) = match change {
            Change::Stored { end, promise, key, value } => (key, value, end, promise),
            Change::Removed { key } => (key, &[][..], 0, Promise::Held),
        };
        // The settings may have smaller bounds now.
        let Ok((hash, mut partition)) = self.partition(key) else { return };
        let is_within = value.len() <= self.shared.settings.value;
        let end = if end == u64::MAX { end } else { end.saturating_add_signed(ahead.saturating_neg()) };
        // Lack of space has the same effect as an eviction.
        let _ = partition.store(hash, (key, value), if is_within { end } else { 0 }, promise, now);
    }

    fn end(&mut self) {
        if let Some(log) = &self.log {
            log.stop();
        }
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            tracing::error!("the thread of the cache's log had ended by a panic");
        }
    }
}

impl Drop for LocalCache {
    fn drop(&mut self) {
        self.end();
    }
}

/// State shared by the threads.
pub(crate) struct Shared {
    parts: Box<[Part]>,
    hasher: RandomState,
    settings: LocalSettings,
}

/// Partition on its own cache lines, so that no two locks share one.
#[repr(align(128))]
struct Part(Mutex<Partition>);

impl Shared {
    fn new(mut settings: LocalSettings) -> Self {
        settings.bytes = settings.bytes.max(LEAST);
        settings.key = settings.key.min(usize::from(u16::MAX));
        settings.value = settings.value.min((16 << 20) - 1);
        let largest = cells::cells_of(settings.key, settings.value) * cells::CELL;
        let parts = (settings.bytes / LEAST.max(largest * 4)).min(settings.partitions).max(1);
        // A power of two, so that the partition number is a few bits of the hash.
        let parts = 1 << parts.ilog2();
        let part = || Part(Mutex::new(Partition::new(settings.bytes / parts)));
        Self { parts: (0..parts).map(|_| part()).collect(), hasher: RandomState::default(), settings }
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn part(&self, part: usize) -> MutexGuard<'_, Partition> {
        self.parts[part].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the partition of a key, and the key's hash within it.
    #[inline(always)]
    fn of(&self, key: &[u8]) -> (u32, MutexGuard<'_, Partition>) {
        let hash = self.hasher.hash_one(key);
        (hash as u32, self.part((hash >> 32) as usize & (self.parts.len() - 1)))
    }
}
