//! Figures and tables of an experiment: projections of its rows.

use super::Axes;
use super::axis::Axis;
use super::entry::{self, Entry, EntryValue};
use super::fields::{Faults, Fields, number, text, unknown_figure};
use super::load::word;
use crate::finder::Criterion;
use crate::row::{OVER_TIME, Unit, definition, words};
use std::collections::{BTreeMap, BTreeSet};

words! {
    /// Form of a figure.
    Form {
        /// Lines over an axis.
        Lines = "lines",
        /// Bars by the values of an axis.
        Bars = "bars",
        /// Table of figures: a line for each system and value of an axis.
        Table = "table",
        /// Table of labels and their values: a column for each system.
        List = "list",
        /// Table of limits with their causes. If steps were made, it has a limit for each criterion.
        Limits = "limits",
        /// Table of machines and versions.
        Machines = "machines",
        /// Drawing of the test bed.
        Bed = "bed",
        /// Drawing of the messages of a call.
        Flow = "flow",
    }
}

/// Figure or table of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name, such as the number in a paper.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Form.
    pub form: Form,
    /// Source of the horizontal axis: `load`, `time`, or an axis.
    pub x: Option<Source>,
    /// Figures of rows that are shown.
    pub y: Vec<String>,
    /// Source of the lines or groups of bars: `system`, or an axis.
    pub line: Option<Source>,
    /// Values of axes that its rows have.
    pub only: Axes,
    /// Entries of a list.
    pub entries: Vec<Entry>,
    /// Published points.
    pub points: Vec<PublishedPoint>,
    /// Published lines of a table.
    pub rows: Vec<PublishedRow>,
    /// Erratum of its published values, for the legend.
    pub erratum: String,
    /// True if the figure was published as a picture without values.
    pub is_picture: bool,
}

/// Published line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRow {
    /// Values of axes.
    pub only: Axes,
    /// Values by figure, or by criterion in a table of limits.
    pub values: BTreeMap<String, f64>,
}

/// Published value. The report shows it with the measured values.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedPoint {
    /// Measured variant, such as one of several caches. Empty if there is only one variant.
    pub of: String,
    /// Place on the horizontal axis: a load, or the value of an axis as text. `None`: the value holds for every place.
    pub x: Option<String>,
    /// Value in the unit of the figure.
    pub y: f64,
}

/// Source of an axis of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// System of the row.
    System,
    /// Load of the row.
    Load,
    /// Seconds of the window.
    Time,
    /// Axis of the experiment.
    Axis(String),
}

impl Figure {
    pub(super) fn read(fields: &Fields<'_>, before: &[Self], axes: &[Axis], faults: &mut Faults) -> Self {
        let keys =
            ["name", "title", "form", "x", "y", "line", "where", "entries", "points", "rows", "erratum", "picture"];
        fields.know(&keys, faults);
        let name = fields.required_text("name", "\"8\"", faults);
        if let Some(value) = fields.value("name").filter(|_| before.iter().any(|figure| figure.name == name)) {
            faults.push(value.span(), format!("there are two figures {name}"), "give each a name of its own");
        }
        let form = word(fields, "form", Form::ALL, |form| form.word(), faults).unwrap_or(Form::Lines);
        let is_drawn = matches!(form, Form::Bed | Form::Flow);
        let has_figures = matches!(form, Form::Lines | Form::Bars | Form::Table);
        let x = source(fields, "x", &["system", "load", "time"], axes, faults);
        if x.is_none() && fields.value("x").is_none() && matches!(form, Form::Lines | Form::Bars) {
            fields.missing("x", "write x = \"load\", \"time\", or the name of an axis", faults);
        }
        let mut y = fields.figures("y", faults);
        if fields.value("y").is_none() && has_figures {
            fields.missing("y", "write y = [\"server.cpu.call\"]", faults);
        }
        let units: BTreeSet<Unit> = y.iter().filter_map(|y| Some(definition(y)?.unit)).collect();
        let is_plot = matches!(form, Form::Lines | Form::Bars);
        if let Some(value) = fields.value("y").filter(|_| is_plot && units.len() > 1) {
            let units: Vec<&str> = units.iter().map(|unit| unit.key()).collect();
            let message = format!("one vertical axis has several units: {}", units.join(", "));
            faults.push(value.span(), message, "write a [[figure]] for each unit");
        }
        if x == Some(Source::Time) {
            over_time(fields, form, faults);
        }
        let entries = entry::entries(fields, axes, faults);
        if form == Form::List {
            if fields.value("entries").is_none() {
                fields.missing("entries", "write entries = [{ label = \"Rate\", figure = \"limit\" }]", faults);
            }
            y = figures_of(&entries);
        }
        for key in ["x", "y", "line", "points", "rows", "entries"] {
            // A call flow marks the beginning and the end of the delays in its y.
            let has = !is_drawn || (form == Form::Flow && key == "y");
            if let Some(value) = fields.value(key).filter(|_| !has) {
                faults.push(value.span(), format!("a drawing has no {key}"), "remove it");
            }
        }
        let is_list = form == Form::List;
        for (key, has) in [
            ("points", is_plot),
            ("rows", matches!(form, Form::Table | Form::Limits)),
            // Machines of a publication follow the own ones.
            ("entries", is_list || form == Form::Machines),
            ("x", !is_list),
            ("y", !is_list),
            ("line", !is_list),
        ] {
            if let Some(value) = fields.value(key).filter(|_| !has && !is_drawn) {
                faults.push(value.span(), format!("the form {form} has no {key}"), "remove it");
            }
        }
        Self {
            title: fields.required_text("title", "\"CPU over calls a second\"", faults),
            name,
            form,
            x,
            y,
            line: source(fields, "line", &["system"], axes, faults),
            only: fields.axes("where", axes, faults),
            entries,
            points: points(fields, faults),
            rows: rows(fields, form, axes, faults),
            erratum: fields.text("erratum", faults).unwrap_or_default(),
            is_picture: fields.flag("picture", faults).unwrap_or_default(),
        }
    }
}

