//! Data of a report for programs.

use super::{Body, Report};
use crate::row::{Row, Validity, definition};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use strowger_report::Tone;

/// Format version of `report.json`. Bump on every change that an older reader would misread.
const FORMAT: u32 = 1;

pub(super) fn json(report: &Report<'_>) -> String {
    let description = serde_json::to_value(report.description).unwrap_or_default();
    let parts: Vec<Value> = report
        .parts
        .iter()
        .map(|part| {
            let (form, body) = match &part.body {
                Body::Figure(figure) => ("figure", serde_json::to_value(figure).unwrap_or_default()),
                Body::Table(table) => ("table", serde_json::to_value(table).unwrap_or_default()),
                Body::Drawing(_) => ("drawing", Value::Null),
            };
            json!({ "name": part.name, "title": part.title, "form": form, "data": body })
        })
        .collect();
    let tone = match report.answer.tone {
        Tone::Good => "good",
        Tone::Doubtful => "doubtful",
        Tone::Bad => "bad",
    };
    let value = json!({
        "format": FORMAT,
        "experiment": report.experiment.name,
        "title": report.experiment.title,
        "answer": { "tone": tone, "sentence": report.answer.sentence },
        "run": description,
        "gates": report.gates,
        "parts": parts,
        "method": report.method,
        "rows": report.rows,
    });
    format!("{value:#}\n")
}

/// Writes one line for each figure of each row, and one for each second of a figure over time, with the end of that
/// second.
pub(super) fn csv(rows: &[Row]) -> String {
    let axes: BTreeSet<&String> = rows.iter().flat_map(|row| row.axes.keys()).collect();
    let mut out = String::from("experiment,system,version,profile");
    axes.iter().for_each(|axis| out.push_str(&format!(",{}", cell(axis))));
    out.push_str(",load,load_unit,is_limit,repetition,valid,reasons,figure,value,unit,time\n");
    for row in rows {
        let mut start: Vec<String> =
            vec![row.experiment.clone(), row.system.name.clone(), row.system.version.clone(), row.profile.to_string()];
        start.extend(axes.iter().map(|axis| row.axes.get(*axis).map_or_else(String::new, ToString::to_string)));
        let reasons = match &row.validity {
            Validity::Valid => String::new(),
            Validity::Reasons(reasons) => {
                reasons.iter().map(|reason| reason.check.word()).collect::<Vec<_>>().join(" ")
            }
        };
        start.extend([
            row.load.value.to_string(),
            row.load.unit.to_string(),
            row.limit.is_some().to_string(),
            row.repetition.to_string(),
            row.validity.is_valid().to_string(),
            reasons,
        ]);
        let start: String = start.iter().map(|text| format!("{},", cell(text))).collect();
        for (figure, value) in row.figures.iter() {
            let unit = definition(figure).map_or("", |definition| definition.unit.key());
            out.push_str(&format!("{start}{},{value},{unit},\n", cell(figure)));
        }
        for (figure, values) in row.series.iter() {
            let unit = definition(figure).map_or("", |definition| definition.unit.key());
            for (second, value) in (1..).zip(values).filter_map(|(second, value)| Some((second, (*value)?))) {
                out.push_str(&format!("{start}{},{value},{unit},{second}\n", cell(figure)));
            }
        }
    }
    out
}

/// Formats a cell of CSV: in quotes if the text has a separator. A text that a spreadsheet would take for a formula begins
/// with an apostrophe.
fn cell(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
