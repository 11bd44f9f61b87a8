//! Steps of the wall clock while a process runs.
//!
//! Route tokens and seals contain a time of the wall clock, because other servers read them. An operator or NTP may step that clock by
//! years. A token from before the step would then look too old, or would seem to come from the future. So each step is recorded, and the age
//! of an older token is measured by the clock before the step, which the monotonic clock continues.

use super::seconds;
use crate::Now;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Smallest step in milliseconds.
const STEP: u64 = 60_000;

/// Maximum number of recorded steps.
const MOST: usize = 8;

/// Record of the steps of a wall clock.
#[derive(Debug, Default)]
pub struct ClockSteps {
    clocks: Mutex<Clocks>,
}

#[derive(Debug, Default)]
struct Clocks {
    /// Difference of [`Now::wall`] and [`Now::mono`]; `None` before the first reading.
    ahead: Option<u64>,
    earlier: VecDeque<Earlier>,
}

/// A wall clock before a step.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    ahead: u64,
    /// [`Now::mono`] of its last reading, or later.
    ended: u64,
}

impl ClockSteps {
    /// Records a reading of the clocks. MUST be called every few seconds.
    pub fn note(&self, now: Now) {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).note(now);
    }

    /// Converts a time of an earlier wall clock into seconds of the current wall clock. Returns `None` if no earlier
    /// clock showed that time while it was in use, or if more than `lifetime` seconds have passed since.
    pub(crate) fn translate(&self, now: Now, made: u32, lifetime: u32) -> Option<u32> {
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.note(now);
        let age = |clock: &Earlier| {
            let then = Now { wall: now.mono.wrapping_add(clock.ahead), ..now };
            let age = seconds(then).wrapping_sub(made).cast_signed();
            // The clock of another server may be slightly ahead.
            let since_end = now.mono.saturating_sub(clock.ended + STEP) / 1_000;
            (i64::from(age) >= since_end.cast_signed() && i64::from(age) <= i64::from(lifetime)).then_some(age)
        };
        let age = clocks.earlier.iter().rev().find_map(age)?;
        Some(seconds(now).wrapping_sub(age.cast_unsigned()))
    }
}

impl Clocks {
    fn note(&mut self, now: Now) {
        let ahead = now.wall.wrapping_sub(now.mono);
        let is_same = |other: u64| other.wrapping_sub(ahead).cast_signed().unsigned_abs() < STEP;
        match self.ahead {
            Some(before) if is_same(before) => (),
            None => self.ahead = Some(ahead),
            Some(before) => {
                self.ahead = Some(ahead);
                // Shards read the clock one after the other, so a step may be seen several times, forward and backward.
                self.earlier.retain(|clock| clock.ahead != before);
                if self.earlier.len() == MOST {
                    self.earlier.pop_front();
                }
                self.earlier.push_back(Earlier { ahead: before, ended: now.mono });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 86_400;

    /// Returns the moment `second` seconds after the start, by a wall clock set forward by `days` days.
    fn at(second: u64, days: i64) -> Now {
        let wall = (1_700_000_000 + second) * 1_000;
        Now { mono: 5_000 + second * 1_000, wall: wall.wrapping_add_signed(days * 86_400_000) }
    }

    #[test]
    fn a_time_of_an_earlier_clock_keeps_its_age() {
        for days in [400, -400] {
            let steps = ClockSteps::default();
            steps.note(at(0, 0));
            let made = seconds(at(10, 0));
            assert_eq!(steps.translate(at(20, 0), made, DAY), None, "there is no earlier clock");
            let later = at(100, days);
            assert_eq!(steps.translate(later, made, DAY), Some(seconds(at(10, days))), "{days}");
            // The step does not prolong the life of the token.
            let end = 10 + u64::from(DAY);
            assert!(steps.translate(at(end, days), made, DAY).is_some());
            assert_eq!(steps.translate(at(end + 1, days), made, DAY), None);
            // No clock of this process showed this time: the earlier clock had ended.
            assert_eq!(steps.translate(at(1_000, days), seconds(at(900, 0)), DAY), None);
        }
    }

    #[test]
    fn a_step_that_is_seen_several_times_is_one_and_steps_are_bounded() {
        let steps = ClockSteps::default();
        for second in 0..20 {
            steps.note(at(second, (second as i64) % 2));
        }
        assert_eq!(steps.clocks.lock().expect("no thread failed").earlier.len(), 2);
        for second in 20..100 {
            steps.note(at(second, second as i64));
        }
        assert_eq!(steps.clocks.lock().expect("no thread failed").earlier.len(), MOST);
        // The clocks may drift a little.
        let steps = ClockSteps::default();
        for second in 0..20 {
            steps.note(Now { mono: at(second, 0).mono + 2_000 * second, ..at(second, 0) });
        }
        assert!(steps.clocks.lock().expect("no thread failed").earlier.is_empty());
    }
}
