//! Lines and bars of an experiment.
//!
//! The rows of a figure are divided by system, by each axis that is neither its x nor in its `where`, and by fixed load. Each division is a
//! series, which is named by the system, axes and load in which divisions differ. So all rows of a series are of one kind.

use super::cells::{CellRows, Cells, Offered, Value, title_of};
use crate::document;
use crate::experiment::{self, Axes, Publication, Source};
use crate::row::{AxisValue, Definition, LoadUnit, definition};
use std::collections::{BTreeMap, BTreeSet};
use strowger_measure::{Unit, grouped};
use strowger_report::figure::{Axis, Form, Plot, Point, Published, PublishedPoint, Scale, Series, XAxis};

/// Ratio of the greatest delay to the least from which on the axis is logarithmic.
const LOG_FROM: f64 = 100.0;

/// Makes the plot of a figure, or returns `None` if no row has its values.
pub(super) fn plot(cells: &Cells<'_>, figure: &experiment::Figure, title: &str, note: &str) -> Option<Plot> {
    let x = figure.x.clone().unwrap_or(Source::Load);
    let found: Vec<&CellRows<'_>> = shown(cells, figure, &x);
    let names = Names::of(cells, figure, &x, &found);
    let places = Places::of(cells, &x, figure.form, &found);
    let mut series: Vec<(String, BTreeMap<u64, Value>)> = Vec::new();
    for cell in &found {
        for y in figure.y.iter().filter_map(|y| definition(y).map(|definition| (y, definition))) {
            let points = match x {
                Source::Time => cell.over_time(y.0),
                Source::Load => places.of_cell(cell).zip(cells.value(cell, y.0)).into_iter().collect(),
                Source::System | Source::Axis(_) => {
                    places.of_cell(cell).zip(cells.value_at(cell, y.0)).into_iter().collect()
                }
            };
            if points.is_empty() {
                continue;
            }
            let name = names.name(cell, y);
            let at = match series.iter().position(|(known, _)| *known == name) {
                Some(at) => at,
                None => {
                    series.push((name, BTreeMap::new()));
                    series.len() - 1
                }
            };
            for (place, value) in points {
                // The bits of non-negative numbers have the order of the numbers.
                series[at].1.entry(place.to_bits()).or_insert(value);
            }
        }
    }
    if series.is_empty() {
        return None;
    }
    let form = match figure.form {
        experiment::Form::Bars => Form::Bars,
        _ => Form::Line,
    };
    let first = figure.y.first().and_then(|y| definition(y))?;
    let bounds = |value: &Value| value.interval.unwrap_or([value.middle; 2]);
    let measured = series.iter().flat_map(|(_, points)| points.values().flat_map(bounds));
    let all = measured.chain(figure.points.iter().map(|point| point.y));
    let y = Axis { title: axis_title(figure, first), unit: first.unit.key().into(), scale: scale(first.unit, all) };
    let series = series.into_iter().map(|(name, points)| Series {
        name,
        form,
        points: points.into_iter().map(|(place, value)| point(f64::from_bits(place), value)).collect(),
    });
    let published = cells.experiment.published.as_ref().map_or_else(Vec::new, |of| published(of, figure, &places));
    Some(Plot {
        name: slug(&figure.name),
        title: title.into(),
        note: note.into(),
        series: series.collect(),
        x: places.axis(cells, &figure.only),
        y,
        published,
    })
}

/// Returns the name of a figure as a file can have it.
pub(super) fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let slug: String = name.chars().map(plain).collect();
    if slug.contains(|c: char| c.is_ascii_alphanumeric()) { slug } else { format!("figure{slug}") }
}

/// Returns the cells whose values a figure shows. Over the load: all trials. Over time or an axis: one cell for each fixed load, or the
/// cell of the limit if there are no fixed loads.
pub(super) fn shown<'b, 'a>(cells: &'b Cells<'a>, figure: &experiment::Figure, x: &Source) -> Vec<&'b CellRows<'a>> {
    let fitting = cells.with(&figure.only);
    match x {
        Source::Load => fitting.into_iter().filter(|cell| cell.offered != Offered::Limit).collect(),
        Source::Time => representatives(&fitting),
        Source::System | Source::Axis(_) => of_figures(&fitting, &figure.y),
    }
}

/// Selects the cells for these figures: the cells of limits if all figures belong to limits.
pub(super) fn of_figures<'b, 'a>(cells: &[&'b CellRows<'a>], figures: &[String]) -> Vec<&'b CellRows<'a>> {
    let is_of_limits = figures.iter().all(|figure| figure.starts_with("limit") || figure == "connect.rate");
    let limits = || cells.iter().copied().filter(|cell| cell.offered == Offered::Limit);
    if is_of_limits && limits().next().is_some() { limits().collect() } else { representatives(cells) }
}

