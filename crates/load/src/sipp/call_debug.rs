//! `-trace_calldebug`: all messages of a failed call.

use super::log_file::LogFile;
use super::trace::Stamp;
use crate::engine::watch::Passage;
use std::collections::HashMap;
use std::io::Write;
use strowger_core::Transport;

/// File, and the messages of open calls so far.
pub(super) struct CallDebug {
    file: LogFile,
    calls: HashMap<Box<[u8]>, Vec<u8>>,
}

/// Limit of recorded Call-IDs, including those of no call.
const MOST: usize = 1 << 18;

impl CallDebug {
    pub(super) fn new(file: LogFile) -> Self {
        Self { file, calls: HashMap::new() }
    }

    /// Records a message of a call.
    pub(super) fn message(&mut self, passage: Passage, transport: Transport, call_id: &[u8], bytes: &[u8]) {
        if self.calls.len() >= MOST && !self.calls.contains_key(call_id) {
            return;
        }
        let now = Stamp::now().long();
        let id = String::from_utf8_lossy(call_id);
        let call = self.calls.entry(call_id.into()).or_insert_with(|| format!("{now} Starting call {id}\n").into());
        let (via, n) = (transport.via(), bytes.len());
        let _ = match passage {
            Passage::Sent => writeln!(call, "{now} Sending {via} message for call {id}:"),
            Passage::Received => writeln!(call, "{now} Processing {n} byte incoming message for call-ID {id}:"),
            Passage::Unexpected => writeln!(call, "{now} Unexpected {via} message received:\n"),
            Passage::LostSending(step) => writeln!(call, "{now} Message {step} is lost on purpose instead of sent:"),
            Passage::LostReceiving(step) => writeln!(call, "{now} Received message {step} is lost on purpose:"),
            Passage::CommandSent => writeln!(call, "{now} Sending control message for call {id}:"),
            Passage::CommandReceived => writeln!(call, "{now} Processing control message for call {id}:"),
            Passage::Discarded => return,
        };
        call.extend_from_slice(bytes);
        call.extend_from_slice(b"\n\n");
    }

    /// Writes an ended call if it has failed, and drops its record.
    pub(super) fn ended(&mut self, call_id: &[u8], failed: bool) {
        let Some(call) = self.calls.remove(call_id).filter(|_| failed) else { return };
        let id = String::from_utf8_lossy(call_id);
        let rule = "-".repeat(79);
        let mut record = format!("{rule}\nCall debugging information for call {id}:\n").into_bytes();
        record.extend_from_slice(&call);
        self.file.write(&record);
    }

    pub(super) fn flush(&mut self) {
        self.file.flush();
    }
}
