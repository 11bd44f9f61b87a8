//! Page of a report.

use super::{Body, GateVerdict, Report};
use crate::row::{Row, Validity, definition};
use std::collections::BTreeSet;
use strowger_measure::several;
use strowger_report::{Figure, Item, Mark, Page, Table, rfc3339};

pub(super) fn page(report: &Report<'_>) -> String {
    let Report { experiment, description, answer, .. } = report;
    let mut page = Page::new(&format!("{} · strowger lab", experiment.title));
    page.heading(&experiment.title);
    page.about(&about(report));
    page.banner(answer.tone, "Answer", &answer.sentence, &[]);
    if !report.gates.is_empty() {
        page.section("Gates");
        let (judged, others): (Vec<&GateVerdict>, Vec<&GateVerdict>) =
            report.gates.iter().partition(|gate| gate.is_met.is_some());
        page.items(&judged.into_iter().map(gate).collect::<Vec<_>>());
        if let Some(title) = unjudged(&others) {
            let lines: Vec<String> = others.iter().map(|other| gate(other).text).collect();
            page.file(&title, &lines.join("\n"));
        }
    }
    page.section("Results");
    let mut figures: Vec<Figure> = Vec::new();
    for part in &report.parts {
        if let Body::Figure(figure) = &part.body {
            figures.push((**figure).clone());
            continue;
        }
        flush(&mut page, &mut figures);
        match &part.body {
            Body::Table(table) => {
                page.markup(&format!("<h3>{}</h3>\n", strowger_report::escape(&part.title)));
                page.table(table);
                if !part.note.is_empty() {
                    page.about(&part.note);
                }
            }
            Body::Drawing(drawing) => page.drawing(drawing),
            Body::Figure(_) => {}
        }
    }
    flush(&mut page, &mut figures);
    if let Some(published) = &experiment.published {
        page.section("Published values");
        page.text(&format!("{} on {}. {}", published.source, published.machine, published.errata));
    }
    page.section("Validity of each trial");
    let (valid, invalid): (Vec<Item>, Vec<Item>) =
        report.rows.iter().map(trial).partition(|item| item.mark == Some(Mark::Met));
    page.items(&invalid);
    let names: Vec<String> = valid.into_iter().map(|item| item.text).collect();
    page.file(&several(names.len() as u64, "valid trial"), &names.join("\n"));
    page.section("Method");
    report.method.iter().for_each(|sentence| page.text(sentence));
    page.section("Figures and their units");
    page.table(&definitions(report));
    page.section("Machine and versions");
    page.table(&super::table::machines(&super::Cells::of(experiment, report.rows), description));
    if !report.configurations.is_empty() {
        page.section("Configurations");
        report.configurations.iter().for_each(|(name, text)| page.file(name, text));
    }
    page.html(&format!("strowger lab {} · times are UTC · `strowger lab verify` checks the run", description.program))
}

/// Describes experiment, profile, date and machine in one line.
pub(super) fn about(report: &Report<'_>) -> String {
    let description = report.description;
    format!(
        "Experiment {} · profile {} · {} · {} · {}, {} cores",
        report.experiment.name,
        description.profile,
        rfc3339(description.started * 1_000_000),
        several(report.rows.len() as u64, "trial"),
        description.machine.host,
        description.machine.cores,
    )
}

fn flush(page: &mut Page, figures: &mut Vec<Figure>) {
    if !figures.is_empty() {
        page.figures(figures);
        figures.clear();
    }
}

/// Returns the number of gates without a verdict, or `None` if each gate has a verdict.
pub(super) fn unjudged(gates: &[&GateVerdict]) -> Option<String> {
    let count = gates.len() as u64;
    let were = if count == 1 { "was" } else { "were" };
    (count > 0).then(|| format!("{} {were} not judged", several(count, "gate")))
}

pub(super) fn gate(verdict: &GateVerdict) -> Item {
    let mark = match verdict.is_met {
        Some(true) => Mark::Met,
        Some(false) => Mark::Missed,
        None => Mark::Unjudged,
    };
    Item { mark: Some(mark), text: format!("{}: {}", verdict.gate, verdict.sentence) }
}

/// Describes a trial with its verdict.
pub(super) fn trial(row: &Row) -> Item {
    let cell = row.cell();
    let axes: String = cell.axes.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let load = if row.limit.is_some() { "limit".into() } else { row.load.to_string() };
    let name = format!("{}{axes}, {load}, repetition {}", row.system.name, row.repetition);
    match &row.validity {
        Validity::Valid => Item { mark: Some(Mark::Met), text: name },
        Validity::Reasons(reasons) => {
            let reasons: Vec<&str> = reasons.iter().map(|reason| reason.sentence.as_str()).collect();
            Item { mark: Some(Mark::Missed), text: format!("{name}: {}", reasons.join("; ")) }
        }
    }
}

/// Returns the definitions of the figures that the report shows.
pub(super) fn definitions(report: &Report<'_>) -> Table {
    let gates = report.experiment.gates.iter().flat_map(|gate| gate.figures.iter());
    let names: BTreeSet<&String> =
        report.experiment.figures.iter().flat_map(|figure| figure.y.iter()).chain(gates).collect();
    let mut table = Table::new(["figure", "unit", "meaning"]).with_texts(1).with_texts(2);
    for name in names {
        if let Some(known) = definition(name) {
            table.row([name.as_str(), known.unit.key(), known.title]);
        }
    }
    table
}
