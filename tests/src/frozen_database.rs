//! Database of a server, locked so that no connection can read it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Locks of the write-ahead log, one of which each reader needs, in the file beside the database: while they are held,
/// no connection reads. After the drop all read again, SQLite after up to a third of a second.
#[derive(Debug)]
pub struct FrozenDatabase(File);

impl FrozenDatabase {
    /// Freezes the database of this running server. Waits for a moment in which no connection reads.
    ///
    /// # Panics
    /// The server has no database, or reads it without a pause.
    pub fn of(server: &Server) -> Self {
        let path = server.folder().join("test.sqlite-shm");
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the database is open");
        let frozen = Self(file);
        // Each reader holds one of these locks for a moment.
        let end = Instant::now() + Duration::from_secs(10);
        while !frozen.lock(libc::F_WRLCK) {
            assert!(Instant::now() < end, "the database is read all the time");
            std::thread::yield_now();
        }
        frozen
    }

    /// Sets or releases `WAL_READ_LOCK(0)` to `(4)` of SQLite's file format, section "locks".
    fn lock(&self, kind: i32) -> bool {
        // SAFETY: zeroed is a value of this plain struct.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        (lock.l_start, lock.l_len) = (123, 5);
        // SAFETY: the descriptor is open, and the struct lives for the call.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
    }
}

impl Drop for FrozenDatabase {
    fn drop(&mut self) {
        self.lock(libc::F_UNLCK);
    }
}
