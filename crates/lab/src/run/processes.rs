//! Processes and threads of a system, and those that end during a trial.
//!
//! The root of a system may continue to run while a process or thread below it ends and is started again. Such a restart loses the
//! work of that process or thread.

use std::collections::BTreeMap;
use std::path::Path;
use strowger_measure::process::{tasks, tree};

/// Ticks in a second, as Linux shows times of processes.
const TICKS: f64 = 100.0;

/// Processes and threads of a system at a moment.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Ticks from the start of the machine to the moment.
    at: u64,
    /// Roots of the trees.
    roots: Vec<u32>,
    /// Threads by their ids.
    tasks: BTreeMap<u32, Task>,
}

/// Thread. The first thread of a process represents the process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    name: String,
    /// Ticks from the start of the machine to its own.
    started: u64,
    /// Processor time, in ticks.
    used: u64,
    is_process: bool,
}

impl Processes {
    /// Looks at the trees of these roots.
    pub(super) fn of(roots: &[u32]) -> Self {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let uptime: f64 = uptime.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
        let mut found = BTreeMap::new();
        for process in roots.iter().copied().flat_map(tree) {
            for folder in tasks(process) {
                let id = folder.file_name().and_then(|id| id.to_str()?.parse::<u32>().ok());
                let Some((id, task)) = id.zip(task(&folder)) else { continue };
                found.insert(id, Task { is_process: id == process, ..task });
            }
        }
        Self { at: (uptime * TICKS) as u64, roots: roots.to_vec(), tasks: found }
    }

    /// Returns a sentence about a process that has ended since, or about a thread that has ended and has a successor of the same name.
    ///
    /// A process counts if it has the name of a root or has used processor time: a script may start a program such as `sleep` now and then.
    /// A thread counts if it is older than half the age of the system: a pool may end a thread that has no work.
    pub(super) fn lost(&self, now: &Self) -> Option<String> {
        let oldest = self.tasks.values().map(|task| task.started).min()?;
        let age = |started: u64| self.at.saturating_sub(started);
        let roots: Vec<&str> = self.roots.iter().filter_map(|id| Some(self.tasks.get(id)?.name.as_str())).collect();
        let counts = |task: &Task| match task.is_process {
            true => task.used > 0 || roots.contains(&task.name.as_str()),
            false => age(task.started) * 2 >= age(oldest),
        };
        let is_there = |id: &u32, task: &Task| now.tasks.get(id).is_some_and(|same| same.started == task.started);
        let gone = self.tasks.iter().filter(|(id, task)| counts(task) && !is_there(id, task));
        let come = |name: &str| {
            let is_new = |(id, task): &(&u32, &Task)| {
                task.name == name && self.tasks.get(id).is_none_or(|same| same.started != task.started)
            };
            now.tasks.iter().find(is_new).map(|(id, _)| *id)
        };
        let mut sentences = gone.filter_map(|(id, task)| {
            let Task { name, is_process, .. } = task;
            match (*is_process, come(name)) {
                (true, None) => Some(format!("process {id} of the server ({name}) ended")),
                (false, None) => None,
                (_, Some(successor)) => {
                    let kind = if *is_process { "process" } else { "thread" };
                    Some(format!("{kind} {id} of the server ({name}) ended, and {successor} was started in its place"))
                }
            }
        });
        sentences.next()
    }
}

/// Reads the name and the start of a task from its `stat`.
fn task(folder: &Path) -> Option<Task> {
    let text = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (_, behind) = text.split_once('(')?;
    let (name, rest) = behind.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    let (state, used, started) = (rest.chars().next()?, number(11)? + number(12)?, number(19)?);
    // A process that has ended and was not waited for runs no more.
    (!matches!(state, 'Z' | 'X')).then(|| Task { name: name.to_owned(), started, used, is_process: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{process::Process, wait};
    use std::process::Command;
    use std::time::Duration;

    const PROCESS: bool = true;
    const THREAD: bool = false;

    fn processes(tasks: &[(u32, &str, u64, bool)]) -> Processes {
        let task = |(id, name, started, is_process): &(u32, &str, u64, bool)| {
            let used = u64::from(*name != "sleep");
            (*id, Task { name: (*name).to_owned(), started: *started, used, is_process: *is_process })
        };
        Processes { at: 100, roots: vec![1], tasks: tasks.iter().map(task).collect() }
    }

    #[test]
    fn processes_and_replaced_threads_are_missed_and_helpers_are_not() {
        let all = [
            (1, "main", 0, PROCESS),
            (2, "shard-0", 5, THREAD),
            (3, "worker", 6, PROCESS),
            (8, "sleep", 90, PROCESS),
            (9, "pool", 90, THREAD),
        ];
        let begin = processes(&all);
        let without = |gone: u32, come: &[(u32, &str, u64, bool)]| {
            let left: Vec<_> = all.iter().filter(|(id, ..)| *id != gone).chain(come).copied().collect();
            begin.lost(&processes(&left))
        };
        assert_eq!((without(0, &[]), without(8, &[]), without(8, &[(10, "sleep", 95, PROCESS)])), (None, None, None));
        assert_eq!(without(9, &[(10, "pool", 95, THREAD)]), None);
        assert_eq!(without(3, &[]), Some("process 3 of the server (worker) ended".into()));
        let again = "process 3 of the server (worker) ended, and 11 was started in its place";
        assert_eq!(without(3, &[(11, "worker", 95, PROCESS)]), Some(again.into()));
        // The kernel may give an id again.
        assert_eq!(without(3, &[(3, "worker", 95, PROCESS)]), Some(again.replace("11", "3")));
        assert_eq!(without(2, &[]), None, "a thread may have done its work");
        let again = "thread 2 of the server (shard-0) ended, and 12 was started in its place";
        assert_eq!(without(2, &[(12, "shard-0", 95, THREAD)]), Some(again.into()));
        assert_eq!(Processes::default().lost(&begin), None);
    }

    #[test]
    fn a_child_that_its_parent_starts_again_is_seen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do (while :; do sleep 600; done); done"]);
        let shell = Process::start("shell", folder.path(), &mut command).expect("a shell starts");
        // A shell below the first one, as a server has workers.
        let child = |not: u32| {
            let is_shell =
                |id: &u32| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "sh\n");
            tree(shell.id()).into_iter().find(|id| ![shell.id(), not].contains(id) && is_shell(id))
        };
        let first = wait::look(Duration::from_secs(20), || child(0)).expect("it waits for its child");
        let begin = Processes::of(&[shell.id()]);
        assert_eq!(begin.lost(&Processes::of(&[shell.id()])), None);
        let ended = Command::new("kill").args(["-KILL", &first.to_string()]).status();
        assert!(ended.is_ok_and(|status| status.success()));
        let second = wait::look(Duration::from_secs(20), || child(first)).expect("it is started again");
        let is_said = wait::until(Duration::from_secs(20), || {
            let said = begin.lost(&Processes::of(&[shell.id()]));
            let again = format!("process {first} of the server (sh) ended, and {second} was started in its place");
            said == Some(again)
        });
        assert!(is_said);
    }
}
