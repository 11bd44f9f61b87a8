//! What the location table gives to its journal.

use crate::binding::{BindingId, PackedBinding};
use crate::group::Row;
use crate::ticket::Ticket;

/// What one decision changes, as queued.
pub(crate) enum Change {
    /// A decision about one address-of-record.
    Update {
        ticket: Option<Ticket>,
        aor: Box<[u8]>,
        puts: Vec<PackedBinding>,
        deletes: Vec<BindingId>,
        /// All bindings of the address-of-record as they were before.
        before: Vec<PackedBinding>,
    },
    /// The bindings of the first address-of-record go to the second.
    Rename {
        aors: [Box<[u8]>; 2],
        puts: Vec<PackedBinding>,
        /// All bindings of both as they were before.
        before: [Vec<PackedBinding>; 2],
    },
    /// Bindings that expired.
    Purge { ids: Vec<BindingId> },
}

impl Row for Change {
    /// One, and one more for each [`WEIGHT`] bytes.
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

/// Eight usual registrations fit, so only bindings made large on purpose count for more than one.
const WEIGHT: usize = 4096;
