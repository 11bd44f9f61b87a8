//! Warnings about a run: facts that a reader of the report should know although they do not make the run invalid.

use super::{Judged, Threads, threads::WAITED};
use crate::unit::{Unit, grouped};
use crate::{Counter, Generator, Page, Rate, Sample, Thresholds};

/// Describes the bad windows of a run that is valid as a whole.
pub(super) fn of_windows(windows: &[Judged], started: u64) -> Vec<String> {
    let bad = windows.iter().filter(|window| !window.is_good());
    let after = |second: u64| Unit::Seconds.show(second.saturating_sub(started / 1_000_000) as f64);
    bad.map(|window| {
        let sentences: Vec<&str> = window.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
        format!(
            "From {} to {} the figures are not the server's: {}",
            after(window.from),
            after(window.until),
            sentences.join(" ")
        )
    })
    .collect()
}

/// Warns that the limit of concurrent calls reduced the load. The user wants the limit, and the server causes the wait
/// for it, but the server had less load than was asked for. The sentence also names this machine if the generator
/// waited for a core.
pub(super) fn of_limit(totals: &Page, threads: &Threads) -> Option<String> {
    let limited = totals.counter(Counter::CallsLimited);
    if limited == 0 && totals.waiting == 0 {
        return None;
    }
    let wanted = totals.counter(Counter::CallsIntended);
    let started = totals.counter(Counter::CallsOutgoing).min(wanted);
    let (intended, achieved) = (Rate::Intended.of(totals)?, Rate::Achieved.of(totals)?);
    let short = (wanted - started) as f64 / wanted.max(1) as f64 * 100.0;
    let missing = match wanted - started {
        0 => String::new(),
        missing => format!(
            " {} of {} were not started at all ({short:.1} %).",
            grouped(missing as f64),
            grouped(wanted as f64)
        ),
    };
    let waited = threads.waited();
    let or_this = match waited > WAITED {
        true => format!(" or this machine (the generator waited for a core in {waited:.0} % of the time)"),
        false => String::new(),
    };
    Some(format!(
        "The limit of concurrent calls held {} calls back: the server{or_this} was slower than the schedule, or the limit is too low \
         for rate times call length. It saw {achieved:.1} calls a second instead of {intended:.1}; the figures from the intended time contain \
         the wait.{missing}",
        grouped(limited as f64),
    ))
}

pub(super) fn of_media(totals: &Page) -> Option<String> {
    let late = totals.counter(Counter::MediaLate);
    (late > 0).then(|| {
        format!(
            "{} of {} media packets left late: a jitter that the target measures is partly the generator's.",
            grouped(late as f64),
            grouped(totals.counter(Counter::MediaSent) as f64),
        )
    })
}

/// Returns a warning for each saturated thread of a valid run.
pub(super) fn of_threads(threads: &Threads) -> impl Iterator<Item = String> {
    threads.saturated().map(|thread| {
        format!(
            "The generator's thread {} was saturated in {} of {:.0} seconds (a core to {:.0} % on average). It kept its times, but has \
             nothing left: the next step of the rate would measure the generator.",
            thread.name, thread.saturated, threads.seconds, thread.mean
        )
    })
}

/// Returns a warning about the first receive buffer that is smaller than requested, if no datagram was dropped. A
/// dropped datagram is a reason for INVALID instead.
pub(super) fn of_buffers(generator: &Generator) -> Option<String> {
    let buffer = generator.receive_buffers.iter().find(|buffer| buffer.got < buffer.asked)?;
    (generator.totals.counter(Counter::SocketDrops) == 0).then(|| {
        format!(
            "Receive buffers are smaller than asked for: {} instead of {}. No datagram was dropped; for more load, sysctl \
             net.core.rmem_max={}.",
            Unit::Bytes.show(buffer.got as f64),
            Unit::Bytes.show(buffer.asked as f64),
            buffer.asked
        )
    })
}

/// Returns a warning if all cores were busy in too many of these seconds.
pub(super) fn of_machine(samples: &[Sample], thresholds: &Thresholds, seconds: f64) -> Option<String> {
    let busy = samples.iter().filter(|sample| {
        let cores = sample.cores.len().max(1) as f64;
        sample.cores.iter().sum::<f64>() / cores * 100.0 > thresholds.saturated
    });
    let busy = busy.map(|sample| sample.interval).sum::<u64>() as f64 / 1e6;
    (busy > seconds * thresholds.saturated_seconds / 100.0).then(|| {
        format!(
            "All cores of the generator's machine were busy for {} of {}. If the server runs on it too, they took the cores \
             from each other.",
            Unit::Seconds.show(busy),
            Unit::Seconds.show(seconds)
        )
    })
}

pub(super) fn of_target(totals: &Page) -> Option<String> {
    let refused = totals.counter(Counter::SendFailuresRemote);
    (refused > 0).then(|| {
        format!(
            "The target refused {} messages (port closed, or connection refused or reset).",
            grouped(refused as f64)
        )
    })
}
