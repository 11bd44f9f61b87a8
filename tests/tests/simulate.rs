//! Seeded simulation of user agents, proxies and a registrar: `STROWGER_SIM_SEEDS` worlds (default 10,000) from seed
//! `STROWGER_SIM_FIRST` (default 0) on, or the one world `STROWGER_SIM_SEED` with everything that was sent.

use strowger_sim::scene::{self, Weather};

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
    let seeds = number("STROWGER_SIM_SEEDS").unwrap_or(10_000);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let results: Vec<(Weather, Vec<String>)> = std::thread::scope(|scope| {
        let run = |worker: u64| {
            move || {
                let (mut whole, mut failures) = (Weather::default(), Vec::new());
                for seed in (first..first + seeds).filter(|seed| seed % workers == worker) {
                    match std::panic::catch_unwind(|| scene::run(seed)) {
                        Ok(Ok(tally)) => whole += tally,
                        Ok(Err(e)) => failures.push(format!("STROWGER_SIM_SEED={seed}: {e}")),
                        Err(_) => failures.push(format!("STROWGER_SIM_SEED={seed}: panic")),
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
    if seeds < 100 {
        return;
    }
    assert_eq!(whole.check(), Ok(()));
}

#[test]
fn a_seed_replays() {
    let (first, second) = (scene::trace(17), scene::trace(17));
    assert!(!first.1.is_empty());
    assert_eq!(first.1, second.1);
}
