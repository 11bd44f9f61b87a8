//! Bounds of a local cache and of its log.

use std::path::PathBuf;
use std::time::Duration;

/// Bounds of a local cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// Maximum memory in bytes for entries with all their overhead; at least 64 KiB. A partition takes memory in steps of
    /// a 64th of its share, and returns none before the cache is dropped.
    pub bytes: usize,
    /// Maximum size of a key, in bytes; up to 65,535.
    pub key: usize,
    /// Maximum size of a value, in bytes; up to 16 MiB less one.
    pub value: usize,
    /// Limit of partitions, each with its own lock. A cache that is small for its largest entry has fewer: each has space
    /// for four such entries.
    pub partitions: usize,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self { bytes: 64 << 20, key: 250, value: 1 << 20, partitions: 256 }
    }
}

/// Place and settings of a local cache's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Folder of the segments; created if missing. Only one cache of one process may use it.
    pub folder: PathBuf,
    /// True if logged changes survive a power cut; otherwise they survive the end of the process.
    pub sync: bool,
    /// Time that the first change of a group waits for further changes.
    pub linger: Duration,
    /// Size of a segment in bytes, after which the next one begins.
    pub segment: u64,
    /// Limit of bytes of changes that wait for the log thread. Further changes are in memory alone until the log has caught
    /// up.
    pub queue: usize,
    /// Time between a failure and the next attempt to write.
    pub pause: Duration,
}

impl LogSettings {
    /// Returns the defaults for this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            sync: false,
            linger: Duration::from_millis(1),
            segment: 16 << 20,
            queue: 64 << 20,
            pause: Duration::from_secs(1),
        }
    }
}
