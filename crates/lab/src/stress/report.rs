//! The table of the stress tests.

use super::{Letter, Round};
use crate::statistics::{Interval, median};
use serde::Serialize;
use std::fmt::Write as _;

/// The rate to which loads are scaled: that of the first row of the seed's table.
const SCALE: f64 = 13_000.0;

/// One letter on one system.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub letter: Letter,
    /// Name of the system, with what it was tried with.
    pub system: String,
    /// In the order in which they were made.
    pub rounds: Vec<Round>,
}

impl Row {
    /// Processor time of the server a call, in microseconds. None without rounds.
    pub fn server(&self) -> Option<Interval> {
        Interval::of_median(self.rounds.iter().map(Round::server_cost).collect())
    }

    /// That of the database, the median.
    pub fn database(&self) -> f64 {
        if self.rounds.is_empty() { 0.0 } else { median(self.rounds.iter().map(Round::database_cost).collect()) }
    }

    /// Microseconds of call setup, for half of the calls and for 99 %: the medians of the rounds. None where no call was answered.
    pub fn setup(&self) -> Option<[f64; 2]> {
        let of = |n: usize| {
            let rounds: Vec<_> = self.rounds.iter().filter_map(|round| Some(round.outcome.setup?[n] as f64)).collect();
            (!rounds.is_empty()).then(|| median(rounds))
        };
        Some([of(0)?, of(1)?])
    }

    /// Server and database together, in per cent of a machine with so many cores.
    fn load(&self, cores: usize) -> Option<f64> {
        let rate = f64::from(self.rounds.first()?.rate);
        Some((self.server()?.median + self.database()) * rate / 1e4 / cores as f64)
    }

    /// The same at 13,000 calls a second.
    fn scaled(&self, cores: usize) -> Option<f64> {
        Some(self.load(cores)? * SCALE / f64::from(self.rounds.first()?.rate))
    }

    /// Calls that were lost, rounds in which the generator did not keep up, and rows that are missing or too many.
    fn faults(&self) -> (u64, usize, u64) {
        let lost = self.rounds.iter().map(|round| round.calls.saturating_sub(round.outcome.successful)).sum();
        let invalid = self.rounds.iter().filter(|round| !round.outcome.valid).count();
        let rows =
            self.rounds.iter().filter_map(|round| round.rows).map(|(written, wanted)| written.abs_diff(wanted)).sum();
        (lost, invalid, rows)
    }
}

/// The rows of one system as the seed's table has them: rate, load of the machine, the same scaled to 13,000 calls a second, and
/// by how much that is more than in the row named.
pub fn table(system: &str, rows: &[Row], cores: usize) -> String {
    let mut text = format!(
        "{system}\n{:<3} {:<40} {:>6} {:>9} {:>15} {:>9} {:>7} {:>8} {:>14} {:>9} {:>9} {:>6} {:>8} {:>9}\n",
        "",
        "",
        "calls/s",
        "server µs",
        "95 % interval",
        "database",
        "load",
        "scaled",
        "penalty",
        "setup p50",
        "p99 µs",
        "lost",
        "invalid",
        "rows off"
    );
    let of_system = |letter: Letter| rows.iter().find(|row| row.letter == letter && row.system == system);
    for row in Letter::ALL.into_iter().filter_map(of_system) {
        let (Some(server), Some(load), Some(scaled)) = (row.server(), row.load(cores), row.scaled(cores)) else {
            continue;
        };
        let base = row.letter.base().and_then(|base| Some((base, of_system(base)?.scaled(cores)?)));
        let penalty = base.map_or_else(String::new, |(base, of_base)| {
            format!("{:+.1} % vs {base}", (scaled / of_base - 1.0) * 100.0)
        });
        let (lost, invalid, rows_off) = row.faults();
        let [half, most] = row.setup().map(|setup| setup.map(|us| format!("{us:.0}"))).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<3} {:<40} {:>6} {:>9.1} {:>15} {:>9.1} {:>6.1}% {:>7.1}% {:>14} {:>9} {:>9} {:>6} {:>8} {:>9}",
            row.letter.to_string(),
            row.letter.title(),
            row.rounds.first().map_or(0, |round| round.rate),
            server.median,
            format!("{:.1} to {:.1}", server.low, server.high),
            row.database(),
            load,
            scaled,
            penalty,
            half,
            most,
            lost,
            invalid,
            rows_off
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::Outcome;
    use std::time::Duration;
    use strowger_measure::process::Usage;

    fn row(letter: Letter, server: u64, database: u64) -> Row {
        let usage = |us| Usage { run_time: Duration::from_micros(us * 1_000), ..Usage::default() };
        let setup = Some([300, 1_200]);
        let outcome = Outcome { successful: 999, failed: 1, setup, valid: true, remarks: Vec::new() };
        let round = Round {
            calls: 1_000,
            rate: 500,
            outcome,
            server: usage(server),
            database: usage(database),
            pss: 0,
            rows: letter.accounting().map(|_| (998, 1_000)),
        };
        Row { letter, system: "kamailio".into(), rounds: vec![round; 3] }
    }

    /// 400 µs of the server and 200 of the database, 500 times a second, are 0.3 of one core.
    #[test]
    fn loads_are_scaled_and_compared_as_in_the_seed() {
        let rows = [row(Letter::G, 400, 200), row(Letter::I, 500, 250), row(Letter::A, 100, 0)];
        assert_eq!(rows[0].load(2).map(f64::round), Some(15.0));
        assert_eq!(rows[0].scaled(2).map(f64::round), Some(390.0));
        let text = table("kamailio", &rows, 2);
        assert!(text.contains("+25.0 % vs G"), "{text}");
        assert!(!text.contains("vs F") && text.lines().count() == 5, "{text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("I") && last.ends_with("300      1200      3        0         6"), "{last:?}");
    }
}
