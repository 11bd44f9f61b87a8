//! Files that the user of a service cannot read, because root created them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strowger_store::access;

/// Hint for a file that root created for itself alone; `None` if other users can read it, or if this process does not
/// run as root.
pub(crate) fn hint_for_service(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    if access::own_id() != 0 || mode & 0o077 != 0 {
        return None;
    }
    let path = path.display();
    Some(format!(
        "{path} belongs to root (mode {:04o}): if the server runs as another user, chown USER {path}*",
        mode & 0o7777
    ))
}

/// Adds to an error the owner of the file, if that is the reason.
pub(crate) fn denied(error: impl Into<anyhow::Error>, path: &Path) -> anyhow::Error {
    let error = error.into();
    match access::denial(path, true) {
        Some(reason) => anyhow::anyhow!("{error:#}; {reason}"),
        None => error,
    }
}