/// Selects the cells of fixed loads and of multiples of a limit, or the cell of the limit if a system and its axes have no fixed load.
pub(super) fn representatives<'b, 'a>(cells: &[&'b CellRows<'a>]) -> Vec<&'b CellRows<'a>> {
    let has_fixed = |cell: &CellRows<'_>| {
        let mut same = cells.iter().filter(|other| other.system == cell.system && other.axes == cell.axes);
        same.any(|other| matches!(other.offered, Offered::Fixed(_)))
    };
    let is_shown = |cell: &CellRows<'_>| match cell.offered {
        Offered::Fixed(_) | Offered::Multiple(_) => true,
        Offered::Tried(_) => false,
        Offered::Limit => !has_fixed(cell),
    };
    cells.iter().copied().filter(|cell| is_shown(cell)).collect()
}

/// Returns whether two cells differ only in their fixed loads.
pub(super) fn has_several_loads(cells: &[&CellRows<'_>]) -> bool {
    cells.iter().any(|cell| {
        cells.iter().any(|other| {
            other.system == cell.system && other.axes == cell.axes && other.offered.load() != cell.offered.load()
        })
    })
}

/// Returns the names of axes that have several values in these cells.
pub(super) fn varied<'b>(cells: &[&'b CellRows<'_>]) -> Vec<&'b str> {
    let names: BTreeSet<&str> = cells.iter().flat_map(|cell| cell.axes.keys().map(String::as_str)).collect();
    let differs = |name: &&str| cells.iter().map(|cell| cell.axes.get(*name)).collect::<BTreeSet<_>>().len() > 1;
    names.into_iter().filter(differs).collect()
}

/// Names of series.
struct Names<'b> {
    experiment: &'b experiment::Experiment,
    /// Sources in which series differ, in the order of names.
    parts: Vec<Source>,
    /// True if a figure of several is named.
    has_figures: bool,
}

impl<'b> Names<'b> {
    fn of(cells: &'b Cells<'_>, figure: &experiment::Figure, x: &Source, found: &[&CellRows<'_>]) -> Self {
        let systems: BTreeSet<&str> = found.iter().map(|cell| cell.system).collect();
        let mut parts = Vec::new();
        if *x != Source::System && (systems.len() > 1 || figure.line == Some(Source::System)) {
            parts.push(Source::System);
        }
        let varied = varied(found);
        for axis in &cells.experiment.axes {
            let source = Source::Axis(axis.name.clone());
            let is_named = figure.line.as_ref() == Some(&source) || varied.contains(&axis.name.as_str());
            if source != *x && is_named && !figure.only.contains_key(&axis.name) {
                parts.push(source);
            }
        }
        if *x != Source::Load && has_several_loads(found) {
            parts.push(Source::Load);
        }
        parts.sort_by_key(|part| figure.line.as_ref() != Some(part));
        Self { experiment: cells.experiment, parts, has_figures: figure.y.len() > 1 }
    }

    fn name(&self, cell: &CellRows<'_>, (y, definition): (&String, &Definition)) -> String {
        let part = |part: &Source| match part {
            Source::System => Some(cell.system.to_owned()),
            Source::Load | Source::Time => Some(load_title(self.experiment, cell.axes, cell.offered)),
            Source::Axis(name) => cell.axes.get(name).map(|value| title_of(self.experiment, name, value)),
        };
        let mut parts: Vec<String> = self.parts.iter().filter_map(part).collect();
        if self.has_figures {
            parts.push(y.clone());
        }
        if parts.is_empty() { definition.title.to_owned() } else { parts.join(", ") }
    }
}

/// Formats the load of a cell for people.
pub(super) fn load_title(experiment: &experiment::Experiment, axes: &Axes, offered: Offered) -> String {
    match (offered, offered.load()) {
        (_, Some(load)) => format!("{} {}", grouped(load), load_unit(experiment, axes)),
        (Offered::Multiple(multiple), None) => format!("{multiple} times the limit"),
        (_, None) => "limit".into(),
    }
}

/// Returns the unit of the load at these values of axes. Callers that only register make registrations where the experiment
/// otherwise counts calls.
fn load_unit(experiment: &experiment::Experiment, axes: &Axes) -> LoadUnit {
    match experiment.load.unit {
        LoadUnit::Calls if document::only_registers(experiment.document(axes)) => LoadUnit::Registrations,
        unit => unit,
    }
}

/// Places on the horizontal axis.
enum Places {
    /// Loads or values of an axis of numbers.
    Numbers(Source),
    /// Values of an axis, or systems.
    Names(Source, Vec<(String, String)>),
}

impl Places {
    fn of(cells: &Cells<'_>, x: &Source, form: experiment::Form, found: &[&CellRows<'_>]) -> Self {
        let experiment = cells.experiment;
        let is_bars = form == experiment::Form::Bars;
        match x {
            Source::Time => Self::Numbers(Source::Time),
            Source::Load if !is_bars => Self::Numbers(Source::Load),
            Source::Load => {
                let mut loads: Vec<f64> = found.iter().filter_map(|cell| cell.offered.load()).collect();
                loads.sort_by(f64::total_cmp);
                loads.dedup();
                let name = |load: f64| (load.to_string(), load_title(experiment, &Axes::new(), Offered::Fixed(load)));
                Self::Names(Source::Load, loads.into_iter().map(name).collect())
            }
            Source::System => {
                let has = |name: &str| found.iter().any(|cell| cell.system == name);
                let names = cells.systems.iter().filter(|name| has(name)).map(|name| (*name).to_owned());
                Self::Names(Source::System, names.map(|name| (name.clone(), name)).collect())
            }
            Source::Axis(name) => {
                let axis = experiment.axes.iter().find(|axis| axis.name == *name);
                let values = axis.map_or(&[][..], |axis| &axis.values);
                let is_number = |value: &AxisValue| matches!(value, AxisValue::Number(number) if *number >= 0.0);
                if !is_bars && values.iter().all(is_number) {
                    return Self::Numbers(x.clone());
                }
                let has = |value: &AxisValue| found.iter().any(|cell| cell.axes.get(name) == Some(value));
                let named = |value: &AxisValue| (value.to_string(), title_of(experiment, name, value));
                Self::Names(x.clone(), values.iter().filter(|value| has(value)).map(named).collect())
            }
        }
    }

