//! Runs worlds until one fails, and checks the totals of all worlds: `worlds COUNT [SEED ...]` runs the worlds of these seeds, and then the others of
//! COUNT seeds from `STROWGER_SIM_FIRST` (default 0) on. A COUNT of 0 checks no totals. One world in eight runs twice, and both runs must be equal.
//! Each seed also makes a world of billing and one of bridged calls. Prints the first failure and exits with 1, or exits with 0. With
//! `STROWGER_SIM_ALL` the program continues after a failure, and prints each failure.

use std::process::ExitCode;
use strowger_sim::laws::Weather;
use strowger_sim::{billing, bridged, scene};

fn main() -> ExitCode {
    let numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let numbers = numbers.collect::<Result<Vec<_>, _>>().unwrap_or_default();
    let first = std::env::var("STROWGER_SIM_FIRST").map_or(Ok(0), |text| text.parse::<u64>());
    let (Some((&count, named)), Ok(first)) = (numbers.split_first(), first) else {
        eprintln!("usage: worlds COUNT [SEED ...], with a number in STROWGER_SIM_FIRST or without it");
        return ExitCode::from(2);
    };
    let goes_on = std::env::var_os("STROWGER_SIM_ALL").is_some();
    if !goes_on {
        std::panic::set_hook(Box::new(|_| ()));
    }
    let (mut whole, mut failed) = (Weather::default(), 0);
    let others = (first..first + count).filter(|seed| !named.contains(seed));
    for seed in named.iter().copied().chain(others) {
        let run = if seed % 8 == 0 { scene::run_twice } else { scene::run };
        let of_scene = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| Err("panic".to_owned()));
        let of_billing = std::panic::catch_unwind(|| billing::run(seed)).unwrap_or_else(|_| Err("panic".to_owned()));
        let of_bridge = std::panic::catch_unwind(|| bridged::run(seed)).unwrap_or_else(|_| Err("panic".to_owned()));
        let problems = [
            of_scene.map(|weather| whole += weather).err().map(|problem| (problem, scene::replay(seed))),
            of_billing.err().map(|problem| (problem, billing::replay(seed))),
            of_bridge.err().map(|problem| (problem, bridged::replay(seed))),
        ];
        for (problem, replay) in problems.into_iter().flatten() {
            println!("seed {seed}: {}\n{replay}", problem.lines().next().unwrap_or_default());
            failed += 1;
            if !goes_on {
                return ExitCode::FAILURE;
            }
        }
    }
    if count > 0
        && let Err(problem) = whole.check()
    {
        println!("{count} worlds: {problem}");
        return ExitCode::FAILURE;
    }
    if failed > 0 {
        println!("{failed} worlds failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
