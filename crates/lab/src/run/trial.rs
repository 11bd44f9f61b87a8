//! Trial on a running site.

use super::clients;
use super::events;
use super::next_trial::NextTrial;
use super::over_time::{Seconds, recovery};
use super::sampled::Sampled;
use super::side::SideMemory;
use super::site::Site;
use super::validity::{Evidence, reasons};
use crate::experiment::{Action, Course};
use crate::finder::TrialOutcome;
use crate::generator::{self, Generator, Made};
use crate::row::{Check, Figures, Reason, Series, UnknownFigure, Validity};
use crate::{Error, process};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strowger_measure::process::Memory;
use strowger_measure::{Counter, Observed, Run, Span};

/// Interval at which a pause checks for a signal.
const STEP: Duration = Duration::from_millis(100);

/// Returns the number of samples a second: short windows need more.
fn rate_of_samples(window: Duration) -> u32 {
    match window.as_secs() {
        0..=10 => 10,
        11..=60 => 4,
        _ => 1,
    }
}

/// Makes a trial on a running site.
pub(super) fn measure(site: &mut Site, order: &NextTrial, folder: &Path) -> Result<TrialOutcome, Error> {
    let is_fresh = !std::mem::replace(&mut site.is_loaded, true);
    site.side.empty_accounting()?;
    // Some more than fall due.
    let length = order.warm_up + order.window + order.cool_down;
    site.prepare_credentials(order.load.value * length.as_secs_f64() * 1.1)?;
    let (samples, before) = (folder.join("samples.log"), site.side.memory()?);
    site.side.begin(&samples, rate_of_samples(order.window))?;
    let (made, happened) = loaded(site, order, folder);
    let watched = site.side.finish();
    if process::is_ending() {
        return Err(Error::Interrupted);
    }
    let watched = watched?;
    // Events replace the processes.
    let lost = if order.course.restarts() { None } else { watched.lost };
    let ended = match happened.fault {
        Some(fault) => Some(fault),
        None => site.side.ended()?.or(lost),
    };
    let (away, busiest, clock) = (happened.away, watched.busiest, watched.clock);
    let is_lossless = site.is_lossless;
    let mut evidence =
        Evidence { ended, late: happened.late, away, busiest, clock, is_lossless, ..Evidence::default() };
    let made = match made {
        Ok(made) => made,
        Err(gone @ Error::Host { .. }) => return Err(gone),
        Err(error) => {
            let sentence = format!("{error}: look into the logs of the generator in the folder of the trial");
            evidence.generator.push(Reason { check: Check::Generator, sentence });
            let lost = reasons(
                &Evidence { sampled: vec![("nothing".into(), Duration::ZERO)], ..evidence },
                &Figures::default(),
            );
            return Ok(TrialOutcome { validity: Validity::of(lost), ..TrialOutcome::default() });
        }
    };
    evidence.generator.clone_from(&made.reasons);
    let unknown = |error: UnknownFigure| Error::Unexpected { what: "a trial".into(), reason: error.to_string() };
    let observed = Observed::read(&samples, Span::WHOLE)
        .map_err(|error| Error::Unexpected { what: samples.display().to_string(), reason: error.to_string() })?;
    let (mut figures, series) = over_time(&order.course, &made, &observed)?;
    if order.course.after.is_some()
        && !order.cool_down.is_zero()
        && let Some(seconds) = recovery(&made.logs, made.end, order.cool_down)?
    {
        figures.set("recovery", seconds).map_err(unknown)?;
    }
    let sampled = Sampled::of(observed, micros(made.begin), micros(made.end), &mut evidence);
    sampled.write(figures.value("rate.achieved"), &mut figures).map_err(unknown)?;
    let cores = figures.value("machine.cores").unwrap_or(1.0);
    figures.set("machine.other", watched.other / cores).map_err(unknown)?;
    let quota = site.quota.map(|quota| f64::from(quota) / 100.0);
    if let Some(cores) = quota.or_else(|| watched.cores.map(f64::from)) {
        figures.set("server.cores", cores).map_err(unknown)?;
    }
    if let Some(workers) = site.workers {
        figures.set("server.workers", f64::from(workers)).map_err(unknown)?;
    }
    let calls = Calls::of(&made)?;
    // Rows come while the server settles.
    pause(order.settle.unwrap_or_default())?;
    evidence.accounting = site.side.accounting(calls.completed, calls.failed)?;
    // The load of a measuring command has no entries.
    if order.settle.is_some() && !site.side.is_measuring() {
        let memories = [before, site.side.memory()?];
        let connections = site.clients.iter().map(Generator::connections).sum();
        let seen = Seen { is_fresh, connections, memories, within: sampled.memory };
        memory(order, seen, calls, &mut figures).map_err(unknown)?;
    }
    let ended = site.side.ended()?;
    evidence.ended = evidence.ended.take().or(ended);
    let validity = Validity::of(reasons(&evidence, &figures));
    Ok(TrialOutcome { figures, series, validity })
}