    /// Returns the position of a cell on the horizontal axis, or `None` if the cell has no value for that axis.
    fn of_cell(&self, cell: &CellRows<'_>) -> Option<f64> {
        match self {
            Self::Numbers(Source::Load) => cell.offered.load(),
            Self::Numbers(Source::Axis(name)) => match cell.axes.get(name) {
                Some(AxisValue::Number(number)) => Some(*number),
                _ => None,
            },
            // A cell has many seconds.
            Self::Numbers(Source::System | Source::Time) => None,
            Self::Names(source, _) => self.of_text(&match source {
                Source::System => cell.system.to_owned(),
                Source::Axis(name) => cell.axes.get(name)?.to_string(),
                Source::Load => cell.offered.load()?.to_string(),
                Source::Time => return None,
            }),
        }
    }

    /// Returns the position of a published value.
    fn of_text(&self, text: &str) -> Option<f64> {
        match self {
            Self::Numbers(_) => text.parse().ok(),
            Self::Names(_, names) => names.iter().position(|(written, _)| written == text).map(|place| place as f64),
        }
    }

    /// Makes the horizontal axis of a figure for these values of axes.
    fn axis(self, cells: &Cells<'_>, only: &Axes) -> XAxis {
        let numbers = |title: &str, unit: &str| {
            XAxis::Numbers(Axis { title: title.into(), unit: unit.into(), scale: Scale::Linear })
        };
        match self {
            Self::Numbers(Source::Axis(name)) => numbers(&name, "1"),
            Self::Numbers(Source::Time) => numbers("time since the begin of the window", "s"),
            Self::Numbers(_) => numbers("offered load", load_unit(cells.experiment, only).word()),
            Self::Names(source, names) => XAxis::Categories {
                title: match source {
                    Source::Axis(name) => name,
                    Source::System => "system".into(),
                    Source::Load | Source::Time => "offered load".into(),
                },
                names: names.into_iter().map(|(_, title)| title).collect(),
            },
        }
    }
}

fn point(x: f64, value: Value) -> Point {
    Point { x, y: value.middle, interval: value.interval, is_invalid: value.is_invalid }
}

fn axis_title(figure: &experiment::Figure, first: &Definition) -> String {
    if figure.y.len() == 1 { first.title.to_owned() } else { figure.y.join(", ") }
}

/// Returns a scale that includes measured and published values.
fn scale(unit: Unit, values: impl Iterator<Item = f64>) -> Scale {
    let range = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
    let (least, most) = values.fold((f64::INFINITY, 0.0), range);
    if unit == Unit::Microseconds && least > 0.0 && most >= least * LOG_FROM { Scale::Log } else { Scale::Linear }
}

/// Groups the published values by measured variant.
fn published(of: &Publication, figure: &experiment::Figure, places: &Places) -> Vec<Published> {
    let mut groups: Vec<(&str, Vec<PublishedPoint>)> = Vec::new();
    for point in &figure.points {
        let x = match &point.x {
            None => None,
            // The profile leaves out this place.
            Some(x) => match places.of_text(x) {
                None => continue,
                place => place,
            },
        };
        let point = (&point.of, PublishedPoint { x, y: point.y });
        match groups.iter_mut().find(|(name, _)| name == point.0) {
            Some((_, points)) => points.push(point.1),
            None => groups.push((point.0, vec![point.1])),
        }
    }
    let source = |name: &str| if name.is_empty() { of.source.clone() } else { format!("{}, {name}", of.source) };
    groups
        .into_iter()
        .map(|(name, points)| Published::new(&source(name), &of.machine, &figure.erratum, points))
        .collect()
}
