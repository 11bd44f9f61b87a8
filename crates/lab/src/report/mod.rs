//! Report of a run: figures, tables, drawings, gates and an answer, from rows and the experiment alone.
//!
//! | file | content |
//! |---|---|
//! | `report.html` | one page that needs no network: answer, gates, figures, validity, method, versions, configurations |
//! | `report.json` | the same data, for programs |
//! | `report.csv` | each figure of each row |
//!
//! A figure, table or drawing of an experiment has a form, and each form is made by one projection:
//!
//! | form | projection |
//! |---|---|
//! | `lines`, `bars` | rows divided by system and by each axis that is neither x nor in `where` |
//! | `table` | a line for each system, set of axes and fixed load; `load`, `load.scaled` and `penalty` are computed |
//! | `list` | labels with facts of the experiment or measured values, a column for each system |
//! | `limits` | limits by criterion of a staircase, or of a search, with their causes |
//! | `machines` | machine and versions |
//! | `bed` | generator, systems and backends |
//! | `flow` | messages of a call, from the documents of both ends |

mod bed;
mod cells;
mod data;
mod flow;
mod gate;
mod headline;
mod html;
mod list;
mod markdown;
mod method;
mod plot;
mod shape;
mod table;

pub use gate::{GateVerdict, gates};
pub use headline::Headline;
pub use shape::{Content, Shape, expected, missing};

use self::cells::{CellRows, Cells, title_of};
use self::flow::Answerer;
use self::method::Time;
use crate::Error;
use crate::compare::FLOOR;
use crate::document::{self, Parties};
use crate::experiment::{Experiment, Figure, Form, Source, plan};
use crate::row::{Profile, Row};
use crate::run::{Description, FolderError, Recorded};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use strowger_measure::{Observed, Span};
use strowger_report::{Drawing, Table, figure};

/// Files of a report, in a folder.
pub const FILES: [&str; 3] = ["report.html", "report.json", "report.csv"];

/// Material of a report.
pub struct Material<'a> {
    /// Experiment.
    pub experiment: &'a Experiment,
    /// Rows in their order, including the floor.
    pub rows: &'a [Row],
    /// Description of the run.
    pub description: &'a Description,
    /// All trials of the plan were made.
    pub is_whole: bool,
    /// End of the last trial in seconds since 1970-01-01 UTC, or `None` if there are no samples of it.
    pub ended: Option<u64>,
    /// Text of a document of the experiment by its name.
    pub document: &'a dyn Fn(&str) -> Option<String>,
    /// Configurations by name, as the systems ran with them.
    pub configurations: Vec<(String, String)>,
}

/// Report of a run.
#[derive(Debug)]
pub struct Report<'a> {
    experiment: &'a Experiment,
    rows: &'a [Row],
    description: &'a Description,
    answer: Headline,
    gates: Vec<GateVerdict>,
    parts: Vec<Part>,
    method: Vec<String>,
    time: Option<Time>,
    configurations: Vec<(String, String)>,
}

/// Figure, table or drawing of a report.
#[derive(Debug)]
struct Part {
    name: String,
    title: String,
    note: String,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Figure(Box<strowger_report::Figure>),
    Table(Table),
    Drawing(Drawing),
}

impl<'a> Report<'a> {
    /// Makes the report of a run.
    ///
    /// # Errors
    /// A name of the experiment cannot be drawn.
    pub fn new(material: Material<'a>) -> Result<Self, figure::Fault> {
        let Material { experiment, rows, description, is_whole, ended, document, configurations } = material;
        let cells = Cells::of(experiment, rows);
        let gates = gates(experiment, rows);
        let parts = experiment.figures.iter().map(|figure| part(&cells, figure, description, document));
        let time = ended.and_then(|ended| Time::of(description, rows, ended));
        let of_time = time.map(Time::sentence);
        Ok(Self {
            experiment,
            rows,
            description,
            answer: headline::answer(&cells, rows, &gates, is_whole),
            parts: parts.collect::<Result<_, _>>()?,
            gates,
            method: method::method(experiment, description.profile, rows).into_iter().chain(of_time).collect(),
            time,
            configurations,
        })
    }

    /// Returns the answer in one sentence.
    pub const fn answer(&self) -> &Headline {
        &self.answer
    }

    /// Returns the times of the plan and of the run in one sentence, or `None` if no samples show the time of the run.
    pub fn time(&self) -> Option<String> {
        self.time.map(Time::sentence)
    }

    /// Returns the verdicts of the gates.
    pub fn gates(&self) -> &[GateVerdict] {
        &self.gates
    }

    /// Describes the number of gates without a verdict, or returns `None` if each gate has a verdict.
    pub fn unjudged(&self) -> Option<String> {
        html::unjudged(&self.gates.iter().filter(|gate| gate.is_met.is_none()).collect::<Vec<_>>())
    }

    /// Tells whether the run has no valid trial.
    pub fn is_void(&self) -> bool {
        !self.rows.iter().any(|row| row.validity.is_valid() && row.system.name != FLOOR)
    }

    /// Returns the page.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the text in Markdown.
    pub fn markdown(&self) -> String {
        markdown::text(self)
    }

