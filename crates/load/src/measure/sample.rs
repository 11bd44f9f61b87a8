//! What this process used of the machine, second by second: `/proc/self/task`, `/proc/stat`.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;

/// The use of one second (or of however long lay between two samples).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The wall-clock second (since 1970-01-01 UTC) in which it was taken.
    pub second: u64,
    /// How long it covers, µs.
    pub interval: u64,
    /// Threads of this process that ran at all, the busiest first.
    pub threads: Vec<ThreadUse>,
    /// Memory of the process that is in RAM, bytes.
    pub resident: u64,
    /// How busy each core of the machine was, by all programs, 0 to 1.
    pub cores: Vec<f64>,
    /// The share of the machine's cores that its host gave to others while there was work for them, 0 to 1.
    pub stolen: f64,
}

/// What one thread used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadUse {
    pub id: u64,
    pub name: String,
    /// CPU time within the interval, µs.
    pub cpu: u64,
    /// Time in which it could run and waited for a core (the run-queue delay of `schedstat`), µs.
    pub waited: u64,
    /// How often it was given a core.
    pub turns: u64,
    /// The core on which it was seen last.
    pub core: u32,
}

impl Sample {
    /// The share of one core that the thread used, 0 to 1.
    pub fn share(&self, thread: &ThreadUse) -> f64 {
        if self.interval == 0 { 0.0 } else { thread.cpu as f64 / self.interval as f64 }
    }

    /// Puts the next sample behind this one: both become one of a longer time.
    pub fn append(&mut self, next: Self) {
        let whole = (self.interval + next.interval).max(1) as f64;
        let mean = |mine: f64, theirs: f64| (mine * self.interval as f64 + theirs * next.interval as f64) / whole;
        if self.cores.len() < next.cores.len() {
            self.cores.resize(next.cores.len(), 0.0);
        }
        let theirs = next.cores.iter().copied().chain(std::iter::repeat(0.0));
        self.cores = self.cores.iter().zip(theirs).map(|(mine, theirs)| mean(*mine, theirs)).collect();
        self.stolen = mean(self.stolen, next.stolen);
        for used in next.threads {
            match self.threads.iter_mut().find(|thread| thread.id == used.id) {
                Some(thread) => {
                    thread.cpu += used.cpu;
                    thread.waited += used.waited;
                    thread.turns += used.turns;
                    thread.core = used.core;
                }
                None => self.threads.push(used),
            }
        }
        self.threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu));
        (self.second, self.interval) = (next.second, self.interval + next.interval);
        self.resident = self.resident.max(next.resident);
    }

    /// Cores used by the whole process.
    pub fn process(&self) -> f64 {
        self.threads.iter().map(|thread| self.share(thread)).sum()
    }
}

/// What the kernel has counted of a thread: µs on a core, µs in a run queue, turns on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scheduled {
    cpu: u64,
    waited: u64,
    turns: u64,
}

/// Ticks of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
}

/// Takes samples; the first call of [`Sampler::sample`] sets the zero.
#[derive(Default)]
pub struct Sampler {
    threads: HashMap<u64, Scheduled>,
    cores: Vec<Ticks>,
    taken: Option<u64>,
}

impl Sampler {
    pub fn new() -> Self {
        Self::default()
    }

    /// What was used since the last call, at `now` (µs, monotonic), in the wall-clock second `second`. `None` the first time.
    pub fn sample(&mut self, now: u64, second: u64) -> Option<Sample> {
        let mut sample = Sample { second, ..Sample::default() };
        let mut seen = HashMap::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let path = entry.path();
            let Some((name, core, ticks)) = fs::read_to_string(path.join("stat")).ok().and_then(|stat| thread(&stat))
            else {
                continue;
            };
            // Nanoseconds where the kernel counts them, else its ticks of 10 ms.
            let exact = fs::read_to_string(path.join("schedstat")).ok().and_then(|text| scheduled(&text));
            let counted = exact.unwrap_or_else(|| Scheduled { cpu: ticks * 10_000, ..Scheduled::default() });
            let new = if self.taken.is_some() { Scheduled::default() } else { counted };
            let before = self.threads.get(&id).copied().unwrap_or(new);
            seen.insert(id, counted);
            let cpu = counted.cpu.saturating_sub(before.cpu);
            let waited = counted.waited.saturating_sub(before.waited);
            let turns = counted.turns.saturating_sub(before.turns);
            if cpu > 0 || waited > 0 {
                sample.threads.push(ThreadUse { id, name, cpu, waited, turns, core });
            }
        }
        sample.threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu));
        self.threads = seen;
        let cores = fs::read_to_string("/proc/stat").map(|text| cores(&text)).unwrap_or_default();
        let mut stolen = Ticks::default();
        for (place, now) in cores.iter().enumerate() {
            let before = self.cores.get(place).copied().unwrap_or_default();
            let passed = now.all.saturating_sub(before.all);
            sample.cores.push(share(now.busy.saturating_sub(before.busy), passed));
            stolen.stolen += now.stolen.saturating_sub(before.stolen);
            stolen.all += passed;
        }
        sample.stolen = share(stolen.stolen, stolen.all);
        self.cores = cores;
        sample.resident = fs::read_to_string("/proc/self/statm")
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .unwrap_or_default()
            * 4096;
        let before = self.taken.replace(now)?;
        sample.interval = now.saturating_sub(before);
        Some(sample)
    }
}

