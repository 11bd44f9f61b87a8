//! Detects a silent target by the counters of the callers during a run. A limiter that drops, a ban or a hung server is
//! detected long before the first call is given up.

use std::time::Duration;
use strowger_net::Snapshot;

/// Shortest silence. A working server sends at least a provisional response within a tenth of this time.
const LONG: Duration = Duration::from_secs(1);

/// Number of messages without an answer that make a silence. One or two are not enough: an ACK needs no answer, and a
/// request may be lost.
const MESSAGES: u64 = 3;

/// Maximum number of silences that are reported one by one; further silences are counted.
const REPORTED: u64 = 4;

/// Change of a target's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No answer yet to this many messages.
    Silent { sent: u64 },
    /// No answers since this many messages were sent, at this time of the run.
    Stopped { after: u64, at: Duration },
    /// Answers again, after this long.
    Again { silent: Duration },
}

/// Messages sent to the target and received from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    received: u64,
    /// Messages sent when the last answer came.
    sent: u64,
    /// Time of the first message since then.
    since: Option<Duration>,
    /// True once the silence was noticed.
    noticed: bool,
    /// Silences so far that followed an answer.
    times: u64,
}

impl Silence {
    /// Returns how often answers stopped.
    pub(super) const fn times(&self) -> u64 {
        self.times
    }

    /// Returns how many silences were not reported.
    pub(super) const fn unreported(&self) -> u64 {
        self.times.saturating_sub(REPORTED)
    }

    /// Checks the counters of the callers, `elapsed` after the start. Returns a change.
    pub(super) fn look(&mut self, elapsed: Duration, counters: &Snapshot) -> Option<Change> {
        let sent = counters.datagrams_out + counters.stream_messages_out;
        // An ICMP error also ends calls, and so counts as an answer, though the target did not send it.
        let received = counters.datagrams_in + counters.stream_messages_in + counters.unreachable;
        if received > self.received {
            let silent = self.since.filter(|_| self.noticed).map(|since| elapsed.saturating_sub(since));
            *self = Self { received, sent, since: None, noticed: false, times: self.times };
            return silent.filter(|_| self.unreported() == 0).map(|silent| Change::Again { silent });
        }
        if sent <= self.sent {
            return None;
        }
        let since = *self.since.get_or_insert(elapsed);
        if self.noticed || elapsed.saturating_sub(since) < LONG || sent - self.sent < MESSAGES {
            return None;
        }
        self.noticed = true;
        if received == 0 {
            return Some(Change::Silent { sent });
        }
        self.times += 1;
        (self.unreported() == 0).then_some(Change::Stopped { after: self.sent, at: since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the changes for these counts of messages sent and received, 100 ms apart.
    fn reported(counts: &[(u64, u64)]) -> Vec<(u64, Change)> {
        let mut silence = Silence::default();
        let mut reported = Vec::new();
        for ((sent, received), at) in counts.iter().zip((0..).step_by(100)) {
            let counters = Snapshot { datagrams_out: *sent, datagrams_in: *received, ..Snapshot::default() };
            reported.extend(silence.look(Duration::from_millis(at), &counters).map(|change| (at, change)));
        }
        reported
    }

    #[test]
    fn a_target_that_answers_is_not_silent() {
        let counts: Vec<(u64, u64)> = (1..100).map(|n| (n * 10, n * 10 - 5)).collect();
        assert_eq!(reported(&counts), []);
        // The call is held: no message is sent or awaited.
        let held: Vec<(u64, u64)> = [(1, 0), (1, 2), (2, 2)].into_iter().chain([(2, 2); 50]).collect();
        assert_eq!(reported(&held), []);
    }

    #[test]
    fn a_silent_target_is_reported_within_two_seconds() {
        let counts: Vec<(u64, u64)> = (0..40).map(|n| (n, 0)).collect();
        assert_eq!(reported(&counts), [(1_100, Change::Silent { sent: 11 })]);
        // One call, its INVITE sent again after 500 ms and 1.5 s (Timer A).
        let one = |n: u64| (1 + u64::from(n >= 5) + u64::from(n >= 15), 0);
        assert_eq!(reported(&(0..20).map(one).collect::<Vec<_>>()), [(1_500, Change::Silent { sent: 3 })]);
    }

    #[test]
    fn a_silence_is_reported_with_its_number_of_messages() {
        let mut counts: Vec<(u64, u64)> = (1..=5).map(|n| (n * 4, n * 4)).collect();
        counts.extend((6..30).map(|n| (n * 4, 20)));
        let stopped = (1_500, Change::Stopped { after: 20, at: Duration::from_millis(500) });
        assert_eq!(reported(&counts), [stopped]);
        counts.push((200, 30));
        let again = (2_900, Change::Again { silent: Duration::from_millis(2_400) });
        assert_eq!(reported(&counts), [stopped, again]);
    }

    #[test]
    fn the_first_silences_are_reported_and_all_counted() {
        let mut silence = Silence::default();
        let mut reported = 0;
        for second in 0..60 {
            // Six seconds each: an answer to each message, then five seconds without an answer.
            let counts = Snapshot { datagrams_out: second * 5, datagrams_in: 1 + second / 6, ..Snapshot::default() };
            reported += u64::from(silence.look(Duration::from_secs(second), &counts).is_some());
        }
        assert_eq!((silence.times(), silence.unreported(), reported), (10, 6, REPORTED * 2));
    }
}
