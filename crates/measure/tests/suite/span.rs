//! Spans of logs, compared with the live run.

use crate::measured::{self, MS, S, STARTED};
use std::path::{Path, PathBuf};
use strowger_measure::{
    Clock, Counter, Delay, Failure, GeneratorRole, Heading, Health, Journal, LOG, Log, LogError, Measure, Page, Run,
    Span, Thresholds,
};
use strowger_message::Method;

/// First second of the run.
const FIRST: u64 = STARTED / S;

fn encoded(page: &Page) -> Vec<u8> {
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    bytes
}

/// Compares all data of two runs about their seconds: figures, rows, and the verdict with its windows.
#[track_caller]
fn assert_same(one: &Run, other: &Run) {
    assert!(encoded(&one.totals) == encoded(&other.totals), "{:?}\n{:?}", one.totals, other.totals);
    assert_eq!(format!("{:?}", one.rows), format!("{:?}", other.rows));
    let thresholds = Thresholds { lag_p99: Some(0.05), ..Thresholds::default() };
    for thresholds in [Thresholds::default(), thresholds] {
        assert_eq!(one.verdict(&thresholds), other.verdict(&thresholds));
        let parts = |health: Health| {
            let good = health.good.map(|page| encoded(&page));
            (health.verdict, health.warnings, health.windows, good, health.receive_buffers, health.threads.len())
        };
        let healths = |run: &Run| run.health(&thresholds).into_iter().map(parts).collect::<Vec<_>>();
        assert_eq!(healths(one), healths(other));
    }
}

fn logged(folder: &Path, name: &str, seconds: u64, seed: u64) -> (PathBuf, Run) {
    let path = folder.join(format!("{name}.log"));
    let run = measured::run(name, seconds, seed, Some(&path));
    (path, run)
}

fn span(paths: &[&PathBuf], from: u64, until: u64) -> Run {
    Run::read_span(paths, Span { from, until }).unwrap()
}

#[test]
fn a_span_of_the_whole_log_is_the_live_run() {
    let folder = tempfile::tempdir().unwrap();
    let (path, live) = logged(folder.path(), "west", 32, 1);
    let last = live.rows.last().unwrap().second;
    assert!(last > FIRST + 30 && live.totals.counter(Counter::CallsFailed) > 0);
    assert_same(&live, &Run::read_span(&[&path], Span::WHOLE).unwrap());
    assert_same(&live, &span(&[&path], FIRST, last + 1));
    let ended = Span::between(STARTED - STARTED % S, live.generators[0].ending.as_ref().unwrap().at + S);
    assert_same(&live, &Run::read_span(&[&path], ended).unwrap());
}

/// Checks that the pages of the seconds of a span add up to the span, also if several generators have pages of a
/// second.
#[test]
fn seconds_of_a_span_are_handed_over_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let [(west, _), (east, _)] = [("west", 1), ("east", 2)].map(|(name, seed)| logged(folder.path(), name, 20, seed));
    let span = Span { from: FIRST + 4, until: FIRST + 15 };
    let (mut seconds, mut sum) = (Vec::new(), Page::new(1));
    let mut see = |page: &Page| {
        seconds.push(page.second);
        sum.add_after(page);
    };
    let run = Run::read_seconds(&[&west, &east], span, &mut see).unwrap();
    assert_eq!(seconds, (span.from..span.until).collect::<Vec<_>>());
    for counter in Counter::ALL {
        assert_eq!(sum.counter(*counter), run.totals.counter(*counter), "{counter:?}");
    }
    assert!(run.totals.counter(Counter::CallsOutgoing) > 0);
    assert_same(&run, &Run::read_span(&[&west, &east], span).unwrap());
}

#[test]
fn spans_that_follow_each_other_are_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (west, live) = logged(folder.path(), "west", 32, 1);
    let (east, _) = logged(folder.path(), "east", 30, 99);
    let last = live.rows.last().unwrap().second;
    let logs = [&west, &east];
    let whole = Run::read(&logs).unwrap();
    let borders = [FIRST, FIRST + 1, FIRST + 9, FIRST + 10, FIRST + 27, last + 1];
    let mut sum = Page::new(0);
    let mut rows = Vec::new();
    for pair in borders.windows(2) {
        let part = span(&logs, pair[0], pair[1]);
        assert_eq!(part.totals.second, pair[0]);
        assert!(part.rows.iter().all(|row| (pair[0]..pair[1]).contains(&row.second)));
        sum.add_after(&part.totals);
        rows.extend(part.rows);
    }
    for counter in Counter::ALL {
        assert_eq!(sum.counter(*counter), whole.totals.counter(*counter), "{}", counter.key());
    }
    assert!(Failure::ALL.iter().all(|failure| sum.failures(*failure) == whole.totals.failures(*failure)));
    assert!(sum.responses_received().iter().eq(whole.totals.responses_received().iter()));
    let pairs = Delay::ALL.iter().map(|delay| (sum.delays(*delay), whole.totals.delays(*delay)));
    for (sum, whole) in pairs.chain(sum.timers().iter().zip(whole.totals.timers())) {
        assert!(sum.buckets().eq(whole.buckets()));
        assert_eq!((sum.sum(), sum.least(), sum.most()), (whole.sum(), whole.least(), whole.most()));
    }
    assert_eq!((sum.covered, sum.open, sum.peak), (whole.totals.covered, whole.totals.open, whole.totals.peak));
    assert_eq!(format!("{rows:?}"), format!("{:?}", whole.rows));
    let srd = Measure::parse("srd.p99", &whole.timers).unwrap();
    assert_eq!(srd.of(&sum), srd.of(&whole.totals));
}

