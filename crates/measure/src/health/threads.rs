//! Threads of a generator and cores of its machine over a run.

use crate::judge::carries;
use crate::{Sample, ThreadUse, Thresholds};
use serde::{Deserialize, Serialize};

/// Load of a thread of the generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadLoad {
    pub name: String,
    pub id: u64,
    /// Mean share of a core, per cent.
    pub mean: f64,
    /// Share of a core in its busiest sample (a second, more in runs of hours), per cent.
    pub most: f64,
    /// Seconds in which it was saturated.
    pub saturated: u64,
    /// Share of the time in which the thread could run but waited for a core, per cent; 0 if the kernel does not report
    /// it.
    pub waited: f64,
    /// Mean length of these waits, µs.
    pub wait: f64,
}

/// Threads of a run, the busiest first, and its length.
pub(super) struct Threads {
    pub(super) all: Vec<ThreadLoad>,
    /// Seconds that were sampled.
    pub(super) seconds: f64,
    /// Seconds from which on a thread was saturated for too long.
    bound: f64,
}

impl Threads {
    pub(super) fn of(samples: &[Sample], thresholds: &Thresholds) -> Self {
        let seconds = samples.iter().map(|sample| sample.interval).sum::<u64>() as f64 / 1e6;
        let bound = seconds * thresholds.saturated_seconds / 100.0;
        Self { all: thread_loads(samples, thresholds), seconds, bound }
    }

    /// Returns the threads that were saturated for too long.
    pub(super) fn saturated(&self) -> impl Iterator<Item = &ThreadLoad> {
        self.all.iter().filter(|thread| thread.saturated as f64 > self.bound)
    }

    /// Returns the longest share of the time, in per cent, in which a thread that carries the load waited for a core.
    pub(super) fn waited(&self) -> f64 {
        self.all.iter().filter(|thread| carries(&thread.name)).map(|thread| thread.waited).fold(0.0, f64::max)
    }

    /// Returns a sentence about the probable cause of an exceeded threshold, or nothing.
    pub(super) fn cause(&self, stolen: f64) -> String {
        if let Some(thread) = self.saturated().next() {
            return format!(
                " Its thread {} was saturated in {} of {:.0} seconds (a core to {:.0} % on average): more generator threads or \
                 machines, or a lower rate, help.",
                thread.name, thread.saturated, self.seconds, thread.mean
            );
        }
        if stolen > STOLEN {
            return format!(" The host of this virtual machine gave {stolen:.0} % of its cores to others.");
        }
        match starved(&self.all).filter(|thread| thread.waited > WAITED) {
            Some(thread) => format!(
                " Its thread {} waited for a core in {:.0} % of the time: other programs use its cores.",
                thread.name, thread.waited
            ),
            None => String::new(),
        }
    }
}

/// Shares of the time from which on they are named as a cause, per cent.
const STOLEN: f64 = 2.0;
pub(super) const WAITED: f64 = 5.0;

/// Returns the sum of each thread over all samples, the busiest first.
pub(crate) fn thread_loads(samples: &[Sample], thresholds: &Thresholds) -> Vec<ThreadLoad> {
    let whole: u64 = samples.iter().map(|sample| sample.interval).sum();
    // Each with its use, and the time in which it was saturated, µs.
    let mut threads: Vec<(f64, ThreadUse, u64)> = Vec::new();
    for sample in samples {
        for used in &sample.threads {
            let share = sample.share(used) * 100.0;
            let place = threads.iter().position(|(_, thread, _)| thread.id == used.id).unwrap_or_else(|| {
                threads.push((0.0, ThreadUse { id: used.id, name: used.name.clone(), ..ThreadUse::default() }, 0));
                threads.len() - 1
            });
            let (most, thread, saturated) = &mut threads[place];
            *most = most.max(share);
            *saturated += if share >= thresholds.saturated { sample.interval } else { 0 };
            thread.cpu += used.cpu;
            thread.waited += used.waited;
            thread.turns += used.turns;
        }
    }
    threads.sort_by_key(|(_, thread, _)| std::cmp::Reverse(thread.cpu));
    let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let load = |(most, thread, saturated): (f64, ThreadUse, u64)| ThreadLoad {
        mean: of(thread.cpu, whole) * 100.0,
        most,
        saturated: (saturated as f64 / 1e6).round() as u64,
        waited: of(thread.waited, whole) * 100.0,
        wait: of(thread.waited, thread.turns),
        name: thread.name,
        id: thread.id,
    };
    threads.into_iter().map(load).collect()
}

/// Returns the thread with the longest mean wait for a core, among those that carry the load and waited for more than a
/// hundredth of the time.
pub(crate) fn starved(threads: &[ThreadLoad]) -> Option<&ThreadLoad> {
    let waited = threads.iter().filter(|thread| carries(&thread.name) && thread.waited > 1.0);
    waited.max_by(|a, b| a.wait.total_cmp(&b.wait))
}

pub(super) fn core_loads(samples: &[Sample]) -> Vec<f64> {
    let cores = samples.iter().map(|sample| sample.cores.len()).max().unwrap_or_default();
    let whole: u64 = samples.iter().map(|sample| sample.interval).sum();
    (0..cores)
        .map(|core| {
            let busy = samples.iter().map(|sample| sample.cores.get(core).unwrap_or(&0.0) * sample.interval as f64);
            if whole == 0 { 0.0 } else { busy.sum::<f64>() / whole as f64 * 100.0 }
        })
        .collect()
}

/// Returns the mean share of its cores that the machine's host gave to others, per cent.
pub(super) fn mean_stolen(samples: &[Sample]) -> f64 {
    let whole: u64 = samples.iter().map(|sample| sample.interval).sum();
    let stolen: f64 = samples.iter().map(|sample| sample.stolen * sample.interval as f64).sum();
    if whole == 0 { 0.0 } else { stolen / whole as f64 * 100.0 }
}
