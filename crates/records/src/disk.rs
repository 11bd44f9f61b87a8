//! Disk of limited size, for tests.

use super::Medium;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Disk that accepts as much of each write as fits. Clones share it.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

impl Disk {
    /// Creates an empty disk for this many bytes.
    pub fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), room))))
    }

    fn with<T>(&self, change: impl FnOnce(&mut (Vec<u8>, usize)) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the size of the disk.
    pub fn set_room(&self, room: usize) {
        self.with(|(_, of)| *of = room);
    }

    /// Returns the written bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.with(|(written, _)| written.clone())
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|(written, room)| {
            let takes = bytes.len().min(room.saturating_sub(written.len()));
            if takes == 0 {
                return Err(io::Error::new(io::ErrorKind::StorageFull, "No space left on device"));
            }
            written.extend_from_slice(&bytes[..takes]);
            Ok(takes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for Disk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.with(|(written, _)| written.truncate(length as usize));
        Ok(())
    }
}
