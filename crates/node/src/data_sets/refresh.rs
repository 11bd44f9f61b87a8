//! Periodic reading of sets, at the interval of their tables.
//!
//! A file is read once it has changed and is unchanged between two checks: a partly written file is no set. A database is queried each time.

use crate::running::Running;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use strowger_config::SetTable;
use strowger_net::clock;
use tokio::task::JoinSet;

/// Time between two checks for due sets; a reload may change intervals at any moment.
const LOOK: Duration = Duration::from_millis(250);
/// Time between two checks if no set is read periodically; a reload may add one.
const REST: Duration = Duration::from_secs(1);

/// Interval of log lines about a set that cannot be read, while the reason is the same.
const REMINDER: Duration = Duration::from_secs(300);

/// Identity and state of a file at one moment; a changed file has another mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    /// Time of the last change, in nanoseconds since 1970.
    changed: i128,
}

impl Mark {
    fn of(metadata: &fs::Metadata) -> Self {
        let changed = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), length: metadata.len(), changed }
    }
}

/// State of a set at the last check.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    /// Mark of the file, if the set has a file and it exists.
    mark: Option<Mark>,
    /// Mark of the file when it was read.
    read: Option<Mark>,
    is_under_way: bool,
    /// Latest logged failure, and its time.
    logged: Option<(String, Instant)>,
}

/// Result of a check.
struct Looked {
    name: String,
    mark: Option<Mark>,
    /// Result of the reading, with the text of a failure; `None`: nothing has changed.
    read: Option<Result<(), String>>,
}

/// Reads sets periodically while it is polled.
pub(crate) async fn refresh(running: Running) {
    let mut seen: HashMap<String, Seen> = HashMap::new();
    let mut looks = JoinSet::new();
    let due = |table: &&SetTable| table.is_elsewhere() && table.refresh.is_some();
    loop {
        let is_idle = !running.shared.policy().config.sets.iter().any(|table| due(&table));
        tokio::select! {
            Some(looked) = looks.join_next() => match looked {
                Ok(looked) => note(&mut seen, looked),
                // A check has panicked, or the process ends. No set may wait for the result of this check.
                Err(_) => seen.values_mut().for_each(|known| known.is_under_way = false),
            },
            () = clock::beat(if is_idle { REST } else { LOOK }) => {
                let (policy, now) = (running.shared.policy(), Instant::now());
                seen.retain(|name, _| policy.config.sets.iter().filter(due).any(|table| table.name.as_str() == name));
                for table in policy.config.sets.iter().filter(due) {
                    let name = table.name.to_string();
                    let Some(interval) = table.refresh else { continue };
                    let new = Seen { at: now, mark: None, read: None, is_under_way: false, logged: None };
                    let known = seen.entry(name).or_insert(new);
                    // The times of two checks may differ by slightly less than the interval.
                    if known.is_under_way || now.duration_since(known.at) + LOOK / 2 < interval {
                        continue;
                    }
                    (known.at, known.is_under_way) = (now, true);
                    let (table, known, running) = (table.clone(), known.clone(), running.clone());
                    looks.spawn_blocking(move || look(&table, &known, &running));
                }
            }
        }
    }
}

/// Checks a set, and reads the set if it is due. Blocks.
fn look(table: &SetTable, known: &Seen, running: &Running) -> Looked {
    let name = table.name.to_string();
    let mark = table.file.as_ref().and_then(|file| fs::metadata(file).ok()).map(|metadata| Mark::of(&metadata));
    // A missing file is read as well, because the attempt reports that the file is missing.
    let is_same = table.file.is_some() && mark.is_some() && mark == known.read;
    let stands_still = table.file.is_none() || mark.is_none() || mark == known.mark;
    if is_same || !stands_still {
        return Looked { name, mark, read: None };
    }
    let read = match super::read_again(running, |other| other == name) {
        Ok(reread) => {
            for set in reread.iter().filter(|set| set.is_other) {
                tracing::info!(set = %set.name, entries = set.entries, before = set.before, "data set read again");
            }
            Ok(())
        }
        Err(faults) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    };
    Looked { name, mark, read: Some(read) }
}

fn note(seen: &mut HashMap<String, Seen>, looked: Looked) {
    let Some(known) = seen.get_mut(&looked.name) else { return };
    known.is_under_way = false;
    known.mark = looked.mark;
    match looked.read {
        None => {}
        Some(Ok(())) => {
            known.read = looked.mark;
            if known.logged.take().is_some() {
                tracing::info!(set = %looked.name, "data set can be read again");
            }
        }
        Some(Err(error)) => {
            let is_known = known.logged.as_ref().is_some_and(|(said, at)| *said == error && at.elapsed() < REMINDER);
            if !is_known {
                tracing::warn!(set = %looked.name, %error, "data set not read: it stays as it was");
                known.logged = Some((error, Instant::now()));
            }
            // A faulty file is not read again before it changes.
            if looked.mark.is_some() {
                known.read = looked.mark;
            }
        }
    }
}
