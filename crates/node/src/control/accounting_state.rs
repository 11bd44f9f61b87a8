//! State of accounting in replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of accounting: rows since the start, and waiting rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingState {
    /// Destination of rows.
    pub place: String,
    /// True: rows are written there now; false: they go to the spool, since they cannot be written.
    pub works: bool,
    /// Written rows, including those of the spool.
    pub written: u64,
    /// Rows that went to the spool first.
    pub spooled: u64,
    /// Lost rows: the queue was full.
    pub lost: u64,
    /// Failed attempts to write rows or the spool, or to remove old rows.
    pub failures: u64,
    /// Rows that wait in memory.
    pub queued: u64,
    /// Most rows that may wait in memory.
    pub queue: u64,
    /// The spool.
    pub spool: SpoolState,
    /// The quarantine.
    pub quarantine: QuarantineState,
    /// Latest failure since the start, even if accounting works again.
    pub last_error: Option<AccountingError>,
}

/// File of the rows that could not be written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolState {
    /// Path of the file.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Largest size in bytes.
    pub most_bytes: u64,
    /// Time of its oldest row, in milliseconds since 1970; none: it is empty, or that row has not been read yet.
    pub oldest: Option<u64>,
}

/// File of the rows that the database refused for their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineState {
    /// Path of the file.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Largest size in bytes.
    pub most_bytes: u64,
    /// Time of its oldest row, in milliseconds since 1970; none: it is empty.
    pub oldest: Option<u64>,
    /// Reason for the refusal of its last row; none: it is empty.
    pub last_reason: Option<String>,
    /// Rows put into it since the start.
    pub since_start: u64,
}

/// A failure to write rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingError {
    /// Time, in milliseconds since 1970.
    pub at: u64,
    /// Description, with the file or the server.
    pub message: String,
}
