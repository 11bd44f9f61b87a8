//! Data sets of the rules: read from databases and files, also while the server runs.
//!
//! New sets are built outside the shards. Like a policy, all of them together replace the old sets between two rounds.
//! A request uses the sets that were current at its arrival. If a set cannot be read, its data stay, and the fault is
//! reported; a server does not start without the data of its sets.

mod refresh;
mod sources;
pub(crate) mod state;

pub(crate) use refresh::refresh;

use crate::running::Running;
use sources::{Rows, Unread};
use state::{OldData, SetState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use strowger_config::{Config, Decisions, Fault, SetFault, SetTable};

/// Result of reading a set again.
pub(crate) struct Reread {
    pub(crate) name: String,
    pub(crate) entries: usize,
    /// Number of earlier entries.
    pub(crate) before: usize,
    /// True if the entries differ from the earlier ones.
    pub(crate) is_other: bool,
}

/// Reads these sets again and replaces all of them at the same time. Skips sets whose entries are in the configuration. Blocks.
///
/// # Errors
/// The fault of each set that cannot be read; all sets keep their data.
pub(crate) fn read_again(running: &Running, names: impl Fn(&str) -> bool) -> Result<Vec<Reread>, Vec<SetFault>> {
    let (policy, began) = (running.shared.policy(), Instant::now());
    let is_meant = |table: &&SetTable| table.is_elsewhere() && names(table.name.as_str());
    let tables: Vec<SetTable> = policy.config.sets.iter().filter(is_meant).cloned().collect();
    // The databases are read outside the policy thread, so that other changes do not wait for databases.
    let fetched = sources::fetch_all(tables);
    let then = running.clone();
    running.services.policies.run(move || take_again(&then, fetched, began))
}

/// Builds the sets of [`read_again`] from the fetched rows, and replaces the present sets. Runs on the policy thread,
/// which also frees the sets.
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
    // The configuration may have changed meanwhile. If the table of a set has changed, its data do not fit any more.
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

/// Reads the sets of this configuration that are in files, for [`crate::preflight`]. Returns the fault of each set that
/// cannot be read, with the position of its table.
pub(crate) fn read_files(config: &mut Config) -> Vec<(usize, SetFault)> {
    let (mut decisions, mut faults) = (Decisions::clone(&config.decisions), Vec::new());
    for (index, table) in config.sets.iter().enumerate() {
        let Some(file) = table.file.as_deref().filter(|_| table.database.is_none()) else { continue };
        match sources::of_file(table, file) {
            Ok(set) => decisions = decisions.with_set(table.name.as_str(), Arc::new(set)),
            Err(fault) => faults.push((index, fault)),
        }
    }
    config.decisions = Arc::new(decisions);
    faults
}

/// Reads the sets of this configuration that are in databases. A set that cannot be read now keeps its data of
/// `running`, if these data came from the same table. Blocks.
///
/// # Errors
/// A set has no such data, its database refuses, or its data are wrong.
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

/// Replaces each set that has equal entries in `running` by that set, so that memory holds no second copy.
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

/// Converts a fault to an error of the configuration.
pub(crate) fn error(fault: &SetFault) -> Fault {
    Fault::error(None, said(fault), fault.cure.clone())
}

/// Converts a fault to a warning that the server keeps the earlier data.
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

    /// Port 1, where no server listens.
    const DOWN: &str =
        "[[set]]\nname = \"a\"\ndatabase = \"mysql://u:hunter2@127.0.0.1:1/d\"\nquery = \"SELECT 1 AS `key`\"\n";

    #[test]
    fn a_set_that_never_loaded_is_an_error_and_one_that_did_keeps_its_data() {
        let fault = read(&mut config(DOWN), None).err().expect("there is no server");
        assert!(fault.to_string().contains("cannot be reached") && !fault.to_string().contains("hunter2"), "{fault}");
        let mut running = config(DOWN);
        let set = Arc::new(Set::new(strowger_rules::LookupKind::Texts, [("x", None::<&str>)]).expect("a set"));
        running.decisions = Arc::new(running.decisions.with_set("a", set));
        let mut other = config(&format!("server.software = \"new\"\n{DOWN}"));
        let old = read(&mut other, Some(&running)).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((old.len(), &*old[0].name), (1, "a"));
        assert_eq!(other.decisions.set("a").map(|set| set.len()), Some(1));
        // Data of another query do not fit.
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
