//! Tables of an experiment.

use super::cells::{CellRows, Cells, Offered, Value, title_of};
use super::plot::{has_several_loads, load_title, of_figures, varied};
use crate::experiment::{self, Axes, FinderKind, PublishedRow};
use crate::finder::{Criteria, Criterion, Finding, Point, TrialOutcome, criteria};
use crate::row::{FoundLimit, definition};
use crate::run::{Description, Machine};
use strowger_measure::{Unit, grouped};
use strowger_report::Table;

/// Mark of a value of which no trial was valid.
const INVALID: &str = " (not valid)";

/// Makes the table of the figure's values: a line for each system, set of axes and fixed load.
pub(super) fn values(cells: &Cells<'_>, figure: &experiment::Figure) -> Table {
    let mut found = of_figures(&cells.with(&figure.only), &figure.y);
    // Trials of some values of an axis have other figures.
    found.retain(|cell| figure.y.iter().any(|y| cells.experiment.has_figure(cell.axes, y)));
    let has_causes = figure.y.iter().any(|y| y == "limit") && found.iter().any(|cell| cause(cells, cell).is_some());
    let columns = Columns::of(cells, &found, has_several_loads(&found));
    let mut titles = columns.titles();
    let texts = titles.len();
    titles.extend(figure.y.iter().cloned());
    titles.extend(has_causes.then(|| "cause of the limit".into()));
    let mut lines = Lines::default();
    for cell in &found {
        let value = |y: &String| of_cell(cells, cell, y).unwrap_or_default();
        let mut line = columns.cells(cells, cell);
        line.extend(figure.y.iter().map(value));
        line.extend(has_causes.then(|| cause(cells, cell).unwrap_or_default()));
        lines.add(columns.places(cells, cell.axes), false, line);
    }
    for (start, row) in published(cells, figure, &columns, &found) {
        let value = |y: &String| row.values.get(y).map_or_else(String::new, |value| show_plain(y, *value));
        let mut line: Vec<String> = start.into_iter().chain(figure.y.iter().map(value)).collect();
        line.resize(titles.len(), String::new());
        lines.add(columns.places(cells, &row.only), true, line);
    }
    let table = with_texts(Table::new(titles), texts);
    lines.fill(if has_causes { table.with_texts(texts + figure.y.len()) } else { table })
}

/// Makes the table of limits, each with its cause. If the finder made steps, the table has a limit for each criterion.
pub(super) fn limits(cells: &Cells<'_>, figure: &experiment::Figure) -> Table {
    let fitting = cells.with(&figure.only);
    let mut found: Vec<&CellRows<'_>> = Vec::new();
    for cell in &fitting {
        if !found.iter().any(|other| other.system == cell.system && other.axes == cell.axes) {
            found.push(cell);
        }
    }
    let columns = Columns::of(cells, &found, false);
    let published = published(cells, figure, &columns, &found);
    let measured: Vec<Criteria> = match cells.experiment.load.finder {
        FinderKind::Staircase => found.iter().map(|cell| steps(&fitting, cell)).collect(),
        _ => vec![Criteria::default(); found.len()],
    };
    let is_shown = |criterion: &&Criterion| {
        let is_published = published.iter().any(|(_, row)| row.values.contains_key(criterion.word()));
        is_published || measured.iter().any(|limits| limits.limit(**criterion).is_some())
    };
    let criteria: Vec<&Criterion> = Criterion::ALL.iter().filter(is_shown).collect();
    let mut titles = columns.titles();
    let texts = titles.len();
    titles.extend(criteria.iter().map(|criterion| criterion.word().to_owned()));
    titles.extend(["limit", "next load", "missed", "cause"].map(String::from));
    let mut lines = Lines::default();
    for (cell, of_criteria) in found.iter().zip(&measured) {
        let rate = |name: &str| of_cell(cells, cell, name).unwrap_or_default();
        let found = found_limit(cells, cell);
        let mut line = columns.cells(cells, cell);
        line.extend(criteria.iter().map(|of| of_criteria.limit(**of).map_or_else(String::new, grouped)));
        line.extend([rate("limit"), rate("limit.high")]);
        line.push(found.and_then(|found| found.missed.clone()).unwrap_or_default());
        line.push(match found {
            Some(found) => found.cause().to_string(),
            None => "no limit was searched".into(),
        });
        lines.add(columns.places(cells, cell.axes), false, line);
    }
    for (start, row) in published {
        let value = |of: &&Criterion| row.values.get(of.word()).map_or_else(String::new, |load| grouped(*load));
        let mut line: Vec<String> = start.into_iter().chain(criteria.iter().map(value)).collect();
        line.resize(titles.len(), String::new());
        lines.add(columns.places(cells, &row.only), true, line);
    }
    let count = titles.len();
    lines.fill(with_texts(Table::new(titles), texts).with_texts(count - 2).with_texts(count - 1))
}

