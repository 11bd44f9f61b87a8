//! Cause of a limit: which part of the test bed had nothing left.

use super::TrialOutcome;
use crate::row::{Check, words};
use std::fmt;

words! {
    /// Part of the test bed.
    Part {
        /// System under test.
        Server = "server",
        /// Database of the system.
        Database = "database",
        /// Cache server of the system.
        Cache = "cache",
        /// Generator.
        Generator = "generator",
        /// Machine: its hypervisor, or other programs.
        Machine = "machine",
        /// No part that was sampled.
        Unknown = "unknown",
    }
}

/// Cause of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Part that is the limit.
    pub part: Part,
    /// Busiest thread of the part, if one thread used up its core.
    pub thread: Option<String>,
    /// Sign by which it was recognised, for people.
    pub sign: String,
}

impl Cause {
    fn new(part: Part, sign: impl Into<String>) -> Self {
        Self { part, thread: None, sign: sign.into() }
    }

    /// Makes the cause of a limit that no trial shows.
    pub(super) fn unknown(sign: impl Into<String>) -> Self {
        Self::new(Part::Unknown, sign)
    }

    /// Gives a sampled thread of a part.
    fn thread(part: Part, name: &str, share: f64) -> Self {
        let sign = format!("its thread {name} used {share:.0} % of a core");
        Self { part, thread: Some(name.into()), sign }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.sign)
    }
}

/// Share of a core, or of all cores, in per cent, from which on a part has no spare capacity. Samples of a second miss short
/// peaks, so that the boundary lies below 100 %.
const SATURATED: f64 = 90.0;

/// Returns the cause of a limit: the cause that most of the trials above the limit show, and of equally frequent causes
/// the first.
pub fn cause<'a>(beyond: impl IntoIterator<Item = &'a TrialOutcome>) -> Cause {
    let mut seen: Vec<(Cause, usize)> = Vec::new();
    for outcome in beyond {
        let found = one(outcome);
        match seen.iter_mut().find(|(known, _)| (known.part, &known.thread) == (found.part, &found.thread)) {
            Some((_, times)) => *times += 1,
            None => seen.push((found, 1)),
        }
    }
    // A trial that shows nothing does not outvote one that shows something.
    let is_known = seen.iter().any(|(cause, _)| cause.part != Part::Unknown);
    let mut best: Option<(Cause, usize)> = None;
    for (cause, times) in seen.into_iter().filter(|(cause, _)| !is_known || cause.part != Part::Unknown) {
        if best.as_ref().is_none_or(|(_, most)| times > *most) {
            best = Some((cause, times));
        }
    }
    best.map_or_else(|| Cause::unknown("no load was too high"), |(cause, _)| cause)
}

fn one(outcome: &TrialOutcome) -> Cause {
    let checks = [
        (Check::Generator, Part::Generator, "it did not keep up with its schedule"),
        (Check::Rate, Part::Generator, "it missed the rate by more than 1 %"),
        (Check::Stolen, Part::Machine, "its hypervisor took more than 5 % of the processor time"),
        (Check::Neighbour, Part::Machine, "another program was busy"),
    ];
    let failed = checks.iter().find(|(check, ..)| outcome.validity.fails(*check));
    if let Some((_, part, sign)) = failed {
        let own = Cause::new(*part, *sign);
        return match outcome.figures.largest("generator.thread/").filter(|_| *part == Part::Generator) {
            Some((name, share)) if share >= SATURATED => Cause::thread(*part, name, share),
            // A generator with spare capacity does not keep up if other programs have taken the cores.
            Some(_) => all_cores(outcome).unwrap_or(own),
            None => own,
        };
    }
    busy_thread(outcome).or_else(|| all_cores(outcome)).unwrap_or_else(|| by_exclusion(outcome))
}

/// Returns the thread that used most of its core, among the threads without spare capacity.
fn busy_thread(outcome: &TrialOutcome) -> Option<Cause> {
    let parts = [
        (Part::Server, "server.thread/"),
        (Part::Database, "database.thread/"),
        (Part::Cache, "cache.thread/"),
        (Part::Generator, "generator.thread/"),
    ];
    let threads = parts.iter().filter_map(|(part, name)| Some((*part, outcome.figures.largest(name)?)));
    let busy = threads.filter(|(_, (_, share))| *share >= SATURATED);
    // Of equally busy ones the first of the list.
    let most = busy.reduce(|most, other| if other.1.1 > most.1.1 { other } else { most });
    most.map(|(part, (name, share))| Cause::thread(part, name, share))
}

