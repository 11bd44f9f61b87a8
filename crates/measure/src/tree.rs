//! Samples of a process tree: a process and its descendants.

use crate::proc::{PROC, Stat, Text, resident, tick_us};
use crate::process::{Memory, descend};
use crate::sockets::Sockets;
use crate::threads::{ThreadUse, Threads};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest interval between readings of descendants, memory and drops, µs. It is less than a second so that a sampler
/// of one sample a second may be a little early.
const SLOW: u64 = 950_000;

/// Pause between readings of the PSS, as a multiple of the processor time of the last reading. For a reading the kernel
/// walks the pages of a process, and the process may have to wait meanwhile. Time in which other programs had the
/// processor does not count: otherwise a busy machine would leave a short window without a reading.
const REST: u32 = 100;

/// Use of a process tree in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeSample {
    /// Name of the tree, given to the observer.
    pub name: String,
    /// End of the interval, µs since 1970-01-01 UTC.
    pub at: u64,
    /// Length of the interval, µs.
    pub interval: u64,
    /// Number of processes at the end of the sample; 0: the tree has ended.
    pub processes: u32,
    /// CPU time, µs: to the microsecond for running threads, in ticks of 10 ms for threads and processes that have
    /// ended.
    pub cpu: u64,
    /// CPU time in user mode, µs, in ticks.
    pub user: u64,
    /// CPU time in system mode, µs, in ticks.
    pub system: u64,
    /// Time in which threads could run and waited for a core (run queue), µs.
    pub waited: u64,
    /// Threads that ran or waited, the busiest first.
    pub threads: Vec<ThreadUse>,
    /// Resident set size, bytes: a page that several processes share counts for each of them. Measured once a second; a
    /// sum of samples has the latest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    /// Proportional set size, bytes: a page that several processes share is divided among them. Measured once a second,
    /// or less often if the measurement takes more than a hundredth of the time; a sum of samples has the latest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss: Option<u64>,
    /// Part of the PSS that no file backs, bytes: see [`Memory::unbacked`]. Measured with the PSS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbacked: Option<u64>,
    /// Datagrams that the kernel dropped because a UDP socket of the tree was full; counted once a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_drops: Option<u64>,
}

impl TreeSample {
    /// Appends the next sample of the tree, so that both become one sample of a longer time.
    pub fn append(&mut self, next: Self) {
        (self.at, self.interval, self.processes) = (next.at, self.interval + next.interval, next.processes);
        self.cpu += next.cpu;
        self.user += next.user;
        self.system += next.system;
        self.waited += next.waited;
        ThreadUse::append(&mut self.threads, next.threads);
        (self.rss, self.pss) = (next.rss.or(self.rss), next.pss.or(self.pss));
        self.unbacked = next.unbacked.or(self.unbacked);
        self.udp_drops = match (self.udp_drops, next.udp_drops) {
            (Some(mine), Some(theirs)) => Some(mine + theirs),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// Returns the memory of the tree, if this sample has it. A sample of an earlier version has only the PSS, all of which
    /// counts as unbacked.
    pub fn memory(&self) -> Option<Memory> {
        self.pss.map(|pss| Memory { pss, unbacked: self.unbacked.unwrap_or(pss) })
    }

    /// Returns the mean number of cores that the tree used.
    pub fn cores(&self) -> f64 {
        if self.interval == 0 { 0.0 } else { self.cpu as f64 / self.interval as f64 }
    }
}

/// Ticks of a process in user and system mode: its own ticks, and those of ended descendants for which it has waited.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    own: [u64; 2],
    children: [u64; 2],
}

impl Ticks {
    fn of(stat: &Stat<'_>) -> Self {
        Self { own: [stat.user, stat.system], children: [stat.children_user, stat.children_system] }
    }
}

fn plus(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0] + other[0], one[1] + other[1]]
}

fn growth(now: [u64; 2], before: [u64; 2]) -> [u64; 2] {
    [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])]
}

/// Process of the tree at the last reading.
#[derive(Debug, Default)]
struct Member {
    /// Start time, see [`Stat::started`].
    started: u64,
    ticks: Ticks,
    threads: Threads,
}

