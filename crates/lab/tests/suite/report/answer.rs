//! The sentence at the top of a report.

use super::recorded::{rows, with_report};
use strowger_lab::experiment::Experiment;
use strowger_lab::finder::{Finding, Part};
use strowger_lab::row::{Check, Profile, Reason, Row, Validity};
use strowger_report::Tone;

fn answer(experiment: &Experiment, rows: &[Row]) -> (Tone, String) {
    with_report(experiment, rows, |report| (report.answer().tone, report.answer().sentence.clone()))
}

fn shipped(name: &str, profile: Profile, systems: &[&str]) -> (Experiment, Vec<Row>) {
    let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
    let rows = rows(&experiment, profile, systems);
    (experiment, rows)
}

#[test]
fn two_systems_are_compared() {
    let (experiment, rows) = shipped("relay", Profile::Quick, &[]);
    let (tone, sentence) = answer(&experiment, &rows);
    assert_eq!(
        sentence,
        "CPU of the server for a call: strowger 61 µs to 73 µs; kamailio 303 µs to 364 µs, of which strowger has 0.20; all 6 gates are met."
    );
    assert_eq!(tone, Tone::Good);
    let (experiment, rows) = shipped("relay", Profile::Quick, &["strowger"]);
    let (tone, sentence) = answer(&experiment, &rows);
    assert_eq!(
        (tone, sentence.as_str()),
        (Tone::Good, "CPU of the server for a call: strowger 61 µs to 73 µs; all 3 gates are met.")
    );
}

/// Checks that an echo is named, and that nothing is compared with it.
#[test]
fn an_echo_is_no_rival() {
    let (experiment, rows) = shipped("connections-idle", Profile::Quick, &["echo", "strowger", "kamailio"]);
    let (_, sentence) = answer(&experiment, &rows);
    let parts: Vec<&str> = sentence.split("; ").collect();
    assert!(parts[0].starts_with("Memory of the server for an entry, call or connection: strowger "), "{sentence}");
    assert!(parts[1].starts_with("kamailio ") && parts[1].contains(", of which strowger has 0.20"), "{sentence}");
    assert!(parts[2].starts_with("echo ") && !parts[2].contains("of which"), "{sentence}");
}

#[test]
fn limits_are_named_with_their_causes() {
    let (experiment, mut rows) = shipped("proxy", Profile::Quick, &["kamailio"]);
    let (_, sentence) = answer(&experiment, &rows);
    assert_eq!(
        sentence,
        "kamailio carries 2,000 calls/s (workers=4, limit of the server), 2,000 calls/s (workers=16, limit of the server)."
    );
    let of_16 = |row: &&mut Row| row.axes.get("workers").is_some_and(|value| value.to_string() == "16");
    for (finding, part) in [
        (Finding::AtLeast, ", at least 2,000 calls/s (workers=16)."),
        (Finding::Nothing, ", not the lowest load (workers=16, limit of the server)."),
        (Finding::Unstable, ", 2,000 calls/s for a while (workers=16, limit of the server)."),
    ] {
        rows.iter_mut().filter(of_16).filter_map(|row| row.limit.as_mut()).for_each(|limit| limit.finding = finding);
        let (_, sentence) = answer(&experiment, &rows);
        assert!(sentence.ends_with(part), "{sentence}");
    }
    rows.retain(|row| row.axes.get("workers").is_none_or(|value| value.to_string() == "4"));
    let (_, sentence) = answer(&experiment, &rows);
    assert_eq!(
        sentence,
        "kamailio carries 2,000 calls/s; beyond, srd.p95 misses its bound (server: its thread shard-0 used 98 % of a core)."
    );
    for (finding, part) in [
        (Finding::AtLeast, "carries at least 2,000 calls/s"),
        (Finding::Nothing, "does not carry the lowest load"),
        (Finding::Unstable, "for a while"),
    ] {
        rows.iter_mut().filter_map(|row| row.limit.as_mut()).for_each(|limit| limit.finding = finding);
        let (_, sentence) = answer(&experiment, &rows);
        assert!(sentence.contains(part), "{sentence}");
    }
    // Without a search the answer is of the first figure.
    let (experiment, rows) = shipped("proxy", Profile::Smoke, &["kamailio"]);
    assert!(answer(&experiment, &rows).1.starts_with("CPU of the server, of all cores: kamailio "));
}

/// Checks that each part of a report describes the limit as a lower bound if the search carried the highest load of its
/// experiment.
#[test]
fn the_highest_offered_load_is_a_lower_bound() {
    let (experiment, mut rows) = shipped("rfc7502", Profile::Standard, &["strowger"]);
    for row in rows.iter_mut().filter(|row| row.axes.get("test").is_some_and(|value| value.to_string() != "session")) {
        if let Some(limit) = &mut row.limit {
            (limit.finding, limit.part) = (Finding::AtLeast, Part::Unknown);
        }
    }
    let (_, sentence) = answer(&experiment, &rows);
    assert_eq!(
        sentence,
        "strowger carries 10,000 calls/s (test=session, limit of the server), at least 10,000 registrations/s (test=registration), \
         at least 10,000 registrations/s (test=re-registration)."
    );
    let markdown = with_report(&experiment, &rows, |report| report.markdown());
    for part in [
        "| Session Establishment Rate, \"R\" | 10,000 /s |",
        "| Registration Rate | at least 10,000 /s |",
        "| no load was too high |",
        "At least, since no load was too high: strowger, registration rate (6.7); strowger, re-registration rate (6.8).",
    ] {
        assert!(markdown.contains(part), "{part}\n{markdown}");
    }
}

#[test]
fn a_run_says_what_it_lacks() {
    let (experiment, mut rows) = shipped("stress", Profile::Quick, &[]);
    let (tone, sentence) = answer(&experiment, &rows);
    assert!(tone == Tone::Bad && sentence.contains(" missed"), "{sentence}");
    for row in &mut rows {
        row.validity = Validity::of(vec![Reason { check: Check::Rate, sentence: "the rate was missed".into() }]);
    }
    assert_eq!(answer(&experiment, &rows), (Tone::Bad, "Nothing can be said: the run has no valid trial.".into()));
    assert_eq!(answer(&experiment, &[]).0, Tone::Bad);
}
