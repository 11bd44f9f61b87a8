//! A file that one process at a time holds.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::private;

/// A file that one process at a time holds: until it drops this, or ends, however it ends.
///
/// The file is empty and stays there: a process that removed it could remove it under another one that waits for it.
#[derive(Debug)]
pub struct FileLock(File);

/// How often one looks whether a process that is ending has ended.
const LOOK: Duration = Duration::from_millis(10);

impl FileLock {
    /// The lock that lies beside a file which cannot be locked itself, named as SQLite names the companions of its files.
    pub fn beside(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push("-lock");
        name.into()
    }

    /// Makes the file if it is missing, for its user alone, and takes it; waits at most `most` for a process that is just ending. None: another
    /// process holds it.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn take(path: &Path, most: Duration) -> io::Result<Option<Self>> {
        let file = private::file().open(path)?;
        let end = Instant::now() + most;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone leaves it to a child that was forked meanwhile and has not begun its own program.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = FileLock::take(&path, Duration::ZERO).unwrap().expect("it is free");
        assert!(FileLock::take(&path, Duration::ZERO).unwrap().is_none());
        drop(first);
        assert!(FileLock::take(&path, Duration::ZERO).unwrap().is_some());
        assert!(FileLock::take(&folder.path().join("no/lock"), Duration::ZERO).is_err());
    }
}
