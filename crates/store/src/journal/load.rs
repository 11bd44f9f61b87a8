//! Bindings come back from disk.

use std::sync::Arc;
use std::time::Duration;

use super::{BindingEngine, JournalSettings};
use crate::binding::{Binding, NO_LISTENER};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::location::LocationTable;

/// Takes the bindings that `engine` has into `table`; returns how many.
pub(super) fn load(
    engine: &mut impl BindingEngine,
    table: &Arc<LocationTable>,
    settings: &JournalSettings,
    clock: &Clock,
) -> Result<usize, StoreError> {
    let mut loaded = 0;
    let now = clock();
    let highest = engine.load(now.wall, table.ids(), &mut |id, row, listener| {
        let mut names = settings.listeners.iter();
        let listener = names.position(|name| **name == *listener).and_then(|place| u16::try_from(place).ok());
        let granted = if row.updated_at > 0 { row.expires_at.saturating_sub(row.updated_at) } else { 0 };
        let longest = settings.longest.max(Duration::from_millis(granted));
        let binding = Binding {
            expires_at: now.to_mono(row.expires_at, longest),
            listener: listener.unwrap_or(NO_LISTENER),
            ..*row
        };
        match table.load(id, &binding) {
            Ok(()) => loaded += 1,
            Err(unfit) => tracing::warn!(id = id.0, "a binding on disk is left out: {unfit}"),
        }
    })?;
    table.ids_from(highest + 1);
    Ok(loaded)
}
