//! Lists: labels with values, such as the form of a report.

use super::cells::Cells;
use super::table::of_cell;
use crate::experiment::{Entry, EntryValue, Experiment, Figure, Steps, entry_marks};
use crate::generator::PATIENCE;
use crate::row::Profile;
use crate::run::Description;
use strowger_load::campaign::Connections;
use strowger_measure::{Unit, grouped};
use strowger_report::Table;

/// Value of a figure that no trial of the profile measured.
const NOTHING: &str = "not measured";

/// Makes the list of a figure: a line for each entry, a column for each system.
pub(super) fn list(cells: &Cells<'_>, figure: &Figure, of: &Description) -> Table {
    let titles = [String::new()].into_iter().chain(cells.systems.iter().map(|system| (*system).to_owned()));
    let mut table = Table::new(titles);
    for column in 1..=cells.systems.len() {
        table = table.with_texts(column);
    }
    for entry in &figure.entries {
        let values = cells.systems.iter().map(|system| value(cells, entry, system, of));
        table.row([entry.label.clone()].into_iter().chain(values));
    }
    table
}

/// Adds the entries with a text to a table of labels and values.
pub(super) fn with_texts(mut table: Table, entries: &[Entry]) -> Table {
    for entry in entries {
        if let EntryValue::Text(text) = &entry.value {
            table.row([entry.label.clone(), text.clone()]);
        }
    }
    table
}

fn value(cells: &Cells<'_>, entry: &Entry, system: &str, of: &Description) -> String {
    match &entry.value {
        EntryValue::Text(text) => filled(cells.experiment, text, system, of),
        EntryValue::Figure { name, only } => {
            let fitting = cells.with(only);
            let mut own = fitting.iter().filter(|cell| cell.system == system);
            own.find_map(|cell| of_cell(cells, cell, name)).unwrap_or_else(|| NOTHING.to_owned())
        }
    }
}

/// Fills facts into the marks of a text.
fn filled(experiment: &Experiment, text: &str, system: &str, of: &Description) -> String {
    let mut filled = text.to_owned();
    for mark in entry_marks(text) {
        filled = filled.replace(&format!("{{{mark}}}"), &fact(experiment, mark, system, of));
    }
    filled
}

fn fact(experiment: &Experiment, mark: &str, system: &str, of: &Description) -> String {
    let (call, load, profile) = (&experiment.call, experiment.load_of(system), of.profile);
    let seconds = |time: std::time::Duration| Unit::Seconds.show(time.as_secs_f64());
    match mark {
        "transport" => call.transport.text().to_uppercase(),
        "connections" => match call.connections {
            Connections::One => "one for all sessions".into(),
            Connections::PerUser => "one for each user".into(),
            Connections::PerCall => "one for each session".into(),
        },
        "start" => grouped(load.start),
        "sessions" => grouped(f64::from(steps(experiment, profile).sessions.unwrap_or(load.sessions))),
        "hold" => seconds(steps(experiment, profile).hold.unwrap_or(call.hold)),
        "patience" => seconds(call.patience.unwrap_or(PATIENCE)),
        _ => of.systems.iter().find(|used| used.name == system).map_or_else(String::new, |used| used.version.clone()),
    }
}

fn steps(experiment: &Experiment, profile: Profile) -> Steps {
    experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile))
}
