//! Playback: own sound towards a peer, a packet each packet time.

use std::sync::Arc;

use super::SessionOutput;
use super::leg::Leg;
use crate::g711::Law;
use crate::rtp::Numbering;
use crate::sound::{RATE, Sound};

/// Sound that a session plays to its near peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedSound {
    /// Sound, shared by all sessions that play it.
    pub sound: Arc<Sound>,
    /// Payload type towards the peer, 0 to 127.
    pub payload_type: u8,
    /// Encoding of this payload type.
    pub law: Law,
    /// Milliseconds of sound in a packet, 10 to 60.
    pub packet_time: u32,
    /// Set if the sound begins again at its end; else [`SessionEvent::Played`](super::SessionEvent::Played) follows.
    pub repeats: bool,
}

impl PlayedSound {
    /// Returns the samples of a packet. A value beyond the range is brought into it: a packet time of 0 would be a packet at no distance.
    fn samples(&self) -> u32 {
        self.packet_time.clamp(10, 60) * (RATE / 1_000)
    }

    /// Returns the time of a packet in microseconds.
    fn interval(&self) -> u64 {
        u64::from(self.samples()) * 1_000_000 / u64::from(RATE)
    }
}

/// Time between the last packet and the end of a sound, in microseconds: the jitter buffer of the peer still holds sound.
const END_DELAY: u64 = 200_000;

/// Delay up to which late packets leave at once, in microseconds. After a longer one, such as a hold, the rest of the sound moves.
const LATEST: u64 = 200_000;

/// State of a playback.
#[derive(Clone, Debug)]
pub(super) struct Playback {
    /// Place of the next sample.
    at: usize,
    /// Time of the next packet, or of the end, in microseconds.
    due: u64,
    numbering: Numbering,
    has_ended: bool,
}

impl Playback {
    /// Creates a playback whose first packet is due at `now`, in microseconds.
    pub(super) const fn new(now: u64) -> Self {
        // The leg replaces SSRC, sequence number and timestamp by its own.
        Self { at: 0, due: now, numbering: Numbering::new(0, 0, 0), has_ended: false }
    }

    /// Begins again, with another sound.
    pub(super) fn restart(&mut self, now: u64) {
        (self.at, self.due, self.has_ended) = (0, now, false);
    }

    /// Returns the time of the next packet or of the end in microseconds; `None` after the end, and while the peer does not receive.
    pub(super) fn deadline(&self, leg: &Leg) -> Option<u64> {
        (!self.has_ended && leg.is_listening()).then_some(self.due)
    }

    /// Sends the packets that are due. Returns whether the sound has just ended.
    pub(super) fn poll(&mut self, now: u64, leg: &mut Leg, played: &PlayedSound, out: &mut SessionOutput) -> bool {
        while self.deadline(leg).is_some_and(|due| due <= now) {
            // The sound begins once the peer may be sent to, so that the peer hears all of it.
            if !leg.may_send() {
                self.due = now + played.interval();
                return false;
            }
            if self.at >= played.sound.len() && (!played.repeats || played.sound.is_empty()) {
                self.has_ended = true;
                return true;
            }
            if now - self.due > LATEST {
                self.due = now;
                leg.cut();
            }
            let samples = played.samples();
            let header = self.numbering.next(played.payload_type, samples);
            let (from, mut next) = (self.at, self.at);
            leg.send_own(now, &header, out, |bytes| {
                next = played.sound.write(played.law, from, samples as usize, played.repeats, bytes);
            });
            self.at = next;
            let is_last = !played.repeats && self.at >= played.sound.len();
            self.due += played.interval() + if is_last { END_DELAY } else { 0 };
        }
        false
    }
}
