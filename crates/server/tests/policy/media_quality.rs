//! Quality of the media of calls that pass the server: in records, metrics, and for operators.

use crate::bridges;
use crate::endpoints::{answered, echo, hung_up, record};
use std::time::Duration;
use strowger_calls::CallView;
use strowger_media::quality::SpeechEncoding;
use strowger_media::received_stream::Figures;
use strowger_media::session::StreamReport;
use strowger_store::accounting::MediaQuality;

/// Returns the report about a stream of G.711 with faults.
fn faulty_stream() -> StreamReport {
    let figures = Figures {
        packets: 100,
        expected: 100,
        lost: 1,
        reordered: 2,
        duplicates: 1,
        mean_jitter: 300,
        largest_jitter: 900,
        largest_gap: 41_000,
        encoding: SpeechEncoding::G711,
        ..Figures::default()
    };
    StreamReport { figures, expected: "127.0.0.1:4000".parse().ok(), ..StreamReport::default() }
}

#[test]
fn the_record_has_the_quality_of_the_media_of_the_caller() {
    let site = echo("", "");
    site.set_stream_reports(faulty_stream(), None);
    let expected = MediaQuality {
        packets: 100,
        lost: 1,
        reordered: 2,
        doubled: 1,
        jitter: 300,
        max_jitter: 900,
        max_delay: 41_000,
        rating: Some(8_956),
        score: Some(433),
    };
    // The caller ends the first call, an operator the second.
    let (phone, call, ok) = answered(&site);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert_eq!(record(&site).media, [Some(expected), None]);
    let (phone, ..) = answered(&site);
    site.end_call(site.calls()[0].id);
    hung_up(&phone);
    assert_eq!(record(&site).media, [Some(expected), None]);
    let counts = site.counts();
    assert_eq!((counts.media_streams, counts.media_streams_rated, counts.media_streams_poor), (2, 2, 0));
    assert_eq!((counts.media_stream_packets, counts.media_stream_lost, counts.media_mos), (200, 2, 866));
    assert_eq!((counts.media_stream_reordered, counts.media_stream_doubled), (4, 2));

    // A call without media has no figures.
    site.set_stream_reports(StreamReport::default(), None);
    let (phone, call, ok) = answered(&site);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert_eq!((record(&site).media, site.counts().media_streams), ([None; 2], 2));
}

#[test]
fn an_operator_sees_the_quality_of_a_call_that_goes_on() {
    let site = echo("", "");
    let (phone, call, ok) = answered(&site);
    let id = site.calls()[0].id;
    site.set_stream_reports(faulty_stream(), None);
    let media = |view: Option<CallView>| view.expect("the call goes on").media;
    let shown = site.show_call(id).expect("the call goes on");
    assert_eq!((shown.media[0].map(|media| media.lost), shown.media[1], shown.awaits_media), (Some(1), None, false));
    let path = shown.paths[0].expect("the session is open");
    assert_eq!((path.expected, path.refused, path.silence), ("127.0.0.1:4000".parse().ok(), 0, None));
    assert_eq!(shown.paths[1], None);
    // A second later the media thread is asked again.
    let worse = faulty_stream();
    site.set_stream_reports(StreamReport { figures: Figures { lost: 2, ..worse.figures }, ..worse }, None);
    assert_eq!(media(site.show_call(id))[0].map(|media| media.lost), Some(1));
    site.wait(Duration::from_secs(1));
    assert_eq!(media(site.show_call(id))[0].map(|media| media.lost), Some(2));
    assert!(site.calls()[0].media[0].is_none(), "a list asks no media thread");
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert!(site.show_call(id).is_none());
}

#[test]
fn the_quality_of_the_media_follows_a_call_to_its_next_shard() {
    let site = echo("", "");
    site.set_stream_reports(faulty_stream(), None);
    let (phone, call, ok) = answered(&site);
    site.settle();
    site.move_calls();
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    assert!(record(&site).media[0].is_some_and(|media| media.score == Some(433)));
}

