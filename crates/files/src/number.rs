//! Identity of files, and a class of their errors.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode of a file: another file of the same name has other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNumber {
    device: u64,
    inode: u64,
}

impl FileNumber {
    /// Returns the number of the file with this name, if there is one.
    pub fn named(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }

    /// Returns the number of an open file.
    ///
    /// # Errors
    /// Error of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileNumber {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Tells whether a write failed for lack of space.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
