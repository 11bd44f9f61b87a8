//! Runs worlds until one fails, and judges all of them together: `worlds SEEDS [FIRST]`, from seed FIRST (0) on. One in eight runs twice,
//! and must be the same both times. Prints what failed and ends with 1, or ends with 0 if all hold. With `STROWGER_SIM_ALL` it goes on after
//! a failure, and prints each.

use std::process::ExitCode;
use strowger_sim::laws::Weather;
use strowger_sim::scene;

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
        let problem = match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(weather)) => {
                whole += weather;
                continue;
            }
            Ok(Err(problem)) => problem,
            Err(_) => "panic".to_owned(),
        };
        println!("seed {seed}: {}\n{}", problem.lines().next().unwrap_or_default(), scene::replay(seed));
        failed += 1;
        if !goes_on {
            return ExitCode::FAILURE;
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
