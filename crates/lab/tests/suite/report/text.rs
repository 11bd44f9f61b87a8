//! Page, Markdown, JSON and CSV of a report.

use super::recorded::{rows, with_report};
use strowger_lab::experiment::{Experiment, SHIPPED};
use strowger_lab::report::FILES;
use strowger_lab::row::{Check, Profile, Reason, Row, Validity};

fn relay() -> (Experiment, Vec<Row>) {
    let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
    let mut rows = rows(&experiment, Profile::Quick, &[]);
    let reason = Reason { check: Check::Stolen, sentence: "7 % were stolen <by others>, allowed are 5 %".into() };
    rows[5].validity = Validity::of(vec![reason]);
    (experiment, rows)
}

#[test]
fn the_page_has_all_parts_in_their_order() {
    let (experiment, rows) = relay();
    let html = with_report(&experiment, &rows, |report| report.html());
    let parts = [
        "CPU of a call at 1,000 calls a second",
        "Experiment relay · profile quick · 2026-11-18T",
        "<strong>Answer</strong>CPU of the server for a call",
        "<h2>Gates</h2>",
        "server.cpu.call of strowger scenario=relay over kamailio scenario=relay at most 0.250: 0.200: met",
        "<h2>Results</h2>",
        "class=\"figure\"",
        "<h3>All figures</h3>",
        "<h2>Validity of each trial</h2>",
        "repetition",
        "7 % were stolen &lt;by others&gt;",
        "<h2>Method</h2>",
        "The floor, a relay that reads nothing, took 50 µs",
        "The plan estimated 60 s, and the run took 66 s from its begin to its last sample; no trial was made again.",
        "<h2>Figures and their units</h2>",
        "<h2>Machine and versions</h2>",
        "Processor &lt;of two cores&gt;",
        "<h2>Configurations</h2>",
        "[server] # &lt;first&gt;",
    ];
    let mut rest = html.as_str();
    for part in parts {
        // A sentence of the list of trials may stand before another one.
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not behind the parts before it"));
        rest = &rest[at..];
    }
    assert!(!html.contains("http://") && !html.contains("https://"), "a page without addresses");
}

#[test]
fn markdown_has_the_same_values() {
    let (experiment, rows) = relay();
    let text = with_report(&experiment, &rows, |report| report.markdown());
    assert!(text.starts_with("# CPU of a call at 1,000 calls a second\n"), "{text}");
    for part in [
        "**CPU of the server for a call: strowger",
        "- ✓ server.cpu.call of strowger",
        "| scenario | strowger | kamailio |\n|---|---:|---:|\n| stateful relay | 61 µs (60 µs to 61 µs) | 303 µs",
        "trials are valid.",
        "- ✗ ",
        "7 % were stolen",
        "| server.cpu.call | us | CPU of the server for a call |",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn gates_without_a_verdict_are_folded() {
    let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
    let rows = rows(&experiment, Profile::Quick, &["strowger"]);
    let (html, markdown) = with_report(&experiment, &rows, |report| (report.html(), report.markdown()));
    let unjudged = experiment.gates.iter().filter(|gate| gate.against.as_deref() == Some("kamailio")).count();
    let title = format!("{unjudged} gates were not judged");
    let (_, folded) = html.split_once(&format!("<details><summary>{title}</summary>")).expect("they are folded");
    assert!(folded.contains("not judged: this run has no trial of kamailio with scenario=relay"), "{folded}");
    assert!(markdown.contains(&format!("- ? {title}\n")) && !markdown.contains("no trial of kamailio"), "{markdown}");
}

#[test]
fn data_are_complete() {
    let (experiment, rows) = relay();
    let (json, csv) = with_report(&experiment, &rows, |report| (report.json(), report.csv()));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((json["format"].as_u64(), json["experiment"].as_str()), (Some(1), Some("relay")));
    let read: Vec<Row> = serde_json::from_value(json["rows"].clone()).expect("rows are rows");
    let names = |rows: &[Row]| rows.iter().map(|row| (row.cell().to_string(), row.repetition)).collect::<Vec<_>>();
    assert_eq!(names(&read), names(&rows));
    assert_eq!(json["gates"].as_array().map(Vec::len), Some(6));
    let lines: Vec<&str> = csv.lines().collect();
    let figures: usize = rows.iter().map(|row| row.figures.iter().count()).sum();
    assert_eq!(lines.len(), figures + 1);
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    assert!(lines.iter().any(|line| {
        line.starts_with("relay,strowger,1.0,quick,relay,1000,calls/s,false,1,true,,server.cpu.call,60,us")
    }));
    assert!(csv.contains(",false,stolen,"));
}

#[test]
fn a_report_is_saved_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        let rows = rows(&experiment, Profile::Smoke, &[]);
        let paths = with_report(&experiment, &rows, |report| report.save(folder.path())).expect("it can be written");
        let names: Vec<_> = paths.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, FILES);
        let html = std::fs::read_to_string(&paths[0]).expect("it is there");
        assert!(html.ends_with("</html>\n"), "{name}");
    }
    let missing = folder.path().join("none");
    let (experiment, rows) = relay();
    let error = with_report(&experiment, &rows, |report| report.save(&missing)).expect_err("there is no folder");
    assert!(error.to_string().contains("report.html"), "{error}");
}

#[test]
fn names_of_users_cannot_break_a_report() {
    let text = "title = \"<script>\"\n[call]\ndocument = \"call\"\n[load]\nvalues = [1, 2]\n[[axis]]\nname = \"a\"\n\
        values = [\"</script>\", \"b, \\\"c\\\"\", \"=1+1\"]\n[[system]]\nname = \"strowger\"\nconfiguration = \"c\"\n\
        [[figure]]\nname = \"?\"\ntitle = \"<b>\"\nx = \"load\"\ny = [\"srd.p95\"]\nline = \"a\"\n\
        [[figure]]\nname = \"bars\"\ntitle = \"bars\"\nform = \"bars\"\nx = \"load\"\ny = [\"srd.p95\", \"srd.p50\"]\n";
    let (experiment, _) = Experiment::read("t.toml", text).expect("it is right");
    let rows = rows(&experiment, Profile::Smoke, &[]);
    with_report(&experiment, &rows, |report| {
        let html = report.html();
        assert!(!html.contains("<b>") && !html.contains("\"</script>\""), "{html}");
        assert!(report.csv().contains("\"b, \"\"c\"\"\"") && report.csv().contains("'=1+1"));
    });
}
