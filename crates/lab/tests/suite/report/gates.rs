//! Verdicts of gates.

use super::recorded::rows;
use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::Experiment;
use strowger_lab::report::{Verdict, gates};
use strowger_lab::row::{Check, Profile, Reason, Row, Validity};

fn stress(profile: Profile, systems: &[&str]) -> (Experiment, Vec<Row>) {
    let (experiment, _) = Experiment::shipped("stress").expect("it is shipped");
    let rows = rows(&experiment, profile, systems);
    (experiment, rows)
}

fn verdict<'v>(verdicts: &'v [Verdict], start: &str) -> &'v Verdict {
    let found = verdicts.iter().find(|verdict| verdict.gate.starts_with(start));
    found.unwrap_or_else(|| panic!("{start} is not among {verdicts:?}"))
}

#[test]
fn a_gate_is_a_ratio_of_medians_of_one_run() {
    let (experiment, rows) = stress(Profile::Quick, &[]);
    let verdicts = gates(&experiment, &rows);
    assert_eq!(verdicts.len(), experiment.gates.len());
    // 60 over 300 us; the bound is 0.22 and the aim 0.18.
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=A over kamailio letter=A at most 0.220, aim 0.180");
    assert_eq!((of.value, of.is_met, of.is_aim_met), (Some(0.2), Some(true), Some(false)));
    assert_eq!(of.sentence, "0.200: met");
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=B over kamailio");
    assert_eq!((of.is_met, of.sentence.as_str()), (Some(false), "0.200: missed"));
    // 60 over 50 us of the floor.
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=A over the floor");
    assert!(of.is_met == Some(true) && of.value.is_some_and(|value| (value - 60.0 / 50.75).abs() < 0.01), "{of:?}");
    // One value of an axis over another: 1.2 over 1.1.
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=C over strowger letter=B");
    assert!(of.is_met == Some(true) && of.value.is_some_and(|value| (value - 1.2 / 1.1).abs() < 1e-9), "{of:?}");
    let sum = verdict(&verdicts, "server.cpu.call + database.cpu.call of strowger letter=F");
    assert!(sum.is_met == Some(true) && sum.value.is_some_and(|value| (value - 0.2).abs() < 1e-9), "{sum:?}");
}

#[test]
fn a_gate_without_valid_trials_is_not_judged() {
    let (experiment, all) = stress(Profile::Quick, &["strowger"]);
    let verdicts = gates(&experiment, &all);
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=A over kamailio");
    assert_eq!(
        (of.is_met, of.sentence.as_str()),
        (None, "not judged: this run has no trial of kamailio with letter=A")
    );
    let spoiled: Vec<Row> = all
        .iter()
        .cloned()
        .map(|mut row| {
            if row.system.name != FLOOR {
                row.validity = Validity::of(vec![Reason { check: Check::Ends, sentence: "both ends differ".into() }]);
            }
            row
        })
        .collect();
    let verdicts = gates(&experiment, &spoiled);
    let of = verdict(&verdicts, "server.cpu.call of strowger letter=A over the floor");
    assert!(of.is_met.is_none() && of.sentence.contains("not measured by a valid trial"), "{of:?}");
    let (experiment, rows) = stress(Profile::Smoke, &[]);
    let verdicts = gates(&experiment, &rows);
    assert!(verdicts.iter().all(|verdict| verdict.is_met.is_none()), "smoke judges nothing");
    assert!(
        verdict(&verdicts, "server.cpu.call of strowger letter=A over kamailio").sentence.contains("judges nothing")
    );
}

#[test]
fn of_several_loads_the_furthest_from_the_bound_decides() {
    let text = "title = \"t\"\n[call]\ndocument = \"call\"\n[load]\nvalues = [100, 200]\n[[system]]\nname = \"strowger\"\n\
        configuration = \"c\"\n[[gate]]\nfigure = \"srd.p95\"\nat_most = 2300\n[[gate]]\nfigure = \"rate.achieved\"\nat_least = 150\n";
    let (experiment, _) = Experiment::read("t.toml", text).expect("it is right");
    let verdicts = gates(&experiment, &rows(&experiment, Profile::Quick, &[]));
    // Twice the delay of 1,000 us and one for each call a second.
    assert_eq!((verdicts[0].value, verdicts[0].is_met), (Some(2_400.0), Some(false)));
    assert_eq!(verdicts[0].gate, "srd.p95 of strowger at most 2.30 ms");
    assert_eq!((verdicts[1].value, verdicts[1].is_met), (Some(100.0), Some(false)));
}
