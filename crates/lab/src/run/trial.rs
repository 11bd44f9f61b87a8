//! Trial on a running site.

use super::clients;
use super::events;
use super::measuring;
use super::neighbours::Neighbours;
use super::over_time::Seconds;
use super::sampled::{SERVER, Sampled};
use super::schedule::Order;
use super::site::Site;
use super::validity::{Evidence, reasons};
use crate::experiment::{Action, Course};
use crate::finder::Outcome;
use crate::generator::{self, Generator, Made};
use crate::row::{Check, Figures, Reason, Series, UnknownFigure, Validity};
use crate::{Error, process};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strowger_measure::{Counter, Heading, Observed, Observer, Run, Span};

/// Step of a pause, after which a signal is looked for.
const STEP: Duration = Duration::from_millis(100);

/// Samples a second: short windows need more.
fn rate_of_samples(window: Duration) -> u32 {
    match window.as_secs() {
        0..=10 => 10,
        11..=60 => 4,
        _ => 1,
    }
}

/// Makes a trial on a running site.
pub(super) fn measure(site: &mut Site, order: &Order, folder: &Path) -> Result<Outcome, Error> {
    site.empty_accounting()?;
    // Some more than fall due.
    site.prepare_credentials(order.load.value * (order.warm_up + order.window).as_secs_f64() * 1.1)?;
    let (samples, before) = (folder.join("samples.log"), site.memory());
    let observer = Observer::start(&samples, Heading::default(), rate_of_samples(order.window));
    let observer = observer.map_err(Error::file(&samples))?;
    site.watch(&observer);
    let (neighbours, processes, begun) = (Neighbours::now(), site.processes(), Instant::now());
    let (made, happened) = loaded(site, order, folder, &observer);
    let (others, length) = (Neighbours::now().since(&neighbours), begun.elapsed());
    let stopped = observer.stop("the load has ended");
    if process::is_ending() {
        return Err(Error::Interrupted);
    }
    // Events replace the processes.
    let lost = if order.course.restarts() { None } else { processes.lost(&site.processes()) };
    let ended = happened.fault.or_else(|| site.ended()).or(lost);
    let mut evidence = Evidence { ended, away: happened.away, busiest: others.busiest, ..Evidence::default() };
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            let sentence = format!("{error}: look into the logs of the generator in the folder of the trial");
            evidence.generator.push(Reason { check: Check::Generator, sentence });
            let lost = reasons(
                &Evidence { sampled: vec![("nothing".into(), Duration::ZERO)], ..evidence },
                &Figures::default(),
            );
            return Ok(Outcome { validity: Validity::of(lost), ..Outcome::default() });
        }
    };
    evidence.generator.clone_from(&made.reasons);
    stopped.map_err(Error::file(&samples))?;
    let observed = Observed::read(&samples, Span::WHOLE)
        .map_err(|error| Error::Unexpected { what: samples.display().to_string(), reason: error.to_string() })?;
    let (mut figures, series) = over_time(&order.course, &made, &observed)?;
    let sampled = Sampled::of(observed, micros(made.begin), micros(made.end), &mut evidence);
    let unknown = |error: UnknownFigure| Error::Unexpected { what: "a trial".into(), reason: error.to_string() };
    sampled.write(figures.value("rate.achieved"), &mut figures).map_err(unknown)?;
    let cores = figures.value("machine.cores").unwrap_or(1.0);
    let other = others.seconds / length.as_secs_f64().max(0.01) / cores * 100.0;
    figures.set("machine.other", other).map_err(unknown)?;
    if let Some(used) = used_memory() {
        figures.set("machine.memory", used).map_err(unknown)?;
    }
    let calls = Calls::of(&made)?;
    // Rows come while the server settles.
    pause(order.settle)?;
    evidence.accounting = site.accounting(calls.completed, calls.failed)?;
    // The load of a measuring command has no entries.
    if site.server.measuring().is_none() {
        memory(site, order, before, sampled.memory, calls, &mut figures).map_err(unknown)?;
    }
    let ended = site.ended();
    evidence.ended = evidence.ended.take().or(ended);
    let validity = Validity::of(reasons(&evidence, &figures));
    Ok(Outcome { figures, series, validity })
}

/// Loads the site, and makes the events meanwhile.
fn loaded(site: &mut Site, order: &Order, folder: &Path, observer: &Observer) -> (Result<Made, Error>, events::Made) {
    let mut trial = generator::Trial::new(order.load, order.warm_up, order.window, folder);
    let changes = order.course.events.iter().filter_map(|event| match event.action {
        Action::Load(load) => Some((event.at, load)),
        Action::Kill { .. } | Action::Start => None,
    });
    trial.changes = changes.collect();
    if let Some(command) = site.server.measuring() {
        return (measuring::trial(command, &trial, observer), events::Made::default());
    }
    let (sender, begins) = channel();
    trial.begins = Some(sender);
    let is_over = AtomicBool::new(false);
    let Site { clients, server, .. } = site;
    let (course, is_over) = (&order.course, &is_over);
    let watch = |ids: Vec<u32>| (1..).zip(ids).for_each(|(number, id)| observer.watch(again(number), id));
    std::thread::scope(|scope| {
        let events = scope.spawn(move || events::make(&course.events, begins, is_over, server, &watch));
        let made = clients::trial(clients, &trial);
        is_over.store(true, Ordering::Relaxed);
        drop(trial);
        (made, events.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Name of samples of a server that was started again.
fn again(number: usize) -> String {
    if number == 1 { SERVER.to_owned() } else { format!("{SERVER}/{number}") }
}

/// Figures of the trial, with the return of its phones, and figures over time.
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

/// Adds the figures of memory. Calls and connections that exist at a time are gone after the load: their memory is read at the end of the window.
fn memory(
    site: &Site,
    order: &Order,
    before: [u64; 2],
    within: Option<u64>,
    calls: Calls,
    figures: &mut Figures,
) -> Result<(), UnknownFigure> {
    if !site.is_local() {
        return Ok(());
    }
    let [after, cache] = site.memory();
    let connections: u32 = site.clients.iter().map(Generator::connections).sum();
    let at_a_time = if connections > 0 { Some(connections.into()) } else { order.load.at_a_time() };
    let (server, entries) = match (at_a_time, within) {
        (Some(count), Some(within)) => (within, count),
        (Some(count), None) => (after, count),
        (None, _) => (after, (calls.completed + calls.failed) as f64),
    };
    figures.set("server.pss", server as f64)?;
    if site.has_cache() {
        figures.set("cache.pss", cache as f64)?;
    }
    if let Some(entries) = site.entries() {
        figures.set("cache.entries", entries as f64)?;
    }
    // Two processes have no growth.
    if entries > 0.0 && !order.course.restarts() {
        figures.set("server.entry", server.saturating_sub(before[0]) as f64 / entries)?;
    }
    Ok(())
}

/// Calls of a trial, warm-up included.
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

/// Used memory of the machine in per cent, formula (2) of the cache study.
fn used_memory() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
    };
    crate::formula::caches::used_memory(crate::formula::caches::Memory {
        free: bytes("MemFree:")?,
        buffers: bytes("Buffers:")?,
        cache: bytes("Cached:")?,
        total: bytes("MemTotal:")?,
    })
}

fn micros(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Waits for so long, unless a signal comes.
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
