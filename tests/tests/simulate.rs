//! Seeded simulation of user agents and servers: `STROWGER_SIM_SEEDS` worlds (default 5,000) from seed `STROWGER_SIM_FIRST` (default 0) on, or
//! the one world `STROWGER_SIM_SEED` with everything that was sent; and a day of `STROWGER_SIM_PHONES` phones (default 250).

use std::process::Command;
use std::time::Instant;
use strowger_sim::day::Day;
use strowger_sim::laws::Weather;
use strowger_sim::scene;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn every_call_ends_as_it_must_and_nothing_is_left() {
    if let Some(seed) = number("STROWGER_SIM_SEED") {
        let (result, trace) = scene::trace(seed);
        for message in trace {
            println!("{message}");
        }
        match result {
            Ok(tally) => println!("seed {seed}: {tally:?}"),
            Err(e) => panic!("seed {seed}: {e}"),
        }
        return;
    }
    let first = number("STROWGER_SIM_FIRST").unwrap_or(0);
    let seeds = number("STROWGER_SIM_SEEDS").unwrap_or(5_000);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let results: Vec<(Weather, Vec<String>)> = std::thread::scope(|scope| {
        let run = |worker: u64| {
            move || {
                let (mut whole, mut failures) = (Weather::default(), Vec::new());
                for seed in (first..first + seeds).filter(|seed| seed % workers == worker) {
                    match std::panic::catch_unwind(|| scene::run(seed)) {
                        Ok(Ok(tally)) => whole += tally,
                        Ok(Err(e)) => failures.push(failure(seed, &e)),
                        Err(_) => failures.push(failure(seed, "panic")),
                    }
                }
                (whole, failures)
            }
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(run(worker))).collect();
        threads.into_iter().map(|thread| thread.join().expect("failures are caught")).collect()
    });
    let mut whole = Weather::default();
    let mut failures = Vec::new();
    for (tally, failed) in results {
        whole += tally;
        failures.extend(failed);
    }
    println!("{seeds} seeds: {whole:?}");
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {seeds} seeds failed:\n{}", failures.len(), shown.join("\n\n"));
    if seeds < 1_000 {
        return;
    }
    assert_eq!(whole.check(), Ok(()));
}

/// What is said of a seed that failed: how it replays, and what did not hold.
fn failure(seed: u64, problem: &str) -> String {
    format!("{}\n{problem}", scene::replay(seed))
}

#[test]
fn a_seed_replays() {
    for seed in 0..100 {
        assert_eq!(scene::run_twice(seed).err().as_deref(), None, "{}", scene::replay(seed));
    }
    let (first, second) = (scene::trace(17), scene::trace(17));
    assert!(!first.1.is_empty());
    assert_eq!(first.1, second.1);
}

/// The command that is printed for a seed that failed prints all that was sent in its world.
#[test]
fn a_failure_says_how_it_replays() {
    let said = failure(17, "alice: it rings for ever");
    let (command, problem) = said.split_once('\n').expect("two lines");
    assert_eq!(problem, "alice: it rings for ever");
    let (variable, test) = command.split_once(" cargo test ").expect("a variable and a command");
    let (name, seed) = variable.split_once('=').expect("its value");
    let (build, arguments) = test.split_once(" -- ").expect("arguments of this program");
    assert!(build.ends_with("--package strowger-tests --test simulate"), "{build}");
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this).args(arguments.split_whitespace()).env(name, seed).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for message in scene::trace(17).1 {
        assert!(text.contains(&message), "{message}\nis not in\n{text}");
    }
}

#[test]
fn a_day_of_many_phones() {
    let day = Day { phones: number("STROWGER_SIM_PHONES").unwrap_or(250) as u32, hours: 24, calls: 10 };
    let begun = Instant::now();
    let result = day.run(1);
    println!("{day:?} took {:.1} s: {result:?}", begun.elapsed().as_secs_f64());
    if let Err(problem) = result {
        panic!("{problem}");
    }
}
