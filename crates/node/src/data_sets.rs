//! The data sets of the rules: read from databases and files, again while the server runs, and put in the place of what there was.
//!
//! What is read is built beside the shards, and reaches them as a policy does: between two rounds, whole. A request goes by the data with which
//! it came. What cannot be read leaves the data as they were, and is reported; a server does not start without them.

mod refresh;
mod sources;

pub(crate) use refresh::refresh;

use crate::reload::Running;
use sources::{Rows, Unread};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use strowger_config::{Config, Decisions, Fault, SetFault, SetTable};
use strowger_net::clock;

/// What is known of the sets that have their data elsewhere.
#[derive(Default)]
pub(crate) struct DataSets {
    states: Mutex<BTreeMap<String, SetState>>,
    reads: AtomicU64,
    failures: AtomicU64,
}

/// A set as it was read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetState {
    /// When, in milliseconds since 1970.
    pub(crate) read_at: u64,
    /// Why it could not be read since.
    pub(crate) fault: Option<SetFault>,
    /// When that reading began: what began before is older, though it may end later.
    began: Option<Instant>,
}

/// A set that goes on with what was read before.
pub(crate) struct OldData {
    name: String,
    pub(crate) fault: SetFault,
}

/// A set that was read again.
pub(crate) struct Reread {
    pub(crate) name: String,
    pub(crate) entries: usize,
    /// Entries that it had.
    pub(crate) before: usize,
    /// Its entries are others than before.
    pub(crate) is_other: bool,
}

impl DataSets {
    fn states(&self) -> MutexGuard<'_, BTreeMap<String, SetState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set of this name as it was read last.
    pub(crate) fn state(&self, name: &str) -> Option<SetState> {
        self.states().get(name).cloned()
    }

    /// Sets that were read again by themselves or by command.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Attempts at that which failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Sets that could not be read when that was last tried.
    pub(crate) fn old(&self) -> u64 {
        self.states().values().filter(|state| state.fault.is_some()).count() as u64
    }

    /// The sets of this configuration were read from this moment on, but those.
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

    /// What was read of this set is older than what the server has: another reading that began later has ended.
    fn is_newer(&self, name: &str, began: Instant) -> bool {
        self.states().get(name).and_then(|state| state.began).is_some_and(|it| it > began)
    }
}

/// Reads these sets again and has the server go by all of them at once. Sets that have their entries in the configuration are passed over.
/// Blocks.
///
/// # Errors
/// What is wrong with each that cannot be read: all stay as they were.
pub(crate) fn read_again(running: &Running, names: impl Fn(&str) -> bool) -> Result<Vec<Reread>, Vec<SetFault>> {
    let (policy, began) = (running.shared.policy(), Instant::now());
    let is_meant = |table: &&SetTable| table.is_elsewhere() && names(table.name.as_str());
    let tables: Vec<SetTable> = policy.config.sets.iter().filter(is_meant).cloned().collect();
    // Databases may take their time: no other change waits for them.
    let fetched = sources::fetch_all(tables);
    let then = running.clone();
    running.services.policies.run(move || take_again(&then, fetched, began))
}

/// The rest of [`read_again`], by the thread that frees the sets in the end.
fn take_again(
    running: &Running,
    fetched: Vec<(SetTable, Result<Rows, Unread>)>,
    began: Instant,
) -> Result<Vec<Reread>, Vec<SetFault>> {
    let sets = &running.services.sets;
    let (mut read, mut faults) = (Vec::new(), Vec::new());
    for (table, rows) in fetched {
        match rows.and_then(|rows| sources::build(&table, &rows)) {
            Ok(set) => read.push((table, Arc::new(set))),
            Err(unread) => faults.push((table, unread.fault())),
        }
    }
    if !faults.is_empty() {
        sets.failures.fetch_add(faults.len() as u64, Relaxed);
        for (table, fault) in faults.iter().filter(|(table, _)| !sets.is_newer(table.name.as_str(), began)) {
            sets.states().entry(table.name.to_string()).or_default().fault = Some(fault.clone());
        }
        return Err(faults.into_iter().map(|(_, fault)| fault).collect());
    }
    // The configuration may have changed meanwhile: what was read for another table is no data of this one.
    let current = running.shared.policy();
    let has_table = |table: &SetTable| current.config.sets.iter().any(|other| other.has_the_entries_of(table));
    read.retain(|(table, _)| has_table(table) && !sets.is_newer(table.name.as_str(), began));
    let (mut decisions, mut reread) = (Decisions::clone(&current.config.decisions), Vec::new());
    for (table, set) in read {
        let name = table.name.as_str();
        let before = decisions.set(name);
        let is_other = before.is_none_or(|before| **before != *set);
        let (entries, before) = (set.len(), before.map_or(0, |before| before.len()));
        if is_other {
            decisions = decisions.with_set(name, set);
        }
        sets.states().insert(name.into(), SetState::read(began));
        reread.push(Reread { name: name.into(), entries, before, is_other });
    }
    sets.reads.fetch_add(reread.len() as u64, Relaxed);
    if reread.iter().any(|reread| reread.is_other) {
        running.shared.set_decisions(Arc::new(decisions));
        running.wait_for_shards();
    }
    Ok(reread)
}

