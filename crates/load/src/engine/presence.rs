//! Whether a shard has the processor when it wants it. Time in which it has work and is not given the processor is a stall (stopped,
//! suspended, swapped out, behind others in the run queue); work that takes long is none.

/// Shorter absences are no stalls but the lag of whatever waited meanwhile, µs.
const SHORT: u64 = 10_000;
/// Processor time is read so often, µs: what was used before an absence within that time is not told from work in it.
const LOOK: u64 = 5_000;

/// One shard's. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When the round began, and when the one before was done.
    began: u64,
    done: u64,
    /// Since when, or from when on, the shard wants the processor again.
    wanted: u64,
    /// The last look: the time, and the processor time used by then.
    looked: (u64, u64),
    /// A stall before this round, as far as it is known.
    stall: Option<u64>,
}

impl Presence {
    /// A round begins. `used`: processor time of this thread.
    #[inline]
    pub(super) fn begin(&mut self, now: u64, used: impl FnOnce() -> u64) {
        self.began = now;
        self.stall = self.absence(self.wanted, now, used);
    }

    /// Something is read `now` that came at `came`, while the shard slept: it would have been woken.
    #[inline]
    pub(super) fn read(&mut self, came: u64, now: u64, used: impl FnOnce() -> u64) {
        let slept = self.done <= came && came < self.began.min(self.wanted);
        if now - came <= SHORT || !slept {
            return;
        }
        self.stall = match self.stall {
            // It began before the shard was to wake.
            Some(stall) => Some(stall + self.wanted - came),
            None => self.absence(came, self.began, used),
        };
        self.wanted = came;
    }

    /// The round's work is done. The length of a stall before it, and of one within it.
    #[inline]
    pub(super) fn end(&mut self, now: u64, used: impl Fn() -> u64) -> [Option<u64>; 2] {
        let stalls = [self.stall.take(), self.absence(self.began, now, &used)];
        if now >= self.looked.0 + LOOK {
            self.looked = (now, used());
        }
        (self.wanted, self.done) = (now, now);
        stalls
    }

    /// The shard goes to sleep, unless that has passed.
    #[inline]
    pub(super) fn sleep_until(&mut self, at: u64) {
        self.wanted = self.wanted.max(at);
    }

    /// From `since` to `now` the shard wanted the processor: for how long it had none.
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

    /// A round from `began` on, in which something is read that came then; the stalls, ms.
    fn round(presence: &mut Presence, began: u64, came: &[u64], done: u64, used: u64) -> Vec<u64> {
        presence.begin(began * MS, || used * MS);
        came.iter().for_each(|came| presence.read(came * MS, began * MS, || used * MS));
        presence.end(done * MS, || used * MS).into_iter().flatten().map(|stall| stall / MS).collect()
    }

    #[test]
    fn who_is_woken_late_has_stood_still_and_who_is_woken_early_has_not() {
        let mut presence = Presence::default();
        assert_eq!(round(&mut presence, 100, &[], 101, 0), NONE, "the first round");
        presence.sleep_until(200 * MS);
        assert_eq!(round(&mut presence, 150, &[150], 151, 0), NONE, "a message came");
        presence.sleep_until(200 * MS);
        assert_eq!(round(&mut presence, 205, &[], 206, 1), NONE, "late, no stall");
        presence.sleep_until(300 * MS);
        assert_eq!(round(&mut presence, 550, &[], 551, 1), [250]);
    }

    #[test]
    fn work_is_no_stall_whenever_it_is_done() {
        let mut presence = Presence::default();
        // A round of 300 ms in which the thread worked, one of 300 ms in which it did not.
        assert_eq!(round(&mut presence, 100, &[], 400, 299), NONE);
        assert_eq!(round(&mut presence, 400, &[], 700, 300), [299]);
        // Nothing to wait for: between two rounds connections are read for 50 ms.
        presence.sleep_until(650 * MS);
        assert_eq!(round(&mut presence, 750, &[], 751, 350), NONE);
        assert_eq!(round(&mut presence, 900, &[], 900, 351), [148]);
    }

    #[test]
    fn what_came_while_the_shard_slept_would_have_woken_it() {
        let asleep = |until: u64| {
            let mut presence = Presence::default();
            assert_eq!(round(&mut presence, 100, &[], 101, 0), NONE);
            presence.sleep_until(until * MS);
            presence
        };
        assert_eq!(round(&mut asleep(1_100), 900, &[200, 201, 890], 901, 0), [700], "one stall is counted once");
        // That it was to wake meanwhile, or just when it is let on, hides nothing.
        assert_eq!(round(&mut asleep(800), 900, &[200, 201, 850], 901, 0), [700]);
        assert_eq!(round(&mut asleep(895), 900, &[200, 300], 901, 0), [700]);
        assert_eq!(round(&mut asleep(800), 900, &[810], 901, 0), [100]);
        // What came during the round before waited for no wake.
        assert_eq!(round(&mut asleep(1_100), 150, &[100], 151, 0), NONE);
    }
}
