//! Bounds of a local cache and of its log.

use std::path::PathBuf;
use std::time::Duration;

/// Bounds of a local cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// Most bytes of memory for entries with all that belongs to them; at least 64 KiB. A partition takes memory in steps of a 64th of its
    /// share, and gives none back before the cache is dropped.
    pub bytes: usize,
    /// Most bytes of a key; up to 65,535.
    pub key: usize,
    /// Most bytes of a value; up to 16 MiB less one.
    pub value: usize,
    /// Most partitions, each with a lock of its own. A cache that is small for the largest entry has fewer: four of these fit into one.
    pub partitions: usize,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self { bytes: 64 << 20, key: 250, value: 1 << 20, partitions: 256 }
    }
}

/// Where and how a local cache keeps its entries beyond the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The folder of the segments; made if it is not there. One cache of one process has it at a time.
    pub folder: PathBuf,
    /// Whether what counts as kept survives a power cut; else it survives the end of the process.
    pub sync: bool,
    /// How long the first change of a group waits for company.
    pub linger: Duration,
    /// Bytes of a segment, after which the next one begins.
    pub segment: u64,
    /// Most bytes of changes that wait for the thread of the log. More are held in memory alone until the log has caught up.
    pub queue: usize,
    /// How long after a failure the log is tried again.
    pub pause: Duration,
}

impl LogSettings {
    /// The defaults, in this folder.
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