impl SetState {
    fn read(began: Instant) -> Self {
        Self { read_at: clock::now().wall, fault: None, began: Some(began) }
    }
}

/// Reads the sets of this configuration that databases have. One that cannot be read now keeps the data that it has in `running`, if it was read
/// for the same table. Blocks.
///
/// # Errors
/// One has no such data, or its database refuses, or what it gives is wrong.
pub(crate) fn read(config: &mut Config, running: Option<&Config>) -> Result<Vec<OldData>, SetFault> {
    let tables: Vec<SetTable> = config.sets.iter().filter(|table| table.database.is_some()).cloned().collect();
    let (mut decisions, mut old) = (Decisions::clone(&config.decisions), Vec::new());
    if tables.is_empty() {
        return Ok(old);
    }
    for (table, rows) in sources::fetch_all(tables) {
        let name = table.name.as_str();
        let set = match rows.and_then(|rows| sources::build(&table, &rows)) {
            Ok(set) => Arc::new(set),
            Err(Unread::Now(fault)) => {
                let has_table = |running: &&Config| running.sets.iter().any(|other| other.has_the_entries_of(&table));
                let Some(set) = running.filter(has_table).and_then(|running| running.decisions.set(name)) else {
                    return Err(fault);
                };
                old.push(OldData { name: name.into(), fault });
                set.clone()
            }
            Err(Unread::Wrong(fault)) => return Err(fault),
        };
        decisions = decisions.with_set(name, set);
    }
    config.decisions = Arc::new(decisions);
    Ok(old)
}

/// Has a configuration share the sets whose entries are those of `running`: none is in memory twice.
pub(crate) fn share(config: &mut Config, running: &Config) {
    let mut decisions = None;
    for table in &config.sets {
        let name = table.name.as_str();
        if let (Some(new), Some(known)) = (config.decisions.set(name), running.decisions.set(name))
            && !Arc::ptr_eq(new, known)
            && new == known
        {
            let so_far = decisions.take().unwrap_or_else(|| Decisions::clone(&config.decisions));
            decisions = Some(so_far.with_set(name, known.clone()));
        }
    }
    if let Some(decisions) = decisions {
        config.decisions = Arc::new(decisions);
    }
}

/// As a fault of the configuration.
pub(crate) fn error(fault: &SetFault) -> Fault {
    Fault::error(None, said(fault), fault.cure.clone())
}

/// The same of one with which the server can live.
pub(crate) fn warning(fault: &SetFault) -> Fault {
    Fault::warning(None, format!("{}; the set goes on with what was read before", said(fault)), fault.cure.clone())
}

fn said(fault: &SetFault) -> String {
    let line = fault.line.map_or_else(String::new, |line| format!(":{line}"));
    format!("{}{line}: {}", fault.place, fault.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;
    use strowger_rules::Set;

    fn config(text: &str) -> Config {
        Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}")).0
    }

    /// Nothing listens on port 1.
    const DOWN: &str =
        "[[set]]\nname = \"a\"\ndatabase = \"mysql://u:hunter2@127.0.0.1:1/d\"\nquery = \"SELECT 1 AS `key`\"\n";

    #[test]
    fn a_set_that_never_loaded_is_an_error_and_one_that_did_keeps_its_data() {
        let fault = read(&mut config(DOWN), None).err().expect("there is no server");
        assert!(fault.to_string().contains("cannot be reached") && !fault.to_string().contains("hunter2"), "{fault}");
        let mut running = config(DOWN);
        let set = Arc::new(Set::new(strowger_rules::Kind::Texts, [("x", None::<&str>)]).expect("a set"));
        running.decisions = Arc::new(running.decisions.with_set("a", set));
        let mut other = config(&format!("server.software = \"new\"\n{DOWN}"));
        let old = read(&mut other, Some(&running)).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((old.len(), &*old[0].name), (1, "a"));
        assert_eq!(other.decisions.set("a").map(|set| set.len()), Some(1));
        // What was read for another query is no data of this one.
        let mut other = config(&DOWN.replace("SELECT 1", "SELECT 2"));
        assert!(read(&mut other, Some(&running)).is_err());
    }

    #[test]
    fn sets_with_the_same_entries_are_in_memory_once() {
        let text = "[[set]]\nname = \"a\"\nentries = [\"x\"]\n[[set]]\nname = \"b\"\nentries = [\"y\"]\n";
        let running = config(text);
        let mut other = config(&text.replace("\"y\"", "\"z\""));
        share(&mut other, &running);
        let shared = ["a", "b"].map(|name| {
            let sets = [&other, &running].map(|config| config.decisions.set(name).expect("it is there"));
            Arc::ptr_eq(sets[0], sets[1])
        });
        assert_eq!(shared, [true, false]);
    }
}
