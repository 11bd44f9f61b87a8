//! Quality of the streams of sessions, for the records of calls and for the metrics; and the way of their packets, for operators.

use crate::counters::{Counters, Durations};
use strowger_calls::MediaPath;
use strowger_core::Now;
use strowger_media::session::StreamReport;
use strowger_store::accounting::{MediaQuality, PartyMedia};

/// Reports of the streams of a session: of the near side, and of the far side if there is one.
pub(super) type Reports = [(StreamReport, Option<StreamReport>)];

/// Mean opinion score in hundredths below which many users are dissatisfied (ITU-T G.109, R below 70).
const POOR: u64 = 360;

/// Report about a session that goes on, of its near and its far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionReport {
    pub(crate) media: PartyMedia,
    pub(crate) paths: [Option<MediaPath>; 2],
}

impl SessionReport {
    /// Creates the report of this moment.
    pub(super) fn new(now: Now, reports: &Reports) -> Self {
        let near = reports.iter().find_map(|(near, _)| path(now, near));
        let far = reports.iter().find_map(|(_, far)| path(now, far.as_ref()?));
        Self { media: party_media(reports), paths: [near, far] }
    }
}

/// Returns the way of the packets of a stream whose quality is known.
fn path(now: Now, report: &StreamReport) -> Option<MediaPath> {
    quality(report)?;
    let StreamReport { dropped, refused, sent, expected, refused_from, heard_at, .. } = *report;
    let silence = heard_at.map(|at| now.mono.saturating_sub(at / 1_000));
    Some(MediaPath { expected, refused, refused_from, dropped, sent, silence })
}

/// Returns the quality of the media of caller and callee. The first agreed stream of each side determines it.
pub(super) fn party_media(reports: &Reports) -> PartyMedia {
    let near = reports.iter().find_map(|(near, _)| quality(near));
    let far = reports.iter().find_map(|(_, far)| quality(far.as_ref()?));
    [near, far]
}

/// Counts the streams of an ended session.
pub(super) fn count_streams(counters: &Counters, durations: &Durations, reports: &Reports) {
    let sides = reports.iter().flat_map(|(near, far)| std::iter::once(near).chain(far));
    for media in sides.filter_map(quality) {
        counters.media_streams.one();
        counters.media_stream_packets.add(media.packets);
        counters.media_stream_lost.add(media.lost);
        counters.media_stream_reordered.add(media.reordered);
        counters.media_stream_doubled.add(media.doubled);
        if media.packets > 0 {
            durations.media_max_delay.observe(media.max_delay);
            durations.media_jitter.observe(media.jitter);
        }
        if let Some(score) = media.score {
            counters.media_streams_rated.one();
            counters.media_mos.add(score);
            counters.media_streams_poor.add(u64::from(score < POOR));
        }
    }
}

/// Returns the quality of a stream. `None`: it was refused, its packets pass unread, or its peer has never had an address for it.
fn quality(report: &StreamReport) -> Option<MediaQuality> {
    let StreamReport { figures, expected, unread, .. } = report;
    if *unread > 0 || expected.is_none() && figures.packets == 0 {
        return None;
    }
    let speech = figures.quality();
    let hundredths = |value: f64| (value * 100.0).round() as u64;
    Some(MediaQuality {
        packets: figures.packets,
        lost: figures.lost,
        reordered: figures.reordered,
        doubled: figures.duplicates,
        jitter: figures.mean_jitter,
        max_jitter: figures.largest_jitter,
        max_delay: figures.largest_gap,
        rating: speech.map(|speech| hundredths(speech.rating)),
        score: speech.map(|speech| hundredths(speech.score)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_media::quality::SpeechEncoding;
    use strowger_media::received_stream::Figures;

    fn report(packets: u64, lost: u64) -> StreamReport {
        let figures = Figures {
            packets,
            expected: packets + lost,
            lost,
            encoding: SpeechEncoding::G711,
            mean_jitter: 1_500,
            largest_gap: 41_000,
            ..Figures::default()
        };
        StreamReport { figures, expected: "192.0.2.1:4000".parse().ok(), ..StreamReport::default() }
    }

    #[test]
    fn the_first_agreed_stream_of_a_side_is_that_of_the_record() {
        let refused = (StreamReport::default(), Some(StreamReport::default()));
        let streams = [refused, (report(99, 1), Some(report(0, 0))), (report(7, 0), Some(report(50, 0)))];
        let [Some(near), Some(far)] = party_media(&streams) else { panic!("both sides have a stream") };
        assert_eq!((near.packets, near.lost, near.jitter, near.max_delay), (99, 1, 1_500, 41_000));
        assert_eq!((near.rating, near.score), (Some(8_956), Some(433)));
        assert_eq!((far.packets, far.rating, far.score), (0, None, None), "nobody was heard");
        assert_eq!(party_media(&[refused]), [None; 2]);
        assert_eq!(party_media(&[(report(5, 0), None)])[1], None);
        // A peer on hold to the end has sent before.
        let held = StreamReport { expected: None, ..report(5, 0) };
        assert!(party_media(&[(held, None)])[0].is_some());
    }

    #[test]
    fn the_way_of_the_packets_is_that_of_the_stream_of_the_record() {
        let refused = (StreamReport::default(), Some(StreamReport::default()));
        let stranger = "203.0.113.3:4000".parse().ok();
        let near = StreamReport { heard_at: Some(4_999_000), sent: 3, ..report(99, 1) };
        let far = StreamReport { dropped: 8, refused: 7, refused_from: stranger, ..report(0, 0) };
        let now = Now { mono: 6_000, wall: 0 };
        let SessionReport { media, paths: [Some(near), Some(far)] } =
            SessionReport::new(now, &[refused, (near, Some(far))])
        else {
            panic!("both sides have a stream")
        };
        assert_eq!(media.map(|media| media.map(|media| media.packets)), [Some(99), Some(0)]);
        assert_eq!((near.expected, near.sent, near.silence), ("192.0.2.1:4000".parse().ok(), 3, Some(1_001)));
        assert_eq!((far.dropped, far.refused, far.refused_from, far.silence), (8, 7, stranger, None));
        assert_eq!(SessionReport::new(now, &[refused]).paths, [None; 2]);
    }

    #[test]
    fn streams_are_counted() {
        let (counters, durations) = (Counters::default(), Durations::default());
        let refused = (StreamReport::default(), None);
        let streams = [refused, (report(99, 1), Some(report(0, 0))), (report(70, 30), None)];
        count_streams(&counters, &durations, &streams);
        let counts = counters.snapshot();
        assert_eq!((counts.media_streams, counts.media_streams_rated, counts.media_streams_poor), (3, 2, 1));
        assert_eq!((counts.media_stream_packets, counts.media_stream_lost), (169, 31));
        assert_eq!(counts.media_mos, 433 + 214);
        let [.., delay, jitter] = durations.observed();
        assert_eq!((delay.count(), delay.sum(), jitter.count(), jitter.sum()), (2, 82_000, 2, 3_000));
    }
}
