//! Facts about a run that are no measures, recorded once or from time to time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Side of the calls on which a generator is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeneratorRole {
    /// Makes calls.
    #[default]
    Caller,
    /// Only answers calls.
    Answerer,
    /// Takes no part in calls: samples processes and a machine.
    Observer,
}

/// Facts about a run; the first record of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heading {
    /// Name of this generator among several. By default it is the name of its host, with a number if the reports of
    /// several generators of one host are merged.
    pub generator: String,
    pub role: GeneratorRole,
    /// Program and its version.
    pub program: String,
    /// Workload or scenario.
    pub title: String,
    /// Target of the traffic, as the user wrote it.
    pub target: String,
    pub transport: String,
    /// Microseconds since 1970-01-01 UTC.
    pub started: u64,
    /// Names of the scenario's timers, in the order of their numbers.
    pub timers: Vec<String>,
    /// Settings as the user wrote them: rate, calls, limits and so on.
    pub settings: BTreeMap<String, String>,
    /// Cores that this process may use.
    pub cores: u32,
    /// Seed from which a run can be repeated.
    pub seed: Option<u64>,
}

/// Severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Information: how many TLS sessions were resumed, for example.
    Info,
    /// Something that the reader of the figures should know.
    Warning,
    /// Failure of something.
    Error,
}

/// Sentence with a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    pub level: Level,
    pub text: String,
}

/// Receive buffer of a socket, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveBuffer {
    /// Local address of the socket.
    pub socket: String,
    pub asked: u64,
    /// Size that the kernel granted for use by the program (half of SO_RCVBUF's value on Linux).
    pub got: u64,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    /// Reason in a few words: "all calls made", "interrupted", "time is up".
    pub reason: String,
}
