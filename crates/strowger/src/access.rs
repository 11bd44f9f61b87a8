//! Errors of files, with the reason why this process may not open them.

use std::path::Path;

use strowger_files::access;

/// Adds to an error the owner of the file, if that is the reason.
pub(crate) fn denied(error: impl Into<anyhow::Error>, path: &Path) -> anyhow::Error {
    let error = error.into();
    match access::denial(path, true) {
        Some(reason) => anyhow::anyhow!("{error:#}; {reason}"),
        None => error,
    }
}
