//! What the system says of files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode of a file: another file of the same name has others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNumber {
    device: u64,
    inode: u64,
}

impl FileNumber {
    /// That of the file that has this name now, if one has it.
    pub fn named(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }

    /// That of an open file.
    ///
    /// # Errors
    /// As the system says.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileNumber {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Whether something could not be written since there is no room for it.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
