//! Accounting law: the rows of a server describe its calls, and each row is written once; `rows.rs` has the path of
//! rows to the table.

use super::ServerSettings;
use super::kept::Kept;
use super::observer::Observer;
use std::collections::{HashMap, HashSet};
use strowger_store::accounting::{Cdr, Event, Row};

/// The rows of one process of a server.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Number of records of each forwarded call, by Call-ID.
    records: HashMap<String, u32>,
    /// Events of each call, by the identity of its record.
    events: HashMap<String, Vec<String>>,
}

/// Identities of all rows that the engines of a server ever gave to its writers, across processes.
#[derive(Debug, Default)]
pub(super) struct Identities(HashSet<String>);

fn call_id(row: &Row) -> &str {
    match row {
        Row::Cdr(cdr) => &cdr.call_id,
        Row::Event(event) => &event.call_id,
    }
}

/// Accounting settings of its configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) cdr: bool,
    pub(super) events: bool,
    /// True if the server stays in the path of each call.
    pub(super) stays: bool,
}

impl Written {
    pub(super) fn of(settings: &ServerSettings) -> Self {
        let says = |key: &str| settings.configs.iter().all(|config| config.contains(&format!("{key} = true")));
        Self { cdr: says("accounting.cdr"), events: says("accounting.events"), stays: says("proxy.record_route") }
    }
}

impl Accounts {
    /// Checks a row that leaves the engine.
    ///
    /// # Errors
    /// The fault of the row.
    pub(super) fn take(
        &mut self,
        row: &Row,
        written: Written,
        observer: &Observer,
        identities: &mut Identities,
        kept: Option<&Kept>,
    ) -> Result<(), String> {
        let is_restored = kept.is_some_and(|kept| kept.is_restored(call_id(row)));
        // The previous process had given the row to its writer, and ended before the end of the call was stored. The
        // table skips a row that it has.
        if is_restored && identities.0.contains(row.identity()) {
            return Ok(());
        }
        if let (Some(kept), Row::Cdr(cdr)) = (kept, row) {
            kept.check_cdr(cdr).map_err(|what| format!("accounting: {what}: {row:?}"))?;
        }
        let result = match row {
            _ if !identities.0.insert(row.identity().to_owned()) => Err("its identity was written before".to_owned()),
            Row::Event(event) if written.events => self.take_event(event),
            Row::Cdr(cdr) if written.cdr && is_restored => Self::check_moments(cdr, written),
            Row::Cdr(cdr) if written.cdr => self.take_cdr(cdr, written, observer),
            _ => Err("no such row is asked for".to_owned()),
        };
        result.map_err(|what| format!("accounting: {what}: {row:?}"))
    }

    fn take_event(&mut self, event: &Event) -> Result<(), String> {
        self.events.entry(event.call_identity.clone()).or_default().push(event.event.clone());
        match event.at >= event.setup {
            true => Ok(()),
            false => Err("it happened before its call began".into()),
        }
    }

    /// Returns whether a record of this call was written.
    pub(super) fn has_record(&self, call_id: &str) -> bool {
        self.records.contains_key(call_id)
    }

    fn check_moments(cdr: &Cdr, written: Written) -> Result<(), String> {
        let is_answered = cdr.answer.is_some();
        let moments: Vec<u64> =
            [Some(cdr.setup), cdr.ring.filter(|_| is_answered), cdr.answer, cdr.end].into_iter().flatten().collect();
        if !moments.is_sorted()
            || cdr.ring.is_some_and(|ring| ring < cdr.setup || cdr.end.is_some_and(|end| end < ring))
        {
            return Err("its moments are out of order".into());
        }
        if cdr.end.is_none() && (written.stays || !is_answered) {
            return Err("it has no end".into());
        }
        if is_answered != (cdr.outcome == "answered") || is_answered != (200..300).contains(&cdr.status) {
            return Err("status, outcome and answer contradict one another".into());
        }
        Ok(())
    }

    fn take_cdr(&mut self, cdr: &Cdr, written: Written, observer: &Observer) -> Result<(), String> {
        Self::check_moments(cdr, written)?;
        // Otherwise this server has answered itself.
        if cdr.attempts > 0 {
            *self.records.entry(cdr.call_id.clone()).or_default() += 1;
            if !observer.has_said(cdr.call_id.as_bytes(), cdr.status) {
                return Err("its caller got no such response".into());
            }
        }
        if written.events {
            self.check_events(cdr)?;
        }
        Ok(())
    }

    /// Checks the events of a finished call.
    fn check_events(&self, cdr: &Cdr) -> Result<(), String> {
        let events = self.events.get(&cdr.identity).map_or(&[][..], Vec::as_slice);
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        let by_party = matches!(&*cdr.ended_by, "caller" | "callee");
        let is_right = match cdr.answer {
            Some(_) => {
                count("invite") == 1 && count("missed") + count("failed") == 0 && (!by_party || count("bye") > 0)
            }
            None => count("invite") + count("bye") == 0 && count("missed") + count("failed") == 1,
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("its events are {events:?}")),
        }
    }

    /// Checks that each call has its record when no work is in progress. Two INVITEs of one call, such as an INVITE
    /// that passes this server twice, have one record together or one record each; an INVITE that was challenged has
    /// none.
    ///
    /// # Errors
    /// A call without a record.
    pub(super) fn leftovers(&self, written: Written, observer: &Observer) -> Result<(), String> {
        if !written.cdr {
            return Ok(());
        }
        for (call_id, invites, challenges, tries) in observer.invites() {
            let call_id = String::from_utf8_lossy(call_id).into_owned();
            let (records, most) =
                (self.records.get(&call_id).copied().unwrap_or(0), invites.saturating_sub(challenges));
            if records > most || (most > 0 && records == 0) || records < tries {
                return Err(format!(
                    "accounting: {call_id} has {records} records of {invites} INVITEs and {tries} tries; {challenges} were to show a password"
                ));
            }
        }
        Ok(())
    }
}
