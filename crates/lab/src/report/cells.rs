//! Cells of an experiment: the rows of one system, one set of axes and one load, and the values of their figures.

use crate::compare::FLOOR;
use crate::experiment::{Axes, Axis, Experiment, PlannedLoad, plan};
use crate::formula::{overload, stress};
use crate::row::{AxisValue, Cell, Row};
use crate::statistics::Interval;
use std::collections::BTreeSet;

/// Load of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Offered {
    /// Fixed load of the plan.
    Fixed(f64),
    /// Multiple of the limit.
    Multiple(f64),
    /// Load that a finder tried.
    Tried(f64),
    /// Limit that a finder found: its cell has the figures of the trial that confirmed it.
    Limit,
}

/// Rows that differ in repetition only.
#[derive(Debug)]
pub(super) struct CellRows<'a> {
    pub system: &'a str,
    pub axes: &'a Axes,
    pub offered: Offered,
    /// The valid rows, or the last row if none is valid.
    pub rows: Vec<&'a Row>,
}

/// Value of a figure in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    /// Median over the repetitions.
    pub middle: f64,
    /// Interval of the median, or `None` for a single repetition.
    pub interval: Option<[f64; 2]>,
    /// No trial of the cell was valid.
    pub is_invalid: bool,
}

/// Cells of a run in the order of the experiment.
#[derive(Debug)]
pub(super) struct Cells<'a> {
    pub experiment: &'a Experiment,
    /// Systems of the rows, in the order of the experiment. Systems of the command line follow.
    pub systems: Vec<&'a str>,
    pub cells: Vec<CellRows<'a>>,
}

/// Figures that are shown at the limit, if one was searched.
const OF_LIMIT: [&str; 4] = ["load", "load.scaled", "penalty", "connect.rate"];

impl<'a> Cells<'a> {
    /// Collects the rows of the systems, without the floor.
    pub(super) fn of(experiment: &'a Experiment, rows: &'a [Row]) -> Self {
        let planned = planned_loads(experiment, rows);
        let mut cells: Vec<(Cell, CellRows<'a>)> = Vec::new();
        for row in rows.iter().filter(|row| row.system.name != FLOOR) {
            let offered = match (row.limit.is_some(), experiment.multiple(&row.axes), row.load.value) {
                (true, ..) => Offered::Limit,
                (false, Some(multiple), _) => Offered::Multiple(multiple),
                (false, None, load) if planned.contains(&load.to_bits()) => Offered::Fixed(load),
                (false, None, load) => Offered::Tried(load),
            };
            let key = row.cell();
            match cells.iter_mut().find(|(known, cell)| *known == key && cell.offered == offered) {
                Some((_, cell)) => cell.rows.push(row),
                None => {
                    cells.push((key, CellRows { system: &row.system.name, axes: &row.axes, offered, rows: vec![row] }))
                }
            }
        }
        let mut cells: Vec<CellRows<'a>> = cells.into_iter().map(|(_, cell)| cell.judged()).collect();
        let mut systems: Vec<&str> = Vec::new();
        let of_experiment = experiment.systems.iter().map(|system| system.name.as_str());
        for name in of_experiment.chain(cells.iter().map(|cell| cell.system)) {
            if !systems.contains(&name) && cells.iter().any(|cell| cell.system == name) {
                systems.push(name);
            }
        }
        let system = |name: &str| systems.iter().position(|system| *system == name);
        let value = |axis: &Axis, axes: &Axes| {
            axes.get(&axis.name).and_then(|value| axis.values.iter().position(|known| known == value))
        };
        let places = |cell: &CellRows<'_>| -> Vec<Option<usize>> {
            experiment.axes.iter().map(|axis| value(axis, cell.axes)).chain([system(cell.system)]).collect()
        };
        cells.sort_by(|a, b| places(a).cmp(&places(b)).then(a.offered.order().total_cmp(&b.offered.order())));
        Self { experiment, systems, cells }
    }

