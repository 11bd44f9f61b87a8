//! Entries of a list: labels with their values.

use super::Axes;
use super::axis::Axis;
use super::fields::{Faults, Fields, text, unknown_figure};
use crate::row::definition;

/// Entry of a list: a label, and a text or a measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Label.
    pub label: String,
    /// Value of the entry.
    pub value: EntryValue,
}

/// Value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryValue {
    /// Text with [marks](ENTRY_MARKS) in braces.
    Text(String),
    /// Figure of the rows with these values of axes.
    Figure {
        /// Name of the figure.
        name: String,
        /// Values of axes.
        only: Axes,
    },
}

/// Marks of texts: facts of the experiment.
pub const ENTRY_MARKS: [&str; 7] = ["transport", "connections", "start", "sessions", "hold", "patience", "version"];

/// Reads `entries = [{ label = "Transport", text = "{transport}" }, { label = "Rate", figure = "limit", where = { test = "session"
/// } }]`.
pub(super) fn entries(fields: &Fields<'_>, axes: &[Axis], faults: &mut Faults) -> Vec<Entry> {
    let mut entries = Vec::new();
    for item in fields.items("entries") {
        let Some(table) = item.get_ref().as_table() else {
            let cure = "write entries = [{ label = \"Rate\", figure = \"limit\" }]";
            faults.push(item.span(), "an entry is no table", cure);
            continue;
        };
        let inner = Fields { name: "an entry", table, start: item.span().start };
        inner.know(&["label", "text", "figure", "where"], faults);
        let label = inner.required_text("label", "\"Rate\"", faults);
        let value = match (inner.text("text", faults), inner.value("figure")) {
            (Some(text), None) => {
                check_marks(&inner, &text, faults);
                EntryValue::Text(text)
            }
            (None, Some(figure)) => {
                let name = text(figure).unwrap_or_default();
                if definition(&name).is_none() {
                    unknown_figure(figure, &name, faults);
                }
                EntryValue::Figure { name, only: inner.axes("where", axes, faults) }
            }
            _ => {
                faults.push(
                    item.span(),
                    "an entry has a text or a figure",
                    "write figure = \"limit\" or text = \"none\"",
                );
                continue;
            }
        };
        entries.push(Entry { label, value });
    }
    entries
}

/// Returns the names of the marks in a text.
pub(crate) fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

fn check_marks(fields: &Fields<'_>, written: &str, faults: &mut Faults) {
    let Some(value) = fields.value("text") else { return };
    for mark in marks(written).filter(|mark| !ENTRY_MARKS.contains(mark)) {
        faults.wrong_word(value, mark, "mark", &ENTRY_MARKS);
    }
}
