//! Lock file of one process.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::private;

/// Lock that one process at a time holds: until the drop, or the end of the process for any reason.
///
/// The file is empty and is never removed: a removal could hit the file of another process that waits for it.
#[derive(Debug)]
pub struct FileLock(File);

/// Failure to take a lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{}: another process has it", .0.display())]
    InUse(PathBuf),
    /// The folder or the lock file cannot be created or opened.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// Path of the folder or the lock.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// Interval of attempts while another process is ending.
const LOOK: Duration = Duration::from_millis(10);

impl FileLock {
    /// Takes the lock of a file that cannot be locked itself. The lock is the file `FILE-lock` beside it, named like
    /// SQLite's companion files. Waits at most `most` for a process that is about to end.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn beside(file: &Path, most: Duration) -> Result<Self, LockError> {
        let mut name = file.as_os_str().to_owned();
        name.push("-lock");
        let path = PathBuf::from(name);
        match Self::take(&path, most) {
            Ok(held) => held.ok_or_else(|| LockError::InUse(file.to_owned())),
            Err(error) => Err(LockError::Unusable { path, error }),
        }
    }

    /// Creates a folder if missing, private to its user, and takes the lock with this name in it. Waits at most `most`
    /// for a process that is about to end.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn of_folder(folder: &Path, name: &str, most: Duration) -> Result<Self, LockError> {
        let unusable = |path: &Path, error| LockError::Unusable { path: path.to_owned(), error };
        private::make_folder(folder).map_err(|error| unusable(folder, error))?;
        let path = folder.join(name);
        let held = Self::take(&path, most).map_err(|error| unusable(&path, error))?;
        held.ok_or_else(|| LockError::InUse(folder.to_owned()))
    }

    /// Creates the lock file if missing, private to its user, and takes the lock. Waits at most `most` for a process
    /// that is about to end. Returns `None` if another process holds the lock.
    ///
    /// # Errors
    /// The file cannot be created or opened.
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
        // If the file were only closed, a child that was forked meanwhile and has not executed its program yet would
        // keep the lock.
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

    #[test]
    fn a_process_that_is_ending_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["s.db", "t.db"].map(|name| folder.path().join(name));
        let first = FileLock::beside(&file, Duration::ZERO).unwrap();
        let refused = FileLock::beside(&file, Duration::from_millis(30)).unwrap_err();
        assert!(matches!(&refused, LockError::InUse(path) if *path == file), "{refused}");
        FileLock::beside(&other, Duration::ZERO).unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        FileLock::beside(&file, Duration::from_secs(60)).unwrap();
        ends.join().unwrap();
    }

    #[test]
    fn a_folder_is_made_and_held() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        let held = FileLock::of_folder(&folder, "lock", Duration::ZERO).unwrap();
        let refused = FileLock::of_folder(&folder, "lock", Duration::ZERO).unwrap_err();
        assert!(matches!(&refused, LockError::InUse(path) if *path == folder), "{refused}");
        drop(held);
        std::fs::write(parent.path().join("file"), "").unwrap();
        let no_folder = parent.path().join("file/c");
        let refused = FileLock::of_folder(&no_folder, "lock", Duration::ZERO).unwrap_err();
        assert!(matches!(&refused, LockError::Unusable { path, .. } if *path == no_folder), "{refused}");
    }
}
