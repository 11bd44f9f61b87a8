//! Verdicts of gates.
//!
//! A gate compares medians of valid trials of one run, at equal loads. At several loads the value furthest from the bound decides.

use super::cells::{CellRows, Cells, value_of};
use super::plot::representatives;
use crate::compare::FLOOR;
use crate::experiment::{Axes, Bound, Experiment, Gate};
use crate::row::{Profile, Row, definition};
use serde::Serialize;
use strowger_measure::Unit;

/// Verdict of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Gate in words.
    pub gate: String,
    /// Measured value or ratio. None where a trial is missing or not valid.
    pub value: Option<f64>,
    /// Whether the bound is met. None where nothing could be judged.
    pub is_met: Option<bool>,
    /// Whether the aim is met. None without an aim.
    pub is_aim_met: Option<bool>,
    /// Result in words.
    pub sentence: String,
}

/// Judges the gates of an experiment by the rows of a run.
///
/// The profile smoke judges none: its trials are too short.
pub fn gates(experiment: &Experiment, rows: &[Row]) -> Vec<Verdict> {
    let cells = Cells::of(experiment, rows);
    let is_smoke = !rows.is_empty() && rows.iter().all(|row| row.profile == Profile::Smoke);
    experiment.gates.iter().map(|gate| verdict(&cells, rows, gate, is_smoke)).collect()
}

fn verdict(cells: &Cells<'_>, rows: &[Row], gate: &Gate, is_smoke: bool) -> Verdict {
    let measured = measured(cells, rows, gate);
    let is_ratio = gate.against.is_some();
    let unit = gate.figures.first().and_then(|figure| definition(figure)).map_or(Unit::Count, |found| found.unit);
    let show = |value: f64| if is_ratio { format!("{value:.3}") } else { unit.show(value) };
    let (words, bound) = match gate.bound {
        Bound::AtMost(most) => ("at most", most),
        Bound::AtLeast(least) => ("at least", least),
    };
    let aim = gate.aim.map_or_else(String::new, |aim| format!(", aim {}", show(aim)));
    let mut verdict = Verdict {
        gate: format!("{} {words} {}{aim}", subject(gate), show(bound)),
        value: measured.as_ref().ok().copied(),
        is_met: None,
        is_aim_met: None,
        sentence: String::new(),
    };
    verdict.sentence = match measured {
        Err(reason) => reason,
        Ok(value) if is_smoke => format!("{}: the profile smoke judges nothing", show(value)),
        Ok(value) => {
            let within = |bound| match gate.bound {
                Bound::AtMost(_) => Bound::AtMost(bound).is_met(value),
                Bound::AtLeast(_) => Bound::AtLeast(bound).is_met(value),
            };
            verdict.is_met = Some(within(bound));
            verdict.is_aim_met = gate.aim.map(within);
            match (verdict.is_met, verdict.is_aim_met) {
                (Some(true), Some(true)) => format!("{}: met, and the aim", show(value)),
                (Some(true), _) => format!("{}: met", show(value)),
                _ => format!("{}: missed", show(value)),
            }
        }
    };
    verdict
}

/// Judged figures, systems and axes in words.
fn subject(gate: &Gate) -> String {
    let axes = |axes: &Axes| -> String { axes.iter().map(|(name, value)| format!(" {name}={value}")).collect() };
    let own = format!("{} of {}{}", gate.figures.join(" + "), gate.system, axes(&gate.only));
    match &gate.against {
        None => own,
        Some(against) if against == FLOOR => format!("{own} over the floor"),
        Some(against) => format!("{own} over {against}{}", axes(&against_axes(gate))),
    }
}

fn against_axes(gate: &Gate) -> Axes {
    let mut axes = gate.only.clone();
    axes.extend(gate.against_only.iter().map(|(name, value)| (name.clone(), value.clone())));
    axes
}

/// Value or ratio that is furthest from the bound.
fn measured(cells: &Cells<'_>, rows: &[Row], gate: &Gate) -> Result<f64, String> {
    let own = of_system(cells, &gate.system, &gate.only);
    if own.is_empty() {
        return Err(format!("not judged: this run has no trial of {}{}", gate.system, with(&gate.only)));
    }
    let mut values = Vec::new();
    match &gate.against {
        None => values.extend(own.iter().filter_map(|cell| sum(cells, cell, gate))),
        Some(against) if against == FLOOR => {
            let floor: Vec<&Row> =
                rows.iter().filter(|row| row.system.name == FLOOR && row.validity.is_valid()).collect();
            let of_floor =
                |figure: &String| value_of(&floor, |row| row.figures.value(figure)).map(|value| value.middle);
            let floor: f64 = gate.figures.iter().map(of_floor).sum::<Option<f64>>().unwrap_or(0.0);
            values.extend(own.iter().filter_map(|cell| ratio(sum(cells, cell, gate)?, floor)));
        }
        Some(against) => {
            let axes = against_axes(gate);
            let others = of_system(cells, against, &axes);
            if others.is_empty() {
                return Err(format!("not judged: this run has no trial of {against}{}", with(&axes)));
            }
            for cell in &own {
                let equal = |other: &&&CellRows<'_>| other.offered == cell.offered && is_alike(gate, cell, other);
                let pair = others.iter().find(equal).and_then(|other| sum(cells, other, gate));
                values.extend(sum(cells, cell, gate).zip(pair).and_then(|(own, other)| ratio(own, other)));
            }
        }
    }
    let furthest = match gate.bound {
        Bound::AtMost(_) => values.into_iter().reduce(f64::max),
        Bound::AtLeast(_) => values.into_iter().reduce(f64::min),
    };
    furthest.ok_or_else(|| "not judged: a figure was not measured by a valid trial at an equal load".into())
}

/// Whether two cells differ in the axes of the gate only.
fn is_alike(gate: &Gate, own: &CellRows<'_>, other: &CellRows<'_>) -> bool {
    let is_named = |name: &str| gate.only.contains_key(name) || gate.against_only.contains_key(name);
    own.axes.iter().all(|(name, value)| is_named(name) || other.axes.get(name) == Some(value))
}

/// Cells of fixed loads of a system, or its limit.
fn of_system<'b, 'a>(cells: &'b Cells<'a>, system: &str, only: &Axes) -> Vec<&'b CellRows<'a>> {
    let own: Vec<_> = cells.with(only).into_iter().filter(|cell| cell.system == system).collect();
    representatives(&own)
}

/// Sum of the judged figures of valid trials.
fn sum(cells: &Cells<'_>, cell: &CellRows<'_>, gate: &Gate) -> Option<f64> {
    let value =
        |figure: &String| cells.value_at(cell, figure).filter(|value| !value.is_invalid).map(|value| value.middle);
    gate.figures.iter().map(value).sum()
}

fn ratio(own: f64, other: f64) -> Option<f64> {
    (other > 0.0).then_some(own / other)
}

fn with(axes: &Axes) -> String {
    let axes: Vec<String> = axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if axes.is_empty() { String::new() } else { format!(" with {}", axes.join(", ")) }
}
