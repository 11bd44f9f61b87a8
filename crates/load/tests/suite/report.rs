//! Reports of a run: equal at its end and from its log, each in its own format.

use crate::measured::schema;
use crate::measured::{self, MS, S, STARTED};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};
use strowger_load::report::{Report, exposition};
use strowger_measure::{
    CallOutcome, Clock, Counter, Delay, Ending, Entry, GeneratorRole, Heading, Journal, Log, LogReader, Page,
    Requirement, Row, Run, Sample, ThreadUse, Thresholds, columns,
};

fn requirements() -> Vec<Requirement> {
    let texts = ["srd.p95<200ms", "ser>=99.9%", "calls.failed==0", "timer.1.mean<1s"];
    texts.iter().map(|text| Requirement::parse(text, &measured::heading("").timers).unwrap()).collect()
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&Report::new(run, &requirements(), &Thresholds::default()).json()).unwrap()
}

fn schema_of_docs() -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/load-report.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_json_matches_its_schema() {
    let schema = schema_of_docs();
    let whole = json(&measured::run("west", 12, 1, None));
    assert_eq!(schema::problems(&schema, &whole), Vec::<String>::new());
    let empty = json(&Run::new(measured::heading("west")));
    assert_eq!(schema::problems(&schema, &empty), Vec::<String>::new());
    // The check itself finds errors.
    for (pointer, wrong) in [
        ("/version", Value::from(1)),
        ("/refusals/0/count", Value::from(-1)),
        ("/verdict/outcome", Value::from("fine")),
        ("/delays/srd/mean", Value::from("fast")),
        ("/counters/calls.failed", Value::from(-1)),
        ("/responses/0/direction", Value::from("up")),
        ("/series/rows/0/0", Value::from(true)),
        ("/generators", Value::Array(vec![])),
        ("/run", Value::Object(serde_json::Map::new())),
    ] {
        let mut bad = whole.clone();
        *bad.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = wrong;
        assert!(!schema::problems(&schema, &bad).is_empty(), "{pointer}");
    }
    let mut more = whole.clone();
    more.as_object_mut().unwrap().insert("surprise".into(), Value::Null);
    assert!(!schema::problems(&schema, &more).is_empty());
}

#[test]
fn the_json_holds_the_figures() {
    let run = measured::run("west", 12, 1, None);
    let json = json(&run);
    let number = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).as_f64().unwrap();
    assert_eq!(number("/calls/intended"), 2_400.0);
    assert_eq!(number("/calls/successful") + number("/calls/failed"), 2_400.0);
    assert_eq!(number("/concurrency/at_end"), 0.0);
    assert!((number("/rates/rate.achieved/value") - 200.0).abs() < 0.2, "{}", number("/rates/rate.achieved/value"));
    assert_eq!(number("/ratios/ira/value"), 0.0);
    let (answered, sessions) = (number("/counters/session.answered"), number("/counters/session.attempts"));
    assert!((number("/ratios/ser/value") - answered / sessions * 100.0).abs() < 1e-9);
    assert_eq!(number("/delays/srd/count"), answered);
    assert!(number("/delays/srd/p99.99") <= number("/delays/srd/max"));
    assert_eq!(json["requirements"][2]["met"], false);
    assert_eq!(json["requirements"][3]["met"], true);
    assert_eq!(json["verdict"]["valid"], true);
    assert_eq!(json["verdict"]["requirements_met"], false);
    assert_eq!(json["run"]["started"], "2026-11-20T13:00:00Z");
    // The series adds up to the totals.
    let names: Vec<&str> =
        json["series"]["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let rows = json["series"]["rows"].as_array().unwrap();
    for counter in Counter::ALL {
        let place = names.iter().position(|name| *name == counter.key()).unwrap() + 1;
        let sum: f64 = rows.iter().map(|row| row[place].as_f64().unwrap()).sum();
        assert_eq!(sum, run.totals.counter(*counter) as f64, "{}", counter.key());
    }
    assert!(rows.windows(2).all(|pair| pair[0][0].as_u64() < pair[1][0].as_u64()));
}

/// Returns the report without measurements of the process's machine, and without additions of the log.
fn figures(run: &Run) -> Value {
    let mut json = json(run);
    for name in ["generators", "verdict"] {
        json.as_object_mut().unwrap().remove(name);
    }
    json
}

