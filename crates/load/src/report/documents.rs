//! Figures of each document of a run.

use std::fmt::Write;
use strowger_measure::{Counter, Delay, DocumentTotals, Run, Unit, grouped};
use strowger_report::escape;

/// Column heads.
pub(super) const HEADS: [&str; 9] =
    ["document", "share", "started", "successful", "failed", "delay", "p50", "p95", "p99"];

/// Returns the row of each document, with the first of these delays that it has.
pub(super) fn rows(run: &Run) -> Vec<[String; 9]> {
    let documents = run.documents();
    let all: u32 = documents.iter().map(|one| one.document.share).sum();
    let row = |DocumentTotals { document, totals }: &DocumentTotals| {
        let count = |counter| grouped(totals.counter(counter) as f64);
        let delays = [Delay::Setup, Delay::Registration, Delay::Request, Delay::Disconnect];
        let delay = delays.into_iter().find(|delay| !totals.delays(*delay).is_empty());
        let figure = |percent: f64| {
            let micros = delay.and_then(|delay| totals.delays(delay).percentile(percent));
            micros.map_or_else(String::new, |micros| Unit::Microseconds.show(micros as f64))
        };
        [
            crate::printable(&document.name).into_owned(),
            Unit::Percent.show(f64::from(document.share) / f64::from(all.max(1)) * 100.0),
            count(Counter::CallsOutgoing),
            count(Counter::CallsSuccessful),
            count(Counter::CallsFailed),
            delay.map_or("", Delay::key).to_owned(),
            figure(50.0),
            figure(95.0),
            figure(99.0),
        ]
    };
    documents.iter().map(row).collect()
}

/// Returns lines for a terminal, heads first.
pub(super) fn lines(run: &Run) -> Vec<String> {
    let rows = rows(run);
    if rows.is_empty() {
        return Vec::new();
    }
    let name = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0).max(HEADS[0].len());
    let line = |cells: &[&str]| {
        let mut line = format!("{:name$}", cells[0]);
        cells[1..].iter().for_each(|cell| {
            let _ = write!(line, " {cell:>10}");
        });
        line
    };
    let heads = line(&HEADS);
    let rows = rows.iter().map(|row| line(&row.each_ref().map(String::as_str)));
    std::iter::once(heads).chain(rows).collect()
}

/// Returns the table of the page.
pub(super) fn html(run: &Run) -> String {
    let rows = rows(run);
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>Documents</h2><div class=\"wide\"><table><tr>");
    for head in HEADS {
        let _ = write!(out, "<th>{head}</th>");
    }
    for row in rows {
        out.push_str("</tr>\n<tr>");
        for cell in &row {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
    }
    out.push_str("</tr></table></div>\n");
    out
}
