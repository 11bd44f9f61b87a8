//! A thread that wakes when calls are due and makes none: what a generator, which has work to do, is held against.

use std::time::{Duration, Instant};

use strowger_tests::plant::{Scheduling, place_thread};

/// The least time between two wakes in the mean, as the generator has it: what falls due meanwhile is taken together.
const GATHER: Duration = Duration::from_millis(1);

/// What it reached.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Calls a second.
    pub rate: f64,
    /// How late 99 in 100 were at most, µs.
    pub lag_p99: f64,
}

/// Keeps the time of so many calls a second on this core, for so long.
///
/// # Panics
/// Its thread does, or there is no call in that time.
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