#[test]
fn every_report_is_made_again_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let run = measured::run("west", 12, 1, Some(&path));
    let again = Run::read(&[&path]).unwrap();
    assert_eq!(figures(&run), figures(&again));
    let report = |run: &Run| {
        let report = Report::new(run, &requirements(), &Thresholds::default());
        [report.table(false), report.csv(), report.html(), report.json(), exposition(run)]
    };
    for (ours, theirs) in report(&run).iter().zip(&report(&again)) {
        let differs = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
        assert!(ours == theirs, "a report is another: {differs:?}");
    }
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < 16 * 8_000, "{size} bytes for 16 seconds of 200 calls");
}

#[test]
fn a_killed_generator_leaves_a_readable_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let whole = measured::run("west", 12, 1, Some(&path));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let run = Run::read(&[&path]).unwrap();
    assert!(run.rows.len() > 5 && run.rows.len() < whole.rows.len());
    // Not a number (no measurement) is equal too.
    let shown = |row: &Row| format!("{row:?}");
    assert!(run.rows.iter().zip(&whole.rows).all(|(left, right)| shown(left) == shown(right)));
    let report = Report::new(&run, &[], &Thresholds::default());
    assert!(
        !report.valid() && report.reasons()[0].contains("is cut") && report.reasons()[0].contains("are in no book"),
        "{:?}",
        report.reasons()
    );
    assert!(report.table(false).starts_with("INVALID      A log is not whole"), "{}", report.table(false));
    // Killed between two records: nothing is damaged, but the end is missing.
    let mut reader = LogReader::open(&path).unwrap();
    let (mut page, mut ended) = (Page::new(0), false);
    while let Some(entry) = reader.next(&mut page) {
        ended |= matches!(entry, Entry::Ending(_));
    }
    assert!(!ended);
}

#[test]
fn a_full_disk_is_reported_and_the_run_continues() {
    let run = measured::run("west", 6, 1, Some("/dev/full".as_ref()));
    assert_eq!(run.totals.counter(Counter::CallsOutgoing), 1_200);
    let report = Report::new(&run, &[], &Thresholds::default());
    assert!(report.valid(), "the figures are right all the same");
    let warnings = &report.health()[0].warnings;
    let said = |part: &str| warnings.iter().filter(|warning| warning.contains(part)).count();
    assert_eq!((said("No space left on device"), said("records of the raw log")), (1, 1), "{warnings:?}");
    assert!(report.table(false).contains("cannot be written"));
}

#[test]
fn several_generators_are_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["west.log", "east.log"].map(|name| folder.path().join(name));
    let west = measured::run("west", 12, 1, Some(&paths[0]));
    let east = measured::run("east", 9, 99, Some(&paths[1]));
    let both = Run::read(&paths).unwrap();
    for counter in Counter::ALL {
        let sum = west.totals.counter(*counter) + east.totals.counter(*counter);
        assert_eq!(both.totals.counter(*counter), sum, "{}", counter.key());
    }
    let (west_srd, east_srd) = (west.totals.delays(Delay::Setup), east.totals.delays(Delay::Setup));
    let srd = both.totals.delays(Delay::Setup);
    assert_eq!((srd.count(), srd.sum()), (west_srd.count() + east_srd.count(), west_srd.sum() + east_srd.sum()));
    assert_eq!(srd.most(), west_srd.most().max(east_srd.most()));
    assert_eq!(both.rows.len(), west.rows.len());
    assert!((both.rows[4].values[place("rate.achieved")] - 400.0).abs() < 4.0);
    assert!(both.totals.peak > west.totals.peak);
    let report = Report::new(&both, &[], &Thresholds::default());
    assert_eq!(report.health().len(), 2);
    let table = report.table(false);
    assert!(table.contains("2 generators") && table.contains("east:"), "{table}");
    assert_eq!(schema::problems(&schema_of_docs(), &json(&both)), Vec::<String>::new());
    assert!(Run::read(&[folder.path().join("none.log")]).is_err());
}

fn place(name: &str) -> usize {
    columns(&measured::heading("").timers).iter().position(|column| column == name).unwrap()
}

