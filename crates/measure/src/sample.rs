//! Samples of the generator itself, second by second: `/proc/self/task`, `/proc/stat`.

use crate::machine::Cores;
use crate::proc::{Text, resident};
use crate::threads::{ThreadUse, Threads};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Use of one second (or of the time between two samples).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Wall-clock second (since 1970-01-01 UTC) in which it was taken.
    pub second: u64,
    /// Length, µs.
    pub interval: u64,
    /// Threads of this process that ran at all, the busiest first.
    pub threads: Vec<ThreadUse>,
    /// Resident memory of the process, bytes.
    pub resident: u64,
    /// Load of each core of the machine by all programs, 0 to 1.
    pub cores: Vec<f64>,
    /// Share of the machine's cores that its host gave to others while there was work for them, 0 to 1.
    pub stolen: f64,
}

impl Sample {
    /// Returns the share of one core that the thread used, 0 to 1.
    pub fn share(&self, thread: &ThreadUse) -> f64 {
        if self.interval == 0 { 0.0 } else { thread.cpu as f64 / self.interval as f64 }
    }

    /// Appends the next sample, so that both become one sample of a longer time.
    pub fn append(&mut self, next: Self) {
        let weights = [self.interval, next.interval];
        self.cores = means(&self.cores, &next.cores, weights);
        self.stolen = mean([self.stolen, next.stolen], weights);
        ThreadUse::append(&mut self.threads, next.threads);
        (self.second, self.interval) = (next.second, self.interval + next.interval);
        self.resident = self.resident.max(next.resident);
    }

    /// Returns the cores used by the whole process.
    pub fn process(&self) -> f64 {
        self.threads.iter().map(|thread| self.share(thread)).sum()
    }
}

/// Returns the mean of two shares over two intervals.
pub(crate) fn mean(shares: [f64; 2], intervals: [u64; 2]) -> f64 {
    let [mine, theirs] = [0, 1].map(|place| shares[place] * intervals[place] as f64);
    (mine + theirs) / (intervals[0] + intervals[1]).max(1) as f64
}

/// Returns the means of several shares, of which a missing one counts as 0.
pub(crate) fn means(mine: &[f64], theirs: &[f64], intervals: [u64; 2]) -> Vec<f64> {
    let of = |shares: &[f64], place: usize| shares.get(place).copied().unwrap_or(0.0);
    (0..mine.len().max(theirs.len())).map(|n| mean([of(mine, n), of(theirs, n)], intervals)).collect()
}

/// Sampler of this process; the first call of [`Sampler::sample`] sets the zero.
#[derive(Debug, Default)]
pub struct Sampler {
    threads: Threads,
    cores: Cores,
    text: Text,
    taken: Option<u64>,
}

impl Sampler {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the use since the last call, at `now` (µs, monotonic), in the wall-clock second `second`, or `None` at
    /// the first call.
    pub fn sample(&mut self, now: u64, second: u64) -> Option<Sample> {
        let mut sample = Sample { second, ..Sample::default() };
        let (first, task) = (self.taken.is_none(), Path::new("/proc/self/task"));
        self.threads.look(task, first, &mut self.text, &mut sample.threads);
        ThreadUse::sort(&mut sample.threads);
        let before = self.taken.replace(now);
        sample.interval = before.map_or(0, |before| now.saturating_sub(before));
        let cores = self.cores.look(self.text.read(Path::new("/proc/stat")).unwrap_or_default(), sample.interval);
        (sample.cores, sample.stolen) = (cores.busy, cores.stolen);
        sample.resident = self.text.read(Path::new("/proc/self/statm")).and_then(resident).unwrap_or_default();
        before.map(|_| sample)
    }
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
        // The thread's share of the time depends on other programs.
        assert!(thread.cpu > 20_000 && thread.cpu <= sample.interval + 20_000, "{thread:?}");
        assert!(sample.resident > 1 << 20 && !sample.cores.is_empty());
        assert!(sample.cores.iter().all(|share| (0.0..=1.0).contains(share)));
        busy.join().unwrap();
    }

    /// Checks that a report from the log equals that of the run, to the last digit.
    #[test]
    fn shares_are_read_as_they_were_written() {
        for whole in 1..200 {
            let cores: Vec<f64> = (0..whole).map(|part| f64::from(part) / f64::from(whole)).collect();
            let sample = Sample { cores, ..Sample::default() };
            let text = serde_json::to_vec(&sample).unwrap();
            assert_eq!(serde_json::from_slice::<Sample>(&text).unwrap(), sample);
        }
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
}
