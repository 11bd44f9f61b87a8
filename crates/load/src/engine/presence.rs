//! Whether a shard has the processor when it wants it. Time in which it has work and is not given the processor is a stall (stopped,
//! suspended, swapped out, behind others in the run queue); work that takes long is none.

/// Shorter absences are no stalls but the lag of whatever waited meanwhile, µs.
const SHORT: u64 = 10_000;
/// Processor time is read so often, µs: what was used before an absence within that time is not told from work in it.
const LOOK: u64 = 5_000;

/// One shard's. Times are microseconds.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When the round began.
    began: u64,
    /// Since when, or from when on, the shard wants the processor again.
    wanted: u64,
    /// The last look: the time, and the processor time used by then.
    looked: (u64, u64),
    /// A stall has been found in this round.
    told: bool,
}

impl Presence {
    /// A round begins. `used`: processor time of this thread. The length of a stall before it.
    #[inline]
    pub(super) fn begin(&mut self, now: u64, used: impl FnOnce() -> u64) -> Option<u64> {
        self.began = now;
        let stall = self.absence(self.wanted, now, used);
        self.told = stall.is_some();
        stall
    }

    /// Something is read `now` that came at `came`, while the shard slept until a later time: it would have been woken.
    #[inline]
    pub(super) fn read(&mut self, came: u64, now: u64, used: impl FnOnce() -> u64) -> Option<u64> {
        let slept = came < self.began && self.began < self.wanted;
        if self.told || !slept || now - came <= SHORT {
            return None;
        }
        let stall = self.absence(came, self.began, used);
        self.told = stall.is_some();
        stall
    }

    /// The round's work is done. The length of a stall within it.
    #[inline]
    pub(super) fn end(&mut self, now: u64, used: impl Fn() -> u64) -> Option<u64> {
        let stall = self.absence(self.began, now, &used);
        if now >= self.looked.0 + LOOK {
            self.looked = (now, used());
        }
        self.wanted = now;
        stall
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

    #[test]
    fn who_is_woken_late_has_stood_still_and_who_is_woken_early_has_not() {
        let mut presence = Presence::default();
        assert_eq!(presence.begin(100 * MS, || 0), None, "the first round");
        assert_eq!(presence.end(101 * MS, || 500), None);
        presence.sleep_until(200 * MS);
        assert_eq!(presence.begin(150 * MS, || unreachable!()), None, "a message came");
        assert_eq!(presence.end(151 * MS, || 600), None);
        presence.sleep_until(200 * MS);
        assert_eq!(presence.begin(205 * MS, || unreachable!()), None, "late, no stall");
        presence.end(206 * MS, || 700);
        presence.sleep_until(300 * MS);
        assert_eq!(presence.begin(550 * MS, || 800), Some(249_900));
    }

    #[test]
    fn work_is_no_stall_whenever_it_is_done() {
        let mut presence = Presence::default();
        presence.begin(100 * MS, || 0);
        // A round of 300 ms in which the thread worked, one of 300 ms in which it did not.
        assert_eq!(presence.end(400 * MS, || 299 * MS), None);
        presence.begin(400 * MS, || unreachable!());
        assert_eq!(presence.end(700 * MS, || 300 * MS), Some(299 * MS));
        // Nothing to wait for: between two rounds connections are read for 50 ms.
        presence.sleep_until(650 * MS);
        assert_eq!(presence.begin(750 * MS, || 350 * MS), None);
        assert_eq!(presence.end(751 * MS, || 350 * MS), None);
        assert_eq!(presence.begin(900 * MS, || 351 * MS), Some(148 * MS));
    }

    #[test]
    fn what_came_while_the_shard_slept_would_have_woken_it() {
        let mut presence = Presence::default();
        presence.begin(100 * MS, || 0);
        presence.end(100 * MS, || 0);
        presence.sleep_until(1_100 * MS);
        assert_eq!(presence.begin(900 * MS, || unreachable!()), None);
        assert_eq!(presence.read(200 * MS, 900 * MS, || 100), Some(699_900));
        assert_eq!(presence.read(201 * MS, 900 * MS, || unreachable!()), None, "one stall is counted once");
        presence.end(901 * MS, || 200);
        // What came during the round waited for no wake.
        presence.sleep_until(1_100 * MS);
        presence.begin(950 * MS, || unreachable!());
        assert_eq!(presence.read(949 * MS, 950 * MS, || unreachable!()), None);
    }
}