    /// Returns the data as JSON.
    pub fn json(&self) -> String {
        data::json(self)
    }

    /// Returns each figure of each row as CSV.
    pub fn csv(&self) -> String {
        data::csv(self.rows)
    }

    /// Writes [`FILES`] into a folder, and returns their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let texts = [self.html(), self.json(), self.csv()];
        let write = |(name, text): (&str, String)| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(Error::file(&path))?;
            Ok(path)
        };
        FILES.into_iter().zip(texts).map(write).collect()
    }
}

fn part(
    cells: &Cells<'_>,
    figure: &Figure,
    description: &Description,
    document: &dyn Fn(&str) -> Option<String>,
) -> Result<Part, figure::Fault> {
    let title = heading(cells.experiment, figure);
    let note = note(cells, figure);
    let mut absence = None;
    let body = match figure.form {
        Form::Lines | Form::Bars => {
            let plot = plot::plot(cells, figure, &title, &note);
            let figure = match plot {
                Some(plot) => strowger_report::Figure::new(plot)?,
                None => {
                    without_data(figure, &title, absence.insert(shape::absence(cells, figure, description.profile)))?
                }
            };
            Body::Figure(Box::new(figure))
        }
        Form::Table => Body::Table(table::values(cells, figure)),
        Form::List => Body::Table(list::list(cells, figure, description)),
        Form::Limits => Body::Table(table::limits(cells, figure)),
        Form::Machines => Body::Table(list::with_texts(table::machines(cells, description), &figure.entries)),
        Form::Bed => Body::Drawing(bed::bed(cells.experiment, description, &title).draw()?),
        Form::Flow => {
            let call = &cells.experiment.call;
            let caller = document(&call.document).ok_or_else(|| format!("the document {} is not there", call.document));
            let answerer = call.answer.as_deref().and_then(document);
            let answerer = match (&call.answer, &answerer) {
                (_, Some(text)) => Answerer::Document(text),
                (Some(_), None) => Answerer::Plain,
                (None, None) => Answerer::None,
            };
            let ends = caller.and_then(|caller| flow::Ends::read(&caller, answerer, call.hold));
            match ends {
                Ok(ends) => Body::Drawing(ends.ladder(&title, &figure.y).draw()?),
                Err(reason) => {
                    let reason = absence.insert(format!("no call flow: {reason}"));
                    Body::Figure(Box::new(without_data(figure, &title, reason)?))
                }
            }
        }
    };
    let note = absence.map_or(note, |reason| format!("No data: {reason}."));
    Ok(Part { name: figure.name.clone(), title, note, body })
}

fn without_data(figure: &Figure, title: &str, reason: &str) -> Result<strowger_report::Figure, figure::Fault> {
    strowger_report::Figure::without_data(&plot::slug(&figure.name), title, reason)
}

/// Returns the title, preceded by the number of the publication.
fn heading(experiment: &Experiment, figure: &Figure) -> String {
    let kind = match figure.form {
        Form::Table | Form::List | Form::Limits | Form::Machines => "Table",
        Form::Lines | Form::Bars | Form::Bed | Form::Flow => "Figure",
    };
    let number = figure.name.strip_prefix("table ").unwrap_or(&figure.name);
    match number.starts_with(|c: char| c.is_ascii_digit()) && experiment.published.is_some() {
        true => format!("{kind} {number}: {}", figure.title),
        false => figure.title.clone(),
    }
}

/// Returns the line below measured values: number of trials, lower bounds, form of the publication.
fn note(cells: &Cells<'_>, figure: &Figure) -> String {
    let shown = match figure.form {
        Form::Lines | Form::Bars => plot::shown(cells, figure, &figure.x.clone().unwrap_or(Source::Load)),
        Form::Table => plot::of_figures(&cells.with(&figure.only), &figure.y),
        Form::List | Form::Limits | Form::Machines | Form::Bed | Form::Flow => return String::new(),
    };
    let counts = || shown.iter().map(|cell| cell.rows.len());
    let mut note = match (counts().min().unwrap_or(1), counts().max().unwrap_or(1)) {
        (_, 1) => "One trial each, so there is no interval.".to_owned(),
        (least, most) if least == most => format!("Median of {most} trials, with the interval of the median."),
        (least, most) => {
            format!("Median of {least} to {most} trials, with the interval of the median where there are several.")
        }
    };
    if figure.y.iter().any(|y| y == "limit") && figure.form != Form::Table {
        let is_bound = |cell: &&&CellRows<'_>| headline::found(cell).is_some_and(table::is_lower_bound);
        let name = |cell: &&CellRows<'_>| {
            let titles = cell.axes.iter().map(|(axis, value)| title_of(cells.experiment, axis, value));
            [cell.system.to_owned()].into_iter().chain(titles).collect::<Vec<_>>().join(", ")
        };
        let bounds: Vec<String> = shown.iter().filter(is_bound).map(name).collect();
        if !bounds.is_empty() {
            note.push_str(&format!(" At least, since no load was too high: {}.", bounds.join("; ")));
        }
    }
    if let Some(published) = cells.experiment.published.as_ref().filter(|_| figure.is_picture) {
        note.push_str(&format!(" {} was published as a picture without values.", published.source));
    }
    note
}

