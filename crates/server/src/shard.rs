//! State of a shard that its owner sets and its stages read.

use std::cell::Cell;
use std::fmt;
use strowger_cache::ticket::ReceiverId;
use strowger_store::credential_cache::{CredentialCache, Scratch};
use strowger_store::ticket::SinkId;

/// State of the process around an engine.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStatus {
    /// True if the process is about to end. Calls in progress continue, nothing new begins.
    pub draining: bool,
    /// Shards among which calls are divided.
    pub shards: usize,
}

/// Media threads of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaThreadStatus {
    /// Number of threads. It may grow.
    pub running: u16,
    /// Thread for new sessions: the least busy one.
    pub preferred: u16,
}

impl Default for MediaThreadStatus {
    fn default() -> Self {
        Self { running: 1, preferred: 0 }
    }
}

/// Number of a shard, and the state of the process around it.
#[derive(Clone, Copy, Debug)]
pub struct ShardState {
    pub(crate) number: usize,
    /// State of the process. The owner updates it before each call.
    pub process_status: ProcessStatus,
    /// Media threads. The owner updates this too.
    pub media_threads: MediaThreadStatus,
}

/// Receivers of the answers to the questions of a shard.
#[derive(Default)]
pub struct Sinks {
    /// Sink of this shard for commits; `None`: nothing is stored on disk.
    pub written: Option<SinkId>,
    /// Sink of this shard for subscriber answers; `None`: the server has no users.
    pub found: Option<SinkId>,
    /// Credential cache as seen by this shard, and the receiver number of the shard; `None` if there is no such cache.
    pub cached: Option<(CredentialCache, ReceiverId)>,
    /// Set when subscribers were asked in this round: the questions are sent at the end of the round.
    pub has_asked: bool,
    /// Set when the credential cache was asked in this round.
    pub has_asked_cache: bool,
    /// Scratch: question to the credential cache, and its immediate answer.
    pub(crate) scratch: Cell<Scratch>,
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks").finish_non_exhaustive()
    }
}