/// Name, core and CPU ticks of a thread, from its `stat` (proc(5)). The name may contain anything, so the last bracket counts.
fn thread(stat: &str) -> Option<(String, u32, u64)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat.get(close + 1..)?.split_ascii_whitespace().collect();
    // Fields are counted from 1 with the id; `state`, the third, comes first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((stat.get(open + 1..close)?.into(), field(39)? as u32, field(14)? + field(15)?))
}

/// The numbers of `schedstat` (Documentation/scheduler/sched-stats.rst): nanoseconds on a core and in a run queue, turns.
fn scheduled(text: &str) -> Option<Scheduled> {
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
    let (cpu, waited, turns) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(Scheduled { cpu: cpu / 1_000, waited: waited / 1_000, turns })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Ticks of each core, from `/proc/stat`.
fn cores(stat: &str) -> Vec<Ticks> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let ticks: Vec<u64> =
                line.split_ascii_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
            let of = |place: usize| ticks.get(place).copied().unwrap_or(0);
            let all: u64 = ticks.iter().sum();
            // What is stolen was wanted, so it is no idle time.
            Ticks { busy: all - of(3) - of(4), stolen: of(7), all }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_thread_is_seen() {
        let begun = Instant::now();
        let mut sampler = Sampler::new();
        assert!(sampler.sample(0, 1).is_none());
        let busy = std::thread::Builder::new().name("spinner (1) x".into()).spawn(move || {
            let mut n = 0u64;
            while begun.elapsed() < Duration::from_millis(400) {
                n = std::hint::black_box(n + 1);
            }
            std::thread::park_timeout(Duration::from_secs(20));
        });
        let busy = busy.unwrap();
        std::thread::sleep(Duration::from_millis(450));
        let sample = sampler.sample(begun.elapsed().as_micros() as u64, 2).unwrap();
        busy.thread().unpark();
        let thread = sample.threads.iter().find(|thread| thread.name == "spinner (1) x").expect("the thread is listed");
        // How much of the time it got depends on what else runs here.
        assert!(thread.cpu > 20_000 && thread.cpu <= sample.interval + 20_000, "{thread:?}");
        assert!(sample.resident > 1 << 20 && !sample.cores.is_empty());
        assert!(sample.cores.iter().all(|share| (0.0..=1.0).contains(share)));
        busy.join().unwrap();
    }

    #[test]
    fn two_samples_are_one_of_a_longer_time() {
        let sample = |second, interval, cpu, share| Sample {
            second,
            interval,
            threads: vec![ThreadUse { id: 7, name: "shard-0".into(), cpu, waited: cpu / 10, turns: 3, core: 1 }],
            resident: cpu,
            cores: vec![share],
            stolen: share / 10.0,
        };
        let mut both = sample(10, 1_000_000, 300_000, 0.3);
        let mut next = sample(13, 3_000_000, 2_100_000, 0.7);
        next.threads.push(ThreadUse { id: 8, name: "shard-1".into(), cpu: 9, ..ThreadUse::default() });
        both.append(next);
        assert_eq!((both.second, both.interval, both.resident), (13, 4_000_000, 2_100_000));
        assert!((both.cores[0] - 0.6).abs() < 1e-9 && (both.share(&both.threads[0]) - 0.6).abs() < 1e-9);
        assert_eq!((both.threads.len(), both.threads[1].cpu), (2, 9));
        assert_eq!((both.threads[0].waited, both.threads[0].turns), (240_000, 6));
        assert!((both.stolen - 0.06).abs() < 1e-9);
    }

    #[test]
    fn the_kernels_lines() {
        let stat =
            "7 (a (b) c) R 1 1 1 0 -1 4194304 0 0 0 0 120 30 0 0 20 0 1 0 5 6 7 8 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";
        assert_eq!(thread(stat), Some(("a (b) c".into(), 3, 150)));
        assert_eq!(thread("7 (a"), None);
        let ticks = |busy, stolen, all| Ticks { busy, stolen, all };
        let text = "cpu  9 9 9 9\ncpu0 10 0 5 80 3 0 0 2 0 0\ncpu1 1 1 1 1 0 0 0\nintr 4";
        assert_eq!(cores(text), [ticks(17, 2, 100), ticks(3, 0, 4)]);
        assert_eq!(scheduled("5000000 2999 7\n"), Some(Scheduled { cpu: 5_000, waited: 2, turns: 7 }));
        assert_eq!(scheduled(""), None);
    }
}