    /// Returns the cells with these values of axes.
    pub(super) fn with(&self, only: &Axes) -> Vec<&CellRows<'a>> {
        let fits = |cell: &&CellRows<'a>| only.iter().all(|(name, value)| cell.axes.get(name) == Some(value));
        self.cells.iter().filter(fits).collect()
    }

    /// Returns the value of a figure in a cell, computed where rows do not have it.
    pub(super) fn value(&self, cell: &CellRows<'a>, figure: &str) -> Option<Value> {
        match figure {
            "penalty" => self.penalty(cell),
            "goodput.share" => self.goodput_share(cell),
            "goodput.ideal" => self.ideal_goodput(cell),
            "goodput.ratio" => {
                let ideal = self.ideal_goodput(cell).filter(|ideal| ideal.middle > 0.0)?;
                Some(self.goodput_share(cell)?.times(100.0 / ideal.middle, ideal.is_invalid))
            }
            "refusal.cost" => self.refusal_cost(cell),
            _ => cell.value(figure),
        }
    }

    /// Returns the value of a figure for a system and its axes at one of its loads: of the fixed load, or of the limit.
    pub(super) fn value_at(&self, cell: &CellRows<'a>, figure: &str) -> Option<Value> {
        let limit = self
            .cells
            .iter()
            .find(|other| other.offered == Offered::Limit && other.system == cell.system && other.axes == cell.axes);
        let is_of_limit = OF_LIMIT.contains(&figure);
        let of_limit = || limit.and_then(|limit| self.value(limit, figure));
        if is_of_limit {
            of_limit().or_else(|| self.value(cell, figure))
        } else {
            self.value(cell, figure).or_else(of_limit)
        }
    }

    /// Returns the goodput in per cent of the limit, of which the load is a multiple.
    fn goodput_share(&self, cell: &CellRows<'a>) -> Option<Value> {
        let multiple = self.experiment.multiple(cell.axes)?;
        let load = Some(cell.rows.first()?.load.value).filter(|load| *load > 0.0)?;
        Some(cell.value("goodput")?.times(100.0 * multiple / load, false))
    }

    /// Returns the ideal goodput in per cent of the limit, by the cost of a refusal in the same run.
    fn ideal_goodput(&self, cell: &CellRows<'a>) -> Option<Value> {
        let multiple = self.experiment.multiple(cell.axes)?;
        let cost = self.refusal_cost(cell)?;
        let middle = overload::ideal_goodput(multiple, cost.middle / 100.0)? * 100.0;
        Some(Value { middle, interval: None, is_invalid: cost.is_invalid })
    }

    /// Returns the cost of a refused call in per cent of that of an accepted one. It is measured at the highest multiple of the limit, and the
    /// cost of a call at the highest one that is not above the limit.
    fn refusal_cost(&self, cell: &CellRows<'a>) -> Option<Value> {
        let others = |axes: &Axes| self.experiment.others(axes);
        let is_own = |other: &&CellRows<'a>| other.system == cell.system && others(other.axes) == others(cell.axes);
        let own: Vec<(f64, &CellRows<'a>)> = self
            .cells
            .iter()
            .filter(is_own)
            .filter_map(|other| Some((self.experiment.multiple(other.axes)?, other)))
            .collect();
        let highest = |is_above: bool| {
            let wanted = own.iter().filter(|(multiple, _)| (*multiple > 1.0) == is_above);
            wanted.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, cell)| *cell)
        };
        let (whole, refusing) = (highest(false)?, highest(true)?);
        let (of_call, of_attempt) = (whole.value("server.cpu.call")?, refusing.value("server.cpu.call")?);
        let all = refusing.value("rate.achieved").filter(|all| all.middle > 0.0)?;
        let accepted = refusing.value("goodput")?.middle / all.middle;
        let cost = overload::refusal_cost(of_attempt.middle, accepted, of_call.middle)?;
        Some(Value { middle: cost * 100.0, interval: None, is_invalid: of_call.is_invalid || of_attempt.is_invalid })
    }

    /// Returns the penalty of the scaled load. The axis names the value with which the cell is compared.
    fn penalty(&self, cell: &CellRows<'a>) -> Option<Value> {
        let (axis, base) = self.experiment.axes.iter().find_map(|axis| {
            let written = cell.axes.get(&axis.name)?.to_string();
            Some((axis, axis.against.get(&written)?))
        })?;
        let mut axes = cell.axes.clone();
        axes.insert(axis.name.clone(), axis.values.iter().find(|value| value.to_string() == *base)?.clone());
        let of_base = || self.cells.iter().filter(|other| other.system == cell.system && *other.axes == axes);
        // A scaled load holds for one rate. If the other value of the axis has no cell with this load, the cell with another load is
        // compared.
        let is_limit = |offered: Offered| offered == Offered::Limit;
        let equal = of_base().find(|other| other.offered == cell.offered);
        let base = equal.or_else(|| of_base().find(|other| is_limit(other.offered) == is_limit(cell.offered)))?;
        let (own, base) = (cell.value("load.scaled")?, base.value("load.scaled")?);
        let middle = stress::penalty(own.middle, base.middle)?;
        Some(Value { middle, interval: None, is_invalid: own.is_invalid || base.is_invalid })
    }
}

