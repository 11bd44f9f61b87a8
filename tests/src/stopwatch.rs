//! Measured times on a machine that does other work, too.

use std::fs;
use std::time::{Duration, Instant};

/// Divisor of time during which other work holds the machine, for comparison with an upper bound.
const STRETCH: u32 = 4;

/// Length of a tick in `/proc/stat` (proc(5), `USER_HZ`), in milliseconds.
const TICK: u64 = 10;

/// Stopwatch that knows how long tasks waited for processors and disks.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    begun: Instant,
    waited: Duration,
}

/// Measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Took {
    /// Time by the clock.
    pub elapsed: Duration,
    /// Time with waits counted as a quarter: while a task waited for a processor or a disk, or a hypervisor gave
    /// processors to others.
    pub fair: Duration,
}

impl Took {
    /// Tells whether the work took at least this long by the clock.
    pub fn is_at_least(self, bound: Duration) -> bool {
        self.elapsed >= bound
    }

    /// Tells whether the fair time is below this bound. On a machine with other work the bound is effectively longer,
    /// four times at most.
    pub fn is_below(self, bound: Duration) -> bool {
        self.fair < bound
    }
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        Self { begun: Instant::now(), waited: waited() }
    }

    /// Returns the time since the start, by the clock.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the time since the start.
    pub fn took(&self) -> Took {
        let elapsed = self.elapsed();
        let waited = waited().saturating_sub(self.waited).min(elapsed);
        Took { elapsed, fair: elapsed - waited * (STRETCH - 1) / STRETCH }
    }
}

/// Returns the time since boot in which tasks of this machine waited; only stolen time if the kernel does not report
/// waits.
fn waited() -> Duration {
    ["cpu", "io"]
        .map(|resource| pressure(&fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default()))
        .iter()
        .sum::<Duration>()
        + stolen(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Reads the time in which some task waited for a resource (Linux: Documentation/accounting/psi.rst).
fn pressure(text: &str) -> Duration {
    let some = text.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.split_once("total="));
    Duration::from_micros(total.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or_default())
}

/// Reads the time per processor that the hypervisor gave to others.
fn stolen(text: &str) -> Duration {
    let processors = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1);
    let ticks = text.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
    Duration::from_millis(ticks.unwrap_or_default() * TICK / processors as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let text = "some avg10=92.44 avg60=92.04 avg300=87.41 total=6451148707\nfull avg10=0.00 total=3\n";
        assert_eq!(pressure(text), Duration::from_micros(6_451_148_707));
        assert_eq!(pressure(""), Duration::ZERO);
        let text = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(stolen(text), Duration::from_millis(400));
    }

    #[test]
    fn an_upper_bound_is_stretched_four_times_at_most() {
        let busy = Stopwatch { begun: Instant::now() - Duration::from_secs(4), waited: Duration::ZERO };
        // This holds whether or not this machine has waited longer than that since boot.
        let took = busy.took();
        assert!(took.is_at_least(Duration::from_secs(4)));
        assert!(took.fair >= took.elapsed / STRETCH && took.fair <= took.elapsed);
        assert!(!took.is_below(Duration::from_secs(1)));
    }
}
