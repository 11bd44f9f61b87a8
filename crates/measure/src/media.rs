//! Received media streams in the figures of a shard.

use super::{CallBook, Counter, Delay, Delays, ShardRecorder};

/// Figures of a received stream. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeardStream {
    /// Packets, duplicates included.
    pub packets: u64,
    /// Packets that the sender sent, by their sequence numbers.
    pub expected: u64,
    /// Expected packets that never came.
    pub lost: u64,
    /// Packets that came after one with a higher sequence number.
    pub reordered: u64,
    /// Packets that came before.
    pub doubled: u64,
    /// Maximum packet delay: largest time between two packets.
    pub max_delta: u64,
    /// Mean interarrival jitter (RFC 3550 section 6.4.1).
    pub jitter: u64,
    /// Largest interarrival jitter.
    pub max_jitter: u64,
    /// Mean deviation of the time between two packets from that between their timestamps.
    pub deviation: u64,
    /// Quality of sound; `None` for a stream of video.
    pub quality: Option<Quality>,
}

/// Quality of received sound by the E-model (ITU-T G.107).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Transmission rating R, 0 to 100.
    pub rating: f64,
    /// Mean opinion score, 1 to 4.5.
    pub score: f64,
}

/// Received media of an ended call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeardMedia {
    /// Its streams, one for each sender and SSRC.
    pub streams: Vec<HeardStream>,
    /// True if the call played media and received no stream.
    pub is_silent: bool,
}

impl ShardRecorder {
    /// Records the received media of an ended call, in the second in which it ends, or for the warm-up if the call fell due in it. A stream is
    /// not divided among the seconds in which it ran.
    pub fn media_heard(&mut self, call: &CallBook, media: &HeardMedia) {
        if call.warm_up {
            self.turn_to_warm_up();
        }
        self.count(Counter::MediaSilent, u64::from(media.is_silent));
        for stream in &media.streams {
            self.stream_heard(stream);
        }
        if call.warm_up {
            self.turn_to_warm_up();
        }
    }

    /// Records the delays of received packets whose time of sending is known.
    pub fn packets_delayed(&mut self, delays: &Delays) {
        self.page.delays[Delay::MediaDelay as usize].add(delays);
    }

    fn stream_heard(&mut self, stream: &HeardStream) {
        for (counter, by) in [
            (Counter::MediaStreams, 1),
            (Counter::MediaHeard, stream.packets),
            (Counter::MediaExpected, stream.expected),
            (Counter::MediaLost, stream.lost),
            (Counter::MediaReordered, stream.reordered),
            (Counter::MediaDoubled, stream.doubled),
        ] {
            self.count(counter, by);
        }
        for (delay, us) in [
            (Delay::MediaMaxDelta, stream.max_delta),
            (Delay::MediaJitter, stream.jitter),
            (Delay::MediaMaxJitter, stream.max_jitter),
            (Delay::MediaDeviation, stream.deviation),
        ] {
            self.delay(delay, us);
        }
        if let Some(quality) = stream.quality {
            self.delay(Delay::MediaRating, Delay::MediaRating.recorded(quality.rating));
            self.delay(Delay::MediaScore, Delay::MediaScore.recorded(quality.score));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallOutcome, Clock, Collector, Measure};
    use std::time::SystemTime;

    #[test]
    fn a_stream_is_of_the_warm_up_if_its_call_is() {
        let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec![], 1);
        let mut recorder = collector.recorder(0);
        recorder.reopen(0, 1_000_000);
        let early = recorder.call_started(500_000, 500_000, 0);
        recorder.tick(1_000_000);
        let late = recorder.call_started(1_500_000, 1_500_000, 0);
        let heard = |lost| HeardMedia {
            streams: vec![HeardStream { expected: 100, lost, ..HeardStream::default() }],
            is_silent: false,
        };
        recorder.media_heard(&early, &heard(7));
        recorder.media_heard(&late, &heard(2));
        recorder.close(2_000_000);
        let mut of_warm_up = 0;
        let totals = collector.finish(|second| {
            if second.warm_up {
                of_warm_up += second.counter(Counter::MediaLost);
            }
        });
        assert_eq!((of_warm_up, totals.counter(Counter::MediaLost)), (7, 2));
    }

    #[test]
    fn each_stream_is_one_value_of_its_figures() {
        let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec![], 1);
        let mut recorder = collector.recorder(0);
        let mut call = recorder.call_started(1_000, 1_000, 1_000);
        let good = HeardStream {
            packets: 101,
            expected: 100,
            doubled: 1,
            max_delta: 21_000,
            quality: Some(Quality { rating: 93.2, score: 4.409_3 }),
            ..HeardStream::default()
        };
        let bad = HeardStream {
            packets: 75,
            expected: 100,
            lost: 25,
            max_delta: 95_000,
            quality: Some(Quality { rating: 45.8, score: 2.36 }),
            ..good
        };
        let video = HeardStream { quality: None, ..good };
        recorder.media_heard(&call, &HeardMedia { streams: vec![good, bad, video], is_silent: false });
        recorder.media_heard(&call, &HeardMedia { streams: vec![], is_silent: true });
        let mut delays = Delays::new();
        [100, 300].into_iter().for_each(|us| delays.record(us));
        recorder.packets_delayed(&delays);
        recorder.call_ended(&mut call, 2_000, CallOutcome::Successful);
        recorder.close(10_000);
        let totals = collector.finish(|_second| {});
        let of = |name: &str| Measure::parse(name, &[]).unwrap_or_else(|error| panic!("{error}")).of(&totals);
        for (name, value) in [
            ("media.streams", 3.0),
            ("media.heard", 277.0),
            ("media.lost", 25.0),
            ("media.doubled", 3.0),
            ("media.silent", 1.0),
            ("media.loss", 25.0 / 300.0 * 100.0),
            ("media.max_delta.max", 95_000.0),
            ("media.max_delta.count", 3.0),
            ("media.delay.mean", 200.0),
            ("media.mos.count", 2.0),
            ("media.mos.min", 2.36),
            ("media.mos.max", 4.409),
            ("media.rating.min", 45.8),
        ] {
            assert_eq!(of(name), Some(value), "{name}");
        }
    }
}
