//! Journal without a thread: its owner triggers each group and provides a clock. A simulation thus writes as a server
//! does.

use std::sync::Arc;

use super::load::load;
use super::writer::Writer;
use super::{BindingEngine, Journal, JournalSettings};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::group::{GroupSteps, GroupWriter};
use crate::location::LocationTable;

/// Work of the thread of a [`Journal`], one step at a time.
pub struct JournalSteps<E: BindingEngine>(GroupSteps<Writer<E>>);

impl Journal {
    /// Works as [`Journal::start`], but the owner writes the groups by [`JournalSteps`].
    ///
    /// # Errors
    /// The engine's error of the load.
    pub fn in_steps<E: BindingEngine>(
        mut engine: E,
        table: &Arc<LocationTable>,
        settings: JournalSettings,
        clock: Clock,
    ) -> Result<(Self, JournalSteps<E>), StoreError> {
        load(&mut engine, table, &settings, &clock)?;
        let writer = Writer::new(engine, Arc::clone(table), settings, clock);
        let (queue, sinks, unpurged) = (writer.queue(), writer.sinks(), writer.unpurged());
        let (writer, steps) = GroupWriter::in_steps(Arc::clone(&queue), writer);
        table.write_to(queue);
        Ok((Self { writer, sinks, unpurged }, JournalSteps(steps)))
    }
}

impl<E: BindingEngine> JournalSteps<E> {
    /// Takes a group if no group is open and a change is queued. Returns whether a group is open; its commit is in
    /// progress until [`JournalSteps::write`].
    pub fn take(&mut self) -> bool {
        self.0.take()
    }

    /// Commits the open group by one call of the engine, and returns its tickets.
    pub fn write(&mut self) {
        self.0.write();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::RangeInclusive;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::binding::{Binding, BindingId};
    use crate::clock::Moment;
    use crate::journal::Write;
    use crate::location::{LocationSettings, Step, UpdateStatus};
    use crate::ticket::Ticket;

    #[derive(Default)]
    struct State {
        rows: BTreeMap<u64, Vec<u8>>,
        /// Error of the next commit.
        error: Option<StoreError>,
    }

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<State>>);

    impl Fake {
        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl BindingEngine for Fake {
        fn load(
            &mut self,
            _now_ms: u64,
            ids: RangeInclusive<u64>,
            _each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
        ) -> Result<u64, StoreError> {
            Ok(*ids.start())
        }

        fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
            let mut state = self.state();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            for write in writes {
                match write {
                    Write::Put(id, binding, _) => drop(state.rows.insert(id.0, binding.uri.to_vec())),
                    Write::Delete(id) => drop(state.rows.remove(&id.0)),
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_group_is_written_when_its_owner_says() {
        let fake = Fake::default();
        let table = Arc::new(LocationTable::new(LocationSettings::default()));
        let clock: Clock = Arc::new(|| Moment { mono: 0, wall: 0 });
        let (journal, mut steps) =
            Journal::in_steps(fake.clone(), &table, JournalSettings::default(), clock).expect("it loads");
        let results = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&results);
        let sink = journal.receiver(Arc::new(move |more: &[(u64, Result<(), StoreError>)]| {
            to.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(more);
        }));
        let taken = || std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
        let add = |value: u64| {
            let uri = value.to_le_bytes();
            let binding = Binding { uri: &uri, expires_at: 9_000, ..Binding::EMPTY };
            table.update::<()>(b"a", 0, 10, Ticket { sink, value }, |_| Ok(vec![Step::Add(binding)]))
        };
        let rows = || fake.state().rows.len();

        assert!(!steps.take());
        assert_eq!([add(1), add(2)], [Ok(UpdateStatus::Pending), Ok(UpdateStatus::Pending)]);
        assert!(steps.take() && rows() == 0 && taken().is_empty());
        assert_eq!(add(3), Ok(UpdateStatus::Pending), "the next group");
        steps.write();
        assert_eq!((rows(), taken()), (2, vec![(1, Ok(())), (2, Ok(()))]));
        fake.state().error = Some(StoreError::Full);
        assert!(steps.take());
        steps.write();
        assert_eq!((rows(), taken()), (2, vec![(3, Err(StoreError::Full))]));
        assert!(!steps.take());
        let mut left = 0;
        table.lookup(b"a", 0, &mut |_| left += 1);
        assert_eq!(left, 2, "memory equals the disk");
        assert!(!journal.has_ended());
    }
}
