//! State machine of the overload control: begin, steps, shares of the classes, end.

use super::RequestClass;
use crate::Now;
use crate::siphash::Fast;

/// Longest wait of messages that are not late, in microseconds.
const ON_TIME: u64 = 5_000;

/// Time for which messages must be late before the first request is refused, in milliseconds.
const PATIENCE: u64 = 100;

/// Length of a step, in milliseconds.
const STEP: u64 = 50;

/// Longest time between two reports in which a shard works all the time, in milliseconds. The rest of a longer time is a standstill: another
/// program had the processor. It counts neither as time for which messages are late nor as time of a step, since the queue may be empty soon
/// after it.
const LONGEST_GAP: u64 = 20;

/// Longest time between two reports of a shard that runs, in milliseconds. A shard that stood still for longer finds old
/// messages, which say nothing about the load.
const STANDSTILL: u64 = 100;

/// Time in which the wait is worked off, in milliseconds.
const DRAIN: f64 = 1_000.0;

/// Bounds of the factor by which one step changes the admitted share.
const FACTORS: (f64, f64) = (0.25, 1.25);

/// Growth of the admitted share in the first idle step, in which no message was left unserved at some moment. The second idle step has twice
/// this growth, and so on.
const GROWTH: f64 = 0.1;

/// Maximum number of idle steps that one report stands for.
const MOST_IDLE_STEPS: u64 = 40;

/// Least admitted share: from it the share reaches 1 within a second.
const LEAST: f64 = 0.001;

/// Time for which all requests must be admitted before the overload has ended, in milliseconds.
const CALM: u64 = 1_000;

/// Time for which a Call-ID keeps its draw, in milliseconds.
const DRAW_TIME: u64 = 8_192;

/// Shortest Retry-After, and the number of further values, in seconds.
const RETRY_AFTER: (u32, u64) = (5, 26);

/// Limit of a class of which all requests are admitted: draws have 32 bits.
const ALL_ADMITTED: u64 = 1 << 32;

const CLASSES: usize = RequestClass::ALL.len();

/// Begin or end of an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadChange {
    /// Requests are refused from now on.
    Began,
    /// All requests have been admitted again for a second.
    Ended {
        /// Time since the begin, in milliseconds.
        lasted: u64,
        /// Number of refused requests.
        refused: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The last report was on time.
    OnTime,
    /// Messages are late since a time in milliseconds, when they had waited for `wait` microseconds.
    Late { since: u64, wait: u64 },
    /// Requests are refused, or were a moment ago. `whole_since`: time since which all requests are admitted.
    Overloaded { since: u64, whole_since: Option<u64> },
}

/// Observations of one step.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Begin, in milliseconds.
    began: u64,
    /// Wait at the begin, in microseconds.
    wait: u64,
    /// Least wait, in microseconds.
    least: u64,
}

/// Overload control of one shard.
#[derive(Debug)]
pub struct OverloadControl {
    /// Key of the draws.
    key: [u64; 2],
    state: State,
    step: Step,
    /// Last reported wait in microseconds, and the time of the report in milliseconds.
    wait: u64,
    reported: u64,
    /// Standstills since messages are late, or in this step, in milliseconds.
    stood: u64,
    /// Admitted share of the work of all requests that may be refused.
    admitted: f64,
    /// Number of idle steps since the last step that was not idle.
    idle_steps: u32,
    /// Draws from which on a request of a class is refused.
    limits: [u64; CLASSES],
    /// Requests of each class in this step, and in the steps before, where each step counts half of the next one.
    counted: [u32; CLASSES],
    mix: [f64; CLASSES],
    /// Requests refused since the begin of the overload.
    refused: u64,
}

