//! Runs worlds until one fails, and checks the totals of all worlds: `worlds SEEDS [FIRST]` runs this number of seeds,
//! from seed FIRST (default 0) on. One world in eight runs twice, and both runs must be equal. Each seed also makes a
//! world of billing and one of bridged calls. Prints the first failure and exits with 1, or exits with 0. With `STROWGER_SIM_ALL` the program
//! continues after a failure, and prints each failure.

use std::process::ExitCode;
use strowger_sim::laws::Weather;
use strowger_sim::{billing, bridged, scene};

fn main() -> ExitCode {
    let number = |n| std::env::args().nth(n).map(|text| text.parse::<u64>());
    let (Some(Ok(seeds)), Some(first)) = (number(1), number(2).unwrap_or(Ok(0)).ok()) else {
        eprintln!("usage: worlds SEEDS [FIRST]");
        return ExitCode::from(2);
    };
    let goes_on = std::env::var_os("STROWGER_SIM_ALL").is_some();
    if !goes_on {
        std::panic::set_hook(Box::new(|_| ()));
    }
    let (mut whole, mut failed) = (Weather::default(), 0);
    for seed in first..first + seeds {
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
    if let Err(problem) = whole.check() {
        println!("{seeds} worlds: {problem}");
        return ExitCode::FAILURE;
    }
    if failed > 0 {
        println!("{failed} of {seeds} worlds failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
