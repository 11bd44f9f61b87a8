//! Verdicts of gates.
//!
//! A gate compares valid trials of one run, at equal loads or at equal multiples of a limit; only a gate that names two multiples compares
//! these. A ratio or difference is the median over the repetitions: the trials of one repetition are close in time, so that a drift of the
//! machine affects both. With several loads, the value furthest from the bound decides.

use super::cells::{CellRows, Cells, figure_of, value_of};
use super::plot::representatives;
use super::table::show_plain;
use crate::compare::FLOOR;
use crate::experiment::{Axes, Bound, Experiment, Gate};
use crate::row::{Profile, Row};
use crate::statistics::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// Verdict of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateVerdict {
    /// Gate in words.
    pub gate: String,
    /// Measured value or ratio, or `None` if a trial is missing or not valid.
    pub value: Option<f64>,
    /// True if the bound is met; `None` if nothing could be judged.
    pub is_met: Option<bool>,
    /// True if the aim is met; `None` without an aim.
    pub is_aim_met: Option<bool>,
    /// Result in words.
    pub sentence: String,
}

/// Judges the gates of an experiment by the rows of a run.
///
/// In the profile smoke no gate is judged, because the trials are too short.
pub fn gates(experiment: &Experiment, rows: &[Row]) -> Vec<GateVerdict> {
    let cells = Cells::of(experiment, rows);
    let is_smoke = !rows.is_empty() && rows.iter().all(|row| row.profile == Profile::Smoke);
    let is_there = |gate: &&Gate| has_optional(experiment, rows, gate);
    experiment.gates.iter().filter(is_there).map(|gate| verdict(&cells, rows, gate, is_smoke)).collect()
}

/// Tells whether the run has the optional systems of a gate.
fn has_optional(experiment: &Experiment, rows: &[Row], gate: &Gate) -> bool {
    let is_of = |name: &str| gate.system == name || gate.against.as_deref() == Some(name);
    let mut optional = experiment.systems.iter().filter(|system| system.is_optional && is_of(&system.name));
    optional.all(|system| rows.iter().any(|row| *row.system.name == system.name))
}

/// Judges a gate. If its bound is missed, judges the gate that may be met instead.
fn verdict(cells: &Cells<'_>, rows: &[Row], gate: &Gate, is_smoke: bool) -> GateVerdict {
    let mut verdict = verdict_alone(cells, rows, gate, is_smoke);
    let Some(instead) = &gate.instead else { return verdict };
    let other = verdict_alone(cells, rows, instead, is_smoke);
    verdict.gate = format!("{}, or {}", verdict.gate, other.gate);
    if verdict.is_met == Some(false) {
        verdict.sentence = format!("{}; {}", verdict.sentence, other.sentence);
        verdict.is_met = other.is_met.or(verdict.is_met);
    }
    verdict
}

fn verdict_alone(cells: &Cells<'_>, rows: &[Row], gate: &Gate, is_smoke: bool) -> GateVerdict {
    let measured = measured(cells, rows, gate);
    let is_ratio = gate.against.is_some() && !matches!(gate.bound, Bound::AddsAtMost(_));
    let figure = gate.figures.first().map_or("", String::as_str);
    let show = |value: f64| if is_ratio { format!("{value:.3}") } else { show_plain(figure, value) };
    let words = match gate.bound {
        Bound::AtMost(_) => "at most",
        Bound::AtLeast(_) => "at least",
        Bound::AddsAtMost(_) => "adds at most",
    };
    let each = if gate.is_of_each { " in each trial" } else { "" };
    let aim = gate.aim.map_or_else(String::new, |aim| format!(", aim {}", show(aim)));
    let mut verdict = GateVerdict {
        gate: format!("{} {words} {}{each}{aim}", subject(gate), show(gate.bound.value())),
        value: measured.as_ref().ok().copied(),
        is_met: None,
        is_aim_met: None,
        sentence: String::new(),
    };
    verdict.sentence = match measured {
        Err(reason) => reason,
        Ok(value) if is_smoke => format!("{}: the profile smoke judges nothing", show(value)),
        Ok(value) => {
            verdict.is_met = Some(gate.bound.is_met(value));
            verdict.is_aim_met = gate.aim.map(|aim| gate.bound.with(aim).is_met(value));
            match (verdict.is_met, verdict.is_aim_met) {
                (Some(true), Some(true)) => format!("{}: met, and the aim", show(value)),
                (Some(true), _) => format!("{}: met", show(value)),
                _ => format!("{}: missed", show(value)),
            }
        }
    };
    verdict
}

/// Describes the judged figures, systems and axes in words.
fn subject(gate: &Gate) -> String {
    let axes = |axes: &Axes| -> String { axes.iter().map(|(name, value)| format!(" {name}={value}")).collect() };
    let own = format!("{} of {}{}", gate.figures.join(" + "), gate.system, axes(&gate.only));
    match &gate.against {
        None => own,
        Some(against) if against == FLOOR => format!("{own} over the floor"),
        Some(against) => {
            let word = if matches!(gate.bound, Bound::AddsAtMost(_)) { "beside" } else { "over" };
            format!("{own} {word} {against}{}", axes(&against_axes(gate)))
        }
    }
}

fn against_axes(gate: &Gate) -> Axes {
    let mut axes = gate.only.clone();
    axes.extend(gate.against_only.iter().map(|(name, value)| (name.clone(), value.clone())));
    axes
}

