//! Detects stalls: time in which a shard has work but not the processor (stopped, suspended, swapped out, waiting in
//! the run queue). A long computation is no stall.

/// Limit of absences that count as lag of the waiting work and not as stalls, µs.
const SHORT: u64 = 10_000;
/// Interval between readings of the processor time, µs. Processor time used before an absence within the same interval
/// cannot be told from work in the interval.
const LOOK: u64 = 5_000;

/// Stall detector of one shard. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// Start of the round, and end of the previous round.
    began: u64,
    done: u64,
    /// Time since which, or at which, the shard wants the processor again.
    wanted: u64,
    /// Last reading: the time, and the processor time used by then.
    looked: (u64, u64),
    /// Stall before this round, or `None` if it is not known yet.
    stall: Option<u64>,
}

impl StallDetector {
    /// Begins a round. `used`: processor time of this thread.
    #[inline]
    pub(super) fn begin(&mut self, now: u64, used: impl FnOnce() -> u64) {
        self.began = now;
        self.stall = self.absence(self.wanted, now, used);
    }

    /// Reads at `now` a message that arrived at `came`. If the shard was asleep at that time, the message should have
    /// woken it.
    #[inline]
    pub(super) fn read(&mut self, came: u64, now: u64, used: impl FnOnce() -> u64) {
        let slept = self.done <= came && came < self.began.min(self.wanted);
        if now - came <= SHORT || !slept {
            return;
        }
        self.stall = match self.stall {
            // The stall began before the shard was to wake.
            Some(stall) => Some(stall + self.wanted - came),
            None => self.absence(came, self.began, used),
        };
        self.wanted = came;
    }

    /// Ends the work of the round. Returns the length of a stall before the work, and of one within it.
    #[inline]
    pub(super) fn end(&mut self, now: u64, used: impl Fn() -> u64) -> [Option<u64>; 2] {
        let stalls = [self.stall.take(), self.absence(self.began, now, &used)];
        if now >= self.looked.0 + LOOK {
            self.looked = (now, used());
        }
        (self.wanted, self.done) = (now, now);
        stalls
    }

    /// Sets the next wake-up, unless it has passed.
    #[inline]
    pub(super) fn sleep_until(&mut self, at: u64) {
        self.wanted = self.wanted.max(at);
    }

    /// Returns how long the shard had no processor from `since` to `now`, while it wanted one.
    #[inline]
    fn absence(&mut self, since: u64, now: u64, used: impl FnOnce() -> u64) -> Option<u64> {
        let gap = now.saturating_sub(since);
        if gap <= SHORT || since == 0 {
            return None;
        }
        let used = used();
        let worked = used.saturating_sub(std::mem::replace(&mut self.looked, (now, used)).1);
        Some(gap.saturating_sub(worked)).filter(|stall| *stall > SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;
    const NONE: [u64; 0] = [];

    /// Runs a round that begins at `began` and reads messages that arrived at the times `came`. Returns the stalls, ms.
    fn round(stall_detector: &mut StallDetector, began: u64, came: &[u64], done: u64, used: u64) -> Vec<u64> {
        stall_detector.begin(began * MS, || used * MS);
        came.iter().for_each(|came| stall_detector.read(came * MS, began * MS, || used * MS));
        stall_detector.end(done * MS, || used * MS).into_iter().flatten().map(|stall| stall / MS).collect()
    }

    #[test]
    fn a_late_wake_up_is_a_stall_and_an_early_one_is_none() {
        let mut stall_detector = StallDetector::default();
        assert_eq!(round(&mut stall_detector, 100, &[], 101, 0), NONE, "the first round");
        stall_detector.sleep_until(200 * MS);
        assert_eq!(round(&mut stall_detector, 150, &[150], 151, 0), NONE, "a message came");
        stall_detector.sleep_until(200 * MS);
        assert_eq!(round(&mut stall_detector, 205, &[], 206, 1), NONE, "late, no stall");
        stall_detector.sleep_until(300 * MS);
        assert_eq!(round(&mut stall_detector, 550, &[], 551, 1), [250]);
    }

    #[test]
    fn work_is_no_stall_whenever_it_is_done() {
        let mut stall_detector = StallDetector::default();
        // A round of 300 ms in which the thread worked, and one of 300 ms in which it did not.
        assert_eq!(round(&mut stall_detector, 100, &[], 400, 299), NONE);
        assert_eq!(round(&mut stall_detector, 400, &[], 700, 300), [299]);
        // The shard waits for nothing: connections are read for 50 ms between two rounds.
        stall_detector.sleep_until(650 * MS);
        assert_eq!(round(&mut stall_detector, 750, &[], 751, 350), NONE);
        assert_eq!(round(&mut stall_detector, 900, &[], 900, 351), [148]);
    }

    #[test]
    fn a_message_during_sleep_should_have_woken_the_shard() {
        let asleep = |until: u64| {
            let mut stall_detector = StallDetector::default();
            assert_eq!(round(&mut stall_detector, 100, &[], 101, 0), NONE);
            stall_detector.sleep_until(until * MS);
            stall_detector
        };
        assert_eq!(round(&mut asleep(1_100), 900, &[200, 201, 890], 901, 0), [700], "one stall is counted once");
        // A wake-up due meanwhile, or at the end of the stall, hides nothing.
        assert_eq!(round(&mut asleep(800), 900, &[200, 201, 850], 901, 0), [700]);
        assert_eq!(round(&mut asleep(895), 900, &[200, 300], 901, 0), [700]);
        assert_eq!(round(&mut asleep(800), 900, &[810], 901, 0), [100]);
        // A message that came during the round before waited for no wake-up.
        assert_eq!(round(&mut asleep(1_100), 150, &[100], 151, 0), NONE);
    }
}
