//! Tables as TOML text, with the values of this configuration or the differences from a running one.

use std::fmt::Write;

use super::change::Change;
use super::reader::{KeyDoc, Section};
use super::secret::Secret;

/// A table with its values as TOML.
pub(super) struct TableText {
    pub(super) name: &'static str,
    pub(super) is_list: bool,
    pub(super) doc: &'static [&'static str],
    pub(super) keys: Vec<KeyDoc>,
    pub(super) values: Vec<String>,
}

impl TableText {
    pub(super) fn new<S: Section>(section: &S) -> Self {
        Self { name: S::NAME, is_list: false, doc: S::DOC, keys: S::docs(), values: section.values() }
    }

    /// Returns the table of a list item with its defaults.
    pub(super) fn item<S: Section>() -> Self {
        Self { is_list: true, ..Self::new(&S::default()) }
    }

    pub(super) fn write(&self, out: &mut String) {
        for (key, value) in self.keys.iter().zip(&self.values) {
            out.push('\n');
            write_comment(out, key.doc);
            let restart = if key.fixed { "; needs a restart" } else { "" };
            let _ = writeln!(out, "# {}; default {}{restart}", key.allowed.replace('`', ""), key.default);
            if value.trim_matches('"') == Secret::MASK {
                let _ = writeln!(out, "# {} = {value} (set, not shown)", key.name);
            } else {
                let _ = writeln!(out, "{} = {value}", key.name);
            }
        }
    }
}

pub(super) fn write_comment(out: &mut String, doc: &[&str]) {
    for line in doc {
        let _ = writeln!(out, "# {}", line.trim().replace('`', ""));
    }
}

/// Part of a configuration that the file writes as a table of a list.
pub(super) trait Listed {
    /// Table of the part in the file.
    type Table: Section;

    /// Returns the table from which this part would be read; `None` if the file has this part at another place.
    fn table(&self) -> Option<Self::Table>;

    /// Tells whether this key has an effect on this part, so that it is written.
    fn is_shown(&self, _key: &str) -> bool {
        true
    }
}

impl<S: Section + Clone> Listed for S {
    type Table = S;

    fn table(&self) -> Option<S> {
        Some(self.clone())
    }
}

/// Writes all tables of a list.
pub(super) fn list<L: Listed>(parts: &[L]) -> String {
    let mut out = String::new();
    for (part, table) in parts.iter().filter_map(|part| Some((part, part.table()?))) {
        let _ = writeln!(out, "\n[[{}]]", L::Table::NAME);
        for (name, value) in L::Table::KEYS.iter().zip(table.values()).filter(|(name, _)| part.is_shown(name)) {
            if value.trim_matches('"') == Secret::MASK {
                let _ = writeln!(out, "# {name} = {value} (set, not shown)");
            } else {
                let _ = writeln!(out, "{name} = {value}");
            }
        }
    }
    out
}

/// Returns the keys of a list whose values differ from those in `running`, table by table. If the numbers of tables differ, returns the two numbers
/// as the only change.
pub(super) fn list_changes<L: Listed>(list: &[L], running: &[L]) -> Vec<Change> {
    let tables = |list: &[L]| list.iter().filter_map(L::table).collect::<Vec<_>>();
    let (list, running) = (tables(list), tables(running));
    let name = L::Table::NAME;
    if list.len() != running.len() {
        let [running, wanted] = [running.len(), list.len()].map(|tables| format!("{tables} tables"));
        let needs_restart = L::Table::docs().iter().all(|key| key.fixed);
        return vec![Change { key: format!("[[{name}]]"), running, wanted, needs_restart }];
    }
    let pairs = list.iter().zip(&running).enumerate();
    pairs.flat_map(|(n, (table, running))| table.changes(running, &format!("{name}[{n}]"))).collect()
}
