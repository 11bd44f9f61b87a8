//! A journal over a database in memory that fails on request.

use super::*;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, mpsc};

type Rows = Arc<Mutex<BTreeMap<u64, (Vec<u8>, Vec<u8>, u64)>>>;

/// Database in memory that fails, blocks and counts on request.
#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) rows: Rows,
    pub(super) fail: Arc<AtomicBool>,
    /// Set: a failed commit is in doubt, and every second one takes effect.
    pub(super) doubt: Arc<AtomicBool>,
    pub(super) panic: Arc<AtomicBool>,
    /// Commits wait while this is locked.
    pub(super) gate: Arc<Mutex<()>>,
    begun: Arc<AtomicU64>,
}

impl BindingEngine for Fake {
    fn load(
        &mut self,
        now_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        let highest = rows.range(ids.clone()).next_back().map_or_else(|| *ids.start(), |(id, _)| *id);
        rows.retain(|_, row| row.2 > now_ms);
        for (id, (aor, uri, expires_at)) in &*rows {
            each(BindingId(*id), &Binding { aor, uri, expires_at: *expires_at, ..Binding::EMPTY }, "");
        }
        Ok(highest)
    }

    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _gate = self.gate.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rows = self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut new = rows.clone();
        for write in writes {
            match write {
                Write::Put(id, b, _) => {
                    new.insert(id.0, (b.aor.to_vec(), b.uri.to_vec(), b.expires_at));
                }
                Write::Delete(id) => {
                    new.remove(&id.0);
                }
            }
        }
        assert!(!self.panic.load(Ordering::SeqCst), "told to");
        if self.fail.load(Ordering::SeqCst) {
            if self.doubt.load(Ordering::SeqCst) && self.begun.load(Ordering::SeqCst).is_multiple_of(2) {
                *rows = new;
            }
            return Err(StoreError::Full);
        }
        *rows = new;
        Ok(())
    }

    fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::SeqCst)
    }
}

pub(super) struct Bed {
    pub(super) fake: Fake,
    pub(super) table: Arc<LocationTable>,
    pub(super) journal: Journal,
    pub(super) sink: SinkId,
    pub(super) results: mpsc::Receiver<(u64, Result<(), StoreError>)>,
    pub(super) calls: Arc<AtomicU64>,
}

pub(super) fn bed(settings: JournalSettings) -> Bed {
    let fake = Fake::default();
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let (journal, loaded) = Journal::start(fake.clone(), &table, settings, at(0)).unwrap();
    assert_eq!(loaded, 0);
    let (tx, results) = mpsc::channel();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let sink = journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
        counted.fetch_add(1, Ordering::SeqCst);
        for result in results {
            let _gone = tx.send(*result);
        }
    }));
    Bed { fake, table, journal, sink, results, calls }
}

impl Bed {
    pub(super) fn update(&self, value: u64, aor: &[u8], steps: Vec<Step<'_>>) -> Result<UpdateStatus, UpdateError<()>> {
        let ticket = Ticket { sink: self.sink, value };
        self.table.update(aor, 0, 100, ticket, |_| Ok(steps))
    }

    pub(super) fn add(&self, value: u64, aor: &[u8], uri: &[u8]) -> Result<UpdateStatus, UpdateError<()>> {
        self.update(value, aor, vec![Step::Add(Binding { uri, expires_at: 9000, ..Binding::EMPTY })])
    }

    pub(super) fn result(&self) -> (u64, Result<(), StoreError>) {
        self.results.recv_timeout(Duration::from_secs(20)).expect("each ticket comes back")
    }

    pub(super) fn memory(&self) -> BTreeMap<u64, (Vec<u8>, Vec<u8>, u64)> {
        let mut out = BTreeMap::new();
        let mut at = Some(crate::location::Cursor::default());
        while let Some(cursor) = at {
            at = self.table.walk(cursor, 1000, &mut |b| {
                out.insert(b.id().0, (b.aor().to_vec(), b.uri().to_vec(), b.expires_at()));
            });
        }
        out
    }

    pub(super) fn disk(&self) -> BTreeMap<u64, (Vec<u8>, Vec<u8>, u64)> {
        self.fake.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Waits until the writer is in commit number `n`, counted from 1.
    pub(super) fn until_commit(&self, n: u64) {
        while self.fake.begun.load(Ordering::SeqCst) < n {
            std::thread::yield_now();
        }
    }
}
