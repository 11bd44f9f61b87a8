//! One server at a time keeps its bindings in a database.
//!
//! A server reads the rows once, at its start, and from then on its memory is the truth: it numbers its bindings itself and
//! writes them by number. A second one on the same file would write over rows of the first, whose phones were told 200. So
//! a server that keeps bindings there holds a lock, which the kernel releases when the process ends, however it ends. Subscribers
//! need none: every process may read and change them.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sqlite::OpenError;

/// The lock, held until it is dropped.
///
/// It lies on a file of its own beside the database, named as SQLite names its companions: closing any descriptor of the
/// database itself would undo the locks that SQLite has on it. The file is empty and stays there: a process that removed it could
/// remove it under another one that waits for it.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _held: File,
}

/// How often one looks whether a server that is ending has ended.
const LOOK: Duration = Duration::from_millis(10);

impl InstanceLock {
    /// Takes the lock; waits at most `most` for a process that is just ending.
    pub(crate) fn take(database: &Path, most: Duration) -> Result<Self, OpenError> {
        let path = beside(database);
        let fail = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("the lock of the database cannot be taken: {error}"),
        };
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(fail)?;
        let end = Instant::now() + most;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _held: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: database.to_path_buf() }),
                Err(TryLockError::Error(error)) => return Err(fail(error)),
            }
        }
    }
}

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-lock");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_and_the_next_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("s.db");
        let first = InstanceLock::take(&database, Duration::ZERO).unwrap();
        let refused = InstanceLock::take(&database, Duration::from_millis(30)).unwrap_err().to_string();
        assert!(refused.contains("s.db") && refused.contains("another server"), "{refused}");
        InstanceLock::take(&dir.path().join("t.db"), Duration::ZERO).unwrap();

        // One that is ending is waited for.
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        InstanceLock::take(&database, Duration::from_secs(60)).unwrap();
        ends.join().unwrap();
    }
}
