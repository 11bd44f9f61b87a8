//! Orders about the data sets that rules ask.

use super::{Controlled, Found, Reply, SetEntry, SetList, SetPage, SetSummary};

impl Controlled {
    pub(super) fn sets(&self) -> Reply {
        let policy = self.shared.policy();
        let decisions = &policy.config.decisions;
        let summary = |(id, name, kind): (_, &str, strowger_rules::Kind)| {
            let set = decisions.sets.set(id)?;
            let (name, kind) = (name.to_owned(), kind.word().to_owned());
            Some(SetSummary { name, kind, entries: set.len(), memory_bytes: set.memory() })
        };
        Reply::Sets(SetList { sets: decisions.names.iter().filter_map(summary).collect() })
    }

    /// The place of a page is the number of its first entry.
    pub(super) async fn set(&self, name: &str, beginning: String, from: Option<u64>, most: usize) -> Reply {
        let Some(set) = self.shared.policy().config.decisions.set(name).cloned() else { return unknown(name) };
        let from = from.unwrap_or(0);
        // To come to the end of a large set takes a while.
        let work = move || {
            let place = usize::try_from(from).unwrap_or(usize::MAX);
            let mut rest = set.list(&beginning).skip(place);
            let entries: Vec<SetEntry> = rest.by_ref().take(most).map(SetEntry::from).collect();
            let is_end = rest.next().is_none();
            SetPage { next: (!is_end).then_some(from.saturating_add(entries.len() as u64)), entries }
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(page) => Reply::Set(page),
            Err(_) => Reply::Refused("the server is shutting down".into()),
        }
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
