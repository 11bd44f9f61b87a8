//! Changes that the location table sends to its journal.

use crate::binding::{BindingId, PackedBinding};
use crate::group::Row;
use crate::ticket::Ticket;

/// Queued change.
pub(crate) enum Change {
    /// Decision about one address-of-record.
    Update {
        ticket: Option<Ticket>,
        aor: Box<[u8]>,
        puts: Vec<PackedBinding>,
        deletes: Vec<BindingId>,
        /// All earlier bindings of the address-of-record.
        before: Vec<PackedBinding>,
    },
    /// Move of the bindings of the first address-of-record to the second.
    Rename {
        aors: [Box<[u8]>; 2],
        puts: Vec<PackedBinding>,
        /// All earlier bindings of both.
        before: [Vec<PackedBinding>; 2],
    },
    /// Expired bindings.
    Purge { ids: Vec<BindingId> },
}

impl Row for Change {
    /// Returns 1, plus 1 for each [`WEIGHT`] bytes.
    fn weight(&self) -> usize {
        let bytes = match self {
            Self::Update { puts, before, .. } => puts.iter().chain(before).map(PackedBinding::bytes).sum::<usize>(),
            Self::Rename { puts, before, .. } => {
                puts.iter().chain(before.iter().flatten()).map(PackedBinding::bytes).sum::<usize>()
            }
            Self::Purge { .. } => 0,
        };
        1 + bytes / WEIGHT
    }
}

/// Bytes per unit of weight. Eight usual registrations fit, so only bindings made large on purpose weigh more than one.
const WEIGHT: usize = 4096;