#[test]
fn the_csv_has_a_line_a_second() {
    let run = measured::run("west", 12, 1, None);
    let csv = Report::new(&run, &[], &Thresholds::default()).csv();
    let lines: Vec<Vec<String>> = csv.split_terminator("\r\n").map(fields).collect();
    assert_eq!(lines.len(), run.rows.len() + 1);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "every line has every field");
    assert_eq!(lines[0][..3], ["time", "second", "duration"]);
    assert!(lines[0].contains(&"timer.ring, \"long\".p99.99".to_string()));
    let unique: HashSet<_> = lines[0].iter().collect();
    assert_eq!(unique.len(), lines[0].len());
    assert_eq!(lines[1][..2], ["2026-11-20T13:00:00Z", &(STARTED / S).to_string()]);
    let achieved = lines[0].iter().position(|name| name == "calls.outgoing").unwrap();
    assert_eq!(lines[1..].iter().map(|line| line[achieved].parse::<u64>().unwrap()).sum::<u64>(), 2_400);
    // After the common columns: the responses of this run, each a measure.
    let every = columns(&measured::heading("").timers).len() + 2;
    let sum = |name: &str| {
        let place = lines[0].iter().position(|column| column == name).unwrap_or_else(|| panic!("{name}"));
        assert!(place >= every, "{name}");
        lines[1..].iter().map(|line| line[place].parse::<f64>().unwrap()).sum::<f64>()
    };
    assert_eq!((sum("responses.register.401"), sum("responses.register.200")), (2_400.0, 2_400.0));
    for name in &lines[0][every..] {
        let measure = strowger_measure::Measure::parse(name, &[]).unwrap();
        assert_eq!(measure.of(&run.totals), Some(sum(name)), "{name}");
    }
    let failed = lines[0].iter().position(|name| name == "sdd.failed.p95").unwrap();
    assert!(lines[1..].iter().all(|line| line[failed].is_empty()), "what was not measured is empty");
}

/// Returns the fields of a line of CSV (RFC 4180).
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (vec![], String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// Creates a run that breaks this bound and no other.
fn beyond(threshold: &str) -> Run {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(STARTED));
    let mut journal = Journal::new(clock, measured::heading("west"), 1, None);
    let mut recorder = journal.recorder(0);
    recorder.calls_intended(if threshold == "rate_error" { 20 } else { 10 });
    for _ in 0..10 {
        let mut call = recorder.call_started(50_000, if threshold == "lag_p99" { 1_000 } else { 50_000 }, 0);
        recorder.call_ended(&mut call, 60_000, CallOutcome::Successful);
    }
    match threshold {
        "core_wait" | "saturated" => recorder.count(Counter::CallsLimited, 1),
        "socket_drops" => recorder.count(Counter::SocketDrops, 1),
        "send_failures" => recorder.count(Counter::SendFailuresLocal, 1),
        "stall" => recorder.stalled(900_000),
        "media_losses" => recorder.count(Counter::MediaRefused, 1),
        _ => (),
    }
    recorder.close(S);
    let mut run = journal.finish(S, "time is up");
    if ["cpu", "saturated", "core_wait"].contains(&threshold) {
        // Slices this short cause no lag.
        let (cpu, waited, turns) = if threshold == "core_wait" { (S / 10, S / 2, 5_000) } else { (S, 0, 0) };
        let thread = ThreadUse { id: 7, name: "shard-0".into(), cpu, waited, turns, ..ThreadUse::default() };
        let busy = Sample {
            second: STARTED / S,
            interval: S,
            threads: vec![thread],
            resident: 5,
            cores: vec![1.0, 0.2],
            stolen: 0.0,
        };
        run.generators[0].sample(busy);
    }
    run
}

#[test]
fn every_verdict_is_as_the_schema_says_and_names_the_option_that_judged_it() {
    let schema = schema_of_docs();
    let strict = Thresholds { cpu: 20.0, ..Thresholds::default() };
    for (threshold, option) in [
        ("rate_error", "(--max-rate-error)"),
        ("lag_p99", "(--max-lag)"),
        ("socket_drops", "(--max-drops)"),
        ("send_failures", "(--max-send-failures)"),
        ("stall", "(--max-stall)"),
        ("media_losses", "(--max-media-losses)"),
        ("cpu", "(--max-cpu)"),
        ("core_wait", "(--max-core-wait)"),
        ("saturated", "(--saturated)"),
    ] {
        let strict = if threshold == "saturated" { Thresholds::default() } else { strict.clone() };
        let run = beyond(threshold);
        let report = Report::new(&run, &requirements(), &strict);
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(schema::problems(&schema, &json), Vec::<String>::new(), "{threshold}");
        assert_eq!(json["generators"][0]["reasons"][0]["threshold"], threshold);
        assert_eq!(report.reasons().len(), 1, "{:?}", report.reasons());
        assert!(
            report.reasons()[0].ends_with(option) && report.table(false).contains(option),
            "{:?}",
            report.reasons()
        );
    }
    for reason in ["interrupted", "an error ended it", "calls that did not end were cut off"] {
        let mut run = beyond("nothing");
        run.generators[0].ending = Some(Ending { at: STARTED, reason: reason.into() });
        assert_eq!(schema::problems(&schema, &json(&run)), Vec::<String>::new(), "{reason}");
    }
}