impl OverloadControl {
    /// Creates the control of a shard that is not overloaded. `key`: secret of the draws, the same in every shard of a process.
    pub const fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            state: State::OnTime,
            step: Step { began: 0, wait: 0, least: 0 },
            wait: 0,
            reported: 0,
            stood: 0,
            admitted: 1.0,
            idle_steps: 0,
            limits: [ALL_ADMITTED; CLASSES],
            counted: [0; CLASSES],
            mix: [0.0; CLASSES],
            refused: 0,
        }
    }

    /// Reports for how long the oldest unserved message has waited, in microseconds; 0 if no message is left unserved. The owner
    /// reports in every round while it measures the wait, and at each [`OverloadControl::deadline`] the last wait again.
    pub fn waited(&mut self, now: Now, wait: u64) -> Option<OverloadChange> {
        let now = now.mono;
        let gap = now.saturating_sub(std::mem::replace(&mut self.reported, now));
        let stood_still = gap > STANDSTILL;
        self.wait = wait;
        if wait > ON_TIME {
            self.stood += gap.saturating_sub(LONGEST_GAP);
        }
        match self.state {
            State::Overloaded { since, whole_since } => {
                self.step.least = self.step.least.min(wait);
                if now.saturating_sub(self.step.began + self.stood) < STEP {
                    return None;
                }
                self.end_step(now, stood_still);
                self.end_if_calm(now, since, whole_since)
            }
            _ if wait <= ON_TIME => {
                self.state = State::OnTime;
                None
            }
            State::Late { since, wait: before } if !stood_still => {
                let elapsed = now.saturating_sub(since);
                if elapsed < PATIENCE + self.stood {
                    return None;
                }
                let share = pace(before, wait, elapsed) / wanted_pace(wait);
                if share >= 1.0 {
                    self.set_late(now);
                    return None;
                }
                self.begin(now, share);
                Some(OverloadChange::Began)
            }
            State::OnTime | State::Late { .. } => {
                self.set_late(now);
                None
            }
        }
    }

    /// Begins the time for which messages are late.
    const fn set_late(&mut self, now: u64) {
        self.state = State::Late { since: now, wait: self.wait };
        self.stood = 0;
    }

    /// Returns the time of the next report if none comes before, as [`Now::mono`]; `None` while the shard is not overloaded.
    pub fn deadline(&self) -> Option<u64> {
        self.is_active().then_some(self.step.began + self.stood + STEP)
    }

    /// Returns the last reported wait, in microseconds.
    pub const fn wait(&self) -> u64 {
        self.wait
    }

    /// Tells whether the overload has begun and not ended.
    #[inline]
    pub const fn is_active(&self) -> bool {
        matches!(self.state, State::Overloaded { .. })
    }

    /// Returns the share of the work of requests that is refused, in percent, rounded up.
    pub fn refused_percent(&self) -> u64 {
        ((1.0 - self.admitted) * 100.0).ceil() as u64
    }

    /// Tells whether requests of this class are refused, some or all.
    #[inline]
    pub const fn is_refused(&self, class: RequestClass) -> bool {
        self.limits[class as usize] < ALL_ADMITTED
    }

    /// Decides about a request of this class, and counts it. Returns the value of Retry-After in seconds, 5 to 30, if the
    /// request is to be refused.
    pub fn refuses(&mut self, now: Now, class: RequestClass, call_id: &[u8]) -> Option<u32> {
        let place = class as usize;
        self.counted[place] = self.counted[place].saturating_add(1);
        let [draw, jitter] = self.draw(now, call_id);
        if draw >> 32 < self.limits[place] {
            return None;
        }
        self.refused += 1;
        Some(time_of(jitter))
    }

    /// Returns a value of Retry-After in seconds, 5 to 30, for the refusal of a request at a bound.
    pub fn retry_after(&self, now: Now, call_id: &[u8]) -> u32 {
        let [_, jitter] = self.draw(now, call_id);
        time_of(jitter)
    }

    fn draw(&self, now: Now, call_id: &[u8]) -> [u64; 2] {
        let mut hash = Fast::new(self.key);
        hash.part(call_id);
        hash.word(now.mono / DRAW_TIME);
        hash.finish()
    }

    /// Takes back the refusal and the count of a request that [`OverloadControl::refuses`] refused, and that is admitted
    /// nevertheless.
    pub const fn exempt(&mut self, class: RequestClass) {
        self.counted[class as usize] = self.counted[class as usize].saturating_sub(1);
        self.refused = self.refused.saturating_sub(1);
    }

    /// Begins to refuse. The first step assumes that all requests are calls.
    fn begin(&mut self, now: u64, share: f64) {
        self.state = State::Overloaded { since: now, whole_since: None };
        self.begin_step(now);
        (self.idle_steps, self.refused, self.counted) = (0, 0, [0; CLASSES]);
        self.mix = [0.0; CLASSES];
        self.mix[RequestClass::Call as usize] = 1.0;
        self.admitted = share.max(LEAST);
        self.divide();
    }

    const fn begin_step(&mut self, now: u64) {
        self.step = Step { began: now, wait: self.wait, least: self.wait };
        self.stood = 0;
    }

    /// Sets the admitted share by the observations of a step, and begins the next step.
    fn end_step(&mut self, now: u64, stood_still: bool) {
        let Step { began, wait: before, least } = self.step;
        let elapsed = now.saturating_sub(began);
        // Messages that are late at the end of such a step came in a standstill, or the next step finds that they wait.
        if least == 0 {
            for _ in 0..(elapsed / STEP).min(MOST_IDLE_STEPS) {
                self.idle_steps += 1;
                self.admitted = (self.admitted * (1.0 + GROWTH * f64::from(self.idle_steps))).min(1.0);
            }
        } else if !stood_still {
            let (least_factor, most_factor) = FACTORS;
            let factor = pace(before, self.wait, elapsed) / wanted_pace(self.wait);
            self.idle_steps = 0;
            self.admitted = (self.admitted * factor.clamp(least_factor, most_factor)).clamp(LEAST, 1.0);
        }
        self.begin_step(now);
        self.divide();
    }

    /// Divides the admitted share among the classes, the most important class first.
    fn divide(&mut self) {
        for (mix, counted) in self.mix.iter_mut().zip(&mut self.counted) {
            *mix = *mix / 2.0 + f64::from(std::mem::take(counted));
        }
        if self.admitted >= 1.0 {
            self.limits = [ALL_ADMITTED; CLASSES];
            return;
        }
        let work = |class: RequestClass| self.mix[class as usize] * class.work();
        let mut left = self.admitted * RequestClass::ALL.into_iter().map(work).sum::<f64>();
        for class in RequestClass::ALL.into_iter().rev() {
            let work = work(class);
            let share = if work < left {
                left -= work;
                1.0
            } else {
                let share = if work > 0.0 { left / work } else { 0.0 };
                left = 0.0;
                share
            };
            self.limits[class as usize] = (share * ALL_ADMITTED as f64) as u64;
        }
    }

    fn end_if_calm(&mut self, now: u64, since: u64, whole_since: Option<u64>) -> Option<OverloadChange> {
        let whole_since = (self.admitted >= 1.0).then(|| whole_since.unwrap_or(now));
        if whole_since.is_some_and(|from| now.saturating_sub(from) >= CALM) {
            self.state = State::OnTime;
            return Some(OverloadChange::Ended { lasted: now.saturating_sub(since), refused: self.refused });
        }
        self.state = State::Overloaded { since, whole_since };
        None
    }
}

/// Returns a value of Retry-After for this random number.
const fn time_of(jitter: u64) -> u32 {
    let (least, values) = RETRY_AFTER;
    least + (jitter % values) as u32
}

/// Returns the arrival time of the messages served within `elapsed` milliseconds, divided by this time. `before` and `after`: waits
/// in microseconds.
fn pace(before: u64, after: u64, elapsed: u64) -> f64 {
    1.0 - (after as f64 - before as f64) / (elapsed as f64 * 1_000.0)
}

/// Returns the pace that works off this wait, in microseconds, in time.
fn wanted_pace(wait: u64) -> f64 {
    1.0 + (wait as f64 - ON_TIME as f64) / 1_000.0 / DRAIN
}

#[cfg(test)]
mod tests;
