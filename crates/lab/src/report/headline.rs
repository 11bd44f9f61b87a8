//! Answer of an experiment in one sentence.

use super::cells::{CellRows, Cells, Offered};
use super::gate::GateVerdict;
use super::plot::{load_title, representatives};
use super::table::show_plain;
use crate::compare::FLOOR;
use crate::experiment::{Axes, Form};
use crate::finder::{Finding, Part};
use crate::row::{FoundLimit, Row, definition};
use std::collections::BTreeSet;
use strowger_measure::several;
use strowger_report::Tone;

/// Sentence at the top of a report, and how good it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Tone.
    pub tone: Tone,
    /// Sentence.
    pub sentence: String,
}

/// Limits of a system that a sentence names one by one.
const NAMED: usize = 3;

/// Makes the headline of a run. `is_whole`: whether all trials of its plan were made.
pub(super) fn answer(cells: &Cells<'_>, rows: &[Row], gates: &[GateVerdict], is_whole: bool) -> Headline {
    let invalid = cells.cells.iter().filter(|cell| !cell.rows.iter().any(|row| row.validity.is_valid())).count();
    let missed = gates.iter().filter(|gate| gate.is_met == Some(false)).count();
    let judged = gates.iter().filter(|gate| gate.is_met.is_some()).count();
    if !rows.iter().any(|row| row.validity.is_valid() && row.system.name != FLOOR) {
        let sentence = "Nothing can be said: the run has no valid trial.".into();
        return Headline { tone: Tone::Bad, sentence };
    }
    let mut parts = vec![result(cells).unwrap_or_else(|| "no figure of the experiment was measured".into())];
    match (missed, judged) {
        (_, 0) => {}
        (0, all) => parts.push(if all == 1 { "the gate is met".into() } else { format!("all {all} gates are met") }),
        (missed, all) => parts.push(format!("{missed} of {} missed", several(all as u64, "gate"))),
    }
    if invalid > 0 {
        parts.push(format!("{invalid} of {} without a valid trial", several(cells.cells.len() as u64, "cell")));
    }
    if !is_whole {
        parts.push("the run was not finished".into());
    }
    let tone = match (missed, invalid, is_whole) {
        (1.., ..) => Tone::Bad,
        (0, 0, true) => Tone::Good,
        _ => Tone::Doubtful,
    };
    Headline { tone, sentence: format!("{}.", parts.join("; ")) }
}

/// Returns a sentence about limits, ratios between systems, or values.
fn result(cells: &Cells<'_>) -> Option<String> {
    let experiment = cells.experiment;
    let has_limit = cells.cells.iter().any(|cell| cell.offered == Offered::Limit);
    let asked = experiment.answer.as_deref();
    if has_limit && asked.is_none_or(|figure| figure == "limit") {
        return Some(limits(cells));
    }
    let drawn =
        experiment.figures.iter().filter(|figure| matches!(figure.form, Form::Lines | Form::Bars | Form::Table));
    let names = asked.into_iter().chain(drawn.flat_map(|figure| figure.y.iter().map(String::as_str)));
    names.into_iter().find_map(|figure| values(cells, figure))
}

/// Describes one limit with its cause, or the limits of several systems, each with the part that is the limit.
fn limits(cells: &Cells<'_>) -> String {
    let found: Vec<&CellRows<'_>> = cells.cells.iter().filter(|cell| cell.offered == Offered::Limit).collect();
    if let [cell] = found.as_slice() {
        return single_limit(cells, cell);
    }
    let of_system = |system: &&str| {
        let own: Vec<&CellRows<'_>> = found.iter().copied().filter(|cell| cell.system == *system).collect();
        let mut limits: Vec<String> = own.iter().take(NAMED).map(|cell| limit(cells, cell)).collect();
        if own.len() > NAMED {
            limits.push(format!("{} more in the table", own.len() - NAMED));
        }
        (!limits.is_empty()).then(|| format!("{system} carries {}", limits.join(", ")))
    };
    cells.systems.iter().filter_map(of_system).collect::<Vec<_>>().join("; ")
}

/// Writes `strowger carries 1,850 calls/s; beyond, srd.p95 misses its bound (server: its thread shard-0 used 98 % of a
/// core)`.
fn single_limit(cells: &Cells<'_>, cell: &CellRows<'_>) -> String {
    let (system, carried) = (cell.system, carried(cells, cell));
    let Some(found) = found(cell) else { return format!("{system} carries {carried}") };
    let mut sentence = match found.finding {
        Finding::Found => format!("{system} carries {carried}"),
        Finding::AtLeast => return format!("{system} carries at least {carried}, the highest load that was offered"),
        Finding::Nothing => format!("{system} does not carry the lowest load that was offered"),
        Finding::Unstable => format!("{system} carries {carried} for a while, and not when the load stays"),
    };
    if let Some(missed) = &found.missed {
        sentence.push_str(&format!("; beyond, {missed} misses its bound"));
    }
    format!("{sentence} ({})", found.cause())
}

