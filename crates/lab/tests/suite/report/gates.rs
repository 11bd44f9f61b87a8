//! Verdicts of gates.

use super::recorded::rows;
use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::Experiment;
use strowger_lab::formula::overload::ideal_goodput;
use strowger_lab::report::{GateVerdict, gates};
use strowger_lab::row::{Check, Profile, Reason, Row, Validity};

fn stress(profile: Profile, systems: &[&str]) -> (Experiment, Vec<Row>) {
    let (experiment, _) = Experiment::shipped("stress").expect("it is shipped");
    let rows = rows(&experiment, profile, systems);
    (experiment, rows)
}

fn verdict<'v>(verdicts: &'v [GateVerdict], start: &str) -> &'v GateVerdict {
    let found = verdicts.iter().find(|verdict| verdict.gate.starts_with(start));
    found.unwrap_or_else(|| panic!("{start} is not among {verdicts:?}"))
}

#[test]
fn a_gate_is_a_ratio_of_one_run() {
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

/// Checks that a share above 100 % has no more digits than other shares.
#[test]
fn a_gate_shows_shares_above_the_whole() {
    let (experiment, _) = Experiment::shipped("stack").expect("it is shipped");
    let mut rows = rows(&experiment, Profile::Quick, &["strowger"]);
    rows.iter_mut().for_each(|row| set(row, "echo.ratio", 127.523_9));
    let verdicts = gates(&experiment, &rows);
    let of = verdict(&verdicts, "echo.ratio of strowger work=call at most 160.00 %, aim 130.00 %");
    assert_eq!(of.sentence, "127.52 %: met, and the aim");
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

/// Judges an experiment of two systems, one of them optional, with these gates. `change` may change each row of its profile
/// quick.
fn judged(gates_of: &str, systems: &[&str], change: impl Fn(&mut Row)) -> Vec<GateVerdict> {
    let text = format!(
        "title = \"t\"\n[call]\ndocument = \"call\"\n[load]\nvalues = [1000]\n[[axis]]\nname = \"cache\"\nvalues = [\"none\", \"local\"]\n\
         [[system]]\nname = \"strowger\"\nconfiguration = \"c\"\n[[system]]\nname = \"baseline\"\nconfiguration = \"c\"\noptional = true\n\
         {gates_of}"
    );
    let (experiment, _) = Experiment::read("t.toml", &text).unwrap_or_else(|report| panic!("{report}"));
    let mut rows = rows(&experiment, Profile::Quick, systems);
    rows.iter_mut().for_each(change);
    gates(&experiment, &rows)
}

fn set(row: &mut Row, figure: &str, value: f64) {
    row.figures.set(figure, value).expect("a known figure");
}

#[test]
fn a_ratio_is_of_the_trials_of_one_repetition() {
    let gate = "[[gate]]\nfigure = \"server.cpu.call\"\nagainst = \"baseline\"\nat_most = 1.03\n";
    // The machine becomes slower from repetition to repetition, and the last trial of the other build is not valid.
    let drift = |row: &mut Row| {
        let is_baseline = row.system.name == "baseline";
        let cost = 10.0 * f64::from(row.repetition) * if is_baseline { 1.0 } else { 1.02 };
        set(row, "server.cpu.call", cost);
        if is_baseline && row.repetition == 3 {
            row.validity = Validity::of(vec![Reason { check: Check::Ends, sentence: "both ends differ".into() }]);
        }
    };
    let verdicts = judged(gate, &["strowger", "baseline"], drift);
    // The medians of three and of two trials are 20.4 and 15.
    assert!(verdicts[0].value.is_some_and(|value| (value - 1.02).abs() < 1e-9), "{verdicts:?}");
    assert_eq!(verdicts[0].is_met, Some(true));
    assert!(judged(gate, &["strowger"], drift).is_empty(), "a run without the optional system has no such gate");
    let judged = |repetitions: u32| {
        let verdicts = judged(&format!("{gate}repetitions = {repetitions}\n"), &["strowger", "baseline"], drift);
        (verdicts[0].is_met, verdicts[0].sentence.clone())
    };
    assert_eq!(judged(2).0, Some(true));
    assert_eq!(judged(3), (None, "not judged: it needs 3 valid repetitions, and the run has 2".into()));
}

#[test]
fn a_gate_bounds_a_difference() {
    let gate = "[[gate]]\nfigure = \"srd.p50\"\nwhere = { cache = \"local\" }\nagainst_where = { cache = \"none\" }\nadds_at_most = 20\n";
    for (more, is_met) in [(20.0, true), (21.0, false), (-5.0, true)] {
        let verdicts = judged(gate, &["strowger"], |row| {
            let is_local = row.axes.values().any(|value| value.to_string() == "local");
            set(row, "srd.p50", 300.0 + if is_local { more } else { 0.0 });
        });
        assert_eq!((verdicts[0].value, verdicts[0].is_met), (Some(more), Some(is_met)));
        assert_eq!(verdicts[0].gate, "srd.p50 of strowger cache=local beside strowger cache=none adds at most 20 µs");
    }
}

#[test]
fn a_gate_may_be_met_by_a_ratio_instead() {
    let gate = "[[gate]]\nfigure = \"srd.p99\"\nat_most = 3000\nor_over = { system = \"baseline\", at_most = 1.5 }\n";
    let judged = |own: f64, systems: &[&str]| {
        let mut verdicts = judged(gate, systems, |row| {
            set(row, "srd.p99", if row.system.name == "baseline" { 4_000.0 } else { own });
        });
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        verdicts.remove(0)
    };
    for (own, is_met) in [(3_000.0, true), (5_900.0, true), (7_000.0, false)] {
        let verdict = judged(own, &["strowger", "baseline"]);
        assert_eq!((verdict.value, verdict.is_met), (Some(own), Some(is_met)), "{verdict:?}");
    }
    let verdict = judged(5_900.0, &["strowger"]);
    assert_eq!(verdict.is_met, Some(false), "nothing else was measured: {verdict:?}");
    let words = "srd.p99 of strowger at most 3.00 ms, or srd.p99 of strowger over baseline at most 1.500";
    assert_eq!(verdict.gate, words);
}

#[test]
fn a_gate_of_each_trial_sees_the_one_that_the_median_hides() {
    let lost = |row: &mut Row| set(row, "failed", if row.repetition == 3 { 1.0 } else { 0.0 });
    let gate = "[[gate]]\nfigure = \"failed\"\nat_most = 0\n";
    assert_eq!(judged(gate, &["strowger"], lost)[0].is_met, Some(true));
    let verdicts = judged(&format!("{gate}each = true\n"), &["strowger"], lost);
    assert_eq!((verdicts[0].value, verdicts[0].is_met), (Some(1.0), Some(false)));
    assert!(verdicts[0].gate.ends_with("in each trial"), "{verdicts:?}");
}

#[test]
fn a_floor_of_another_load_judges_nothing() {
    let gate = "[[gate]]\nfigure = \"server.cpu.call\"\nagainst = \"floor\"\nat_most = 1.6\n";
    assert_eq!(judged(gate, &["strowger"], |_| {})[0].is_met, Some(true));
    let verdicts = judged(gate, &["strowger"], |row| {
        if row.system.name == FLOOR {
            row.load.value = 2_500.0;
        }
    });
    assert!(verdicts[0].is_met.is_none() && verdicts[0].sentence.contains("at an equal load"), "{verdicts:?}");
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

/// Judges a server that reaches a share of the ideal goodput, whose refusals have a cost, and whose memory grows under overload.
#[test]
fn overload_is_judged_by_the_ideal_goodput_of_its_run() {
    let (experiment, _) = Experiment::shipped("overload").expect("it is shipped");
    for (share, cost, memory, are_met) in [
        (0.95, 0.03, 1.2, [Some(true), Some(true), Some(true)]),
        (0.85, 0.06, 1.4, [Some(true), Some(true), Some(false)]),
        (0.7, 0.1, 1.0, [Some(false), Some(false), Some(true)]),
    ] {
        let mut rows = rows(&experiment, Profile::Quick, &["strowger"]);
        for row in &mut rows {
            let Some(n) = experiment.multiple(&row.axes) else { continue };
            let reached = if n > 1.0 { share } else { 1.0 };
            let accepted = ideal_goodput(n, cost).expect("refusals are cheap") * reached / n;
            let load = row.load.value;
            set(row, "rate.achieved", load);
            set(row, "goodput", accepted * load);
            set(row, "server.cpu.call", 50.0 * (accepted + (1.0 - accepted) * cost));
            set(row, "server.pss", if n > 1.0 { memory * 20e6 } else { 20e6 });
        }
        let verdicts = gates(&experiment, &rows);
        let of = [
            "goodput.ratio of strowger n=5 at least 80.00 %, aim 90.00 %",
            "refusal.cost of strowger n=10 transport=udp at most 8.00 %, aim 4.00 %",
            "server.pss of strowger n=10 over strowger n=1 at most 1.300",
        ]
        .map(|start| verdict(&verdicts, start));
        assert_eq!(of.map(|verdict| verdict.is_met), are_met, "{of:?}");
        let near = |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value - wanted).abs() < 0.1);
        assert!(near(of[0].value, share * 100.0) && near(of[1].value, cost * 100.0), "{of:?}");
        assert_eq!([of[0], of[1]].map(|verdict| verdict.is_aim_met), [Some(share > 0.9), Some(cost < 0.04)]);
        // The profile has no trial by TCP.
        assert_eq!(verdict(&verdicts, "goodput.share of strowger transport=udp beside").is_met, None);
    }
}

/// Compares transports at equal multiples of their limits, though the loads differ.
#[test]
fn transports_are_compared_at_equal_multiples() {
    let (experiment, _) = Experiment::shipped("overload").expect("it is shipped");
    let mut rows = rows(&experiment, Profile::Standard, &["strowger"]);
    for row in &mut rows {
        let Some(n) = experiment.multiple(&row.axes) else { continue };
        let (share, slower) = match row.axes["transport"].to_string().as_str() {
            "udp" => (0.9, 1.0),
            "tcp-persistent" => (0.86, 0.5),
            _ => (0.75, 0.25),
        };
        row.load.value *= slower;
        let goodput = share * row.load.value / n;
        set(row, "goodput", goodput);
    }
    let verdicts = gates(&experiment, &rows);
    for (transport, is_met, is_aim_met) in [("tcp-persistent", true, true), ("tcp-transaction", false, false)] {
        let start =
            format!("goodput.share of strowger transport=udp beside strowger transport={transport} adds at most");
        let of = verdict(&verdicts, &start);
        assert_eq!((of.is_met, of.is_aim_met), (Some(is_met), Some(is_aim_met)), "{of:?}");
    }
}
