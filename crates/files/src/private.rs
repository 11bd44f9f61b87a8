//! Files and folders private to the user of this process, independent of the umask.
//!
//! The files of a server show who calls whom, or contain secrets equivalent to a password. So all of its files and
//! folders are created here.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of files.
const FILE: u32 = 0o600;
/// Mode of folders.
const FOLDER: u32 = 0o700;
/// Rights of group and others.
const OTHERS: u32 = 0o077;

/// Returns options that open a file for writing, and create it with mode 600 if missing. An existing file keeps its
/// mode; [`narrow`] removes the rights of other users.
pub fn file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(FILE);
    options
}

/// Creates a folder and its missing parents, with mode 700. An existing folder keeps its mode.
///
/// # Errors
/// Error of the system.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// Sets an existing file to mode 600 if users other than its owner may open it. A device stays unchanged.
///
/// # Errors
/// The file belongs to another user.
pub fn narrow(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.permissions().mode() & OTHERS == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_its_users_and_what_is_there_is_narrowed_by_word() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        let at = |name: &str| folder.path().join(name);
        make_folder(&at("a/b")).unwrap();
        make_folder(&at("a/b")).unwrap();
        file().open(at("a/file")).unwrap();
        assert_eq!([mode("a"), mode("a/b"), mode("a/file")], [0o700, 0o700, 0o600]);
        std::fs::write(at("old"), "text").unwrap();
        std::fs::set_permissions(at("old"), Permissions::from_mode(0o644)).unwrap();
        let old = file().open(at("old")).unwrap();
        assert_eq!(mode("old"), 0o644);
        narrow(&old).unwrap();
        assert_eq!((mode("old"), std::fs::read_to_string(at("old")).unwrap()), (0o600, "text".into()));
        let device = file().open("/dev/null").unwrap();
        let before = device.metadata().unwrap().permissions().mode();
        narrow(&device).unwrap();
        assert_eq!(device.metadata().unwrap().permissions().mode(), before);
    }
}
