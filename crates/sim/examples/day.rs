//! Simulates a day of phones: `day [PHONES [HOURS [CALLS [SEED]]]]`, by default with 1,000 phones and 24 hours. Prints
//! the result and the duration of the run.

use std::process::ExitCode;
use std::time::Instant;
use strowger_sim::day::Day;

fn main() -> ExitCode {
    let number = |n, default| std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let day = Day { phones: number(1, 1_000) as u32, hours: number(2, 24), calls: number(3, 10) as u32 };
    let begun = Instant::now();
    let result = day.run(number(4, 1));
    println!("{day:?} took {:.1} s: {result:?}", begun.elapsed().as_secs_f64());
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
