//! Seeded simulation of user agents and servers: `STROWGER_SIM_SEEDS` worlds (400, and 5,000 with `STROWGER_WHOLE=1`) from seed
//! `STROWGER_SIM_FIRST` (default 0) on, or the one world `STROWGER_SIM_SEED` with a trace of its messages;
//! `STROWGER_SIM_BILLED` worlds in which calls cost money (150, or 3,000); `STROWGER_SIM_BRIDGED` worlds in which calls
//! and their media are bridged (400, or 3,000); and a day of `STROWGER_SIM_PHONES` phones
//! (100, or 250).

use std::ops::AddAssign;
use std::panic::RefUnwindSafe;
use std::process::Command;
use std::time::Instant;
use strowger_sim::billing::{self, Money};
use strowger_sim::bridged::{self, Bridged};
use strowger_sim::day::Day;
use strowger_sim::laws::Weather;
use strowger_sim::scene;
use strowger_tests::amount;

/// Number of worlds in which everything happens that they are for.
const ENOUGH: u64 = 400;

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
    let seeds = amount("STROWGER_SIM_SEEDS", 5_000, ENOUGH);
    // One world in eight runs twice, and both runs must be equal.
    let run = |seed: u64| if seed.is_multiple_of(8) { scene::run_twice(seed) } else { scene::run(seed) };
    let (whole, failures): (Weather, _) = run_all(seeds, run, scene::replay);
    println!("{seeds} seeds: {whole:?}");
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {seeds} seeds failed:\n{}", failures.len(), shown.join("\n\n"));
    if seeds < ENOUGH {
        return;
    }
    assert_eq!(whole.check(), Ok(()));
}

/// Runs worlds on all processors. Returns their sum and the failures.
fn run_all<T: Default + Send + AddAssign>(
    seeds: u64,
    run: impl Fn(u64) -> Result<T, String> + Sync + RefUnwindSafe,
    replay: impl Fn(u64) -> String + Sync,
) -> (T, Vec<String>) {
    let first = number("STROWGER_SIM_FIRST").unwrap_or(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let work = |worker: u64| {
        let (mut whole, mut failures) = (T::default(), Vec::new());
        for seed in (first..first + seeds).filter(|seed| seed % workers == worker) {
            match std::panic::catch_unwind(|| run(seed)) {
                Ok(Ok(one)) => whole += one,
                Ok(Err(problem)) => failures.push(format!("{}\n{problem}", replay(seed))),
                Err(_) => failures.push(format!("{}\npanic", replay(seed))),
            }
        }
        (whole, failures)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("failures are caught"));
        results.fold((T::default(), Vec::new()), |(mut whole, mut failures), (more, failed)| {
            whole += more;
            failures.extend(failed);
            (whole, failures)
        })
    })
}

/// Each call is counted and recorded from its answer to its end, for any behaviour of its parties.
#[test]
fn every_call_is_paid_for() {
    if let Some(seed) = number("STROWGER_SIM_SEED") {
        let (result, trace) = billing::trace(seed);
        trace.iter().for_each(|message| println!("{message}"));
        match result {
            Ok(money) => println!("seed {seed}: {money:?}"),
            Err(e) => panic!("seed {seed}: {e}"),
        }
        return;
    }
    let (seeds, begun) = (amount("STROWGER_SIM_BILLED", 3_000, 150), Instant::now());
    let (money, failures): (Money, _) = run_all(seeds, billing::run, billing::replay);
    println!("{seeds} worlds took {:.1} s: {money:?}", begun.elapsed().as_secs_f64());
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {seeds} seeds failed:\n{}", failures.len(), shown.join("\n\n"));
    assert_eq!(money.check(seeds), Ok(()));
}

/// Bridged calls with their media: both legs end together, nothing is left, and no side sees or hears what it may not.
#[test]
fn every_bridged_call_ends_on_both_sides() {
    if let Some(seed) = number("STROWGER_SIM_SEED") {
        let (result, trace) = bridged::trace(seed);
        trace.iter().for_each(|message| println!("{message}"));
        match result {
            Ok(totals) => println!("seed {seed}: {totals:?}"),
            Err(e) => panic!("seed {seed}: {e}"),
        }
        return;
    }
    let (seeds, begun) = (amount("STROWGER_SIM_BRIDGED", 3_000, 400), Instant::now());
    let (totals, failures): (Bridged, _) = run_all(seeds, bridged::run, bridged::replay);
    println!("{seeds} worlds took {:.1} s: {totals:?}", begun.elapsed().as_secs_f64());
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {seeds} seeds failed:\n{}", failures.len(), shown.join("\n\n"));
    assert_eq!(totals.check(seeds), Ok(()));
}

/// Describes the failure of a seed: the replay command, and the violated condition.
fn failure(seed: u64, problem: &str) -> String {
    format!("{}\n{problem}", scene::replay(seed))
}

#[test]
fn a_seed_replays() {
    for seed in 0..amount("STROWGER_SIM_REPLAYED", 100, 30) {
        assert_eq!(scene::run_twice(seed).err().as_deref(), None, "{}", scene::replay(seed));
    }
    let (first, second) = (scene::trace(17), scene::trace(17));
    assert!(!first.1.is_empty());
    assert_eq!(first.1, second.1);
    for seed in 0..amount("STROWGER_SIM_REPLAYED", 100, 30) / 5 {
        assert_eq!(billing::trace(seed).1, billing::trace(seed).1, "{}", billing::replay(seed));
        assert_eq!(bridged::trace(seed).1, bridged::trace(seed).1, "{}", bridged::replay(seed));
    }
}

/// The command printed for a failed seed prints all messages of its world.
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
    let day = Day { phones: amount("STROWGER_SIM_PHONES", 250, 100) as u32, hours: 24, calls: 10 };
    let begun = Instant::now();
    let result = day.run(1);
    println!("{day:?} took {:.1} s: {result:?}", begun.elapsed().as_secs_f64());
    if let Err(problem) = result {
        panic!("{problem}");
    }
}
