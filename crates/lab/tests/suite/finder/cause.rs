//! Causes of limits.

use strowger_lab::finder::{Cause, Part, TrialOutcome, cause};
use strowger_lab::row::{Check, Reason, Validity};

fn outcome(figures: &[(&str, f64)]) -> TrialOutcome {
    let mut outcome = TrialOutcome::default();
    for (figure, value) in figures {
        outcome.figures.set(figure, *value).expect("a known figure");
    }
    outcome
}

fn failing(check: Check, figures: &[(&str, f64)]) -> TrialOutcome {
    let validity = Validity::of(vec![Reason { check, sentence: "it did".into() }]);
    TrialOutcome { validity, ..outcome(figures) }
}

fn of(outcome: &TrialOutcome) -> (Part, Option<String>) {
    let Cause { part, thread, sign } = cause([outcome]);
    assert!(!sign.is_empty());
    (part, thread)
}

/// Everything was sampled, and each part has something left.
const IDLE: [(&str, f64); 5] = [
    ("server.cpu", 20.0),
    ("server.thread/shard-0", 35.0),
    ("generator.thread/shard-0", 40.0),
    ("machine.cpu", 45.0),
    ("failed", 300.0),
];

#[test]
fn the_part_with_nothing_left_is_the_cause() {
    let with = |more: &[(&str, f64)]| outcome(&[&IDLE, more].concat());
    let thread = |part, name: &str| (part, Some(name.to_owned()));
    for (more, wanted) in [
        (&[("server.thread/shard-1", 97.0)][..], thread(Part::Server, "shard-1")),
        (&[("database.thread/mysqld", 99.0), ("server.thread/shard-1", 93.0)], thread(Part::Database, "mysqld")),
        (&[("cache.thread/redis-server", 99.0)], thread(Part::Cache, "redis-server")),
        (&[("generator.thread/shard-0", 96.0)], thread(Part::Generator, "shard-0")),
        // A server on one of two cores uses all of it.
        (&[("server.cpu", 48.0), ("server.cores", 1.0), ("machine.cores", 2.0)], (Part::Server, None)),
        // 32 workers share the cores: none of them is busy, and together they are.
        (&[("server.cpu", 80.0), ("machine.cpu", 97.0)], (Part::Server, None)),
        (&[("database.cpu", 60.0), ("machine.cpu", 97.0)], (Part::Database, None)),
        (&[("cache.cpu", 60.0), ("machine.cpu", 97.0)], (Part::Cache, None)),
        (&[("server.cpu", 30.0), ("machine.cpu", 97.0)], (Part::Machine, None)),
        (&[("server.cpu", 30.0), ("machine.cpu", 97.0), ("server.wait", 40.0)], (Part::Machine, None)),
        // Callers and answering sides of ours use more than other programs do.
        (
            &[
                ("server.cpu", 46.0),
                ("machine.cpu", 97.0),
                ("machine.cores", 2.0),
                ("machine.other", 3.0),
                ("generator.thread/answer-1 shard-0", 45.0),
            ],
            (Part::Generator, None),
        ),
        (
            &[("server.cpu", 46.0), ("machine.cpu", 97.0), ("machine.cores", 2.0), ("machine.other", 45.0)],
            (Part::Machine, None),
        ),
        // Others use the cores, and not those that the server wants.
        (&[("server.cpu", 30.0), ("machine.cpu", 97.0), ("server.wait", 2.0)], (Part::Server, None)),
        // The server says so itself.
        (&[("refused", 280.0), ("database.cpu", 3.0)], (Part::Server, None)),
        (&[("server.drops", 12.0), ("database.cpu", 3.0)], (Part::Server, None)),
        // Everything else has something left.
        (&[], (Part::Server, None)),
        // The server may wait for the database.
        (&[("database.cpu", 3.0)], (Part::Unknown, None)),
        (&[("cache.cpu", 3.0)], (Part::Unknown, None)),
    ] {
        assert_eq!(of(&with(more)), wanted, "{more:?}");
    }
    let shared = [("server.cpu", 46.0), ("machine.cpu", 97.0), ("machine.cores", 2.0), ("machine.other", 3.0)];
    let sentence = cause([&with(&shared)]).to_string();
    // Its thread had 40 % of one of two cores.
    assert_eq!(sentence, "machine: all cores were busy, 31 % with other programs");
    let busy = [&shared[..], &[("generator.thread/shard-1", 50.0)]].concat();
    assert_eq!(cause([&with(&busy)]).to_string(), "generator: all cores were busy, 45 of 97 % with it");
    // A server that was not sampled, behind a network.
    assert_eq!(of(&outcome(&[("generator.thread/shard-0", 40.0), ("machine.cpu", 30.0)])), (Part::Unknown, None));
    let sentence = cause([&with(&[])]).to_string();
    assert_eq!(sentence, "server: the generator had 60 % of a core left, and the machine was not busy");
}

#[test]
fn a_failed_check_of_the_trial_comes_first() {
    let busy = [("server.thread/shard-0", 99.0), ("generator.thread/shard-3", 98.0)];
    assert_eq!(of(&failing(Check::Generator, &busy)), (Part::Generator, Some("shard-3".into())));
    assert_eq!(of(&failing(Check::Rate, &IDLE)), (Part::Generator, None));
    // The server took all cores.
    let crowded = [("server.cpu", 80.0), ("machine.cpu", 97.0), ("generator.thread/shard-0", 15.0)];
    assert_eq!(of(&failing(Check::Generator, &crowded)), (Part::Server, None));
    assert_eq!(of(&failing(Check::Stolen, &busy)), (Part::Machine, None));
    assert_eq!(of(&failing(Check::Neighbour, &busy)), (Part::Machine, None));
    assert_eq!(of(&failing(Check::Accounting, &busy)), (Part::Server, Some("shard-0".into())));
}

#[test]
fn most_trials_decide_and_those_that_show_nothing_do_not() {
    let server = outcome(&[("server.thread/shard-0", 99.0)]);
    let database = outcome(&[("database.thread/mysqld", 99.0)]);
    let nothing = outcome(&[]);
    assert_eq!(cause([&server, &database, &database]).part, Part::Database);
    assert_eq!(cause([&server, &database]).part, Part::Server);
    assert_eq!(cause([&nothing, &nothing, &server]).part, Part::Server);
    assert_eq!(cause([&nothing]).part, Part::Unknown);
    assert_eq!(cause([]).part, Part::Unknown);
}
