//! Bindings of the toy.

use super::{read, write};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use strowger_store::binding::{Binding, BindingId};
use strowger_store::error::StoreError;
use strowger_store::journal::{BindingEngine, Write};

pub(super) struct Toy {
    path: PathBuf,
    /// Address-of-record, URI, end and listener by id.
    rows: BTreeMap<u64, (Vec<u8>, Vec<u8>, u64, String)>,
}

impl Toy {
    pub(super) fn open(path: &Path) -> Self {
        let path = path.to_owned();
        Self { rows: read(&path), path }
    }
}

impl BindingEngine for Toy {
    fn load(
        &mut self,
        wall_ms: u64,
        ids: RangeInclusive<u64>,
        each: &mut dyn FnMut(BindingId, &Binding<'_>, &str),
    ) -> Result<u64, StoreError> {
        let highest = self.rows.range(ids.clone()).next_back().map_or_else(|| *ids.start(), |(id, _)| *id);
        self.rows.retain(|_, (_, _, expires_at, _)| *expires_at > wall_ms);
        for (id, (aor, uri, expires_at, listener)) in &self.rows {
            each(BindingId(*id), &Binding { aor, uri, expires_at: *expires_at, ..Binding::EMPTY }, listener);
        }
        Ok(highest)
    }

    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        let mut rows = self.rows.clone();
        for change in writes {
            match change {
                Write::Put(id, binding, listener) => {
                    let row = (binding.aor.to_vec(), binding.uri.to_vec(), binding.expires_at, listener.to_owned());
                    rows.insert(id.0, row);
                }
                Write::Delete(id) => {
                    rows.remove(&id.0);
                }
            }
        }
        write(&self.path, &rows).map_err(|_| StoreError::Unavailable)?;
        self.rows = rows;
        Ok(())
    }
}
