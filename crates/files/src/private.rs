//! Files and folders for the user of this process alone, by any umask.
//!
//! What a server keeps says who calls whom, or holds what is as good as a password. So every file and folder that it makes is made here.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Of files.
const FILE: u32 = 0o600;
/// Of folders.
const FOLDER: u32 = 0o700;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// To write a file that is made where it is missing, of mode 600. One that is there keeps its mode: [`narrow`] takes it from others.
pub fn file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(FILE);
    options
}

/// Makes a folder and those above it where they are missing, of mode 700. One that is there keeps its mode.
///
/// # Errors
/// As the system says.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// Gives a file that was there before mode 600, if others than its user may open it. A device stays as it is.
///
/// # Errors
/// It belongs to another user.
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
