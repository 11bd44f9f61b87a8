//! The table of bindings on disk: a process writes the table by its journal, and the next process loads it; servers may
//! share a table.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strowger_message::{Message, Method};
use strowger_store::binding::{Binding, BindingId, FlowBytes, Received};
use strowger_store::error::StoreError;
use strowger_store::journal::{BindingEngine, Write};
use strowger_store::location::{Cursor, LocationTable};

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    texts: [Vec<u8>; 6],
    cseq: u32,
    q: Option<u16>,
    /// Milliseconds since 1970.
    expires_at: u64,
    updated_at: u64,
    received: Option<Received>,
    flow: Option<FlowBytes>,
    listener: String,
    node: u16,
    reg_id: u32,
    flags: u32,
}

impl Row {
    fn of(binding: &Binding<'_>, listener: &str) -> Self {
        let Binding { aor, uri, call_id, path, instance, user_agent, .. } = *binding;
        Self {
            texts: [aor, uri, call_id, path, instance, user_agent].map(<[u8]>::to_vec),
            cseq: binding.cseq,
            q: binding.q,
            expires_at: binding.expires_at,
            updated_at: binding.updated_at,
            received: binding.received,
            flow: binding.flow,
            listener: listener.to_owned(),
            node: binding.node,
            reg_id: binding.reg_id,
            flags: binding.flags,
        }
    }

    fn binding(&self) -> Binding<'_> {
        let [aor, uri, call_id, path, instance, user_agent] = &self.texts;
        Binding {
            aor,
            uri,
            call_id,
            path,
            instance,
            user_agent,
            cseq: self.cseq,
            q: self.q,
            expires_at: self.expires_at,
            updated_at: self.updated_at,
            received: self.received,
            flow: self.flow,
            listener: 0,
            node: self.node,
            reg_id: self.reg_id,
            flags: self.flags,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<u64, Row>,
    /// CSeq and Contact of the row of each Call-ID; `None` if the row was removed.
    kept: HashMap<Vec<u8>, Option<(u32, Vec<u8>)>>,
    /// Error of the next commit.
    error: Option<StoreError>,
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(Arc<Mutex<State>>);

impl Rows {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next commit fail.
    pub(super) fn fail(&self, error: Option<StoreError>) {
        self.state().error = error;
    }

    /// Checks that a 200 to a REGISTER agrees with the disk (the law: acknowledged data is kept).
    pub(super) fn check(&self, response: &Message<'_>) -> Result<(), String> {
        let (Ok(call_id), Ok(cseq), Some(status)) = (response.call_id(), response.cseq(), response.status()) else {
            return Ok(());
        };
        let state = self.state();
        let kept = state.kept.get(call_id.text).and_then(Option::as_ref);
        let own = |uri: &[u8]| response.contacts().flatten().any(|contact| contact.uri_text == uri);
        let is_wrong = match (cseq.method, status, kept) {
            (Method::Register, 200, None) => response.contacts().flatten().any(|contact| {
                // Contacts of other devices belong to other Call-IDs.
                !state.kept.values().flatten().any(|(_, uri)| *uri == contact.uri_text)
            }),
            (Method::Register, 200, Some((kept, uri))) => own(uri) && *kept < cseq.number,
            _ => false,
        };
        match is_wrong {
            true => Err(format!("{status} to CSeq {}, while {kept:?} is kept", cseq.number)),
            false => Ok(()),
        }
    }

    /// Checks that the bindings of this node are equal on disk and in memory while no write is in progress.
    pub(super) fn check_memory(&self, table: &LocationTable, node: u16) -> Result<(), String> {
        let ids = BindingId::of_node(node);
        let mut memory = BTreeMap::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = table.walk(from, usize::MAX, &mut |binding| {
                if ids.contains(&binding.id().0) {
                    memory.insert(binding.id().0, (binding.uri().to_vec(), binding.cseq()));
                }
            });
        }
        let state = self.state();
        let of_row = |row: &Row| (row.texts[1].clone(), row.cseq);
        let disk: BTreeMap<_, _> = state.rows.range(ids).map(|(id, row)| (*id, of_row(row))).collect();
        if memory == disk {
            return Ok(());
        }
        Err(format!("in memory {memory:?}, on disk {disk:?}"))
    }
}

impl BindingEngine for Rows {
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError> {
        let mut state = self.state();
        let highest = state.rows.range(ids.clone()).next_back().map_or_else(|| *ids.start(), |(id, _)| *id);
        state.rows.retain(|_, row| row.expires_at > wall_ms);
        for (id, row) in &state.rows {
            each(BindingId(*id), &row.binding(), &row.listener);
        }
        Ok(highest)
    }

    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(error) = state.error {
            return Err(error);
        }
        for write in writes {
            match write {
                Write::Put(id, binding, listener) => {
                    let row = Row::of(&binding, listener);
                    state.kept.insert(row.texts[2].clone(), Some((row.cseq, row.texts[1].clone())));
                    state.rows.insert(id.0, row);
                }
                Write::Delete(id) => {
                    if let Some(row) = state.rows.remove(&id.0) {
                        let [_, _, call_id, ..] = row.texts;
                        state.kept.insert(call_id, None);
                    }
                }
            }
        }
        Ok(())
    }
}