/// Returns the part that used most of the cores, if all cores, or all that the server may use, were busy. If no part of the system used
/// half of the busy time, the result is the generator or other programs, whichever used more.
fn all_cores(outcome: &TrialOutcome) -> Option<Cause> {
    let server = outcome.value("server.cpu").unwrap_or(0.0);
    let own = outcome.value("server.cores").zip(outcome.value("machine.cores"));
    if let Some((cores, all)) = own.filter(|(cores, all)| *cores > 0.0 && cores < all) {
        let share = server * all / cores;
        if share >= SATURATED {
            return Some(Cause::new(Part::Server, format!("it used {share:.0} % of its {cores} cores")));
        }
    }
    let machine = outcome.value("machine.cpu").filter(|share| *share >= SATURATED)?;
    let used = |name| outcome.value(name).unwrap_or(0.0);
    let parts = [(Part::Server, server), (Part::Database, used("database.cpu")), (Part::Cache, used("cache.cpu"))];
    let (part, share) = parts.iter().copied().reduce(|most, other| if other.1 > most.1 { other } else { most })?;
    if share * 2.0 >= machine {
        return Some(Cause::new(part, format!("all cores were busy, {share:.0} of {machine:.0} % with it")));
    }
    // Cores that are busy with work that yields do not hinder a server that gets one whenever it wants.
    let is_hindered = outcome.value("server.wait").is_none_or(|waited| waited >= HINDERED);
    let rest = (machine - parts.iter().map(|(_, share)| share).sum::<f64>()).max(0.0);
    let generator = generator(outcome, (rest - used("machine.other")).max(0.0));
    let (part, sign) = match generator > 0.0 && generator * 2.0 >= rest {
        true => (Part::Generator, format!("all cores were busy, {generator:.0} of {machine:.0} % with it")),
        false => (Part::Machine, format!("all cores were busy, {:.0} % with other programs", rest - generator)),
    };
    is_hindered.then(|| Cause::new(part, sign))
}

/// Returns the share of all cores that the threads of the generator used, at most `most`. A generator on another machine used
/// none of these cores.
fn generator(outcome: &TrialOutcome, most: f64) -> f64 {
    let threads = outcome.figures.iter().filter(|(name, _)| name.starts_with("generator.thread/"));
    let cores = outcome.value("machine.cores").filter(|cores| *cores > 0.0);
    cores.map_or(0.0, |cores| (threads.map(|(_, share)| share).sum::<f64>() / cores).min(most))
}

/// Share of the time that a hindered server waits for a core, in per cent.
const HINDERED: f64 = 10.0;

/// Determines the cause if each sampled part had spare capacity. The server is the limit if it reports that, or if all other parts were
/// sampled. If there is a database or a cache for which the server may wait, neither proves that the server is the limit.
fn by_exclusion(outcome: &TrialOutcome) -> Cause {
    let failed = outcome.value("failed").unwrap_or(0.0);
    if outcome.value("refused").is_some_and(|refused| refused > 0.0 && refused * 2.0 >= failed) {
        return Cause::new(Part::Server, "it refused calls with 5xx or 6xx");
    }
    if let Some(drops) = outcome.value("server.drops").filter(|drops| *drops > 0.0) {
        return Cause::new(Part::Server, format!("its sockets dropped {drops:.0} datagrams"));
    }
    let is_sampled = |name| outcome.value(name).is_some();
    let generator = outcome.figures.largest("generator.thread/");
    let waits = is_sampled("database.cpu") || is_sampled("cache.cpu");
    match generator {
        Some((_, share)) if is_sampled("machine.cpu") && is_sampled("server.cpu") && !waits => Cause::new(
            Part::Server,
            match outcome.value("machine.cpu").is_some_and(|busy| busy >= SATURATED) {
                false => {
                    format!("the generator had {:.0} % of a core left, and the machine was not busy", 100.0 - share)
                }
                true => format!(
                    "the generator had {:.0} % of a core left, and the server got a core when it wanted one",
                    100.0 - share
                ),
            },
        ),
        _ => Cause::unknown("no part that was sampled had nothing left"),
    }
}