/// Writes the log of a generator with a call due each tenth of a second. The generator is stopped from the 21st second
/// to the 23rd.
fn stalled(path: &Path, role: GeneratorRole) {
    let clock = Clock::new(0, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000));
    let heading = Heading { generator: format!("{role:?}"), role, started: 1_000 * S, ..Heading::default() };
    let log = Log::create(path, &heading).unwrap();
    let mut journal = Journal::new(clock, heading, 1, Some(log));
    let mut recorder = journal.recorder(0);
    let mut late = 0;
    for tenth in 0..400 {
        let now = tenth * S / 10;
        recorder.tick(now);
        recorder.calls_intended(1);
        if (210..230).contains(&tenth) {
            late += 1;
            continue;
        }
        for tenths in (0..=std::mem::take(&mut late)).rev() {
            let mut call = recorder.call_started(now, now - tenths * S / 10, 0);
            recorder.request_sent(&mut call, now, Method::Invite, 400);
            recorder.response_received(&mut call, now + tenth * MS, Method::Invite, 200, false, 400);
        }
        journal.poll(now);
    }
    recorder.close(40 * S);
    journal.finish(40 * S, "all calls made");
}

#[test]
fn a_span_is_judged_by_its_own_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    stalled(&path, GeneratorRole::Caller);
    let thresholds = Thresholds::default();
    let valid = |from: u64, until: u64| span(&[&path], 1_000 + from, 1_000 + until).verdict(&thresholds).is_valid();
    assert!(!Run::read(&[&path]).unwrap().verdict(&thresholds).is_valid());
    assert!(valid(0, 20) && valid(24, 40) && !valid(0, 23) && !valid(15, 23) && !valid(22, 23));
    // A call that is a little late at the end of the span is a lag, as in the middle of a run.
    assert!(valid(0, 21) && valid(24, 39));
    // A percentile covers the span alone: the call of the n-th tenth of a second is answered after n ms.
    let p50 = |from: u64, until: u64| {
        let run = span(&[&path], 1_000 + from, 1_000 + until);
        Measure::parse("srd.p50", &run.timers).unwrap().of(&run.totals).unwrap()
    };
    assert!((p50(0, 10) - 49_000.0).abs() < 1_100.0, "{}", p50(0, 10));
    assert!((p50(30, 40) - 349_000.0).abs() < 1_100.0, "{}", p50(30, 40));
}

#[test]
fn both_sides_of_a_span_stand_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["calls.log", "answers.log"].map(|name| folder.path().join(name));
    stalled(&paths[0], GeneratorRole::Caller);
    stalled(&paths[1], GeneratorRole::Answerer);
    let run = span(&[&paths[1], &paths[0]], 1_005, 1_015);
    let answering = run.answering.as_deref().unwrap();
    for side in [&run, answering] {
        assert_eq!((side.totals.second, side.totals.covered), (1_005, 10 * S));
        assert_eq!(side.totals.counter(Counter::CallsOutgoing), 100);
    }
    let verdict = span(&[&paths[1], &paths[0]], 1_015, 1_030).verdict(&Thresholds::default());
    let sentences: Vec<&str> = verdict.reasons().iter().map(|reason| reason.sentence.as_str()).collect();
    assert_eq!(sentences.len(), 2, "{sentences:?}");
    assert!(sentences[0].starts_with("Caller: ") && sentences[1].starts_with("Answerer: "), "{sentences:?}");
}

#[test]
fn a_log_that_is_not_whole_is_named_in_each_span() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    stalled(&path, GeneratorRole::Caller);
    let reason = |from: u64, until: u64| {
        let run = span(&[&path], 1_000 + from, 1_000 + until);
        let verdict = run.verdict(&Thresholds::default());
        let of_log: Vec<String> =
            verdict.reasons().iter().filter(|r| r.threshold == LOG).map(|r| r.sentence.clone()).collect();
        assert!(of_log.len() < 2 && verdict.is_valid() == verdict.reasons().is_empty(), "{verdict:?}");
        (of_log.into_iter().next().unwrap_or_default(), run.totals.counter(Counter::CallsOutgoing))
    };
    assert_eq!(reason(2, 6), (String::new(), 40));
    // Before its first second, after its last, between.
    let outside = "a.log has no figures of 5 of the 10 seconds wanted.";
    let (sentence, calls) = reason(35, 45);
    assert!(sentence.ends_with(outside) && calls == 50, "{sentence}");
    let before = span(&[&path], 995, 1_005);
    assert!(before.verdict(&Thresholds::default()).reasons()[0].sentence.ends_with(outside));
    assert!(reason(60, 70).0.contains("no figures of 10 of the 10"), "{}", reason(60, 70).0);
    // Killed: nothing after the half, and the last record truncated.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let (sentence, calls) = reason(2, 6);
    assert!(sentence.starts_with("The log ") && sentence.contains("a.log") && calls == 40, "{sentence}");
    assert!(sentence.contains("calls that it began are in no book") && !sentence.contains("no figures"), "{sentence}");
    assert!(reason(2, 40).0.contains("no figures of "), "{}", reason(2, 40).0);
    // A damaged record costs its second.
    let mut tipped = whole.clone();
    tipped[whole.len() / 3] ^= 4;
    std::fs::write(&path, &tipped).unwrap();
    assert!(reason(0, 40).0.contains("damaged record was left out"), "{}", reason(0, 40).0);
    std::fs::write(&path, b"time,calls\n").unwrap();
    assert!(matches!(Run::read_span(&[&path], Span::WHOLE), Err(LogError::NoLog(_))));
}
