//! A failed call with its messages, for the log and the reports.

use serde::{Deserialize, Serialize};

/// A call that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedCall {
    pub call_id: String,
    /// Why it failed, in words.
    pub cause: String,
    /// The address of the generator.
    pub own: String,
    pub transport: String,
    /// Begin and end, microseconds since 1970-01-01 UTC.
    pub began: u64,
    pub ended: u64,
    /// Its messages in their order.
    pub messages: Vec<KeptMessage>,
    /// Messages in the middle of a long call that were not kept, and after how many that were.
    pub omitted: u64,
    pub omitted_after: usize,
}

/// A message of a failed call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptMessage {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    /// Sent by the generator; false: received.
    pub sent: bool,
    /// The address of the other side.
    pub peer: String,
    /// Remark: unexpected, lost on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Printable text: control characters of the peer are escaped.
    pub text: String,
}

impl KeptMessage {
    /// The start line.
    pub fn start_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}