impl Member {
    /// Adds the use of the process since the last reading. Returns false if the process has ended.
    fn look(&mut self, folder: &Path, first: bool, text: &mut Text, sum: &mut Sum, sample: &mut TreeSample) -> bool {
        let stat = text.read(&folder.join("stat")).and_then(Stat::parse);
        let Some(now) = stat.filter(|stat| stat.started == self.started).map(|stat| Ticks::of(&stat)) else {
            sum.gone = plus(sum.gone, plus(self.ticks.own, self.ticks.children));
            return false;
        };
        let before = std::mem::replace(&mut self.ticks, now);
        let own = growth(now.own, before.own);
        sum.own = plus(sum.own, own);
        sum.waited_for = plus(sum.waited_for, growth(now.children, before.children));
        let threads = self.threads.look(&folder.join("task"), first, text, &mut sample.threads);
        // Both modes are rounded to a tick at both ends. A larger difference is the use of threads that started and
        // ended between the readings.
        let by_ticks = own.iter().sum::<u64>() * tick_us();
        let has_lost = threads.some_ended || by_ticks > threads.cpu + 2 * tick_us();
        sample.cpu += if has_lost { threads.cpu.max(by_ticks) } else { threads.cpu };
        sample.waited += threads.waited;
        true
    }
}

/// Ticks of a tree since the last reading, in user and system mode.
#[derive(Debug, Default)]
struct Sum {
    /// Ticks of running processes.
    own: [u64; 2],
    /// Ticks of descendants that have ended and were waited for since the last reading, as their parents count them.
    waited_for: [u64; 2],
    /// Ticks of ended processes that earlier samples have already counted.
    gone: [u64; 2],
    /// Ticks of processes that had ended at the last reading and that no parent had counted yet: a parent may wait for
    /// its child after the parent was read and before the child is read.
    owed: [u64; 2],
}

impl Sum {
    /// Completes the sample. Returns the ticks that are owed now.
    fn write(&self, sample: &mut TreeSample) -> [u64; 2] {
        let known = plus(self.gone, self.owed);
        let ended = growth(self.waited_for, known);
        sample.cpu += (ended[0] + ended[1]) * tick_us();
        sample.user = (self.own[0] + ended[0]) * tick_us();
        sample.system = (self.own[1] + ended[1]) * tick_us();
        let rest = growth(known, self.waited_for);
        [rest[0].min(self.gone[0]), rest[1].min(self.gone[1])]
    }
}

/// Sampler of a process and its descendants; the first call of [`TreeSampler::sample`] sets the zero.
///
/// A descendant stays in the tree when its parent ends. A process that starts and ends between two readings counts if
/// its parent waits for it.
#[derive(Debug)]
pub struct TreeSampler {
    proc: PathBuf,
    root: u32,
    /// Members, parents before their children. In this order a child for which its parent has already waited no longer
    /// exists when it is read.
    members: Vec<(u32, Member)>,
    /// Owed ticks, see [`Sum::owed`].
    owed: [u64; 2],
    sockets: Sockets,
    /// Time of the last reading of descendants, memory and drops, µs.
    looked: Option<u64>,
    /// Time of the next reading of the PSS, µs.
    pss_due: u64,
    text: Text,
    taken: Option<u64>,
}

impl TreeSampler {
    /// Creates a sampler of this process and its descendants.
    pub fn new(root: u32) -> Self {
        Self::of(PROC.into(), root)
    }

    fn of(proc: PathBuf, root: u32) -> Self {
        Self {
            proc,
            root,
            members: Vec::new(),
            owed: [0; 2],
            sockets: Sockets::default(),
            looked: None,
            pss_due: 0,
            text: Text::default(),
            taken: None,
        }
    }

    /// Returns the use since the last call, at `now` (µs since 1970-01-01 UTC), or `None` at the first call.
    pub fn sample(&mut self, now: u64) -> Option<TreeSample> {
        let is_due = self.looked.is_none_or(|before| now.saturating_sub(before) >= SLOW);
        self.take(now, is_due, is_due && now >= self.pss_due)
    }

    /// Returns the last sample, which has descendants, memory and drops however short it is.
    pub fn last(&mut self, now: u64) -> Option<TreeSample> {
        self.take(now, true, true)
    }

    fn take(&mut self, now: u64, slow: bool, pss: bool) -> Option<TreeSample> {
        let first = self.taken.is_none();
        let mut sample = TreeSample { at: now, ..TreeSample::default() };
        let mut sum = Sum { owed: self.owed, ..Sum::default() };
        let (proc, text) = (&self.proc, &mut self.text);
        self.members
            .retain_mut(|(id, member)| member.look(&proc.join(id.to_string()), false, text, &mut sum, &mut sample));
        if slow {
            self.looked = Some(now);
            for (id, mut member) in self.find(first) {
                let folder = self.proc.join(id.to_string());
                if member.look(&folder, first, &mut self.text, &mut sum, &mut sample) {
                    self.members.push((id, member));
                }
            }
        }
        self.owed = sum.write(&mut sample);
        ThreadUse::sort(&mut sample.threads);
        sample.processes = self.members.len() as u32;
        if slow {
            sample.rss = self.sum(resident, "statm", u64::saturating_add);
            let processes: Vec<u32> = self.members.iter().map(|(id, _)| *id).collect();
            sample.udp_drops = self.sockets.look(&self.proc, &processes, now, &mut self.text);
        }
        if pss && !first {
            let begun = processor_time();
            let memory = self.sum(Memory::parse, "smaps_rollup", Memory::plus);
            (sample.pss, sample.unbacked) = (memory.map(|memory| memory.pss), memory.map(|memory| memory.unbacked));
            self.pss_due = now + SLOW.max((processor_time().saturating_sub(begun) * REST).as_micros() as u64);
        }
        let before = self.taken.replace(now)?;
        sample.interval = now.saturating_sub(before);
        Some(sample)
    }