/// Lines of a table with their places. A published line follows the measured lines of equal axes.
#[derive(Default)]
struct Lines(Vec<(Vec<Option<usize>>, bool, Vec<String>)>);

impl Lines {
    fn add(&mut self, places: Vec<Option<usize>>, is_published: bool, line: Vec<String>) {
        self.0.push((places, is_published, line));
    }

    fn fill(mut self, mut table: Table) -> Table {
        self.0.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        self.0.into_iter().for_each(|(_, _, line)| table.row(line));
        table
    }
}

/// Returns the limit by each criterion, from the steps that a system made.
fn steps(cells: &[&CellRows<'_>], of: &CellRows<'_>) -> Criteria {
    let own = cells.iter().filter(|cell| cell.system == of.system && cell.axes == of.axes);
    let point = |cell: &&CellRows<'_>| {
        Some(Point { load: cell.offered.load()?, outcome: TrialOutcome::from(*cell.rows.last()?) })
    };
    criteria(&own.filter_map(point).collect::<Vec<_>>())
}

/// Makes the table of machines and versions.
pub(super) fn machines(cells: &Cells<'_>, of: &Description) -> Table {
    let machine = &of.machine;
    let mut table = Table::new(["", "this run"]).with_texts(1);
    let memory = Unit::Bytes.show(machine.memory as f64);
    for (name, value) in [
        ("processor", machine.processor.as_str()),
        ("cores", &machine.cores.to_string()),
        ("memory", &memory),
        ("kernel", &machine.kernel),
        ("generator and laboratory", &format!("strowger {}", of.program)),
    ] {
        table.row([name, value]);
    }
    for (name, host) in &of.hosts {
        let Machine { processor, cores, memory, kernel, .. } = &host.machine;
        let memory = Unit::Bytes.show(*memory as f64);
        let text = format!("{}: {processor}, {cores} cores, {memory}, {kernel}", host.roles.join(" and "));
        table.row([name, &text]);
    }
    for system in &of.systems {
        table.row([&system.name, &system.version]);
    }
    for (name, version) in &of.versions {
        table.row([name, version]);
    }
    if let Some(published) = &cells.experiment.published {
        table.row(["published", &format!("{} on {}", published.source, published.machine)]);
    }
    table
}

/// Shows a figure of a cell. If a search found no load too high, the limit is shown as a lower bound.
pub(super) fn of_cell(cells: &Cells<'_>, cell: &CellRows<'_>, figure: &str) -> Option<String> {
    let shown = show(figure, cells.value_at(cell, figure)?);
    let is_bound = figure == "limit" && found_limit(cells, cell).is_some_and(is_lower_bound);
    Some(if is_bound { format!("at least {shown}") } else { shown })
}

/// Tells whether a search ended at the highest load that it may offer.
pub(super) fn is_lower_bound(found: &FoundLimit) -> bool {
    found.finding == Finding::AtLeast
}

/// Shows a value with its interval.
pub(super) fn show(figure: &str, value: Value) -> String {
    let plain = |value| show_plain(figure, value);
    let interval = value.interval.map(|[low, high]| format!(" ({} to {})", plain(low), plain(high)));
    let mark = if value.is_invalid { INVALID } else { "" };
    format!("{}{}{mark}", plain(value.middle), interval.unwrap_or_default())
}

