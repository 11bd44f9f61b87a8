//! Series as CSV (RFC 4180).

use super::responses::Responses;
use super::rfc3339;
use std::collections::BTreeSet;
use std::fmt::Write;
use strowger_measure::{Run, columns};

/// Writes a header line, then a line for each row. In a run with a warm-up the last column marks the rows of the
/// warm-up. With callers and answerers together, a line has the figures of the callers, then those of the answerers in
/// columns named `answering.`, as in requirements.
pub(super) fn csv(run: &Run) -> String {
    let sides: Vec<Side<'_>> = std::iter::once(Side::of(run, ""))
        .chain(run.answering.as_deref().map(|run| Side::of(run, "answering.")))
        .collect();
    let seconds: BTreeSet<u64> = sides.iter().flat_map(|side| side.run.rows.iter().map(|row| row.second)).collect();
    let columns: usize = sides.iter().map(|side| side.names.len()).sum();
    let mut out = String::with_capacity((seconds.len() + 2) * columns * 4);
    out.push_str("time,second");
    for name in sides.iter().flat_map(|side| &side.names) {
        out.push(',');
        field(&mut out, name);
    }
    let warmed_up = run.warm_up.is_some();
    out.push_str(if warmed_up { ",warm_up\r\n" } else { "\r\n" });
    for second in seconds {
        let _ = write!(out, "{},{second}", rfc3339(second * 1_000_000));
        for side in &sides {
            let row = side.run.rows.binary_search_by_key(&second, |row| row.second);
            let Ok(place) = row else {
                side.names.iter().for_each(|_| out.push(','));
                continue;
            };
            let row = &side.run.rows[place];
            for value in row.values.iter().copied().chain(side.responses.values(row)) {
                out.push(',');
                if value.is_finite() {
                    // Six decimals are microseconds of a second, more than a ratio needs.
                    let text = format!("{value:.6}");
                    out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
                }
            }
        }
        if warmed_up {
            let row = run.rows.binary_search_by_key(&second, |row| row.second);
            out.push_str(if row.is_ok_and(|place| run.rows[place].warm_up) { ",1" } else { ",0" });
        }
        out.push_str("\r\n");
    }
    out
}

/// One side of the calls.
struct Side<'a> {
    run: &'a Run,
    responses: Responses,
    names: Vec<String>,
}

impl<'a> Side<'a> {
    fn of(run: &'a Run, start: &str) -> Self {
        let responses = Responses::of(run);
        let names = columns(&run.timers).into_iter().chain(responses.names.iter().cloned());
        let names = names.map(|name| format!("{start}{name}")).collect();
        Self { run, responses, names }
    }
}

fn field(out: &mut String, text: &str) {
    if text.contains(['"', ',', '\r', '\n']) {
        let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
    } else {
        out.push_str(text);
    }
}