    /// Returns new processes. At the `first` reading they have used nothing yet.
    fn find(&mut self, first: bool) -> Vec<(u32, Member)> {
        let mut all: Vec<u32> = self.members.iter().map(|(id, _)| *id).collect();
        let known = all.len();
        if first {
            all.push(self.root);
        }
        descend(&self.proc, &mut all, &mut self.text);
        let mut come = Vec::new();
        for id in all.into_iter().skip(known) {
            let stat = self.text.read(&self.proc.join(format!("{id}/stat"))).and_then(Stat::parse);
            come.extend(stat.map(|stat| {
                let ticks = if first { Ticks::of(&stat) } else { Ticks::default() };
                (id, Member { started: stat.started, ticks, threads: Threads::default() })
            }));
        }
        come
    }

    /// Sums a figure over all processes, from a file of each. Returns `None` if none of the files may be read.
    fn sum<T>(&mut self, figure: impl Fn(&str) -> Option<T>, file: &str, plus: impl Fn(T, T) -> T) -> Option<T> {
        let (proc, text) = (&self.proc, &mut self.text);
        let values = self.members.iter().filter_map(|(id, _)| figure(text.read(&proc.join(format!("{id}/{file}")))?));
        values.reduce(plus)
    }
}

/// Returns the processor time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Artificial `/proc` with processes of one thread each.
    struct Proc(tempfile::TempDir);

    struct Facts {
        id: u32,
        started: u64,
        /// User, system, user of children, system of children.
        ticks: [u64; 4],
        /// Milliseconds on a core and in a run queue.
        scheduled: [u64; 2],
        children: &'static str,
    }

    impl Proc {
        fn set(&self, facts: &Facts) {
            let Facts { id, started, ticks: [user, system, cuser, csystem], scheduled: [run, waited], children } =
                facts;
            let folder = self.0.path().join(id.to_string());
            let task = folder.join(format!("task/{id}"));
            std::fs::create_dir_all(&task).unwrap();
            let stat = format!(
                "{id} (p{id}) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} {cuser} {csystem} 20 0 1 0 {started} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0"
            );
            let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
            write(&folder.join("stat"), &stat);
            let rollup = "x [rollup]\nRss: 30 kB\nPss: 10 kB\nPss_Dirty: 7 kB\nPss_Anon: 4 kB\nPss_File: 5 kB\nPss_Shmem: 1 kB\n";
            write(&folder.join("smaps_rollup"), rollup);
            write(&folder.join("statm"), "100 3 1 1 0 1 0");
            write(&task.join("stat"), &stat);
            write(&task.join("schedstat"), &format!("{} {} {run}\n", run * 1_000_000, waited * 1_000_000));
            write(&task.join("children"), children);
        }

        fn end(&self, id: u32) {
            std::fs::remove_dir_all(self.0.path().join(id.to_string())).unwrap();
        }
    }

    const S: u64 = 1_000_000;

    #[test]
    fn a_tree_is_counted_as_a_whole() {
        let proc = Proc(tempfile::tempdir().unwrap());
        let facts = |id, ticks, scheduled, children| Facts { id, started: id.into(), ticks, scheduled, children };
        proc.set(&facts(10, [100, 50, 7, 7], [1_500, 30], "11"));
        proc.set(&facts(11, [40, 0, 0, 0], [400, 0], ""));
        let mut sampler = TreeSampler::of(proc.0.path().into(), 10);
        assert_eq!(sampler.sample(100 * S), None);
        // A tenth of a second later: descendants and memory are not read.
        proc.set(&facts(10, [103, 51, 7, 7], [1_542, 35], "11 12"));
        proc.set(&facts(12, [5, 0, 0, 0], [51, 0], ""));
        let tenth = sampler.sample(100 * S + S / 10).unwrap();
        assert_eq!((tenth.cpu, tenth.user, tenth.system, tenth.waited), (42_000, 30_000, 10_000, 5_000));
        assert_eq!((tenth.processes, tenth.pss, tenth.rss, tenth.udp_drops), (2, None, None, None));
        assert_eq!((tenth.threads.len(), tenth.threads[0].name.as_str(), tenth.threads[0].turns), (1, "p10", 42));
        assert!((tenth.cores() - 0.42).abs() < 1e-9);
        // The new child counts from its start; the other has ended and was waited for, with two ticks since the last
        // reading.
        proc.end(11);
        proc.set(&facts(10, [103, 51, 47 + 2, 7], [1_542, 35], "12"));
        let second = sampler.sample(101 * S).unwrap();
        assert_eq!((second.cpu, second.user, second.system), (51_000 + 20_000, 50_000 + 20_000, 0));
        assert_eq!((second.processes, second.interval), (2, 9 * S / 10));
        let page = rustix::param::page_size() as u64;
        assert_eq!((second.pss, second.unbacked, second.rss), (Some(20 << 10), Some(10 << 10), Some(6 * page)));
        // The root ends; its child still belongs to the tree, and a later process with the number of the root does not.
        proc.set(&Facts { started: 5_000, ..facts(10, [900, 900, 0, 0], [20_000, 0], "13") });
        proc.set(&facts(12, [9, 0, 0, 0], [90, 0], ""));
        proc.set(&facts(13, [9, 0, 0, 0], [90, 0], ""));
        let third = sampler.last(101 * S + S / 2).unwrap();
        assert_eq!((third.cpu, third.user, third.processes), (39_000, 40_000, 1));
        let mut all = tenth;
        all.append(second);
        all.append(third);
        assert_eq!((all.cpu, all.user, all.interval, all.at), (152_000, 140_000, 3 * S / 2, 101 * S + S / 2));
        assert_eq!((all.pss, all.unbacked, all.rss), (Some(10 << 10), Some(5 << 10), Some(3 * page)));
        assert_eq!(
            all.threads.iter().map(|thread| (thread.id, thread.cpu)).collect::<Vec<_>>(),
            [(12, 90_000), (10, 42_000)]
        );
    }

    #[test]
    fn time_of_threads_that_have_ended_is_that_of_the_process() {
        let proc = Proc(tempfile::tempdir().unwrap());
        let process =
            |ticks: u64| Facts { id: 10, started: 3, ticks: [ticks, 0, 0, 0], scheduled: [10, 0], children: "" };
        proc.set(&process(1));
        let thread = proc.0.path().join("10/task/14");
        std::fs::create_dir_all(&thread).unwrap();
        let stat = std::fs::read_to_string(proc.0.path().join("10/stat")).unwrap();
        std::fs::write(thread.join("stat"), stat).unwrap();
        std::fs::write(thread.join("schedstat"), "100000000 0 1").unwrap();
        let mut sampler = TreeSampler::of(proc.0.path().into(), 10);
        assert_eq!(sampler.sample(S), None);
        std::fs::remove_dir_all(&thread).unwrap();
        proc.set(&process(31));
        assert_eq!(sampler.sample(2 * S).unwrap().cpu, 300_000);
        assert_eq!(sampler.sample(3 * S).unwrap().cpu, 0);
    }

    #[test]
    fn a_child_that_is_waited_for_between_two_looks_counts_once() {
        let proc = Proc(tempfile::tempdir().unwrap());
        let facts = |id, ticks, children| Facts { id, started: id.into(), ticks, scheduled: [0, 0], children };
        proc.set(&facts(10, [0; 4], "11 12"));
        proc.set(&facts(11, [200, 0, 0, 0], ""));
        proc.set(&facts(12, [50, 0, 0, 0], ""));
        let mut sampler = TreeSampler::of(proc.0.path().into(), 10);
        assert_eq!(sampler.sample(S), None);
        // The parent was read before it waited for the child, the child after.
        proc.end(11);
        assert_eq!(sampler.sample(2 * S).unwrap().user, 0);
        proc.set(&facts(10, [0, 0, 203, 0], "12"));
        assert_eq!(sampler.sample(3 * S).unwrap().user, 30_000);
        // No process of the tree waits for this one. Time of later children still counts.
        proc.end(12);
        assert_eq!(sampler.sample(4 * S).unwrap().user, 0);
        assert_eq!(sampler.sample(5 * S).unwrap().user, 0);
        proc.set(&facts(10, [0, 0, 233, 0], ""));
        let sample = sampler.sample(6 * S).unwrap();
        assert_eq!((sample.user, sample.cpu, sample.processes), (300_000, 300_000, 1));
    }

    #[test]
    fn nothing_is_no_tree() {
        let folder = tempfile::tempdir().unwrap();
        let mut sampler = TreeSampler::of(folder.path().into(), 10);
        assert_eq!(sampler.sample(S), None);
        let sample = sampler.sample(2 * S).unwrap();
        assert_eq!((sample.processes, sample.cpu, sample.pss, sample.unbacked, sample.rss), (0, 0, None, None, None));
    }
}
