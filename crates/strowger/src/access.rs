//! Files that the user of a service cannot read, because root has made them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strowger_store::access;

/// What to do about a file that root has made for itself alone; `None` if no other user is kept out, or it is not root who made it.
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

/// The error, and whose the file is if that is the reason.
pub(crate) fn denied(error: impl Into<anyhow::Error>, path: &Path) -> anyhow::Error {
    let error = error.into();
    match access::denial(path, true) {
        Some(reason) => anyhow::anyhow!("{error:#}; {reason}"),
        None => error,
    }
}
