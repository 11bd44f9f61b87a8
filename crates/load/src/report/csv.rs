//! The series as CSV (RFC 4180).

use super::responses::Responses;
use super::rfc3339;
use crate::measure::{Run, columns};
use std::fmt::Write;

/// A header line, then a line for each row.
pub(super) fn csv(run: &Run) -> String {
    let columns = columns(&run.heading().timers);
    let responses = Responses::of(run);
    let mut out = String::with_capacity((run.rows.len() + 2) * columns.len() * 4);
    out.push_str("time,second");
    for column in columns.iter().chain(&responses.names) {
        out.push(',');
        field(&mut out, column);
    }
    out.push_str("\r\n");
    for row in &run.rows {
        let _ = write!(out, "{},{}", rfc3339(row.second * 1_000_000), row.second);
        for value in row.values.iter().copied().chain(responses.values(row)) {
            out.push(',');
            if value.is_finite() {
                // Six places are microseconds of a second, and more than a ratio means.
                let text = format!("{value:.6}");
                out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
            }
        }
        out.push_str("\r\n");
    }
    out
}

fn field(out: &mut String, text: &str) {
    if text.contains(['"', ',', '\r', '\n']) {
        let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
    } else {
        out.push_str(text);
    }
}
