//! Owner of a file, for the error message to a process that may not open it.

use std::fs::{self, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Returns the reason why this process may not read this file, or, if `write`, may not write it. The reason names owner
/// and mode of the file, or of the folder in which the file would be created. Returns `None` if access is allowed, or
/// fails for another reason.
pub fn denial(path: &Path, write: bool) -> Option<String> {
    let opened = OpenOptions::new().read(true).write(write).open(path);
    match opened.err()?.kind() {
        ErrorKind::PermissionDenied => {}
        ErrorKind::NotFound if write => {}
        _ => return None,
    }
    // The first accessible ancestor decides: it is unknown which files are in a folder without access.
    let (at, found) = path.ancestors().find_map(|at| {
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        Some((at, fs::metadata(at).ok()?))
    })?;
    if at != path && found.permissions().mode() & 0o222 != 0 && found.uid() == own_id() {
        return None;
    }
    Some(format!("{}, and this process runs as {}", whose(at, &found), name(own_id())))
}

/// Returns `PATH belongs to root (mode 0600)`.
fn whose(path: &Path, metadata: &Metadata) -> String {
    format!(
        "{} belongs to {} (mode {:04o})",
        path.display(),
        name(metadata.uid()),
        metadata.permissions().mode() & 0o7777
    )
}

/// Returns advice about a file that root has created for itself alone; `None` if other users have access, or this
/// process is not root.
pub fn hint_for_service(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    if own_id() != 0 || mode & 0o077 != 0 {
        return None;
    }
    let path = path.display();
    Some(format!(
        "{path} belongs to root (mode {:04o}): if the server runs as another user, chown USER {path}*",
        mode & 0o7777
    ))
}

/// Returns the user of this process.
fn own_id() -> u32 {
    // Linux assigns the folder of a process to its effective user.
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// Returns the name of a user from `/etc/passwd`, otherwise the number.
fn name(id: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = id.to_string();
    let known = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&number)).then(|| name.to_owned())
    });
    known.unwrap_or_else(|| format!("user {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_come_from_the_system() {
        assert_eq!(name(0), "root");
        assert_eq!(name(4_294_967_000), "user 4294967000");
    }

    #[test]
    fn a_process_with_the_rights_gets_no_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        assert_eq!(denial(&path, false), None, "it is not there");
        fs::write(&path, "text").expect("it can be written");
        assert_eq!(denial(&path, true), None);
    }
}
