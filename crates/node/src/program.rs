//! The program around a server: its callbacks, and requests to it.

use crate::control::Reply;
use std::path::PathBuf;
use strowger_core::Outbox;
use tokio::sync::{mpsc, oneshot};

/// Callbacks from the server into its program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Called by a shard when its load has fallen much, so that the allocator of the program returns unused memory.
    pub give_back: fn(),
    /// Returns the lines that the log has lost and the failed attempts to write it, since the start; for the
    /// statistics.
    pub log_lost: fn() -> (u64, u64),
    /// Sets the log level, in the syntax of `strowger log level`; without a level returns the present one.
    pub log_level: fn(Option<&str>) -> Result<String, String>,
    /// Receives requests of commands to the program; `None`: they are refused.
    pub requests: Option<mpsc::Sender<Request>>,
    /// Called with the output of a shard before it is sent, each round; for tests that judge where messages go.
    pub sends: fn(&Outbox),
}

impl Default for Program {
    fn default() -> Self {
        Self {
            give_back: || (),
            log_lost: || (0, 0),
            log_level: |_| Err("this program has no log of its own".into()),
            requests: None,
            sends: |_| (),
        }
    }
}

/// A request of a command to the program of the server; it goes to [`Program::requests`].
#[derive(Debug)]
pub enum Request {
    /// Shut down gracefully.
    Drain,
    /// Reload the configuration ([`Server::reload`](crate::Server::reload)).
    Reload {
        /// File named by the command. A server with another file refuses the command.
        file: Option<PathBuf>,
        /// Receives the reply to the command.
        reply: oneshot::Sender<Reply>,
    },
}
