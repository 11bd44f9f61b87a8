//! Use of the threads of a process between two readings.

use crate::proc::{Scheduled, Stat, Text, numbered, tick_us};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// Use of one thread in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadUse {
    pub id: u64,
    pub name: String,
    /// CPU time within the interval, µs.
    pub cpu: u64,
    /// Time in which it could run and waited for a core (the run-queue delay of `schedstat`), µs.
    pub waited: u64,
    /// Number of turns on a core.
    pub turns: u64,
    /// Core on which it was seen last.
    pub core: u32,
}

impl ThreadUse {
    /// Adds the use of a later interval to a list of threads, the busiest first.
    pub(crate) fn append(threads: &mut Vec<Self>, later: Vec<Self>) {
        for used in later {
            match threads.iter_mut().find(|thread| thread.id == used.id) {
                Some(thread) => {
                    thread.cpu += used.cpu;
                    thread.waited += used.waited;
                    thread.turns += used.turns;
                    thread.core = used.core;
                }
                None => threads.push(used),
            }
        }
        Self::sort(threads);
    }

    pub(crate) fn sort(threads: &mut [Self]) {
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu));
    }
}

/// Counters of a thread, and its start.
#[derive(Clone, Copy, Debug)]
struct Counted {
    started: u64,
    scheduled: Scheduled,
}

/// Counters of the threads of one process at the last reading.
#[derive(Debug, Default)]
pub(crate) struct Threads(HashMap<u32, Counted>);

/// Use of all threads of a process together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Together {
    /// CPU time, µs.
    pub(crate) cpu: u64,
    pub(crate) waited: u64,
    /// True if a thread has ended since the last reading: the sum lacks what that thread used after the reading.
    pub(crate) some_ended: bool,
}

impl Threads {
    /// Reads the threads in the folder `task` of a process, and adds to `uses` those that ran or waited since the last
    /// reading. At the `first` reading no thread counts as having used anything. A thread that appears later counts
    /// with everything that its counters show.
    pub(crate) fn look(&mut self, task: &Path, first: bool, text: &mut Text, uses: &mut Vec<ThreadUse>) -> Together {
        let mut now = HashMap::with_capacity(self.0.len());
        let mut together = Together::default();
        for (id, path) in numbered(task) {
            let Some(stat) = text.read(&path.join("stat")).and_then(Stat::parse) else { continue };
            let (name, started, core, ticks) = (stat.name.to_owned(), stat.started, stat.core, stat.user + stat.system);
            // Nanoseconds if the kernel counts them, else its ticks of 10 ms.
            let exact = text.read(&path.join("schedstat")).and_then(Scheduled::parse);
            let scheduled =
                exact.unwrap_or_else(|| Scheduled { run: ticks * tick_us() * 1_000, ..Scheduled::default() });
            let new = if first { scheduled } else { Scheduled::default() };
            let before = self.0.get(&id).filter(|before| before.started == started);
            let used = scheduled.since(before.map_or(new, |before| before.scheduled));
            now.insert(id, Counted { started, scheduled });
            let (cpu, waited) = (used.run / 1_000, used.waited / 1_000);
            together.cpu += cpu;
            together.waited += waited;
            if cpu > 0 || waited > 0 {
                uses.push(ThreadUse { id: id.into(), name, cpu, waited, turns: used.turns, core });
            }
        }
        let is_there = |(id, before): (&u32, &Counted)| now.get(id).is_some_and(|now| now.started == before.started);
        together.some_ended = !self.0.iter().all(is_there);
        self.0 = now;
        together
    }
}
