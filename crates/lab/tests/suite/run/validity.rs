//! Checks of a trial: each has a fault that it finds, and values at its bound that it passes.

use std::time::Duration;
use strowger_lab::row::{Check, Figures, Reason};
use strowger_lab::run::{Accounting, Evidence, reasons};

fn sound() -> (Evidence, Figures) {
    let mut figures = Figures::default();
    for (figure, value) in [("machine.stolen", 5.0), ("machine.other", 10.0), ("server.cpu", 40.0)] {
        figures.set(figure, value).expect("a known figure");
    }
    let window = Duration::from_secs(5);
    let sampled = ["machine", "server", "database"].map(|name| (name.to_owned(), Duration::from_millis(4_800)));
    let accounting = Some(Accounting { written: 102, wanted: 100, allowed: 2 });
    (Evidence { window, sampled: sampled.to_vec(), accounting, ..Evidence::default() }, figures)
}

#[test]
fn values_at_the_bounds_are_valid() {
    let (evidence, figures) = sound();
    assert_eq!(reasons(&evidence, &figures), []);
}

/// Checks that a server that an event kills may lack samples until it runs again, and that a longer gap is a fault.
#[test]
fn an_ordered_restart_is_no_fault() {
    let (mut evidence, figures) = sound();
    evidence.sampled[1] = ("the server".into(), Duration::from_millis(3_300));
    evidence.away = Duration::from_millis(1_450);
    assert_eq!(reasons(&evidence, &figures), []);
    evidence.away = Duration::from_millis(1_400);
    let found = reasons(&evidence, &figures);
    assert!(
        found[0].check == Check::Samples && found[0].sentence.contains("the server has samples of 3.3"),
        "{found:?}"
    );
    // The samples of all others are whole.
    evidence.away = Duration::from_secs(5);
    evidence.sampled[0].1 = Duration::from_secs(4);
    assert_eq!(reasons(&evidence, &figures).len(), 1);
    // The server did not start again: that is the fault.
    let (mut evidence, figures) = sound();
    evidence.sampled[1] = ("the server".into(), Duration::from_secs(1));
    evidence.ended = Some("the server did not start again: it has ended".into());
    let found = reasons(&evidence, &figures);
    assert_eq!(found.iter().map(|reason| reason.check).collect::<Vec<_>>(), [Check::Restart], "{found:?}");
}

#[test]
fn only_the_floor_of_media_must_lose_nothing() {
    let (mut evidence, mut figures) = sound();
    figures.set("media.lost", 3.0).expect("a known figure");
    assert_eq!(reasons(&evidence, &figures), [], "the losses of a system are judged by its gate");
    evidence.is_lossless = true;
    figures.set("media.lost", 0.0).expect("a known figure");
    assert_eq!(reasons(&evidence, &figures), []);
}

#[test]
fn each_planted_fault_is_found_by_its_check_alone() {
    type Plant = fn(&mut Evidence, &mut Figures);
    let faults: [(Check, &str, Plant); 14] = [
        (Check::Generator, "late", |evidence, _| {
            evidence.generator.push(Reason { check: Check::Generator, sentence: "it was 20 ms late".into() });
        }),
        (Check::Rate, "98 %", |evidence, _| {
            evidence.generator.push(Reason { check: Check::Rate, sentence: "98 % of the rate".into() });
        }),
        (Check::Ends, "9", |evidence, _| {
            evidence.generator.push(Reason { check: Check::Ends, sentence: "10 calls here, 9 there".into() });
        }),
        (Check::Clock, "by 40 ms", |evidence, _| evidence.clock = Some("north: its clock moved by 40 ms".into())),
        (Check::Restart, "signal: 9", |evidence, _| evidence.ended = Some("strowger ended (signal: 9)".into())),
        (Check::Events, "at 2s", |evidence, _| evidence.late = Some("the trial ended before the event at 2s".into())),
        (Check::Accounting, "99 rows", |evidence, _| {
            evidence.accounting = Some(Accounting { written: 99, wanted: 100, allowed: 2 });
        }),
        (Check::Accounting, "103 rows", |evidence, _| {
            evidence.accounting = Some(Accounting { written: 103, wanted: 100, allowed: 2 });
        }),
        (Check::Samples, "server has samples of 4.7 of 5.0 s", |evidence, _| {
            evidence.sampled[1].1 = Duration::from_millis(4_700);
        }),
        (Check::Samples, "nothing was sampled", |evidence, _| evidence.sampled.clear()),
        (Check::Samples, "no ending", |evidence, _| evidence.log = Some("The log has no ending.".into())),
        (Check::Stolen, "5.1 %", |_, figures| figures.set("machine.stolen", 5.1).expect("a known figure")),
        (Check::Neighbour, "most by rustc", |evidence, figures| {
            evidence.busiest = Some("rustc".into());
            figures.set("machine.other", 11.0).expect("a known figure");
        }),
        (Check::Loss, "lost 3 media packets", |evidence, figures| {
            evidence.is_lossless = true;
            figures.set("media.lost", 3.0).expect("a known figure");
        }),
    ];
    for (check, part, plant) in faults {
        let (mut evidence, mut figures) = sound();
        plant(&mut evidence, &mut figures);
        let found = reasons(&evidence, &figures);
        assert_eq!(found.iter().map(|reason| reason.check).collect::<Vec<_>>(), [check], "{found:?}");
        assert!(found[0].sentence.contains(part), "{found:?}");
    }
    assert!(Check::ALL.iter().all(|check| faults.iter().any(|(known, ..)| known == check)), "each check has a fault");
}