/// Returns the value, ratio or difference that is furthest from the bound.
fn measured(cells: &Cells<'_>, rows: &[Row], gate: &Gate) -> Result<f64, String> {
    let own = of_system(cells, &gate.system, &gate.only);
    if own.is_empty() {
        return Err(format!("not judged: this run has no trial of {}{}", gate.system, with(&gate.only)));
    }
    enough(&own, gate)?;
    let mut values = Vec::new();
    match &gate.against {
        None if gate.is_of_each => values.extend(own.iter().flat_map(|cell| by_repetition(cell, gate).into_values())),
        None => values.extend(own.iter().filter_map(|cell| sum(cells, cell, gate))),
        Some(against) if against == FLOOR => {
            for cell in &own {
                let floor = of_floor(rows, cell, gate);
                values
                    .extend(sum(cells, cell, gate).zip(floor).and_then(|(own, floor)| gate.bound.compare(own, floor)));
            }
        }
        Some(against) => {
            let axes = against_axes(gate);
            let others = of_system(cells, against, &axes);
            if others.is_empty() {
                return Err(format!("not judged: this run has no trial of {against}{}", with(&axes)));
            }
            enough(&others, gate)?;
            let multiples = cells.experiment.multiples();
            let is_of_other_load = multiples.is_some_and(|axis| gate.against_only.contains_key(&axis.name));
            for cell in &own {
                let is_at_load = |other: &CellRows<'_>| is_of_other_load || other.offered == cell.offered;
                let equal = |other: &&&CellRows<'_>| is_at_load(other) && is_alike(gate, cell, other);
                values.extend(others.iter().find(equal).and_then(|other| compared(cells, cell, other, gate)));
            }
        }
    }
    let furthest = values.into_iter().reduce(|one, other| gate.bound.worse(one, other));
    furthest.ok_or_else(|| "not judged: a figure was not measured by a valid trial at an equal load".into())
}

/// Refuses a gate whose cells have fewer valid trials than it needs.
fn enough(cells: &[&CellRows<'_>], gate: &Gate) -> Result<(), String> {
    let valid = |cell: &&CellRows<'_>| cell.rows.iter().filter(|row| row.validity.is_valid()).count() as u32;
    match cells.iter().map(valid).min() {
        Some(least) if gate.repetitions > 1 && least < gate.repetitions => {
            let wanted = gate.repetitions;
            Err(format!("not judged: it needs {wanted} valid repetitions, and the run has {least}"))
        }
        _ => Ok(()),
    }
}

/// Returns the sum of the judged figures of the floor at the load of a cell.
fn of_floor(rows: &[Row], cell: &CellRows<'_>, gate: &Gate) -> Option<f64> {
    let is_equal =
        |row: &&Row| row.system.name == FLOOR && row.validity.is_valid() && Some(row.load.value) == cell.offered.load();
    let floor: Vec<&Row> = rows.iter().filter(is_equal).collect();
    let of_figure = |figure: &String| value_of(&floor, |row| row.figures.value(figure)).map(|value| value.middle);
    gate.figures.iter().map(of_figure).sum()
}

/// Returns the ratio or difference of two cells: its median over the common repetitions, or the ratio or difference of the two medians if
/// there are no common repetitions.
fn compared(cells: &Cells<'_>, own: &CellRows<'_>, other: &CellRows<'_>, gate: &Gate) -> Option<f64> {
    let [mine, others] = [own, other].map(|cell| by_repetition(cell, gate));
    let pair = |(repetition, own): (&u32, &f64)| gate.bound.compare(*own, *others.get(repetition)?);
    let pairs: Vec<f64> = mine.iter().filter_map(pair).collect();
    match pairs.is_empty() {
        true => gate.bound.compare(sum(cells, own, gate)?, sum(cells, other, gate)?),
        false => Some(median(pairs)),
    }
}

/// Sums of the judged figures of the valid trials by repetition.
fn by_repetition(cell: &CellRows<'_>, gate: &Gate) -> BTreeMap<u32, f64> {
    let valid = cell.rows.iter().filter(|row| row.validity.is_valid());
    let sum = |row: &Row| gate.figures.iter().map(|figure| figure_of(row, figure)).sum::<Option<f64>>();
    valid.filter_map(|row| Some((row.repetition, sum(row)?))).collect()
}

/// Tells whether two cells differ in the axes of the gate only.
fn is_alike(gate: &Gate, own: &CellRows<'_>, other: &CellRows<'_>) -> bool {
    let is_named = |name: &str| gate.only.contains_key(name) || gate.against_only.contains_key(name);
    own.axes.iter().all(|(name, value)| is_named(name) || other.axes.get(name) == Some(value))
}

/// Returns the cells of the fixed loads of a system, or the cell of its limit.
fn of_system<'b, 'a>(cells: &'b Cells<'a>, system: &str, only: &Axes) -> Vec<&'b CellRows<'a>> {
    let own: Vec<_> = cells.with(only).into_iter().filter(|cell| cell.system == system).collect();
    representatives(&own)
}

/// Returns the sum of the medians of the judged figures.
fn sum(cells: &Cells<'_>, cell: &CellRows<'_>, gate: &Gate) -> Option<f64> {
    let value =
        |figure: &String| cells.value_at(cell, figure).filter(|value| !value.is_invalid).map(|value| value.middle);
    gate.figures.iter().map(value).sum()
}

fn with(axes: &Axes) -> String {
    let axes: Vec<String> = axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if axes.is_empty() { String::new() } else { format!(" with {}", axes.join(", ")) }
}
