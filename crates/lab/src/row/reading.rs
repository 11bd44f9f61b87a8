//! Reading of rows: everything that is not known is refused, with line and cure.

use super::{AxisValue, FORMAT, Row};
use serde_json::error::Category;
use strowger_config::{Fault, Report};

/// Reads a file of rows, one JSON line each, and skips empty lines.
///
/// # Errors
/// The report of each line that is no row.
pub fn read(file: &str, text: &str) -> Result<Vec<Row>, Report> {
    let (mut rows, mut faults, mut start) = (Vec::new(), Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        if !content.trim().is_empty() {
            match row(content, start) {
                Ok(row) => rows.push(row),
                Err(fault) => faults.push(fault),
            }
        }
        start += line.len();
    }
    if faults.is_empty() { Ok(rows) } else { Err(Report::new(file, text, faults)) }
}

/// Returns the lines that end in a line feed. A laboratory that was killed while it wrote leaves a part of a line after them.
pub fn complete(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

fn row(line: &str, start: usize) -> Result<Row, Fault> {
    let whole = Some(start..start + line.len());
    let row: Row = serde_json::from_str(line).map_err(|error| fault(&error, line, start))?;
    let refuse = |message: String, cure: &str| Err(Fault::error(whole.clone(), message, cure));
    if row.format != FORMAT {
        return refuse(
            format!("the row has format {}, this program reads format {FORMAT}", row.format),
            "read it with the version of strowger that wrote it",
        );
    }
    let numbers = row.axes.values().filter_map(|value| match value {
        AxisValue::Number(number) => Some(*number),
        AxisValue::Text(_) => None,
    });
    if numbers.chain([row.load.value]).any(|number| !number.is_finite()) || row.load.value < 0.0 {
        return refuse("a load or an axis is no number".into(), CHANGED);
    }
    if row.repetition == 0 {
        return refuse("repetitions are counted from 1".into(), CHANGED);
    }
    Ok(row)
}

const CHANGED: &str = "the line was changed: remove it, and `lab run --resume` makes its trial again";

fn fault(error: &serde_json::Error, line: &str, start: usize) -> Fault {
    let at = start + error.column().saturating_sub(1).min(line.len().saturating_sub(1));
    let text = error.to_string();
    // The report names the place.
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
    let is_unknown = ["unknown field", "unknown variant", "there is no figure"];
    let cure = match error.classify() {
        Category::Eof => "the line was cut: remove it, and `lab run --resume` makes its trial again",
        Category::Data if is_unknown.iter().any(|start| message.starts_with(start)) => {
            "read it with the version of strowger that wrote it, or put the line right"
        }
        Category::Data | Category::Syntax | Category::Io => CHANGED,
    };
    Fault::error(Some(at..at + 1), format!("this is no row: {message}"), cure)
}
