//! What a tree of processes costs: processor time and memory, as the kernel charges them.

use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processor time of processes so far.
///
/// The kernel counts user and system time by its tick, a hundredth of a second a process, and forgets no thread; `schedstat` counts
/// nanoseconds, of the threads that still run. Which is closer depends on what is sampled: see [`Usage::total`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// In user mode, by ticks.
    pub user: Duration,
    /// In system mode, by ticks.
    pub system: Duration,
    /// Both, of the threads that still run, to the nanosecond.
    pub run_time: Duration,
}

impl Usage {
    /// Of this process and all that it started and that still runs.
    pub fn of_tree(id: u32) -> Self {
        tree(id).into_iter().map(Self::of_process).fold(Self::default(), Self::plus)
    }

    fn of_process(id: u32) -> Self {
        let [user, system] = ticks(id);
        Self { user, system, run_time: run_time(id) }
    }

    /// Of two trees together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            run_time: self.run_time + other.run_time,
        }
    }

    /// What was used since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            run_time: self.run_time.saturating_sub(earlier.run_time),
        }
    }

    /// User and system time: by `schedstat`, unless ticks say more by over a tenth, which means that threads have ended.
    pub fn total(&self) -> Duration {
        let by_ticks = self.user + self.system;
        if by_ticks > self.run_time + self.run_time / 10 + 2 * tick() { by_ticks } else { self.run_time }
    }

    /// Of [`Usage::total`] the share in system mode, 0 to 1.
    pub fn share_of_system(&self) -> f64 {
        let all = (self.user + self.system).as_secs_f64();
        if all > 0.0 { self.system.as_secs_f64() / all } else { 0.0 }
    }
}

/// Its share of the memory of the machine in bytes, with all that it started: PSS of `/proc/PID/smaps_rollup`.
pub fn pss_of_tree(id: u32) -> u64 {
    let of = |id| kilobytes(&format!("/proc/{id}/smaps_rollup"), "Pss:");
    tree(id).into_iter().map(of).sum::<u64>() * 1024
}

/// Its memory that is of no file in bytes: `RssAnon` of `/proc/PID/status`. Pages of its program count in none of it: they are the system's, which
/// has them once for all and may take them.
pub fn anonymous_memory(id: u32) -> u64 {
    kilobytes(&format!("/proc/{id}/status"), "RssAnon:") * 1024
}

/// The process and all that it started and that still runs.
pub(crate) fn tree(id: u32) -> Vec<u32> {
    let mut all = vec![id];
    let mut next = 0;
    while let Some(&id) = all.get(next) {
        next += 1;
        for thread in tasks(id) {
            let children = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    all
}

/// Folders of the threads of a process.
pub(crate) fn tasks(id: u32) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The state of a thread as the kernel writes it: R, S, D, T and so on. One that has ended has none.
pub(crate) fn task_state(thread: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(thread.join("stat")).ok()?;
    // Behind the name, which may have any character.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether none of its threads runs until a signal lets it go on: that takes a moment where the processors are busy, for a thread of the process has to
/// see the signal first.
pub(crate) fn is_stopped(id: u32) -> bool {
    tasks(id).filter_map(|thread| task_state(&thread)).all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn kilobytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The first number of `schedstat` of each thread.
fn run_time(id: u32) -> Duration {
    let of = |thread: PathBuf| std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanoseconds = |text: String| text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    Duration::from_nanos(tasks(id).map(of).map(nanoseconds).sum())
}

/// User and system time.
fn ticks(id: u32) -> [Duration; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may contain anything; utime and stime are the 14th and 15th field.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut numbers = fields.split_whitespace().skip(11).map(|field| field.parse::<u32>().unwrap_or(0));
    std::array::from_fn(|_| tick() * numbers.next().unwrap_or(0))
}

/// Of the kernel's clock of user and system time.
fn tick() -> Duration {
    Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::wait;
    use std::process::Command;

    /// The shell waits and its child works: the time is the tree's.
    #[test]
    fn the_time_of_a_tree_is_that_of_all_its_processes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shell = |script: &str| {
            Process::start("shell", folder.path(), Command::new("sh").args(["-c", script])).expect("a shell starts")
        };
        let busy = shell("sh -c 'while :; do :; done' & wait");
        let idle = shell("sleep 60");
        let enough = Duration::from_millis(300);
        assert!(wait::until(Duration::from_secs(60), || Usage::of_tree(busy.id()).total() >= enough));
        let (busy, idle_time) = (Usage::of_tree(busy.id()), Usage::of_tree(idle.id()));
        assert!(busy.user + busy.system >= enough / 2, "{busy:?}");
        assert!(idle_time.total() < enough / 3, "{idle_time:?}");
        assert_eq!(busy.since(&busy), Usage::default());
        assert!(pss_of_tree(idle.id()) > 50_000);
        assert!(anonymous_memory(idle.id()) > 10_000);
    }

    #[test]
    fn threads_that_have_ended_are_not_forgotten() {
        let second = Duration::from_secs(1);
        let of = |ticks, run_time| Usage { user: ticks, system: Duration::ZERO, run_time };
        // A tick is too coarse: the nanoseconds count.
        assert_eq!(of(Duration::from_millis(20), second / 40).total(), second / 40);
        assert_eq!(of(Duration::from_millis(30), second / 40).total(), second / 40);
        assert_eq!(of(second, second / 2).total(), second);
    }
}
