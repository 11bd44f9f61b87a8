//! Answer of a measurement: one sentence, a table, and JSON.

use super::{Capacity, CapacityRequest, Step, Work};
use crate::finder::{Finding, Part};
use serde_json::{Value, json as object};
use strowger_measure::grouped;
use strowger_report::Table;

/// Version of the JSON form. Bump on every change that an older reader would misread.
const FORMAT: u32 = 1;

/// Returns the sentence that names the limit and its cause.
pub fn answer(request: &CapacityRequest, capacity: &Capacity) -> String {
    let limit = &capacity.limit;
    let (target, unit) = (&request.target, request.work.unit());
    let rate = |load: f64| format!("{} {unit}", grouped(load));
    let beyond = beyond(request, capacity);
    let doubt = if capacity.is_confirmed { "" } else { " (not confirmed by a long trial)" };
    match limit.finding {
        Finding::Found => {
            format!("{target} carries {}{doubt}; beyond, {beyond}.", rate(limit.load))
        }
        Finding::AtLeast => {
            let left = capacity.generator_at_limit().map_or_else(String::new, |used| {
                format!("; the generator has {:.0} % of a core left", (100.0 - used).max(0.0))
            });
            match limit.load >= request.most {
                true => format!(
                    "{target} carries at least {}{doubt}, the most that was offered (--max-rate){left}.",
                    rate(limit.load)
                ),
                false => {
                    format!(
                        "{target} carries at least {}{doubt}; the search ended before it offered more{left}.",
                        rate(limit.load)
                    )
                }
            }
        }
        Finding::Nothing => {
            let lowest = capacity.steps.iter().map(|step| step.load).fold(f64::INFINITY, f64::min);
            format!("{target} does not carry {}, the lowest load that was offered: {beyond}.", rate(lowest))
        }
        Finding::Unstable => {
            format!("{target} carries {} for a while and not when the load stays: {beyond}.", rate(limit.load))
        }
    }
}

/// Returns the clause on the bound that is missed above the limit, and on the cause.
fn beyond(request: &CapacityRequest, capacity: &Capacity) -> String {
    let limit = &capacity.limit;
    let delay = match request.work {
        Work::Options => "its response time p95",
        Work::Registrations => "its registration p95",
        Work::Calls => "its set-up p95",
    };
    let missed = match limit.missed.as_deref() {
        Some("generator") => "the generator does not keep up".into(),
        Some("delay.last") => "its delays grow as long as the load lasts".into(),
        Some("failed.any" | "isa.any" | "ira.any") => format!("more than 1 % of its {} fail", request.work.attempts()),
        Some(_) => format!("{delay} passes 300 ms"),
        None => "nothing was measured".into(),
    };
    let cause = &limit.cause;
    match cause.part {
        Part::Unknown => format!("{missed}, and the cause is unknown: {}", cause.sign),
        Part::Generator => {
            format!("{missed}; the limit is the generator, so that the server may carry more: {}", cause.sign)
        }
        part => format!("{missed}; the limit is the {part}: {}", cause.sign),
    }
}

/// Returns all trials as a table.
pub fn table(request: &CapacityRequest, capacity: &Capacity) -> Table {
    let unit = request.work.unit().to_string();
    let titles = [unit.as_str(), "for", "failed", "p50", "p95", "server CPU", "generator", "goal"];
    let mut table = Table::new(titles).with_texts(7);
    for step in &capacity.steps {
        table.row(row(request, step));
    }
    table
}

fn row(request: &CapacityRequest, step: &Step) -> [String; 8] {
    let value = |name: &str| step.outcome.value(name);
    let delay = request.work.delay();
    let time = |name: &str| value(&format!("{delay}.{name}")).map_or_else(String::new, milliseconds);
    let share = |value: Option<f64>| value.map_or_else(String::new, |share| format!("{share:.0} %"));
    let cores = value("machine.cores").unwrap_or(1.0);
    let verdict = match (step.is_met, step.outcome.validity.is_valid()) {
        (true, true) => "met",
        (true, false) => "met, disturbed",
        (false, true) => "missed",
        (false, false) => "missed, disturbed",
    };
    [
        grouped(step.load),
        format!("{} s", step.length.as_secs_f64()),
        value("failed.any").map_or_else(String::new, |share| format!("{share:.1} %")),
        time("p50"),
        time("p95"),
        share(value("server.cpu").map(|share| share * cores)),
        share(step.outcome.figures.largest("generator.thread/").map(|(_, share)| share)),
        verdict.into(),
    ]
}

/// Formats microseconds as milliseconds.
fn milliseconds(us: f64) -> String {
    if us < 10_000.0 { format!("{:.2} ms", us / 1e3) } else { format!("{:.0} ms", us / 1e3) }
}

impl Work {
    /// Returns the name of the delay in figures.
    pub(super) const fn delay(&self) -> &'static str {
        match self {
            Self::Options => "request",
            Self::Registrations => "rrd",
            Self::Calls => "srd",
        }
    }
}

/// Returns everything as JSON.
pub fn json(request: &CapacityRequest, capacity: &Capacity) -> Value {
    let limit = &capacity.limit;
    let step = |step: &Step| {
        object!({
            "load": step.load,
            "seconds": step.length.as_secs_f64(),
            "met": step.is_met,
            "validity": step.outcome.validity,
            "figures": step.outcome.figures,
        })
    };
    object!({
        "format": FORMAT,
        "target": request.target.to_string(),
        "address": request.address.to_string(),
        "transport": request.transport.text(),
        "unit": request.work.unit(),
        "answer": answer(request, capacity),
        "finding": limit.finding,
        "limit": limit.load,
        "beyond": limit.beyond,
        "missed": limit.missed,
        "cause": { "part": limit.cause.part, "thread": limit.cause.thread, "sign": limit.cause.sign },
        "confirmed": capacity.is_confirmed,
        "seconds": capacity.time.as_secs_f64(),
        "trials": capacity.steps.iter().map(step).collect::<Vec<_>>(),
    })
}
