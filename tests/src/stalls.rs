//! Stalls of the machine, as threads see them that only sleep: when one of them is late, its core did other work or stood still. A test that measures
//! a delay leaves these times out, so that its bound is that of the program under test on any machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::plant::{Scheduling, allowed_cores, place_thread};
use crate::wait;

/// Time between two looks of a thread at the clock.
const STEP: Duration = Duration::from_millis(2);

/// Lateness that is no stall: the scheduler lets another thread finish its turn.
const TURN: Duration = Duration::from_millis(8);

/// Longest wait for the threads.
const SOON: Duration = Duration::from_secs(20);

/// Observer of all cores that this process may use. It ends when it is dropped.
#[derive(Debug)]
pub struct Stalls {
    cores: Vec<Arc<Mutex<Seen>>>,
    is_over: Arc<AtomicBool>,
}

/// What the thread of a core has seen.
#[derive(Debug)]
struct Seen {
    /// Begins and ends of its stalls.
    stalls: Vec<(Instant, Instant)>,
    /// Its last look at the clock.
    looked: Instant,
}

impl Stalls {
    /// Begins to watch.
    pub fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = |core| {
            let seen = Arc::new(Mutex::new(Seen { stalls: Vec::new(), looked: Instant::now() }));
            let (its_seen, its_end) = (seen.clone(), is_over.clone());
            thread::spawn(move || {
                place_thread(core, Scheduling::Ordinary);
                while !its_end.load(Ordering::Relaxed) {
                    thread::sleep(STEP); // It is late if the core stands still.
                    lock(&its_seen).look(Instant::now());
                }
            });
            seen
        };
        let cores = allowed_cores().into_iter().map(watch).collect();
        Self { cores, is_over }
    }

    /// Returns for how long a core stood still between two times. Times at which several did so count once.
    ///
    /// # Panics
    /// A thread of this observer does not run again.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        self.await_look(to);
        let stalls = self.cores.iter().flat_map(|seen| lock(seen).stalls.clone()).collect();
        overlap(stalls, from, to)
    }

    /// Returns the longest time without a pause in which a core stood still, between two times.
    ///
    /// # Panics
    /// A thread of this observer does not run again.
    pub fn longest(&self, from: Instant, to: Instant) -> Duration {
        self.await_look(to);
        let stalls = self.cores.iter().flat_map(|seen| lock(seen).stalls.clone());
        let lengths = stalls.map(|(begin, end)| end.min(to).saturating_duration_since(begin.max(from)));
        lengths.max().unwrap_or_default()
    }

    /// Waits until each thread has looked at the clock after this time.
    fn await_look(&self, time: Instant) {
        let have_looked = || self.cores.iter().all(|seen| lock(seen).looked >= time);
        assert!(wait::until(SOON, have_looked), "a core stands still");
    }

    /// Returns the time since then, without stalls.
    pub fn since(&self, from: Instant) -> Duration {
        let to = Instant::now();
        to.duration_since(from).saturating_sub(self.between(from, to))
    }
}

impl Seen {
    /// Notes a look at the clock.
    fn look(&mut self, now: Instant) {
        let due = self.looked + STEP;
        if now > due + TURN {
            self.stalls.push((due, now));
        }
        self.looked = now;
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how much of the time from `from` to `to` is in one of these spans.
fn overlap(mut spans: Vec<(Instant, Instant)>, from: Instant, to: Instant) -> Duration {
    spans.sort_unstable();
    let (mut counted, mut sum) = (from, Duration::ZERO);
    for (begin, end) in spans {
        let (begin, end) = (begin.max(counted), end.min(to));
        sum += end.saturating_duration_since(begin);
        counted = counted.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_look_is_a_stall() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut seen = Seen { stalls: Vec::new(), looked: begun };
        [2, 12, 14, 300, 302].into_iter().for_each(|ms| seen.look(at(ms)));
        assert_eq!((seen.stalls, seen.looked), (vec![(at(16), at(300))], at(302)));
    }

    #[test]
    fn stalls_of_several_cores_count_once() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let spans =
            || vec![(at(100), at(400)), (at(0), at(50)), (at(350), at(450)), (at(120), at(130)), (at(900), at(950))];
        let between = |from, to| overlap(spans(), at(from), at(to)).as_millis();
        assert_eq!((between(0, 1_000), between(40, 110), between(380, 410), between(500, 800)), (450, 20, 30, 0));
        assert_eq!((overlap(Vec::new(), at(0), at(9)), between(920, 930)), (Duration::ZERO, 10));
    }

    #[test]
    fn time_is_not_lost_on_a_machine_that_runs() {
        let (stalls, begun) = (Stalls::watch(), Instant::now());
        thread::sleep(Duration::from_millis(100)); // The time that is measured.
        let stood = stalls.between(begun, Instant::now());
        assert!(stalls.since(begun) + stood >= Duration::from_millis(100) && stood <= begun.elapsed());
    }
}