/// Creates a run of thirty seconds whose generator stood still in the thirteenth.
fn spoilt() -> Run {
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(STARTED));
    let mut journal = Journal::new(clock, measured::heading("west"), 1, None);
    let mut recorder = journal.recorder(0);
    for second in 0..30 {
        let now = second * S + 50_000;
        recorder.tick(now);
        recorder.calls_intended(1);
        let mut call = recorder.call_started(now, now, 0);
        recorder.call_ended(&mut call, now + 10_000, CallOutcome::Successful);
        if second == 12 {
            recorder.stalled(900_000);
        }
        journal.poll(now);
    }
    recorder.close(30 * S);
    journal.finish(30 * S, "time is up")
}

#[test]
fn a_window_that_is_bad_is_named_everywhere_and_the_others_are_the_servers() {
    let run = spoilt();
    let (from, until) = (STARTED / S + 10, STARTED / S + 20);
    for (most, valid) in [(10.0, false), (50.0, true)] {
        let thresholds = Thresholds { bad_windows: most, ..Thresholds::default() };
        let report = Report::new(&run, &[], &thresholds);
        assert_eq!(report.valid(), valid);
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(schema::problems(&schema_of_docs(), &json), Vec::<String>::new());
        let windows = json["generators"][0]["windows"].as_array().unwrap();
        let bad: Vec<&Value> =
            windows.iter().filter(|window| !window["reasons"].as_array().unwrap().is_empty()).collect();
        assert_eq!((windows.len(), bad.len()), (3, 1), "{windows:?}");
        assert_eq!((&bad[0]["from"], &bad[0]["until"]), (&from.into(), &until.into()));
        assert_eq!(bad[0]["reasons"][0]["threshold"], "stall");
        let good = &json["good"];
        assert_eq!((&good["windows"], &good["of"], &good["calls"]["outgoing"]), (&2.into(), &3.into(), &20.into()));
        let table = report.table(false);
        assert!(table.contains("Bad windows  10 s to 20 s: stall\n"), "{table}");
        let whole = if valid { "kept up in 2 of 3 windows" } else { "INVALID" };
        assert!(table.lines().next().unwrap().contains(whole), "{table}");
        let html = report.html();
        assert!(html.contains("window-table") && html.contains(whole), "{whole}");
    }
}

#[test]
fn callers_and_answerers_stand_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["calls.log", "answers.log"].map(|name| folder.path().join(name));
    let calls = measured::run("calls", 6, 1, Some(&paths[0]));
    let clock = Clock::new(0, UNIX_EPOCH + Duration::from_micros(STARTED));
    let heading =
        Heading { role: GeneratorRole::Answerer, timers: vec!["ring".into()], ..measured::heading("answers") };
    let log = Log::create(&paths[1], &heading).unwrap();
    let mut journal = Journal::new(clock, heading, 1, Some(log));
    let mut recorder = journal.recorder(0);
    for n in 0..30 {
        let mut call = recorder.call_accepted(n * 100 * MS);
        recorder.timer(0, 5_000);
        recorder.call_ended(&mut call, n * 100 * MS + 900, CallOutcome::Successful);
        recorder.tick(n * 100 * MS + 900);
    }
    recorder.close(3 * S);
    journal.finish(3 * S, "interrupted");

    let both = Run::read(&paths).unwrap();
    let answering = both.answering.as_deref().expect("they are two sides");
    for counter in Counter::ALL {
        assert_eq!(both.totals.counter(*counter), calls.totals.counter(*counter), "{}", counter.key());
    }
    assert_eq!((both.totals.peak, answering.totals.counter(Counter::CallsSuccessful)), (calls.totals.peak, 30));
    let requirements = ["calls.successful<2000", "answering.calls.successful==30", "answering.timer.ring.mean<6ms"];
    let requirements = requirements.map(|text| Requirement::parse(text, &both.timers).expect(text));
    let report = Report::new(&both, &requirements, &Thresholds::default());
    assert!(report.met(), "{:?}", report.judgements());
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(schema::problems(&schema_of_docs(), &json), Vec::<String>::new());
    assert_eq!((&json["calls"]["successful"], &json["answering"]["calls"]["successful"]), (&1_167.into(), &30.into()));
    assert_eq!(json["answering"]["timers"]["ring"]["count"], 30);
    assert_eq!(json["generators"][1]["heading"]["role"], "answerer");
    let table = report.table(false);
    assert!(
        table.contains("Answerer     All 30 calls succeeded.") && table.contains("\nAnswerers    1 generators"),
        "{table}"
    );
    let csv = report.csv();
    let lines: Vec<Vec<String>> = csv.split_terminator("\r\n").map(fields).collect();
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "every line has every field");
    let sum = |name: &str| -> f64 {
        let place = lines[0].iter().position(|column| column == name).unwrap_or_else(|| panic!("{name}"));
        lines[1..].iter().filter_map(|line| line[place].parse::<f64>().ok()).sum()
    };
    assert_eq!((sum("calls.successful"), sum("answering.calls.successful")), (1_167.0, 30.0));
    assert!(report.html().contains("Answerers: the other ends"));
}