#[test]
fn the_record_of_a_bridged_call_has_the_media_of_both_parties() {
    let site = bridges::bridge("", "");
    let bob = bridges::registered(&site);
    let worse = faulty_stream();
    let stranger = "203.0.113.3:4000".parse().ok();
    let worse = StreamReport { figures: Figures { lost: 10, ..worse.figures }, refused_from: stranger, ..worse };
    site.set_stream_reports(faulty_stream(), Some(worse));
    let call = bridges::answered(&site, &bob);
    site.settle();
    let shown = site.show_call(site.calls()[0].id).expect("the call goes on");
    let lost = |media: [Option<MediaQuality>; 2]| media.map(|media| media.map(|media| media.lost));
    assert_eq!(lost(shown.media), [Some(1), Some(10)]);
    assert_eq!(shown.paths.map(|path| path.and_then(|path| path.refused_from)), [None, stranger]);
    call.end();
    assert_eq!(lost(bridges::record(&site).media), [Some(1), Some(10)]);
    assert_eq!((site.counts().media_streams, site.counts().media_stream_lost), (2, 11));
}

#[test]
fn a_party_that_is_not_heard_is_logged_once_ten_seconds_after_the_answer() {
    let silent = StreamReport {
        expected: "192.168.1.5:5000".parse().ok(),
        seen: "203.0.113.3:4000".parse().ok(),
        dropped: 3,
        is_expected: true,
        expected_since: Some(0),
        ..StreamReport::default()
    };
    let heard = StreamReport { is_expected: true, ..faulty_stream() };
    let site = bridges::bridge("", "");
    let bob = bridges::registered(&site);
    site.set_stream_reports(heard, Some(silent));
    let call = bridges::answered(&site, &bob);
    site.wait(Duration::from_secs(9));
    assert!(!site.log().contains("one-way audio"));
    site.wait(Duration::from_secs(2));
    let log = site.log_with("one-way audio");
    let line = log.lines().find(|line| line.contains("one-way audio")).expect("a line");
    for text in ["callee", "192.168.1.5:5000", "203.0.113.3:4000", "dropped=3"] {
        assert!(line.contains(text), "{text}: {line}");
    }
    site.wait(Duration::from_secs(30));
    call.end();
    site.settle();
    assert_eq!(site.log().matches("one-way audio").count(), 1, "{}", site.log());
}

#[test]
fn a_party_on_hold_or_heard_meanwhile_is_not_logged() {
    let site = echo("", "");
    let (expected, expected_since) = ("192.0.2.1:4000".parse().ok(), Some(0));
    site.set_stream_reports(StreamReport { expected, expected_since, ..StreamReport::default() }, None);
    let (phone, call, ok) = answered(&site);
    site.wait(Duration::from_secs(11));
    assert!(!site.log().contains("one-way audio"), "it is on hold");
    // A call that ends before is reported at its end.
    let silent = StreamReport { expected, expected_since, is_expected: true, ..StreamReport::default() };
    site.set_stream_reports(silent, None);
    let (other, short, answer) = answered(&site);
    assert_eq!(other.ask(&short.within(&answer, "BYE", 2)).status(), 200);
    site.log_with("one-way audio");
    site.wait(Duration::from_secs(11));
    site.set_stream_reports(StreamReport { is_expected: true, ..faulty_stream() }, None);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    site.settle();
    assert_eq!(site.log().matches("one-way audio").count(), 1, "{}", site.log());
}

#[test]
fn a_party_that_has_just_resumed_is_checked_again() {
    let site = echo("", "");
    let expected = "192.0.2.1:4000".parse().ok();
    // The end of the hold is later than each check.
    let resumed =
        StreamReport { expected, is_expected: true, expected_since: Some(u64::MAX), ..StreamReport::default() };
    site.set_stream_reports(resumed, None);
    let (phone, call, ok) = answered(&site);
    site.wait(Duration::from_secs(11));
    assert!(!site.log().contains("one-way audio"), "{}", site.log());
    site.set_stream_reports(StreamReport { expected_since: Some(0), ..resumed }, None);
    site.wait(Duration::from_secs(11));
    site.log_with("one-way audio");
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    site.settle();
    assert_eq!(site.log().matches("one-way audio").count(), 1, "{}", site.log());
}

#[test]
fn a_party_that_never_had_to_send_is_not_logged_at_the_end() {
    let site = echo("", "");
    site.set_stream_reports(StreamReport { expected: "192.0.2.1:4000".parse().ok(), ..StreamReport::default() }, None);
    let (phone, call, ok) = answered(&site);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 2)).status(), 200);
    site.settle();
    assert_eq!(record(&site).media.map(|media| media.is_some()), [true, false]);
    assert!(!site.log().contains("one-way audio"), "{}", site.log());
}
