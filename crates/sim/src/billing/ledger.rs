//! Accounting tables: each row once, by its identity.

use super::text::tag;
use std::collections::{BTreeMap, BTreeSet};
use strowger_store::accounting::{Cdr, Event, Row};

/// Rows that have reached their tables.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    identities: BTreeSet<String>,
    pub(super) records: Vec<Cdr>,
    /// Events by identity of the call.
    events: BTreeMap<String, Vec<Event>>,
}

/// Header by which a record identifies the INVITE that began its call.
pub(super) const TRY: &str = "X-Try";

/// Begin and end of an answered call.
pub(super) type Span = (u64, Option<u64>);

impl Ledger {
    /// Adds a row, unless the table has a row with this identity.
    pub(super) fn take(&mut self, row: Row) {
        if !self.identities.insert(row.identity().to_owned()) {
            return;
        }
        match row {
            Row::Cdr(cdr) => self.records.push(cdr),
            Row::Event(event) => self.events.entry(event.call_identity.clone()).or_default().push(event),
        }
    }

    /// Records of answered calls.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&Cdr, Span)> {
        self.records.iter().filter_map(|cdr| Some((cdr, (cdr.answer?, cdr.end))))
    }

    /// Returns the begin and the end of a call by its events: the begin is the answered INVITE, the end is the last BYE
    /// that ended a dialog. A refused BYE ends no dialog.
    pub(super) fn by_events(&self, identity: &str) -> Option<Span> {
        let events = self.events.get(identity)?;
        let begin = events.iter().find(|event| event.event == "invite")?.at;
        let ends = events.iter().filter(|event| event.event == "bye");
        let ends = ends.filter(|event| matches!(event.status, 0 | 200..300 | 408 | 481));
        Some((begin, ends.map(|event| event.at).max()))
    }
}

/// Returns the identifier of the INVITE that began the call of a record.
pub(super) fn try_of(cdr: &Cdr) -> &str {
    field(cdr, TRY)
}

/// Returns the caller's tag of a record, possibly truncated.
pub(super) fn caller_of(cdr: &Cdr) -> &str {
    tag(field(cdr, "From"))
}

fn field<'a>(cdr: &'a Cdr, of: &str) -> &'a str {
    cdr.fields.iter().find(|(name, _)| name == of).map_or("", |(_, value)| value)
}