/// Shows a value alone. A share below 0 or above 100 %, such as a penalty, needs no more digits than other shares.
pub(super) fn show_plain(figure: &str, value: f64) -> String {
    let unit = definition(figure).map_or(Unit::Count, |definition| definition.unit);
    let is_share = (0.0..=100.0).contains(&value);
    if unit == Unit::Percent && !is_share { format!("{value:.2} %") } else { unit.show(value) }
}

/// Returns the limit that a search found for a system with these axes.
fn found_limit<'b>(cells: &'b Cells<'_>, of: &CellRows<'_>) -> Option<&'b FoundLimit> {
    let is_of =
        |cell: &&CellRows<'_>| cell.offered == Offered::Limit && cell.system == of.system && cell.axes == of.axes;
    cells.cells.iter().find(is_of)?.rows.last()?.limit.as_ref()
}

/// Returns the part that is the limit, and its busiest thread.
fn cause(cells: &Cells<'_>, cell: &CellRows<'_>) -> Option<String> {
    let found = found_limit(cells, cell)?;
    if is_lower_bound(found) {
        return Some("no load was too high".into());
    }
    let thread = found.thread.as_ref().map_or_else(String::new, |thread| format!(", thread {thread}"));
    Some(format!("{}{thread}", found.part))
}

fn with_texts(table: Table, count: usize) -> Table {
    (1..count).fold(table, Table::with_texts)
}

/// Returns the published lines for the values of axes that the run has, each with its first columns.
fn published<'f>(
    cells: &Cells<'_>,
    figure: &'f experiment::Figure,
    columns: &Columns,
    found: &[&CellRows<'_>],
) -> Vec<(Vec<String>, &'f PublishedRow)> {
    let Some(of) = &cells.experiment.published else { return Vec::new() };
    let has = |row: &&PublishedRow| {
        row.only.iter().all(|(name, value)| found.iter().any(|cell| cell.axes.get(name) == Some(value)))
    };
    let start = |row: &PublishedRow| {
        let axis = |name: &String| {
            row.only.get(name).map_or_else(String::new, |value| title_of(cells.experiment, name, value))
        };
        let mut start: Vec<String> = columns.axes.iter().map(axis).collect();
        start.push(format!("{}, published", of.source));
        if columns.has_loads {
            start.push(String::new());
        }
        start
    };
    figure.rows.iter().filter(has).map(|row| (start(row), row)).collect()
}

/// First columns of a table: axes that vary, system, load.
struct Columns {
    axes: Vec<String>,
    has_loads: bool,
}

impl Columns {
    fn of(cells: &Cells<'_>, found: &[&CellRows<'_>], has_loads: bool) -> Self {
        let varied = varied(found);
        let names = cells.experiment.axes.iter().map(|axis| axis.name.clone());
        Self { axes: names.filter(|name| varied.contains(&name.as_str())).collect(), has_loads }
    }

    /// Returns the position of each axis's value among the values of the experiment.
    fn places(&self, cells: &Cells<'_>, axes: &Axes) -> Vec<Option<usize>> {
        let place = |name: &String| {
            let axis = cells.experiment.axes.iter().find(|axis| axis.name == *name)?;
            axis.values.iter().position(|value| axes.get(name) == Some(value))
        };
        self.axes.iter().map(place).collect()
    }

    fn titles(&self) -> Vec<String> {
        let load = self.has_loads.then(|| "load".to_owned());
        self.axes.iter().cloned().chain(["system".to_owned()]).chain(load).collect()
    }

    fn cells(&self, cells: &Cells<'_>, cell: &CellRows<'_>) -> Vec<String> {
        let axis = |name: &String| {
            cell.axes.get(name).map_or_else(String::new, |value| title_of(cells.experiment, name, value))
        };
        let load = self.has_loads.then(|| load_title(cells.experiment, cell.axes, cell.offered));
        self.axes.iter().map(axis).chain([cell.system.to_owned()]).chain(load).collect()
    }
}
