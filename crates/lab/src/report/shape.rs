//! Shapes of a report: which figures, lines, units and points it has, and which its plan promises.

use super::cells::Cells;
use super::{Body, Report};
use crate::experiment::{Experiment, Figure, FinderKind, Plan, Planned, PlannedLoad, Steps, TrialPosition, plan};
use crate::finder::{Finding, Method, Part};
use crate::row::{DEFINITIONS, FoundLimit, Load, Profile, Row, System, may_lack};
use std::collections::BTreeMap;
use strowger_report::Plot;

/// Content of a figure, table or drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Points by series, and the unit of the vertical axis.
    Series {
        /// Unit.
        unit: String,
        /// Number of points by name of the series.
        points: BTreeMap<String, usize>,
    },
    /// Titles of the columns, and the number of lines.
    Table {
        /// Columns.
        columns: Vec<String>,
        /// Number of lines.
        lines: usize,
    },
    /// A drawing.
    Drawing,
    /// A figure without data.
    Empty,
}

/// Name and content of a figure, table or drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Name in the experiment.
    pub figure: String,
    /// Content.
    pub content: Content,
}

impl Report<'_> {
    /// Returns the shapes of all figures, tables and drawings.
    pub fn shapes(&self) -> Vec<Shape> {
        let of_plot = |plot: &Plot| Content::Series {
            unit: plot.y.unit.clone(),
            points: plot.series.iter().map(|series| (series.name.clone(), series.points.len())).collect(),
        };
        let content = |body: &Body| match body {
            Body::Figure(figure) => figure.plot().map_or(Content::Empty, of_plot),
            Body::Table(table) => Content::Table { columns: table.titles().to_vec(), lines: table.rows() },
            Body::Drawing(_) => Content::Drawing,
        };
        self.parts.iter().map(|part| Shape { figure: part.name.clone(), content: content(&part.body) }).collect()
    }
}

/// Makes the rows that the trials of a plan promise, each with every figure. A search ends in a limit; a staircase and a search
/// of RFC 7502 make trials at two loads at least.
pub fn expected(experiment: &Experiment, profile: Profile, plan: &Plan) -> Vec<Row> {
    plan.trials.iter().flat_map(|trial| rows(experiment, profile, trial)).collect()
}

fn rows(experiment: &Experiment, profile: Profile, trial: &Planned) -> Vec<Row> {
    let steps = experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile));
    let seconds = steps.window.as_secs() as usize;
    let row = |load: f64| {
        let load = Load { value: load, unit: experiment.load.unit };
        let system = System::new(&trial.system, "");
        let mut row = Row::new(&experiment.name, system, load, profile, trial.configuration.as_bytes());
        row.axes = trial.axes.clone();
        row.repetition = trial.repetition;
        // A second without an answer has no delay and no share, so that only one value of these figures is promised.
        let seconds = |name: &str| if may_lack(name) { 1 } else { seconds };
        for name in experiment.course(profile, &trial.axes).over_time {
            let _ = row.series.set(&name, vec![Some(1.0); seconds(&name)]);
        }
        for definition in DEFINITIONS.iter().filter(|definition| !definition.name.ends_with('/')) {
            let is_limit = definition.name.starts_with("limit");
            let has = experiment.has_figure(&trial.axes, definition.name)
                && (definition.name != "connect.rate"
                    || experiment.establishes(&trial.axes)
                    || experiment.connect_rate(&trial.axes).is_some());
            if has && !is_limit {
                let _ = row.figures.set(definition.name, 1.0);
            }
        }
        row
    };
    match trial.load {
        PlannedLoad::Fixed(load) => vec![row(load)],
        PlannedLoad::Multiple(multiple) => vec![row(multiple * experiment.assumed_limit(&steps, &trial.system))],
        PlannedLoad::Search => {
            let load = experiment.load_of(&trial.system);
            let mut limit = row(0.0);
            for name in ["limit", "limit.low", "limit.high"] {
                let _ = limit.figures.set(name, load.expected);
            }
            limit.limit = Some(FoundLimit {
                method: Method::Search,
                finding: Finding::Found,
                part: Part::Unknown,
                thread: None,
                sign: String::new(),
                missed: None,
                trials: 1,
                marked: false,
            });
            let steps = match load.finder {
                FinderKind::Staircase => vec![row(load.start), row(load.start + load.step)],
                FinderKind::Rfc7502 => vec![row(load.start), row(load.start * 2.0)],
                FinderKind::Fixed | FinderKind::Search => Vec::new(),
            };
            steps.into_iter().chain([limit]).collect()
        }
    }
}

/// Lists the figures, units, series, points, columns and lines that a report lacks.
pub fn missing(found: &[Shape], wanted: &[Shape]) -> Vec<String> {
    let mut missing = Vec::new();
    for wanted in wanted {
        let Some(found) = found.iter().find(|found| found.figure == wanted.figure) else {
            missing.push(format!("figure {}", wanted.figure));
            continue;
        };
        let name = &wanted.figure;
        match (&found.content, &wanted.content) {
            (Content::Series { unit, points }, Content::Series { unit: wanted_unit, points: wanted }) => {
                if unit != wanted_unit {
                    missing.push(format!("figure {name}: unit {wanted_unit}"));
                }
                for (series, count) in wanted {
                    let has = points.get(series).copied().unwrap_or(0);
                    if has < *count {
                        missing.push(format!("figure {name}: {} of {count} points of {series}", count - has));
                    }
                }
            }
            (Content::Table { columns, lines }, Content::Table { columns: wanted, lines: wanted_lines }) => {
                let lacking = wanted.iter().filter(|column| !columns.contains(column));
                missing.extend(lacking.map(|column| format!("table {name}: column {column}")));
                if lines < wanted_lines {
                    missing.push(format!("table {name}: {} of {wanted_lines} lines", wanted_lines - lines));
                }
            }
            (found, wanted) if found == wanted => {}
            (_, Content::Empty) => {}
            _ => missing.push(format!("figure {name}: no data")),
        }
    }
    missing
}

/// Returns the reason why a figure has no data.
pub(super) fn absence(cells: &Cells<'_>, figure: &Figure, profile: Profile) -> String {
    let fits = |trial: &&Planned| figure.only.iter().all(|(name, value)| trial.axes.get(name) == Some(value));
    let plan = plan(cells.experiment, profile, &[]);
    let is_planned = plan.trials.iter().filter(|trial| trial.place == TrialPosition::Trial).any(|trial| fits(&trial));
    let only: Vec<String> = figure.only.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !is_planned {
        format!("the profile {profile} has no trial with {}", only.join(", "))
    } else if cells.with(&figure.only).is_empty() {
        "this run has no such trial".into()
    } else {
        format!("no trial measured {}", figure.y.join(", "))
    }
}
