//! Public test messages that are not part of the project.

use std::path::{Path, PathBuf};

/// Folder of these messages below `STROWGER_CORPORA`, if it exists.
pub(crate) fn corpus(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let folder = std::env::var_os("STROWGER_CORPORA").map_or_else(beside, PathBuf::from).join(name);
    let is_there = folder.is_dir();
    if !is_there {
        eprintln!("{} is missing: only the project's own messages are tested", folder.display());
    }
    is_there.then_some(folder)
}