/// Writes `1,850 calls/s (workers=4, limit of the server)`.
fn limit(cells: &Cells<'_>, cell: &CellRows<'_>) -> String {
    let mut marks = axes(cells, cell);
    let mut carried = carried(cells, cell);
    if let Some(found) = found(cell) {
        match found.finding {
            Finding::Found => {}
            Finding::AtLeast => carried = format!("at least {carried}"),
            Finding::Nothing => carried = "not the lowest load".into(),
            Finding::Unstable => carried.push_str(" for a while"),
        }
        match (found.finding, found.part) {
            (Finding::AtLeast, _) => {}
            (_, Part::Unknown) => marks.push("limit unknown".into()),
            (_, part) => marks.push(format!("limit of the {part}")),
        }
    }
    if marks.is_empty() { carried } else { format!("{carried} ({})", marks.join(", ")) }
}

/// Returns the limit in the row that ended the search of a cell.
pub(super) fn found<'r>(cell: &CellRows<'r>) -> Option<&'r FoundLimit> {
    cell.rows.last().and_then(|row| row.limit.as_ref())
}

/// Formats the load of a limit for people.
fn carried(cells: &Cells<'_>, cell: &CellRows<'_>) -> String {
    let load = cells.value(cell, "limit").map_or(0.0, |value| value.middle);
    load_title(cells.experiment, cell.axes, Offered::Fixed(load))
}

/// Returns the values of the axes in which cells differ.
fn axes(cells: &Cells<'_>, cell: &CellRows<'_>) -> Vec<String> {
    let differs = |name: &&String| {
        cells.cells.iter().filter_map(|other| other.axes.get(*name)).collect::<BTreeSet<_>>().len() > 1
    };
    cell.axes.keys().filter(differs).map(|name| format!("{name}={}", cell.axes[name])).collect()
}

/// Driver of an echo. An echo does none of a server's work, so that a ratio to it does not show which system is better.
const ECHO: &str = "echo";

/// Lists the values of a figure by system, and the ratios of the first system to the other systems. An echo is the
/// last.
fn values(cells: &Cells<'_>, figure: &str) -> Option<String> {
    let found = representatives(&cells.with(&Axes::new()));
    // A staircase has no fixed loads: its trials are compared load by load.
    let found = if found.is_empty() { cells.with(&Axes::new()) } else { found };
    let measured: Vec<(&CellRows<'_>, f64)> = found
        .iter()
        .filter_map(|cell| Some((*cell, cells.value_at(cell, figure).filter(|value| !value.is_invalid)?.middle)))
        .collect();
    let of = |system: &str| -> Vec<f64> {
        measured.iter().filter(|(cell, _)| cell.system == system).map(|(_, value)| *value).collect()
    };
    let is_echo =
        |name: &str| cells.experiment.systems.iter().any(|system| system.name == name && system.driver == ECHO);
    let mut present: Vec<&str> = cells.systems.iter().copied().filter(|system| !of(system).is_empty()).collect();
    present.sort_by_key(|name| is_echo(name));
    let (first, others) = present.split_first()?;
    let known = definition(figure)?;
    let range = |values: &[f64], show: &dyn Fn(f64) -> String| {
        let least = show(values.iter().copied().fold(f64::INFINITY, f64::min));
        let most = show(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        if least == most { least } else { format!("{least} to {most}") }
    };
    let value = |system: &str| format!("{system} {}", range(&of(system), &|value| show_plain(figure, value)));
    let mut parts = vec![value(first)];
    for other in others {
        let pairs = measured.iter().filter(|(cell, _)| cell.system == *first).filter_map(|(cell, own)| {
            let is_equal = |(other_cell, _): &&(&CellRows<'_>, f64)| {
                other_cell.system == *other && other_cell.axes == cell.axes && other_cell.offered == cell.offered
            };
            let (_, value) = measured.iter().find(is_equal)?;
            (*value > 0.0).then_some(own / value)
        });
        let ratios: Vec<f64> = pairs.collect();
        let compared = match ratios.is_empty() || is_echo(other) {
            true => String::new(),
            false => format!(", of which {first} has {}", range(&ratios, &|ratio| format!("{ratio:.2}"))),
        };
        parts.push(format!("{}{compared}", value(other)));
    }
    Some(format!("{}: {}", known.title, parts.join("; ")))
}
