//! Parts of a report that only some runs have: documents, failed calls, a requirement that ended the run.

use crate::measured::{self, schema};
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};
use strowger_load::report::Report;
use strowger_measure::{
    CallOutcome, Clock, Counter, Delay, DocumentName, FailedCall, Failure, Heading, Journal, KeptMessage, Log,
    Requirement, Run, Thresholds,
};
use strowger_message::Method::Options;

const S: u64 = 1_000_000;

fn heading() -> Heading {
    Heading { timers: ["ask", "tell"].map(String::from).into(), ..measured::heading("west") }
}

/// Creates a run of two documents with two generators each; calls of the second document fail.
fn run(log: Log) -> Run {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let names = [("a.xml", 3), ("b.xml", 1)].map(|(name, share)| DocumentName { name: name.into(), share });
    let journal = Journal::new(clock, heading(), 4, Some(log)).of_documents(names.into());
    let mut journal = journal.guarded(vec![Requirement::parse("calls.failed<=3", &[]).expect("it is one")]);
    let mut shards: Vec<_> = [(0, "ask"), (0, "ask"), (1, "tell"), (1, "tell")]
        .map(|(document, timer)| (document, journal.recorder_of_document(0, document, &[timer.to_owned()])))
        .into();
    for second in 0..5 {
        for (document, recorder) in &mut shards {
            let now = second * S + 500_000;
            recorder.tick(now);
            recorder.calls_intended(1);
            let mut call = recorder.call_started(now, now, 0);
            recorder.request_sent(&mut call, now, Options, 400);
            let failed = *document == 1 && second == 2;
            recorder.response_received(&mut call, now + 4_000, Options, if failed { 503 } else { 200 }, false, 300);
            recorder.timer(0, 4_000);
            let outcome =
                if failed { CallOutcome::Failed(Failure::UnexpectedMessage) } else { CallOutcome::Successful };
            recorder.call_ended(&mut call, now + 4_000, outcome);
        }
        journal.poll(second * S + 900_000);
    }
    let message = |at, sent, text: &str| KeptMessage {
        at,
        sent,
        peer: "192.0.2.1:5060".into(),
        note: (!sent).then(|| "unexpected".into()),
        text: text.into(),
    };
    journal.failed_call(FailedCall {
        call_id: "7-<b>@west".into(),
        cause: "unexpected message: 503 No".into(),
        own: "192.0.2.9:5060".into(),
        transport: "UDP".into(),
        began: 1_700_000_002_000_000,
        ended: 1_700_000_002_004_000,
        messages: vec![
            message(1_700_000_002_000_000, true, "OPTIONS sip:a SIP/2.0\r\nCall-ID: 7\r\n\r\n"),
            message(1_700_000_002_004_000, false, "SIP/2.0 503 <No>\r\n\r\n"),
        ],
        omitted: 9,
        omitted_after: 1,
    });
    for (_, recorder) in shards {
        recorder.close(5 * S);
    }
    journal.finish(5 * S, "time is up")
}

#[test]
fn documents_and_failed_calls_are_reported_live_and_from_the_log() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("run.log");
    let live = run(Log::create(&path, &heading()).expect("the folder can be written"));
    let read = Run::read(&[&path]).expect("the log is whole");
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/load-report.schema.json")).expect("it is JSON");
    for run in [&live, &read] {
        let report = Report::new(run, &[], &Thresholds::default());
        let json: Value = serde_json::from_str(&report.json()).expect("it is JSON");
        assert_eq!(schema::problems(&schema, &json), Vec::<String>::new());
        let of = |place: usize, part: &str, name: &str| json["documents"][place][part][name].clone();
        assert_eq!((of(0, "calls", "successful"), of(1, "calls", "successful")), (10.into(), 8.into()));
        assert_eq!((of(0, "calls", "failed"), of(1, "calls", "failed")), (0.into(), 2.into()));
        assert_eq!(
            (of(0, "timers", "ask")["count"].clone(), of(1, "timers", "ask")["count"].clone()),
            (10.into(), 0.into())
        );
        assert_eq!(
            (json["timers"]["ask"]["count"].clone(), json["timers"]["tell"]["count"].clone()),
            (10.into(), 10.into())
        );
        assert_eq!(json["calls"]["outgoing"], 20);
        let table = report.table(false);
        for part in [
            "document      share    started successful     failed      delay        p50",
            "a.xml       75.00 %         10         10          0    request    4.00 ms",
            "Failed call  7-<b>@west: unexpected message: 503 No after 4.00 ms, 192.0.2.9:5060 by UDP",
            "        0 µs  ──▶ 192.0.2.1:5060  OPTIONS sip:a SIP/2.0",
            "    (9 messages were not kept)",
            "     4.00 ms  ◀── 192.0.2.1:5060  SIP/2.0 503 <No>   (unexpected)",
        ] {
            assert!(table.contains(part), "{part}\n{table}");
        }
        let page = report.html();
        assert!(page.contains("<td>a.xml</td><td>75.00 %</td>") && page.contains("SIP/2.0 503 &lt;No&gt;"));
        assert!(!page.contains("<b>@west") && page.contains("7-&lt;b&gt;@west"));
    }
    assert!(live.generators[0].lost.is_none(), "two failed calls are allowed");
}

#[test]
fn scores_show_the_worst_streams() {
    let mut run = measured::run("west", 2, 1, None);
    // Four of two hundred streams are bad. Scores are recorded in thousandths.
    for stream in 0..200 {
        let (rating, score) = if stream < 4 { (45_800, 2_360) } else { (93_200, 4_409) };
        run.totals.record(Delay::MediaRating, rating);
        run.totals.record(Delay::MediaScore, score);
    }
    run.totals.count(Counter::MediaStreams, 200);
    let report = Report::new(&run, &[], &Thresholds::default());
    let json: Value = serde_json::from_str(&report.json()).expect("it is JSON");
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/load-report.schema.json")).expect("it is JSON");
    assert_eq!(schema::problems(&schema, &json), Vec::<String>::new());
    let mos = |statistic: &str| json["delays"]["media.mos"][statistic].as_f64();
    assert_eq!((mos("min"), mos("p10"), mos("max"), mos("p99")), (Some(2.36), Some(4.409), Some(4.409), None));
    assert!(mos("p1").is_some_and(|p1| (2.36..2.37).contains(&p1)), "{json}");
    let columns = json["series"]["columns"].as_array().expect("it is a list");
    let has = |name: &str| columns.iter().any(|column| column == name);
    assert!(has("media.mos.p1") && has("media.rating.p0.01") && has("media.jitter.p99") && !has("media.mos.p99"));
    let table = report.table(false);
    assert!(table.contains("MOS p10 4.41, p1 2.36, at least 2.36"), "{table}");
    let head = table.lines().find(|line| line.starts_with("Score ")).expect("scores have a table");
    let heads: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(heads, ["Score", "count", "mean", "p50", "p10", "p1", "min"]);
    let row = table.lines().find(|line| line.starts_with("media.mos ")).expect("the scores of the streams");
    let figures: Vec<&str> = row.split_whitespace().skip(1).collect();
    assert_eq!(figures, ["200", "4.37", "4.41", "4.41", "2.36", "2.36"]);
    assert!(report.html().contains("p1 2.36, at least 2.36"));
}
