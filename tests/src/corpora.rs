//! Test data of other projects, read in place.

use std::path::PathBuf;

use crate::program::skipped;

/// Returns the folder of one set: below `STROWGER_CORPORA`, by default `../shared/corpora` beside the workspace.
/// `None`, with a message, if it is missing.
pub fn folder(set: &str) -> Option<PathBuf> {
    let root = std::env::var_os("STROWGER_CORPORA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpora")), PathBuf::from);
    let folder = root.join(set);
    if folder.is_dir() {
        return Some(folder);
    }
    skipped(&format!(
        "{} is missing (STROWGER_CORPORA names the folder); only the project's own cases ran",
        folder.display()
    ));
    None
}