impl Value {
    /// Returns the value times a factor. `is_invalid`: no trial of the factor was valid.
    fn times(self, factor: f64, is_invalid: bool) -> Self {
        Self {
            middle: self.middle * factor,
            interval: self.interval.map(|bounds| bounds.map(|bound| bound * factor)),
            is_invalid: self.is_invalid || is_invalid,
        }
    }
}

impl CellRows<'_> {
    /// Keeps the valid rows, or the last one.
    fn judged(mut self) -> Self {
        if self.rows.iter().any(|row| row.validity.is_valid()) {
            self.rows.retain(|row| row.validity.is_valid());
        } else if let Some(last) = self.rows.pop() {
            self.rows = vec![last];
        }
        self
    }

    fn value(&self, figure: &str) -> Option<Value> {
        value_of(&self.rows, |row| figure_of(row, figure))
    }

    /// Returns the values of a figure at the end of each second of the window in which a row has a value.
    pub(super) fn over_time(&self, figure: &str) -> Vec<(f64, Value)> {
        let seconds = self.rows.iter().map(|row| row.series.values(figure).len()).max().unwrap_or(0);
        let value = |second: usize| value_of(&self.rows, |row| *row.series.values(figure).get(second)?);
        (0..seconds).filter_map(|second| Some(((second + 1) as f64, value(second)?))).collect()
    }
}

/// Returns the median of a figure over rows.
pub(super) fn value_of(rows: &[&Row], figure: impl Fn(&Row) -> Option<f64>) -> Option<Value> {
    let values: Vec<f64> = rows.iter().filter_map(|row| figure(row)).collect();
    let is_single = values.len() < 2;
    let interval = Interval::of_median(values)?;
    Some(Value {
        middle: interval.median,
        interval: (!is_single).then_some([interval.low, interval.high]),
        is_invalid: !rows.iter().any(|row| row.validity.is_valid()),
    })
}

impl Offered {
    fn order(self) -> f64 {
        match self {
            Self::Fixed(load) | Self::Tried(load) | Self::Multiple(load) => load,
            Self::Limit => f64::INFINITY,
        }
    }

    /// Returns the load of a trial, or `None` for a limit and its multiples.
    pub(super) const fn load(self) -> Option<f64> {
        match self {
            Self::Fixed(load) | Self::Tried(load) => Some(load),
            Self::Limit | Self::Multiple(_) => None,
        }
    }
}

/// Returns a figure of a row: a measured one, or one that the formulas of the stress tests compute.
pub(super) fn figure_of(row: &Row, figure: &str) -> Option<f64> {
    row.figures.value(figure).or_else(|| match figure {
        "load" => Some(row.figures.value("server.cpu")? + row.figures.value("database.cpu").unwrap_or(0.0)),
        "load.scaled" => stress::scaled_load(figure_of(row, "load")?, rate(row)?),
        _ => None,
    })
}

/// Returns the rate of a trial: the limit, or the offered load.
fn rate(row: &Row) -> Option<f64> {
    let offered = row.load.unit.is_rate().then_some(row.load.value).filter(|rate| *rate > 0.0);
    row.figures.value("limit").or(offered)
}

/// Returns the loads that the plans of these rows fix, as the bits of floating-point numbers.
fn planned_loads(experiment: &Experiment, rows: &[Row]) -> BTreeSet<u64> {
    let profiles: BTreeSet<_> = rows.iter().map(|row| row.profile).collect();
    let trials = profiles.into_iter().flat_map(|profile| plan(experiment, profile, &[]).trials);
    let loads = trials.filter_map(|trial| match trial.load {
        PlannedLoad::Fixed(load) => Some(load.to_bits()),
        PlannedLoad::Multiple(_) | PlannedLoad::Search => None,
    });
    loads.collect()
}

/// Greatest length of a code, such as the letter of a stress test. Its title follows it.
const CODE: usize = 2;

/// Returns the name of a value of an axis for people.
pub(super) fn title_of(experiment: &Experiment, axis: &str, value: &AxisValue) -> String {
    let written = value.to_string();
    let title = experiment.axes.iter().find(|known| known.name == axis).and_then(|axis| axis.titles.get(&written));
    match (title, value) {
        (Some(title), _) if written.len() <= CODE => format!("{written}: {title}"),
        (Some(title), _) => title.clone(),
        (None, AxisValue::Number(_)) => format!("{written} {axis}"),
        (None, AxisValue::Text(_)) => written,
    }
}
