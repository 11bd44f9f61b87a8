//! Recording: the decoded sound of a peer, each packet at its place in time.

use std::path::Path;
use std::sync::Arc;

use super::{PlayedSound, SessionOutput};
use crate::g711::Law;
use crate::rtp::Packet;

/// Recording of the near peer, which begins after a tone. A session has one at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSound {
    /// Tone before the recording. It does not repeat.
    pub tone: PlayedSound,
    /// Payload types of the peer, each with its encoding. Packets of others are not recorded.
    pub laws: Vec<(u8, Law)>,
    /// WAV file, which the owner of the session writes.
    pub file: Arc<Path>,
    /// Longest recording in microseconds; [`SessionEvent::Played`](super::SessionEvent::Played) follows.
    pub limit: u64,
}

/// Maximum distance between the places of a packet by its timestamp and by its arrival, in samples: 2 s. Beyond it the arrival counts, because the
/// timestamps have begun again.
const TOLERANCE: u64 = 16_000;

/// Returns the samples at 8,000 Hz of a time in microseconds.
const fn samples(time: u64) -> u64 {
    time / 125
}

/// State of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    /// Time of the first sample in microseconds; `None` before.
    began: Option<u64>,
    /// SSRC, timestamp and place of the last packet.
    last: Option<(u32, u32, u64)>,
    /// Place behind the last sample so far.
    end: u64,
    has_ended: bool,
}

impl Recording {
    /// Begins the recording at `now`, in microseconds, unless it has begun.
    pub(super) fn begin(&mut self, now: u64) {
        self.began.get_or_insert(now);
    }

    /// Returns the time of the end in microseconds; `None` before the beginning and after the end.
    pub(super) fn deadline(&self, limit: u64) -> Option<u64> {
        self.began.filter(|_| !self.has_ended).map(|began| began.saturating_add(limit))
    }

    /// Tells whether the recording has just ended.
    pub(super) fn poll(&mut self, now: u64, limit: u64) -> bool {
        let ends = self.deadline(limit).is_some_and(|end| end <= now);
        self.has_ended |= ends;
        ends
    }

    /// Leaves the samples of a packet in `out`, with their place. The place follows the timestamps, so that lost packets and pauses are silence and
    /// late packets come to their place; it follows the arrival where the timestamps have begun again.
    pub(super) fn take(&mut self, now: u64, packet: &Packet<'_>, recorded: &RecordedSound, out: &mut SessionOutput) {
        let Some(began) = self.began.filter(|_| !self.has_ended) else { return };
        let header = &packet.header;
        let is_of = |(payload_type, _): &&(u8, Law)| *payload_type == header.payload_type;
        let Some((_, law)) = recorded.laws.iter().find(is_of) else { return };
        let elapsed = samples(now.saturating_sub(began));
        let by_timestamp =
            self.last.filter(|(source, ..)| *source == header.source).and_then(|(_, timestamp, place)| {
                place.checked_add_signed(i64::from(header.timestamp.wrapping_sub(timestamp).cast_signed()))
            });
        let place =
            by_timestamp.filter(|place| place.abs_diff(elapsed) <= TOLERANCE).unwrap_or_else(|| elapsed.max(self.end));
        // A packet is no longer than the time that it takes.
        if place > elapsed.saturating_add(TOLERANCE) {
            return;
        }
        let room = samples(recorded.limit).saturating_sub(place).min(packet.payload.len() as u64) as usize;
        self.last = Some((header.source, header.timestamp, place));
        self.end = self.end.max(place + room as u64);
        if room > 0 {
            out.samples.clear();
            out.samples.extend(packet.payload[..room].iter().map(|byte| law.decode(*byte)));
            out.recorded = Some(place);
        }
    }
}
