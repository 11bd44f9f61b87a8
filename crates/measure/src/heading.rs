//! What a run was, and the facts of it that are no measures: said once, or now and then.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// On which side of the calls a generator is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeneratorRole {
    /// It makes calls.
    #[default]
    Caller,
    /// It only answers.
    Answerer,
    /// It takes no part in calls: it samples processes and a machine.
    Observer,
}

/// What a run was; the first thing in its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heading {
    /// The name of this generator among several: its host's name, if nothing better is known; with a number where the reports of
    /// several of one host are put together.
    pub generator: String,
    pub role: GeneratorRole,
    /// The program and its version.
    pub program: String,
    /// The workload or scenario.
    pub title: String,
    /// Where the traffic went, as the user wrote it.
    pub target: String,
    pub transport: String,
    /// Microseconds since 1970-01-01 UTC.
    pub started: u64,
    /// The names of the scenario's timers, in the order of their numbers.
    pub timers: Vec<String>,
    /// What was asked for: rate, calls, limits and so on, as the user wrote it.
    pub settings: BTreeMap<String, String>,
    /// Cores that this process may use.
    pub cores: u32,
    /// From which a run can be repeated.
    pub seed: Option<u64>,
}

/// How grave a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know: how many TLS sessions were resumed, say.
    Info,
    /// Something that the reader of the figures should know.
    Warning,
    /// Something that did not work.
    Error,
}

/// A sentence with a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    pub level: Level,
    pub text: String,
}

/// The receive buffer of a socket, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveBuffer {
    /// The socket's own address.
    pub socket: String,
    pub asked: u64,
    /// What the kernel granted, as it counts it to the program (half of what SO_RCVBUF returns on Linux).
    pub got: u64,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Microseconds since 1970-01-01 UTC.
    pub at: u64,
    /// A few words: "all calls made", "interrupted", "time is up".
    pub reason: String,
}
