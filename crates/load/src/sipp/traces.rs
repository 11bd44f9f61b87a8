//! Files to write during a run, and their names.

use super::log_file::Growth;
use std::path::PathBuf;

/// Requested files.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    pub messages: bool,
    pub message_file: Option<PathBuf>,
    pub short_messages: bool,
    pub short_message_file: Option<PathBuf>,
    pub errors: bool,
    pub error_file: Option<PathBuf>,
    pub error_codes: bool,
    pub logs: bool,
    pub log_file: Option<PathBuf>,
    pub statistics: bool,
    pub statistics_file: Option<PathBuf>,
    pub rtt: bool,
    pub counts: bool,
    pub screen: bool,
    pub screen_file: Option<PathBuf>,
    pub call_debug: bool,
    pub call_debug_file: Option<PathBuf>,
    /// `-rtt_freq`: number of response times written together.
    pub rtt_frequency: usize,
    /// `-ringbuffer_size`, `-ringbuffer_files`, `-max_log_size`.
    pub growth: Growth,
    pub append: Append,
}

/// Files that are continued, not overwritten (`-message_overwrite false` …).
#[derive(Clone, Copy, Debug, Default)]
pub struct Append {
    pub messages: bool,
    pub short_messages: bool,
    pub errors: bool,
    pub logs: bool,
    pub screen: bool,
    pub call_debug: bool,
}