/// Returns the figures of entries, each once.
fn figures_of(entries: &[Entry]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        if let EntryValue::Figure { name, .. } = &entry.value
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

/// Refuses forms and figures that have no values for each second.
fn over_time(fields: &Fields<'_>, form: Form, faults: &mut Faults) {
    if let Some(value) = fields.value("x").filter(|_| form != Form::Lines) {
        faults.push(value.span(), format!("time is no axis of the form {form}"), "write form = \"lines\"");
    }
    for item in fields.items("y") {
        let Some(name) = text(item).filter(|name| definition(name).is_some()) else { continue };
        if !OVER_TIME.contains(&name.as_str()) {
            let cure = format!("write some of {}", OVER_TIME.join(", "));
            faults.push(item.span(), format!("the figure {name} has no values for each second"), cure);
        }
    }
}

fn source(fields: &Fields<'_>, key: &str, words: &[&str], axes: &[Axis], faults: &mut Faults) -> Option<Source> {
    let written = fields.text(key, faults)?;
    let names: Vec<&str> = words.iter().copied().chain(axes.iter().map(|axis| axis.name.as_str())).collect();
    if !names.contains(&written.as_str()) {
        if let Some(value) = fields.value(key) {
            faults.wrong_word(value, &written, "axis", &names);
        }
        return None;
    }
    Some(match written.as_str() {
        "system" => Source::System,
        "load" => Source::Load,
        "time" => Source::Time,
        _ => Source::Axis(written),
    })
}

/// Reads `points = [{ x = 1600, y = 98 }]`.
fn points(fields: &Fields<'_>, faults: &mut Faults) -> Vec<PublishedPoint> {
    let mut points = Vec::new();
    for item in fields.items("points") {
        let part = |key: &str| item.get_ref().as_table().and_then(|table| table.get(key));
        let x = part("x").map(|x| number(x).map(|number| number.to_string()).or_else(|| text(x)));
        let of = part("of").map_or_else(|| Some(String::new()), text);
        match (of, x, part("y").and_then(number)) {
            (Some(of), Some(Some(x)), Some(y)) => points.push(PublishedPoint { of, x: Some(x), y }),
            (Some(of), None, Some(y)) => points.push(PublishedPoint { of, x: None, y }),
            _ => faults.push(item.span(), "a published point has no y", "write points = [{ x = 1600, y = 98 }]"),
        }
    }
    points
}

/// Reads `rows = [{ where = { letter = "A" }, limit = 13000 }]`.
fn rows(fields: &Fields<'_>, form: Form, axes: &[Axis], faults: &mut Faults) -> Vec<PublishedRow> {
    let mut rows = Vec::new();
    for item in fields.items("rows") {
        let Some(table) = item.get_ref().as_table() else {
            let cure = "write rows = [{ where = { letter = \"A\" }, limit = 13000 }]";
            faults.push(item.span(), "a published line is no table", cure);
            continue;
        };
        let inner = Fields { name: fields.name, table, start: item.span().start };
        let mut values = BTreeMap::new();
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "where") {
            let name = key.get_ref();
            let is_known = match form {
                Form::Limits => Criterion::ALL.iter().any(|criterion| criterion.word() == name),
                _ => definition(name).is_some(),
            };
            match number(value) {
                Some(number) if is_known => drop(values.insert(name.to_string(), number)),
                Some(_) if form == Form::Limits => {
                    let words: Vec<&str> = Criterion::ALL.iter().map(|criterion| criterion.word()).collect();
                    faults.wrong_word(value, name, "criterion", &words);
                }
                Some(_) => unknown_figure(value, name, faults),
                None => faults.push(value.span(), format!("{name} is no number"), format!("write \"{name}\" = 1")),
            }
        }
        rows.push(PublishedRow { only: inner.axes("where", axes, faults), values });
    }
    rows
}
