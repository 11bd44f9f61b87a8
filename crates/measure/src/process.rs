//! Processes of this machine: their trees, and the processor time and memory that they have used so far.
//!
//! For figures over time see [`TreeSampler`](crate::TreeSampler).

use crate::proc::{PROC, Scheduled, Stat, Text, bytes, numbered, tick};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processor time of processes so far.
///
/// The kernel reports user and system time in ticks, a hundredth of a second, and includes ended threads. `schedstat`
/// counts nanoseconds, but only of running threads. Which of the two is more accurate depends on the processes: see
/// [`Usage::total`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Time in user mode, by ticks.
    pub user: Duration,
    /// Time in system mode, by ticks.
    pub system: Duration,
    /// Time in both modes of the threads that still run, to the nanosecond.
    pub run_time: Duration,
}

impl Usage {
    /// Returns the usage of this process and its running descendants.
    pub fn of_tree(id: u32) -> Self {
        tree(id).into_iter().map(Self::of_process).fold(Self::default(), Self::plus)
    }

    fn of_process(id: u32) -> Self {
        let (folder, mut text) = (folder(id), Text::default());
        let ticks =
            text.read(&folder.join("stat")).and_then(Stat::parse).map_or([0; 2], |stat| [stat.user, stat.system]);
        let [user, system] = ticks.map(|ticks| tick() * u32::try_from(ticks).unwrap_or(u32::MAX));
        let mut run =
            |thread: PathBuf| text.read(&thread.join("schedstat")).and_then(Scheduled::parse).map_or(0, |s| s.run);
        let run_time = Duration::from_nanos(tasks(id).map(&mut run).sum());
        Self { user, system, run_time }
    }

    /// Returns the sum of two trees.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            run_time: self.run_time + other.run_time,
        }
    }

    /// Returns the growth since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            run_time: self.run_time.saturating_sub(earlier.run_time),
        }
    }

    /// Returns user and system time. They are computed from `schedstat`, unless the ticks exceed it by over a tenth,
    /// which means that threads have ended.
    pub fn total(&self) -> Duration {
        let by_ticks = self.user + self.system;
        if by_ticks > self.run_time + self.run_time / 10 + 2 * tick() { by_ticks } else { self.run_time }
    }

    /// Returns the share of [`Usage::total`] in system mode, 0 to 1.
    pub fn share_of_system(&self) -> f64 {
        let all = (self.user + self.system).as_secs_f64();
        if all > 0.0 { self.system.as_secs_f64() / all } else { 0.0 }
    }
}

/// Memory of processes, by `/proc/PID/smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Proportional set size, bytes: a page that several processes share is divided among them.
    pub pss: u64,
    /// Unbacked part, bytes: anonymous pages and shared memory (`Pss_Anon` and `Pss_Shmem`), which no file backs. Growth of
    /// this part is data, whereas pages of a program count less as soon as another process runs the same program. A kernel
    /// before 5.3 does not divide the PSS, and then this is the whole PSS.
    pub unbacked: u64,
}

impl Memory {
    /// Returns the memory of this process and its descendants that still run.
    pub fn of_tree(id: u32) -> Self {
        let mut text = Text::default();
        let mut of = |id| text.read(&folder(id).join("smaps_rollup")).and_then(Self::parse).unwrap_or_default();
        tree(id).into_iter().map(&mut of).fold(Self::default(), Self::plus)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let pss = bytes(text, "Pss:")?;
        let parts = bytes(text, "Pss_Anon:").zip(bytes(text, "Pss_Shmem:"));
        Some(Self { pss, unbacked: parts.map_or(pss, |(anonymous, shared)| anonymous + shared) })
    }

    /// Adds the memory of another tree.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { pss: self.pss + other.pss, unbacked: self.unbacked + other.unbacked }
    }
}

/// Returns the memory of a process that no file backs, bytes: `RssAnon` of `/proc/PID/status`. Pages of its program are
/// not included: the kernel has them once for all processes and may drop them.
pub fn anonymous_memory(id: u32) -> u64 {
    Text::default().read(&folder(id).join("status")).and_then(|text| bytes(text, "RssAnon:")).unwrap_or(0)
}

/// Returns the process and its running descendants.
pub fn tree(id: u32) -> Vec<u32> {
    let (mut all, mut text) = (vec![id], Text::default());
    descend(Path::new(PROC), &mut all, &mut text);
    all
}

/// Adds the descendants of these processes.
pub(crate) fn descend(proc: &Path, all: &mut Vec<u32>, text: &mut Text) {
    let mut next = 0;
    while let Some(id) = all.get(next) {
        next += 1;
        for (_, thread) in numbered(&proc.join(id.to_string()).join("task")) {
            let children = text.read(&thread.join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok());
            for child in children {
                if !all.contains(&child) {
                    all.push(child);
                }
            }
        }
    }
}

fn folder(id: u32) -> PathBuf {
    Path::new(PROC).join(id.to_string())
}

/// Returns the folders of the threads of a process.
pub fn tasks(id: u32) -> impl Iterator<Item = PathBuf> {
    numbered(&folder(id).join("task")).map(|(_, path)| path)
}

/// Returns the state of a thread as the kernel writes it: R, S, D, T and so on. Returns `None` if the thread has ended.
pub fn task_state(thread: &Path) -> Option<char> {
    Text::default().read(&thread.join("stat")).and_then(Stat::parse).map(|stat| stat.state)
}

/// Returns whether a signal has stopped each thread of the process. On busy processors that takes a moment, because a
/// thread of the process has to see the signal first.
pub fn is_stopped(id: u32) -> bool {
    tasks(id).filter_map(|thread| task_state(&thread)).all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_are_not_forgotten() {
        let second = Duration::from_secs(1);
        let of = |ticks, run_time| Usage { user: ticks, system: Duration::ZERO, run_time };
        // A tick is too coarse: the nanoseconds count.
        assert_eq!(of(Duration::from_millis(20), second / 40).total(), second / 40);
        assert_eq!(of(Duration::from_millis(30), second / 40).total(), second / 40);
        assert_eq!(of(second, second / 2).total(), second);
    }

    #[test]
    fn memory_that_no_file_backs_is_a_part_of_the_pss() {
        let rollup =
            "1 [rollup]\nRss: 90 kB\nPss: 50 kB\nPss_Anon: 20 kB\nPss_File: 25 kB\nPss_Shmem: 5 kB\nAnonymous: 40 kB\n";
        let divided = Memory::parse(rollup);
        assert_eq!(divided, Some(Memory { pss: 50 << 10, unbacked: 25 << 10 }));
        // An older kernel.
        let whole = Memory { pss: 50 << 10, unbacked: 50 << 10 };
        assert_eq!(Memory::parse("1 [rollup]\nRss: 90 kB\nPss: 50 kB\nAnonymous: 40 kB\n"), Some(whole));
        assert_eq!(Memory::parse(""), None);
    }

    #[test]
    fn this_process_has_time_memory_and_threads() {
        let id = std::process::id();
        assert!(tree(id).contains(&id) && tasks(id).count() > 0);
        let memory = Memory::of_tree(id);
        assert!(memory.pss > memory.unbacked && memory.unbacked > 10_000, "{memory:?}");
        assert!(anonymous_memory(id) > 10_000 && !is_stopped(id));
        let before = Usage::of_tree(id);
        assert!(before.run_time > Duration::ZERO && before.since(&before) == Usage::default());
        assert_eq!(Usage::of_process(u32::MAX), Usage::default());
    }
}
