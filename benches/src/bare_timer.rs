//! A thread that wakes when calls are due and makes no calls. It is the baseline of a generator, which has work to do.

use std::time::{Duration, Instant};

use strowger_tests::plant::{Scheduling, place_thread};

/// Minimum mean interval of wakes, as in the generator: all calls due meanwhile are handled together.
const GATHER: Duration = Duration::from_millis(1);

/// Result of the timer.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Calls per second.
    pub rate: f64,
    /// 99th percentile of the lag in µs.
    pub lag_p99: f64,
}

/// Wakes for this rate of calls per second on this core for this time. Returns the times that were reached.
///
/// # Panics
/// The timer's thread panics, or no call falls due in that time.
pub fn keep_time(core: usize, rate: u64, length: Duration) -> Reached {
    let thread = std::thread::spawn(move || {
        place_thread(core, Scheduling::Ordinary);
        let calls = (rate as f64 * length.as_secs_f64()) as u32;
        let begun = Instant::now();
        let due = |call: u32| begun + Duration::from_secs_f64(f64::from(call) / rate as f64);
        let mut late = Vec::with_capacity(calls as usize);
        let mut wake = begun;
        while (late.len() as u32) < calls {
            wake = due(late.len() as u32).max(wake + GATHER);
            std::thread::sleep(wake.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            wake = wake.max(now - GATHER);
            while (late.len() as u32) < calls && due(late.len() as u32) <= now {
                late.push(now - due(late.len() as u32));
            }
        }
        let took = begun.elapsed().as_secs_f64();
        late.sort_unstable();
        let lag_p99 = late[late.len() * 99 / 100].as_secs_f64() * 1e6;
        // The last call is due one gap before the end.
        Reached { rate: f64::from(calls - 1) / took, lag_p99 }
    });
    thread.join().expect("the timer's thread lives")
}
