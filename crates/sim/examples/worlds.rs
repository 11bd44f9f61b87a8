//! Runs worlds from seed 0 on until one fails, and judges all of them together: `worlds SEEDS`. Prints what failed and ends with 1, or
//! ends with 0 if all hold.

use std::process::ExitCode;
use strowger_sim::scene::{self, Weather};

fn main() -> ExitCode {
    let Some(seeds) = std::env::args().nth(1).and_then(|seeds| seeds.parse::<u64>().ok()) else {
        eprintln!("usage: worlds SEEDS");
        return ExitCode::from(2);
    };
    std::panic::set_hook(Box::new(|_| ()));
    let mut whole = Weather::default();
    for seed in 0..seeds {
        let problem = match std::panic::catch_unwind(|| scene::run(seed)) {
            Ok(Ok(weather)) => {
                whole += weather;
                continue;
            }
            Ok(Err(problem)) => problem,
            Err(_) => "panic".to_owned(),
        };
        println!("seed {seed}: {}", problem.lines().next().unwrap_or_default());
        return ExitCode::FAILURE;
    }
    if let Err(problem) = whole.check() {
        println!("{seeds} worlds: {problem}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
