//! One server at a time keeps its bindings in a database.
//!
//! A server reads the rows once, at its start, and from then on its memory is the truth: it numbers its bindings itself and
//! writes them by number. A second one on the same file would write over rows of the first, whose phones were told 200. So
//! a server that keeps bindings there holds a lock, which the kernel releases when the process ends, however it ends. Subscribers
//! need none: every process may read and change them.

use std::path::Path;
use std::time::Duration;

use strowger_records::FileLock;

use crate::sqlite::OpenError;

/// The lock, held until it is dropped.
///
/// It lies on a file of its own beside the database, named as SQLite names its companions: closing any descriptor of the
/// database itself would undo the locks that SQLite has on it.
#[derive(Debug)]
pub(crate) struct InstanceLock(#[expect(dead_code, reason = "held until it is dropped")] FileLock);

impl InstanceLock {
    /// Takes the lock; waits at most `most` for a process that is just ending.
    pub(crate) fn take(database: &Path, most: Duration) -> Result<Self, OpenError> {
        let path = FileLock::beside(database);
        let fail = |error: std::io::Error| OpenError::Io {
            path: path.clone(),
            detail: format!("the lock of the database cannot be taken: {error}"),
        };
        let held = FileLock::take(&path, most).map_err(fail)?;
        held.map(Self).ok_or_else(|| OpenError::InUse { path: database.to_path_buf() })
    }
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
