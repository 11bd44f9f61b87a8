//! Figures of the kernel about this process (proc(5)), under the standard names of Prometheus.

use super::OfCaches;
use crate::caches::Caches;
use std::fs;

strowger_metrics::metrics! {
    values of = "";
    /// The kernel's view of the process.
    pub struct OfProcess;

    /// Memory of the process.
    resident: Gauge in Bytes as "process_resident_memory_bytes";
    /// Start of the process, since 1970.
    started: Gauge in Seconds as "process_start_time_seconds";
    /// Processor time that the process has used, in user and system mode.
    cpu: Counter in Seconds as "process_cpu_seconds";
    /// Open file descriptors.
    open_fds: Gauge as "process_open_fds";
    /// File descriptors that may be open.
    max_fds: Gauge as "process_max_fds";
}

impl OfProcess {
    /// Reads the values; 0 for each that cannot be read. `started`: microseconds since 1970.
    pub(super) fn read(started: u64) -> Self {
        Self {
            resident: resident().unwrap_or_default(),
            started,
            cpu: cpu().unwrap_or_default(),
            open_fds: open_fds().unwrap_or_default(),
            max_fds: max_fds().unwrap_or_default(),
        }
    }
}

fn resident() -> Option<u64> {
    const PAGE: u64 = 4_096;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE)
}

/// Returns the processor time in microseconds. The kernel reports ticks, of which a second has 100 on every Linux
/// platform.
fn cpu() -> Option<u64> {
    const TICK: u64 = 10_000;
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The fields follow the program name, which may contain spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) * TICK)
}

/// Counts open descriptors. Since Linux 6.2 the size of the folder is the number of descriptors; for older versions the
/// entries are counted.
fn open_fds() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    let size = fs::metadata(FOLDER).ok()?.len();
    if size > 0 { Some(size) } else { Some(fs::read_dir(FOLDER).ok()?.count() as u64) }
}

fn max_fds() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the sums over all caches.
pub(super) fn of_caches(caches: &Caches) -> OfCaches {
    let mut figures = OfCaches::default();
    for (_, engine) in caches.each() {
        let (all, remote) = (engine.gauges(), engine.remote_gauges());
        figures.hits += all.hits;
        figures.misses += all.misses;
        figures.stores += all.stores;
        figures.refused += all.refused;
        figures.late += remote.late;
        figures.failed += remote.failed;
        figures.in_flight += remote.in_flight;
        figures.bound += remote.bound;
        figures.connections += remote.connections;
        figures.lost += remote.lost;
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_everything_of_this_process() {
        let before = OfProcess::read(1);
        let files: Vec<_> = (0..7).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let begun = std::time::Instant::now();
        while OfProcess::read(1).cpu == before.cpu {
            assert!(begun.elapsed().as_secs() < 20, "no tick passed");
        }
        let after = OfProcess::read(1);
        assert!(after.resident > 100_000 && after.started == 1, "{after:?}");
        assert!(after.open_fds >= files.len() as u64 && after.max_fds >= after.open_fds, "{after:?}");
        // The loop takes at most 20 s; other tests of this process run at the same time.
        assert!(after.cpu - before.cpu < 60_000_000, "{before:?} {after:?}");
    }
}