#[test]
fn the_table_begins_with_generator_and_server() {
    let run = measured::run("west", 12, 1, None);
    let report = Report::new(&run, &requirements(), &Thresholds::default());
    let table = report.table(false);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("Generator    kept up with its schedule"), "{table}");
    let server = "Server       66 of 2,400 calls failed (2.75 %), most often by: 30 × 486 Busy Here (INVITE).";
    assert_eq!(lines[1], server, "{table}");
    // On a busy machine a warning may come between.
    let first = lines.iter().position(|line| line.starts_with("✓ srd.p95<200ms")).expect("it is met");
    assert!(lines[first + 2].starts_with("✗ calls.failed==0") && lines[first + 2].ends_with(" 66"), "{table}");
    assert!(lines.iter().all(|line| line.chars().count() <= 121), "{table}");
    for part in [
        "2,400 started",
        "200 /s achieved",
        "SER 97.25 %",
        "srd.intended",
        "timer.1",
        "REGISTER 401 × 2,400",
        "30 × 503 Service Unavailable (INVITE)",
        "6 × no answer, or awaited request, in time",
        "p99.99",
    ] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(!table.contains('\x1b') && report.table(true).contains("\x1b[32;1m✓"));
    assert!(!report.met() && report.valid());
}

#[test]
fn the_table_is_no_wider_than_its_terminal() {
    let run = measured::run("west", 12, 1, None);
    let report = Report::new(&run, &requirements(), &Thresholds::default());
    for columns in [80, 100, 110, 117] {
        let table = report.table_within(false, columns);
        let longest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= columns, "{longest} of {columns}:\n{table}");
        for part in ["p99.99", "srd.intended", "2,400 started"] {
            assert!(table.contains(part), "{part}:\n{table}");
        }
    }
    assert!(report.table_within(false, usize::MAX) == report.table(false));
}

#[test]
fn an_invalid_run_says_so_before_its_figures() {
    let mut run = measured::run("west", 12, 1, None);
    run.generators[0].receive_buffers[0].got = 200_000;
    let strict = Thresholds { lag_p99: Some(0.05), ..Thresholds::default() };
    let report = Report::new(&run, &requirements(), &strict);
    assert!(!report.valid());
    let table = report.table(false);
    assert!(table.starts_with("INVALID"), "{table}");
    assert!(table.contains("started calls late") && table.contains("net.core.rmem_max"), "{table}");
    // The server was not measured: no requirement has a mark.
    assert!(table.contains("\n? srd.p95<200ms") && !table.contains('✓') && !table.contains('✗'), "{table}");
    assert!(!report.table(true).contains("\x1b[32;1m✓"));
    assert!(report.html().contains("<strong>INVALID</strong>"));
}

#[test]
fn prometheus_can_read_the_totals() {
    let run = measured::run("west", 12, 1, None);
    let text = exposition(&run);
    let mut types = HashMap::new();
    let mut samples = HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{name} twice");
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            assert!(samples.insert(sample), "{sample} twice");
            let name = sample.split('{').next().unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
            let family = name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count")).unwrap_or(name);
            assert!(types.contains_key(name) || types.get(family) == Some(&"summary"), "{line} has no type before it");
        }
    }
    for sample in [
        "strowger_load_calls_outgoing_total 2400",
        "strowger_load_responses_total{direction=\"received\",method=\"REGISTER\",code=\"401\"} 2400",
        "strowger_load_timer_seconds_count{timer=\"ring, \\\"long\\\"\"} 2334",
        "strowger_load_delay_seconds{delay=\"srd\",quantile=\"0.999\"}",
        "strowger_load_requests_total{direction=\"sent\",method=\"REGISTER\"} 4800",
    ] {
        assert!(text.contains(sample), "{sample}");
    }
}
