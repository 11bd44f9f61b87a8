//! Warm-up: the run and its log count the events of its calls apart.

use std::time::{Duration, UNIX_EPOCH};
use strowger_load::report::Report;
use strowger_measure::{
    CallBook, CallOutcome, Clock, Counter, Delay, Failure, Journal, Log, Page, Requirement, Run, ShardRecorder,
    Thresholds,
};
use strowger_message::Method::{Invite, Options};

use crate::measured;

const S: u64 = 1_000_000;
const MS: u64 = 1_000;
/// Wall clock at time zero of the engine, µs: a whole second.
const WALL: u64 = 1_700_000_000_000_000;

fn begin(recorder: &mut ShardRecorder, at: u64) -> CallBook {
    recorder.tick(at);
    if recorder.in_warm_up(at) {
        recorder.calls_warming(1);
    } else {
        recorder.calls_intended(1);
    }
    recorder.call_started(at, at, 0)
}

/// Records the answer after `ms`, as the engine does.
fn answer(recorder: &mut ShardRecorder, call: &mut CallBook, at: u64, failed: bool) {
    recorder.tick(at);
    let warm_up = recorder.in_warm_up(call.intended);
    if warm_up {
        recorder.turn_to_warm_up();
    }
    recorder.response_received(call, at, Options, if failed { 503 } else { 200 }, false, 300);
    let outcome = if failed { CallOutcome::Failed(Failure::UnexpectedMessage) } else { CallOutcome::Successful };
    recorder.call_ended(call, at, outcome);
    if warm_up {
        recorder.turn_to_warm_up();
    }
}

/// Records a run of two shards; each begins a call every 100 ms for six seconds, the first 2.5 s a warm-up. Calls of
/// the warm-up take a second and half of them fail; the others take 10 ms.
fn run(log: Option<Log>) -> Run {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(WALL));
    let mut journal = Journal::new(clock, measured::heading("west"), 2, log);
    let mut shards = [journal.recorder(0), journal.recorder(0)];
    shards.iter_mut().enumerate().for_each(|(shard, recorder)| recorder.reopen(shard as u64 * MS, 2_500 * MS));
    let mut open: Vec<(u64, usize, CallBook, bool)> = Vec::new();
    for tenth in 0..70 {
        let now = tenth * 100 * MS + 5 * MS;
        open.sort_by_key(|(at, ..)| *at);
        for (at, shard, mut call, failed) in std::mem::take(&mut open) {
            if at > now {
                open.push((at, shard, call, failed));
                continue;
            }
            answer(&mut shards[shard], &mut call, at, failed);
        }
        for (shard, recorder) in shards.iter_mut().enumerate().filter(|_| tenth < 60) {
            let mut call = begin(recorder, now);
            let warm_up = recorder.in_warm_up(now);
            if warm_up {
                recorder.turn_to_warm_up();
            }
            recorder.request_sent(&mut call, now, Options, 400);
            if warm_up {
                recorder.turn_to_warm_up();
            }
            open.push((now + if warm_up { S } else { 10 * MS }, shard, call, warm_up && tenth % 2 == 1));
        }
        journal.poll(now);
    }
    for recorder in shards {
        assert_eq!(recorder.open(), 0);
        recorder.close(7 * S);
    }
    journal.finish(7 * S, "time is up")
}

fn calls(page: &Page) -> [u64; 4] {
    [Counter::CallsIntended, Counter::CallsOutgoing, Counter::CallsSuccessful, Counter::CallsFailed]
        .map(|counter| page.counter(counter))
}

#[test]
fn calls_of_a_warm_up_are_in_no_figure_and_in_the_log() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("run.log");
    let log = Log::create(&path, &measured::heading("west")).expect("the folder can be written");
    let live = run(Some(log));
    let read = Run::read(&[&path]).expect("the log is whole");
    for run in [&live, &read] {
        let warm_up = run.warm_up.as_deref().expect("there was one");
        // From 0.005 s to 2.405 s a call each tenth, on both shards; then to 5.905 s.
        assert_eq!((calls(warm_up), calls(&run.totals)), ([50, 50, 26, 24], [70, 70, 70, 0]));
        assert_eq!(run.totals.delays(Delay::Request).most(), Some(10 * MS));
        assert_eq!(warm_up.delays(Delay::Request).least(), Some(S));
        assert_eq!(warm_up.covered, 2_501 * MS, "the time of the last shard");
        assert_eq!(run.totals.covered, 7 * S - 2_501 * MS);
        assert!(run.totals.peak >= 20, "calls of the warm-up are open in the window: {}", run.totals.peak);
        // The series has all of it, a row each second; rows with nothing but warm-up are marked.
        let marks: Vec<bool> = run.rows.iter().map(|row| row.warm_up).collect();
        assert_eq!(marks, [true, true, false, false, false, false]);
        let failed = Counter::CallsFailed.key();
        let place = strowger_measure::columns(&run.timers).iter().position(|name| name == failed);
        let failures: Vec<f64> = run.rows.iter().map(|row| row.values[place.expect("it is a column")]).collect();
        assert_eq!(failures.iter().sum::<f64>(), 24.0, "{failures:?}");
        assert!(failures[3] > 0.0, "they end in the window: {failures:?}");
        let requirement = Requirement::parse("request.max<100ms", &[]).expect("it is one");
        let report = Report::new(run, &[requirement], &Thresholds::default());
        assert!(report.met() && !report.failed() && report.valid(), "{}", report.table(false));
        let table = report.table(false);
        assert!(table.contains("Warm-up") && table.contains("50 calls (24 failed), in no figure below"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("it is JSON");
        assert_eq!(json["warm_up"]["calls"]["failed"], 24);
        assert_eq!(json["warm_up"]["until"], WALL / S + 3);
        let csv = report.csv();
        let lasts: Vec<&str> = csv.lines().filter_map(|line| line.rsplit(',').next()).collect();
        assert_eq!(lasts, ["warm_up", "1", "1", "0", "0", "0", "0"]);
        assert!(report.html().contains("\"warm_until\":1700000002.5"));
    }
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_no_figures() {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(WALL));
    let mut journal = Journal::new(clock, measured::heading("west"), 1, None);
    let mut recorder = journal.recorder(0);
    recorder.reopen(0, 10 * S);
    let mut call = begin(&mut recorder, S);
    recorder.request_sent(&mut call, S, Invite, 400);
    recorder.tick(3 * S);
    recorder.call_ended(&mut call, 3 * S, CallOutcome::Stopped);
    recorder.close(4 * S);
    let run = journal.finish(4 * S, "interrupted");
    let warm_up = run.warm_up.as_deref().map(calls);
    assert_eq!((warm_up, calls(&run.totals)), (Some([1, 1, 0, 0]), [0; 4]));
    assert!(run.rows.iter().all(|row| row.warm_up));
    let report = Report::new(&run, &[], &Thresholds::default());
    assert!(report.table(false).contains("No call was begun"), "{}", report.table(false));
}
