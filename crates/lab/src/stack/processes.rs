//! Several processes that measure at the same time, and their figures together.

use crate::Error;
use crate::backend::run;
use crate::row::{Figures, UnknownFigure};
use std::process::Command;

/// Figures that are added up over the processes. Other figures are averaged.
const SUMS: [&str; 3] = ["rate.achieved", "attempts", "failed"];

/// Runs this program with these arguments in several processes at the same time. Each prints its figures.
///
/// # Errors
/// A process does not start, fails, or prints no figures.
pub fn together(words: &[String], processes: usize) -> Result<Figures, Error> {
    let program = std::env::current_exe()
        .map_err(|source| Error::NotStarted { name: "this program, which has no path".into(), source })?;
    let printed: Vec<Result<String, Error>> = std::thread::scope(|scope| {
        let one = || run("a process of the stack", Command::new(&program).args(words));
        let threads: Vec<_> = (0..processes).map(|_| scope.spawn(one)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = Vec::new();
    for printed in printed {
        all.push(crate::run::printed_figures(&printed?)?);
    }
    sum(&all).map_err(|error| Error::Unexpected { what: "the processes".into(), reason: error.to_string() })
}

fn sum(all: &[Figures]) -> Result<Figures, UnknownFigure> {
    let mut together = Figures::default();
    for (name, _) in all.first().map(Figures::iter).into_iter().flatten() {
        let values: Vec<f64> = all.iter().filter_map(|figures| figures.value(name)).collect();
        let sum: f64 = values.iter().sum();
        together.set(name, if SUMS.contains(&name) { sum } else { sum / values.len() as f64 })?;
    }
    Ok(together)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_processes_add_up_and_costs_do_not() {
        let figures = |rate, cost| {
            let mut figures = Figures::default();
            figures.set("rate.achieved", rate).expect("a known figure");
            figures.set("server.cpu.call", cost).expect("a known figure");
            figures
        };
        let both = sum(&[figures(1_000.0, 30.0), figures(1_500.0, 40.0)]).expect("known figures");
        assert_eq!((both.value("rate.achieved"), both.value("server.cpu.call")), (Some(2_500.0), Some(35.0)));
    }
}
