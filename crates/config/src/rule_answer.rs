//! Answer of a rule: a status, or an endpoint of this server.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::key::{Key, Rule, words};
use super::reader::Reader;

words! {
    /// Endpoint of this server that answers calls.
    pub enum CallEndpoint {
        /// Media of the caller go back to the caller.
        Echo = "echo",
        /// The caller hears a test tone.
        Tone = "tone",
        /// The caller hears a file.
        Announcement = "announcement",
        /// The caller hears a tone, and is recorded.
        Recording = "recording",
    }
}

/// Sound of an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Path of the WAV file, by which [`Decisions::sound`](super::Decisions::sound) finds the sound.
    pub file: Box<str>,
    /// True: the file is played until the caller hangs up. Else the call ends with the file.
    pub repeats: bool,
}

/// Recording of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Path of the folder of the files.
    pub folder: Box<str>,
    /// Longest recording.
    pub limit: Duration,
}

/// Files of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointFiles {
    /// File of an announcement.
    Announcement(Announcement),
    /// Folder of recordings.
    Recording(Recording),
}

/// Answer of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAnswer {
    /// Status of a refusal or redirection, 300 to 699.
    Status(u16),
    /// Endpoint that answers the request.
    Endpoint(CallEndpoint),
}

impl Key for RuleAnswer {
    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(_) => CallEndpoint::read(path, value, rule, reader).map(Self::Endpoint),
            _ => u16::read(path, value, rule, reader).map(Self::Status),
        }
    }

    fn write(&self, rule: &Rule) -> String {
        match self {
            Self::Status(status) => status.write(rule),
            Self::Endpoint(endpoint) => endpoint.write(rule),
        }
    }

    fn allowed(rule: &Rule) -> String {
        format!("{}, or {}", u16::allowed(rule), CallEndpoint::allowed(rule))
    }
}
