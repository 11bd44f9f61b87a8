//! Loading of bindings from disk.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::{BindingEngine, JournalSettings};
use crate::binding::{Binding, NO_LISTENER};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::location::LocationTable;

/// Loads the bindings of `engine` into `table`. Returns the number of bindings.
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
        let aor = canonical(row.aor, &settings.aliases);
        let binding = Binding {
            aor: &aor,
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

/// Returns the address-of-record under the canonical name of its domain.
fn canonical<'a>(aor: &'a [u8], aliases: &[(String, String)]) -> Cow<'a, [u8]> {
    let at = aor.iter().rposition(|byte| *byte == b'@').map_or(aor.len(), |at| at + 1);
    let (user, domain) = aor.split_at(at);
    match aliases.iter().find(|(alias, _)| alias.as_bytes() == domain) {
        Some((_, canonical)) => [user, canonical.as_bytes()].concat().into(),
        None => aor.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn a_binding_stands_under_the_canonical_name_of_its_domain() {
        let aliases = [("b.example".to_owned(), "a.example".to_owned())];
        for (stored, loaded) in [
            ("al@b.example", "al@a.example"),
            ("al@a.example", "al@a.example"),
            ("a@b.example@b.example", "a@b.example@a.example"),
            ("al@x.b.example", "al@x.b.example"),
            ("b.example", "b.example"),
        ] {
            assert_eq!(canonical(stored.as_bytes(), &aliases), loaded.as_bytes(), "{stored}");
        }
    }
}
