//! States of the data sets of a running server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use strowger_config::{Config, SetFault};
use strowger_net::clock;

/// States of the sets whose entries are outside the configuration.
#[derive(Default)]
pub(crate) struct DataSets {
    states: Mutex<BTreeMap<String, SetState>>,
    pub(super) reads: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// Last reading of a set.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetState {
    /// Time of the last success, in milliseconds since 1970.
    pub(crate) read_at: u64,
    /// Fault of the latest attempt; `None`: it succeeded.
    pub(crate) fault: Option<SetFault>,
    /// Begin of that reading. A reading that began earlier has older data, even if it ends later.
    began: Option<Instant>,
}

/// A set that keeps data of an earlier reading.
pub(crate) struct OldData {
    pub(super) name: String,
    pub(crate) fault: SetFault,
}

impl DataSets {
    pub(super) fn states(&self) -> MutexGuard<'_, BTreeMap<String, SetState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the set with this name.
    pub(crate) fn state(&self, name: &str) -> Option<SetState> {
        self.states().get(name).cloned()
    }

    /// Returns the number of sets read again, by interval or by command.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Returns the number of failed attempts to read a set again.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Returns the number of sets whose latest reading failed.
    pub(crate) fn old(&self) -> u64 {
        self.states().values().filter(|state| state.fault.is_some()).count() as u64
    }

    /// Notes that all sets of this configuration, except `old`, have the data of a reading that began at `began`.
    pub(crate) fn are_those_of(&self, config: &Config, old: &[OldData], began: Instant) {
        let states = &mut *self.states();
        let before = std::mem::take(states);
        for table in config.sets.iter().filter(|table| table.is_elsewhere()) {
            let name = table.name.as_str();
            let state = match old.iter().find(|old| old.name == name) {
                Some(old) => {
                    let read_at = before.get(name).map_or(0, |state| state.read_at);
                    SetState { read_at, fault: Some(old.fault.clone()), began: Some(began) }
                }
                None => SetState::read(began),
            };
            states.insert(name.into(), state);
        }
    }

    /// Tells whether the server has newer data of this set than a reading that began at `began`.
    pub(super) fn is_newer(&self, name: &str, began: Instant) -> bool {
        self.states().get(name).and_then(|state| state.began).is_some_and(|it| it > began)
    }
}

impl SetState {
    pub(super) fn read(began: Instant) -> Self {
        Self { read_at: clock::now().wall, fault: None, began: Some(began) }
    }
}
