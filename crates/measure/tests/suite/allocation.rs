//! Recording allocates nothing once warm, and a second costs a page that is reused.

use std::time::SystemTime;
use strowger_allocations::of_thread;
use strowger_measure::{
    CallOutcome, Clock, Collector, Counter, Failure, HeardMedia, HeardStream, Quality, SendFailure, ShardRecorder,
};
use strowger_message::Method;

/// Returns the media of a call.
fn media() -> HeardMedia {
    let quality = Some(Quality { rating: 93.2, score: 4.41 });
    HeardMedia { streams: vec![HeardStream { packets: 50, quality, ..HeardStream::default() }], is_silent: false }
}

/// Records a second of calls, some of which take long and some of which fail. `media`: media of each call.
fn second(recorder: &mut ShardRecorder, second: u64, media: &HeardMedia) {
    for n in 0..1_000u64 {
        let at = second * 1_000_000 + n * 900;
        recorder.tick(at);
        recorder.calls_intended(1);
        let mut call = recorder.call_started(at + n % 70, at, if n % 10 == 0 { at + n % 50 } else { 0 });
        recorder.request_sent(&mut call, at, Method::Register, 400);
        recorder.response_received(
            &mut call,
            at + 500 * n,
            Method::Register,
            if n % 3 == 0 { 200 } else { 401 },
            false,
            300,
        );
        recorder.request_sent(&mut call, at, Method::Invite, 400);
        recorder.request_resent(Method::Invite, 400);
        recorder.response_received(&mut call, at + 5_000 * n, Method::Invite, 180, false, 300);
        recorder.response_received(
            &mut call,
            at + 9_000 * n,
            Method::Invite,
            if n % 7 == 0 { 486 } else { 200 },
            false,
            300,
        );
        recorder.timer(0, 9_000 * n);
        recorder.received_again(300);
        recorder.out_of_call(300);
        recorder.send_failed(SendFailure::Local);
        recorder.socket_drops(1);
        recorder.stalled(n);
        recorder.count(Counter::Warnings, 1);
        recorder.request_sent(&mut call, at, Method::Bye, 400);
        recorder.response_received(&mut call, at + 700 * n, Method::Bye, 200, false, 300);
        recorder.media_heard(&call, media);
        let outcome = if n % 5 == 0 { CallOutcome::Failed(Failure::TimeoutOnReceive) } else { CallOutcome::Successful };
        recorder.call_ended(&mut call, at + 40_000 * n, outcome);
    }
}

#[test]
fn recording_allocates_nothing_once_warm() {
    let mut collector = Collector::new(Clock::new(0, SystemTime::UNIX_EPOCH), vec!["1".into()], 1);
    let mut recorder = collector.recorder(0);
    let (media, mut allocations) = (media(), Vec::new());
    for number in 0..12 {
        let before = of_thread();
        second(&mut recorder, number, &media);
        allocations.push(of_thread() - before);
        collector.poll(number * 1_000_000 + 950_000, |_| {});
    }
    assert!(allocations[0] > 0, "the count counts: the first second's histograms grow");
    // By then all pages were in use, and their histograms have grown.
    assert_eq!(allocations[6..], [0; 6], "{allocations:?}");
    assert_eq!(collector.totals().counter(Counter::CallsOutgoing), 11_000);
}

#[test]
fn a_collector_that_is_away_costs_no_shard_its_time_or_its_figures() {
    let mut collector = Collector::new(Clock::new(0, SystemTime::UNIX_EPOCH), vec!["1".into()], 1);
    let mut recorder = collector.recorder(0);
    // No reader polls for half a minute: the queue fills, and the current page grows over the seconds.
    for number in 0..30 {
        second(&mut recorder, number, &media());
    }
    let mut seconds = Vec::new();
    collector.poll(30_000_000, |page| seconds.push((page.second, page.covered, page.counter(Counter::CallsOutgoing))));
    second(&mut recorder, 30, &media());
    recorder.tick(31_000_000);
    collector.poll(31_100_000, |page| seconds.push((page.second, page.covered, page.counter(Counter::CallsOutgoing))));
    recorder.close(31_500_000);
    let totals =
        collector.finish(|page| seconds.push((page.second, page.covered, page.counter(Counter::CallsOutgoing))));
    assert_eq!(totals.counter(Counter::CallsOutgoing), 31_000);
    assert_eq!(totals.covered, 31_500_000);
    assert!(seconds.len() < 31 && seconds.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seconds:?}");
}
