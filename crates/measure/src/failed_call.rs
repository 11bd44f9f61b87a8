//! Failed call with its messages, for the log and the reports.

use serde::{Deserialize, Serialize};

/// Failed call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedCall {
    pub call_id: String,
    /// Cause, in words.
    pub cause: String,
    /// Address of the generator.
    pub own: String,
    pub transport: String,
    /// Start and end, microseconds since 1970-01-01 UTC.
    pub began: u64,
    pub ended: u64,
    /// Messages in their order.
    pub messages: Vec<KeptMessage>,
    /// Number of omitted messages in the middle of a long call, and of kept ones before them.
    pub omitted: u64,
    pub omitted_after: usize,
}

/// Message of a failed call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptMessage {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    /// True if the generator sent it, false if it received it.
    pub sent: bool,
    /// Address of the other side.
    pub peer: String,
    /// Remark: unexpected, lost on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Printable text: control characters of the peer are escaped.
    pub text: String,
}

impl KeptMessage {
    /// Returns the start line.
    pub fn start_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}