/// Puts the load on the site, and makes the events meanwhile.
fn loaded(site: &mut Site, order: &NextTrial, folder: &Path) -> (Result<Made, Error>, events::Made) {
    let mut trial = generator::Trial::new(order.load, order.warm_up, order.window, folder);
    trial.cool_down = order.cool_down;
    (trial.before, trial.after) = (order.course.before, order.course.after);
    let changes = order.course.events.iter().filter_map(|event| match event.action {
        Action::Load(load) => Some((event.at, load)),
        Action::Kill { .. } | Action::Start => None,
    });
    trial.changes = changes.collect();
    if site.side.is_measuring() {
        return (site.side.measuring(&trial), events::Made::default());
    }
    let (sender, begins) = channel();
    trial.begins = Some(sender);
    let is_over = AtomicBool::new(false);
    let Site { clients, side, .. } = site;
    let (course, is_over) = (&order.course, &is_over);
    std::thread::scope(|scope| {
        let events = scope.spawn(move || events::make(&course.events, begins, is_over, side.as_mut()));
        let made = clients::trial(clients, &trial);
        is_over.store(true, Ordering::Relaxed);
        drop(trial);
        (made, events.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Returns the figures of the trial, which include the return of its phones, and the figures over time.
fn over_time(course: &Course, made: &Made, observed: &Observed) -> Result<(Figures, Series), Error> {
    let mut figures = made.figures.clone();
    if course.over_time.is_empty() && course.events.is_empty() {
        return Ok((figures, Series::default()));
    }
    let seconds = Seconds::read(&made.logs, made.begin, made.end)?;
    let unknown = |error: UnknownFigure| Error::Unexpected { what: "a trial".into(), reason: error.to_string() };
    seconds.returns(course, &mut figures).map_err(unknown)?;
    Ok((figures, seconds.series(course, observed).map_err(unknown)?))
}

/// Adds the figures of memory. Calls and connections that exist at a time are gone after the load, so that their memory is read at the end
/// of the window.
fn memory(order: &NextTrial, seen: Seen, calls: Calls, figures: &mut Figures) -> Result<(), UnknownFigure> {
    let Seen { is_fresh, connections, memories: [before, after], within } = seen;
    let growth = |now: Memory, before: Memory| now.unbacked.saturating_sub(before.unbacked) as f64;
    if let Some(cache) = after.cache {
        figures.set("cache.pss", cache.pss as f64)?;
    }
    if let Some(entries) = after.entries {
        figures.set("cache.entries", entries as f64)?;
        let new = entries.saturating_sub(before.entries.unwrap_or(0));
        if let (Some(now), Some(before), true) = (after.cache, before.cache, new > 0) {
            figures.set("cache.entry", growth(now, before) / new as f64)?;
        }
    }
    let Some(after) = after.server else { return Ok(()) };
    let at_a_time = if connections > 0 { Some(connections.into()) } else { order.load.at_a_time() };
    let (server, entries) = match (at_a_time, within) {
        (Some(count), Some(within)) => (within, count),
        // Their memory was not read.
        (Some(_), None) => (after, 0.0),
        (None, _) => (after, (calls.completed + calls.failed) as f64),
    };
    figures.set("server.pss", server.pss as f64)?;
    // A restart leaves no growth to measure, because the two values are of two processes. A server that had another load before has free
    // memory from that load, and so grows by less than its entries take.
    let has_growth = is_fresh && !order.course.restarts();
    if let (true, Some(before)) = (entries > 0.0 && has_growth, before.server) {
        figures.set("server.entry", growth(server, before) / entries)?;
    }
    Ok(())
}

/// Memory that was read around a trial.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// True if no trial has loaded the server before.
    is_fresh: bool,
    /// Connections that users have throughout.
    connections: u32,
    /// Memory before and after the load.
    memories: [SideMemory; 2],
    /// Memory of the server at the end of the window.
    within: Option<Memory>,
}

/// Calls of a trial, with those before and after the window.
#[derive(Clone, Copy, Debug)]
struct Calls {
    completed: u64,
    failed: u64,
}

impl Calls {
    fn of(made: &Made) -> Result<Self, Error> {
        if made.logs.is_empty() {
            let count = |name| made.figures.value(name).unwrap_or(0.0) as u64;
            return Ok(Self { completed: count("attempts").saturating_sub(count("failed")), failed: count("failed") });
        }
        let run = Run::read(&made.logs)
            .map_err(|error| Error::Unexpected { what: "the log of a generator".into(), reason: error.to_string() })?;
        let sum = |counter| run.totals.counter(counter) + run.warm_up.as_ref().map_or(0, |page| page.counter(counter));
        let (all, completed) = (sum(Counter::CallsOutgoing), sum(Counter::CallsSuccessful));
        Ok(Self { completed, failed: all.saturating_sub(completed) })
    }
}

fn micros(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Waits for this time, or until a signal arrives.
fn pause(time: Duration) -> Result<(), Error> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if process::is_ending() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(STEP.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Axes, Planned, PlannedLoad, TrialPosition};
    use crate::row::{Load, LoadUnit};

    fn order(unit: LoadUnit) -> NextTrial {
        let planned = Planned {
            system: "strowger".into(),
            configuration: "relay".into(),
            axes: Axes::new(),
            load: PlannedLoad::Fixed(100.0),
            repetition: 1,
            place: TrialPosition::Trial,
            registers: 0,
            kills: false,
            time: Duration::ZERO,
        };
        NextTrial {
            planned,
            number: 1,
            load: Load { value: 100.0, unit },
            warm_up: Duration::ZERO,
            window: Duration::from_secs(5),
            cool_down: Duration::ZERO,
            settle: Some(Duration::ZERO),
            attempt: 1,
            course: Course::default(),
        }
    }

    #[test]
    fn memory_of_a_call_is_the_growth_of_a_fresh_server() {
        let of = |unbacked: u64| Memory { pss: 3 * unbacked, unbacked };
        let side = |unbacked: u64| SideMemory { server: Some(of(unbacked)), ..SideMemory::default() };
        let calls = Calls { completed: 450, failed: 50 };
        let figures = |is_fresh, unit| {
            let seen = Seen {
                is_fresh,
                connections: 0,
                memories: [side(1_000_000), side(2_000_000)],
                within: Some(of(1_200_000)),
            };
            let mut figures = Figures::default();
            memory(&order(unit), seen, calls, &mut figures).expect("known figures");
            (figures.value("server.entry"), figures.value("server.pss"))
        };
        assert_eq!(figures(true, LoadUnit::Calls), (Some(2_000.0), Some(6_000_000.0)));
        // A hundred calls at a time existed at the end of the window.
        assert_eq!(figures(true, LoadUnit::Concurrent), (Some(2_000.0), Some(3_600_000.0)));
        assert_eq!(figures(false, LoadUnit::Calls), (None, Some(6_000_000.0)), "another load was before it");
    }
}
