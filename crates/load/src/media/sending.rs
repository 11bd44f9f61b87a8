//! Time for which a call plays its media.

use super::player::{LANES, Lane};

/// Time until which each stream of a call is played. A peer that talks with a caller is expected to send as long as the caller does.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// End by lane, microseconds; 0: nothing was played.
    ends: [u64; LANES],
    /// Begin of the pause of the sample streams, microseconds.
    paused: Option<u64>,
}

impl Sending {
    /// Begins a stream of this length at `now`, microseconds. It replaces the one of its lane.
    pub(super) fn begin(&mut self, lane: Lane, now: u64, length: u64) {
        self.resume(now);
        self.ends[lane as usize] = now.saturating_add(length);
    }

    /// Pauses the sample streams at `now`, microseconds.
    pub(super) fn pause(&mut self, now: u64) {
        self.paused.get_or_insert(now);
    }

    /// Continues the sample streams at `now`, microseconds.
    pub(super) fn resume(&mut self, now: u64) {
        let Some(since) = self.paused.take() else { return };
        for lane in [Lane::Audio, Lane::Video] {
            let end = &mut self.ends[lane as usize];
            if *end > since {
                *end = end.saturating_add(now.saturating_sub(since));
            }
        }
    }

    /// Returns the time at which the last stream ends, microseconds; 0 if nothing was played.
    pub(super) fn until(&self) -> u64 {
        let [audio, video, capture] = self.ends;
        audio.max(video).min(self.paused.unwrap_or(u64::MAX)).max(capture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_moves_the_end_of_samples() {
        let mut sending = Sending::default();
        assert_eq!(sending.until(), 0);
        sending.begin(Lane::Capture, 10, 20);
        sending.begin(Lane::Audio, 10, 100);
        assert_eq!(sending.until(), 110);
        sending.pause(50);
        sending.pause(60);
        assert_eq!(sending.until(), 50);
        sending.resume(70);
        assert_eq!(sending.until(), 130);
        // Another file replaces the first.
        sending.begin(Lane::Audio, 80, 10);
        assert_eq!(sending.until(), 90);
        sending.begin(Lane::Audio, 90, u64::MAX);
        sending.pause(95);
        sending.resume(200);
        assert_eq!(sending.until(), u64::MAX);
    }
}