/// Failure to make a report of a folder.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder is no run, or was changed.
    #[error(transparent)]
    Folder(Box<FolderError>),
    /// The experiment of the run is not one of this version.
    #[error("the experiment of the run cannot be read by this version of strowger:\n{0}")]
    Experiment(String),
    /// A name of its experiment cannot be drawn.
    #[error(transparent)]
    Figure(Box<figure::Fault>),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] Error),
}

impl From<FolderError> for ReportError {
    fn from(error: FolderError) -> Self {
        Self::Folder(Box::new(error))
    }
}

impl From<figure::Fault> for ReportError {
    fn from(fault: figure::Fault) -> Self {
        Self::Figure(Box::new(fault))
    }
}

/// Reads a run, and hands its report to `use_report`.
///
/// # Errors
/// The folder is no run or was changed, or its experiment cannot be shown.
pub fn of_folder<T>(
    root: &Path,
    use_report: impl FnOnce(&Report<'_>) -> Result<T, ReportError>,
) -> Result<T, ReportError> {
    with_material(root, |material| use_report(&Report::new(material)?))
}

/// Lists the figures, units, series, points, columns and lines that the plan of a run promises and its report lacks. The list also has the
/// time of the run if it differs from the planned time by a quarter though no trial was repeated. The profile smoke judges no time.
///
/// # Errors
/// The folder is no run or was changed, or its experiment cannot be shown.
pub fn lacking(root: &Path) -> Result<Vec<String>, ReportError> {
    with_material(root, |material| {
        let Material { experiment, description, document, .. } = material;
        let mut fitting = experiment.clone();
        fitting.fit(description.machine.cores as usize);
        let systems: Vec<&str> = description.systems.iter().map(|used| used.name.as_str()).collect();
        let promised = expected(experiment, description.profile, &plan(&fitting, description.profile, &systems));
        let (ended, configurations) = (None, Vec::new());
        let wanted =
            Material { experiment, rows: &promised, description, is_whole: true, ended, document, configurations };
        let wanted = Report::new(wanted)?.shapes();
        let found = Report::new(material)?;
        let late = found.time.filter(|time| description.profile != Profile::Smoke && time.misses_plan());
        Ok(missing(&found.shapes(), &wanted).into_iter().chain(late.map(Time::sentence)).collect())
    })
}

fn with_material<T>(
    root: &Path,
    use_material: impl FnOnce(Material<'_>) -> Result<T, ReportError>,
) -> Result<T, ReportError> {
    let recorded = Recorded::open(root)?;
    let file = format!("{}.toml", recorded.description.experiment);
    let read = Experiment::read(&file, &recorded.experiment);
    let (mut experiment, _) = read.map_err(|report| ReportError::Experiment(report.to_string()))?;
    let Description { overrides, profile, .. } = &recorded.description;
    overrides.apply(&mut experiment, *profile).map_err(ReportError::Experiment)?;
    let document = |name: &str| document_of(&experiment, recorded.description.profile, name);
    let material = Material {
        experiment: &experiment,
        rows: &recorded.rows,
        description: &recorded.description,
        is_whole: recorded.is_whole,
        ended: ended(root),
        document: &document,
        configurations: configurations(root)?,
    };
    use_material(material)
}

/// Returns the moment of the last sample of the last trial, in seconds since 1970-01-01 UTC.
fn ended(root: &Path) -> Option<u64> {
    let last = entries(&root.join("trials")).ok()?.pop()?;
    let observed = Observed::read(&last.join("samples.log"), Span::WHOLE).ok()?;
    observed.machine.last().map(|sample| sample.at / 1_000_000)
}

/// Returns the text of a document of a run, with the length of its calls, or `None` for the answering side that is built
/// into the generator.
fn document_of(experiment: &Experiment, profile: Profile, name: &str) -> Option<String> {
    let hold = experiment.profiles.get(&profile).and_then(|steps| steps.hold).unwrap_or(experiment.call.hold);
    // An address for documentation: RFC 5737.
    let answer = SocketAddr::from(([192, 0, 2, 11], 5060));
    let parties = Parties { users: experiment.call.users, answer, hold };
    (name != document::ANSWER).then(|| document::text(name, &parties).ok())?
}

/// Reads the texts of the configurations of a run, by `system/name`.
fn configurations(root: &Path) -> Result<Vec<(String, String)>, Error> {
    let folder = root.join("configurations");
    let mut found = Vec::new();
    for system in entries(&folder)? {
        for file in entries(&system)? {
            let name = file.strip_prefix(&folder).unwrap_or(&file).display().to_string();
            let bytes = std::fs::read(&file).map_err(Error::file(&file))?;
            found.push((name, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(found)
}

/// Returns the entries of a folder in the order of their names, or no entries if the folder does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let read = std::fs::read_dir(folder).map_err(Error::file(folder))?;
    let mut paths = read
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::file(folder))?;
    paths.sort();
    Ok(paths)
}
