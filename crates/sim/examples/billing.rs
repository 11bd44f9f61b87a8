//! Runs worlds of billing. `billing SEEDS [FIRST]` runs this number of seeds, from seed FIRST (default 0) on; `billing
//! show SEED` prints every message of one world. The program prints each failure and the totals, and exits with status
//! 1 after a failure.

use std::process::ExitCode;
use std::time::Instant;
use strowger_sim::billing::{self, Money};

fn main() -> ExitCode {
    let argument = |n| std::env::args().nth(n);
    let number = |n| argument(n).and_then(|text| text.parse::<u64>().ok());
    if argument(1).as_deref() == Some("show") {
        let (result, trace) = billing::trace(number(2).unwrap_or(0));
        trace.iter().for_each(|line| println!("{line}"));
        println!("{result:?}");
        return ExitCode::SUCCESS;
    }
    let Some(seeds) = number(1) else {
        eprintln!("usage: billing SEEDS [FIRST] | show SEED");
        return ExitCode::from(2);
    };
    let (first, begun) = (number(2).unwrap_or(0), Instant::now());
    let (mut money, mut failed) = (Money::default(), 0);
    for seed in first..first + seeds {
        match std::panic::catch_unwind(|| billing::run(seed)).unwrap_or_else(|_| Err("panic".to_owned())) {
            Ok(more) => money += more,
            Err(problem) => {
                println!("seed {seed}: {}", problem.lines().next().unwrap_or_default());
                failed += 1;
            }
        }
    }
    println!("{failed} of {seeds} failed, in {:.1} s: {money:?}", begun.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
