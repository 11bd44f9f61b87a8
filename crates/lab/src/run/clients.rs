//! Clients: several generators that share the load of a trial.

use crate::Error;
use crate::generator::{Generator, Made, Trial};
use crate::row::{Figures, Load, UnknownFigure};
use std::path::PathBuf;

/// Figures whose values add up.
const SUMS: [&str; 11] = [
    "attempts",
    "failed",
    "goodput",
    "refused",
    "timeouts",
    "retransmissions",
    "rate.achieved",
    "connect.rate",
    "media.rate",
    "media.lost",
    "media.silent",
];

/// Makes a trial by all clients at the same time, each with its share of the load.
///
/// # Errors
/// The trial of a client cannot be made.
pub(super) fn trial(clients: &[Generator], trial: &Trial<'_>) -> Result<Made, Error> {
    if let [client] = clients {
        return client.trial(trial);
    }
    let part = |load: f64| load / clients.len() as f64;
    let load = Load { value: part(trial.load.value), ..trial.load };
    let [before, after] = [trial.before, trial.after].map(|load| load.map(part));
    let changes: Vec<_> = trial.changes.iter().map(|(at, load)| (*at, part(*load))).collect();
    let folders: Vec<PathBuf> = (1..=clients.len()).map(|n| trial.folder.join(format!("client-{n}"))).collect();
    let made: Vec<Result<Made, Error>> = std::thread::scope(|scope| {
        let run = |(client, folder): (&Generator, &PathBuf)| {
            client.trial(&Trial { load, folder, before, after, changes: changes.clone(), ..trial.clone() })
        };
        let threads: Vec<_> = clients.iter().zip(&folders).map(|pair| scope.spawn(move || run(pair))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let mut all: Option<Made> = None;
    for made in made {
        let made = made?;
        all = Some(match all {
            Some(before) => together(before, made).map_err(unknown)?,
            None => made,
        });
    }
    all.ok_or_else(|| Error::Unexpected { what: "a trial".into(), reason: "it has no client".into() })
}

fn unknown(error: UnknownFigure) -> Error {
    Error::Unexpected { what: "the clients of a trial".into(), reason: error.to_string() }
}

/// Merges the trials of two clients into one, whose window is the time in which both clients made their load.
fn together(one: Made, other: Made) -> Result<Made, UnknownFigure> {
    Ok(Made {
        figures: figures(&one.figures, &other.figures)?,
        reasons: [one.reasons, other.reasons].concat(),
        logs: [one.logs, other.logs].concat(),
        begin: one.begin.max(other.begin),
        end: one.end.min(other.end),
    })
}

/// Joins the figures of two clients. Counts are added, shares and means are weighted by their attempts, and of two percentiles or threads
/// the larger one is used.
fn figures(one: &Figures, other: &Figures) -> Result<Figures, UnknownFigure> {
    let mut both = other.clone();
    let attempts = |figures: &Figures| figures.value("attempts").unwrap_or(0.0);
    let (mine, theirs) = (attempts(one), attempts(other));
    for (name, value) in one.iter() {
        let joined = match other.value(name) {
            None => value,
            Some(their) if SUMS.contains(&name) => value + their,
            Some(their) if is_mean(name) && mine + theirs > 0.0 => (value * mine + their * theirs) / (mine + theirs),
            Some(their) => value.max(their),
        };
        both.set(name, joined)?;
    }
    Ok(both)
}

fn is_mean(name: &str) -> bool {
    name.ends_with(".mean")
        || name.ends_with(".any")
        || name == "refused.share"
        || ["ira", "isa", "generator.cpu.call"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Check, Reason};
    use std::time::{Duration, UNIX_EPOCH};

    fn made(begin: u64, values: &[(&str, f64)]) -> Made {
        let mut figures = Figures::default();
        values.iter().for_each(|(name, value)| figures.set(name, *value).expect("a known figure"));
        let begin = UNIX_EPOCH + Duration::from_secs(begin);
        let reason = Reason { check: Check::Generator, sentence: "late".into() };
        Made {
            figures,
            reasons: vec![reason],
            logs: vec![PathBuf::from("log")],
            begin,
            end: begin + Duration::from_secs(5),
        }
    }

    #[test]
    fn clients_are_one_load() {
        let one = made(
            10,
            &[("attempts", 300.0), ("failed", 3.0), ("srd.mean", 100.0), ("srd.p95", 900.0), ("rrd.p95", 7.0)],
        );
        let other = made(11, &[("attempts", 100.0), ("failed", 0.0), ("srd.mean", 500.0), ("srd.p95", 400.0)]);
        let both = together(one, other).expect("known figures");
        for (name, value) in
            [("attempts", 400.0), ("failed", 3.0), ("srd.mean", 200.0), ("srd.p95", 900.0), ("rrd.p95", 7.0)]
        {
            assert_eq!(both.figures.value(name), Some(value), "{name}");
        }
        assert_eq!((both.reasons.len(), both.logs.len()), (2, 2));
        assert_eq!(both.end.duration_since(both.begin).ok(), Some(Duration::from_secs(4)));
    }
}
