//! Text of a report in Markdown.

use super::{Body, GateVerdict, Report, html};
use std::collections::BTreeSet;
use std::fmt::Write;
use strowger_measure::Unit;
use strowger_report::figure::{Plot, XAxis};
use strowger_report::{Item, Table, printable};

pub(super) fn text(report: &Report<'_>) -> String {
    let mut out = String::new();
    let title = printable(&report.experiment.title);
    let _ = writeln!(out, "# {title}\n\n{}\n\n**{}**\n", html::about(report), printable(&report.answer.sentence));
    if !report.gates.is_empty() {
        out.push_str("## Gates\n\n");
        let (judged, others): (Vec<&GateVerdict>, Vec<&GateVerdict>) =
            report.gates.iter().partition(|gate| gate.is_met.is_some());
        judged.iter().for_each(|gate| line(&mut out, &html::gate(gate)));
        if let Some(title) = html::unjudged(&others) {
            let _ = writeln!(out, "- ? {title}");
        }
        out.push('\n');
    }
    for part in &report.parts {
        let table = match &part.body {
            Body::Drawing(_) => continue,
            Body::Table(table) => table.clone(),
            Body::Figure(figure) => match figure.plot() {
                Some(plot) => values(plot),
                None => {
                    let _ = writeln!(out, "## {}\n\n{}\n", printable(&part.title), printable(&part.note));
                    continue;
                }
            },
        };
        let _ = writeln!(out, "## {}\n\n{}", printable(&part.title), table.markdown());
        if !part.note.is_empty() {
            let _ = writeln!(out, "{}\n", printable(&part.note));
        }
    }
    if let Some(published) = &report.experiment.published {
        let _ =
            writeln!(out, "Published values: {} on {}. {}\n", published.source, published.machine, published.errata);
    }
    out.push_str("## Validity\n\n");
    let trials: Vec<Item> = report.rows.iter().map(html::trial).collect();
    let invalid: Vec<&Item> = trials.iter().filter(|item| item.mark == Some(strowger_report::Mark::Missed)).collect();
    let _ = writeln!(out, "{} of {} trials are valid.\n", trials.len() - invalid.len(), trials.len());
    invalid.iter().for_each(|item| line(&mut out, item));
    out.push_str("\n## Method\n\n");
    for sentence in &report.method {
        let _ = writeln!(out, "{sentence}\n");
    }
    let _ = writeln!(out, "## Figures and their units\n\n{}", html::definitions(report).markdown());
    out
}

fn line(out: &mut String, item: &Item) {
    let sign = item.mark.map_or("", |mark| mark.sign());
    let _ = writeln!(out, "- {sign} {}", printable(&item.text));
}

/// Lists the values of a plot: a line for each place, a column for each series.
fn values(plot: &Plot) -> Table {
    let show = |value: f64| match Unit::ALL.into_iter().find(|unit| unit.key() == plot.y.unit) {
        Some(unit) => unit.show(value),
        None => format!("{value} {}", plot.y.unit),
    };
    let (title, place): (String, Box<dyn Fn(f64) -> String>) = match &plot.x {
        XAxis::Numbers(axis) => (format!("{} ({})", axis.title, axis.unit), Box::new(|x| x.to_string())),
        XAxis::Categories { title, names } => (title.clone(), Box::new(|x| names[x as usize].clone())),
    };
    let titles = plot.series.iter().map(|series| series.name.clone());
    let of_published = plot.published.iter().map(|published| published.label.clone());
    let mut table = Table::new([title].into_iter().chain(titles).chain(of_published));
    // Values of x are not negative, so that their bits have the same order as the values.
    let measured = plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.x.to_bits()));
    let of_others = plot.published.iter().flat_map(|of| of.points.iter().filter_map(|point| point.x.map(f64::to_bits)));
    let places: BTreeSet<u64> = measured.chain(of_others).collect();
    for x in places.into_iter().map(f64::from_bits) {
        let mut cells = vec![place(x)];
        for series in &plot.series {
            let point = series.points.iter().find(|point| point.x == x);
            cells.push(point.map_or_else(String::new, |point| {
                let interval = point.interval.map(|[low, high]| format!(" ({} to {})", show(low), show(high)));
                let mark = if point.is_invalid { " (not valid)" } else { "" };
                format!("{}{}{mark}", show(point.y), interval.unwrap_or_default())
            }));
        }
        for published in &plot.published {
            let point = published.points.iter().find(|point| point.x.is_none_or(|at| at == x));
            cells.push(point.map_or_else(String::new, |point| show(point.y)));
        }
        table.row(cells);
    }
    table
}
