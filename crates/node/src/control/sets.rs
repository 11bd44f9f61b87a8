//! Orders about the data sets of the rules.

use super::{Controlled, Done, Found, Reply, SetEntry, SetList, SetPage, SetReload, SetSummary, Wrong, shutting_down};
use crate::data_sets::{self, Reread};
use crate::running::Running;

impl Controlled {
    pub(super) fn sets(&self) -> Reply {
        let policy = self.shared.policy();
        let (decisions, tables) = (&policy.config.decisions, &policy.config.sets);
        let summary = |(id, name, kind): (_, &str, strowger_rules::LookupKind)| {
            let set = decisions.sets.set(id)?;
            let table = tables.iter().find(|table| table.name.as_str() == name)?;
            let state = self.services.sets.state(name);
            Some(SetSummary {
                name: name.to_owned(),
                kind: kind.word().to_owned(),
                entries: set.len(),
                memory_bytes: set.memory(),
                origin: table.origin(),
                read_at: state.as_ref().map(|state| state.read_at),
                error: state.and_then(|state| state.fault).map(|fault| fault.to_string()),
            })
        };
        Reply::Sets(SetList { sets: decisions.names.iter().filter_map(summary).collect() })
    }

    /// Returns a page of entries. The position of a page is the number of its first entry.
    pub(super) async fn set(&self, name: &str, beginning: String, from: Option<u64>, most: usize) -> Reply {
        let Some(set) = self.shared.policy().config.decisions.set(name).cloned() else { return unknown(name) };
        let from = from.unwrap_or(0);
        // Skipping to the end of a large set takes time.
        let work = move || {
            let place = usize::try_from(from).unwrap_or(usize::MAX);
            let mut rest = set.list(&beginning).skip(place);
            let entries: Vec<SetEntry> = rest.by_ref().take(most).map(SetEntry::from).collect();
            let is_end = rest.next().is_none();
            SetPage { next: (!is_end).then_some(from.saturating_add(entries.len() as u64)), entries }
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(page) => Reply::Set(page),
            Err(_) => shutting_down(),
        }
    }

    fn running(&self) -> Running {
        let (shared, services) = (self.shared.clone(), self.services.clone());
        Running { shared, services, handle: self.metrics.handle().clone() }
    }

    /// Reads all sets, or the named set, and replaces either all of them or none.
    pub(super) async fn reload_sets(&self, name: Option<String>) -> Reply {
        let policy = self.shared.policy();
        let tables = &policy.config.sets;
        if let Some(name) = &name {
            match tables.iter().find(|table| table.name.as_str() == name) {
                None => return unknown(name),
                Some(table) if !table.is_elsewhere() => {
                    let message = format!("the entries of set {name} stand in the configuration: strowger reload");
                    return Reply::Refused(message);
                }
                Some(_) => (),
            }
        }
        let running = self.running();
        let is_meant = move |other: &str| name.as_deref().is_none_or(|name| name == other);
        let work = move || data_sets::read_again(&running, is_meant);
        let reread = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(reread)) => reread,
            Ok(Err(faults)) => {
                for fault in &faults {
                    tracing::error!(error = %fault, "data set refused by command: all stay as they were");
                }
                return Reply::Wrong(Wrong::of_sets(&faults));
            }
            Err(_) => return shutting_down(),
        };
        let origin = |name: &str| {
            let table = tables.iter().find(|table| table.name.as_str() == name);
            table.map_or_else(String::new, strowger_config::SetTable::origin)
        };
        let reloaded = |Reread { name, entries, before, is_other }: Reread| {
            tracing::info!(set = %name, entries, before, "data set read again by command");
            SetReload { origin: origin(&name), name, before, entries, changed: is_other }
        };
        Reply::Done(Done::SetsReloaded { sets: reread.into_iter().map(reloaded).collect() })
    }

    pub(super) fn search(&self, name: &str, key: &str) -> Reply {
        match self.shared.policy().config.decisions.set(name) {
            Some(set) => Reply::Found(Found { entries: set.find(key).into_iter().map(SetEntry::from).collect() }),
            None => unknown(name),
        }
    }
}

fn unknown(name: &str) -> Reply {
    Reply::Refused(format!("no [[set]] of the configuration has the name {name}"))
}

impl From<strowger_rules::Entry> for SetEntry {
    fn from(entry: strowger_rules::Entry) -> Self {
        Self { key: entry.key, value: entry.value }
    }
}
