//! Trace files that SIPp writes during a run.

use super::call_debug::CallDebug;
use super::error_codes::Codes;
use super::errors::Errors;
use super::log_file::LogFile;
use super::traces::Traces;
use crate::engine::moment::{Local, Utc};
use crate::engine::watch::{Passage, Watch};
use std::fmt::Arguments;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use strowger_core::Transport;
use strowger_measure::Failure;

/// Wall-clock time.
pub(super) struct Stamp {
    micros: u64,
}

/// `-rfc3339`: timestamps have the form of RFC 3339.
static RFC3339: AtomicBool = AtomicBool::new(false);

impl Stamp {
    pub(super) fn now() -> Self {
        Self { micros: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64) }
    }

    /// Selects RFC 3339 for all timestamps of the process.
    pub(super) fn write_rfc3339() {
        RFC3339.store(true, Ordering::Relaxed);
    }

    pub(super) const fn micros(&self) -> u64 {
        self.micros
    }

    /// Formats as `date<TAB>time<TAB>seconds`, SIPp's timestamp.
    pub(super) fn long(&self) -> String {
        if RFC3339.load(Ordering::Relaxed) {
            return self.rfc3339();
        }
        format!("{}\t{}.{:06}", Local(self.micros), self.micros / 1_000_000, self.micros % 1_000_000)
    }

    /// Formats as in the message log.
    fn short(&self) -> String {
        if RFC3339.load(Ordering::Relaxed) {
            return self.rfc3339();
        }
        Local(self.micros).to_string().replace('\t', " ")
    }

    fn rfc3339(&self) -> String {
        Utc(self.micros).to_string().replace('\t', "T") + "Z"
    }
}

/// Creates the file `given`, or the one named after scenario and process.
pub(super) fn create(given: Option<&Path>, base: &str, tail: &str) -> Result<File, String> {
    let path = given.map_or_else(|| PathBuf::from(format!("{base}_{tail}")), Path::to_path_buf);
    File::create(&path).map_err(|error| format!("Unable to create '{}': {error}", path.display()))
}

/// Enabled traces; the command mode may change them.
#[derive(Default)]
pub(super) struct Switches {
    pub(super) messages: AtomicBool,
    pub(super) short_messages: AtomicBool,
    pub(super) logs: AtomicBool,
}

/// Writer of the enabled traces.
pub(super) struct Tracer {
    switches: Arc<Switches>,
    messages: LogFile,
    short: LogFile,
    logs: LogFile,
    errors: Arc<Errors>,
    codes: Codes,
    debug: Option<CallDebug>,
    rtt: Option<Rtt>,
    record: Vec<u8>,
    touched: bool,
}

/// Response times, written in groups.
struct Rtt {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    delimiter: String,
    /// Milliseconds since the start, response time, timer.
    waiting: Vec<(f64, f64, usize)>,
    /// `-rtt_freq`: number of response times in a group.
    often: usize,
    start: u64,
}

impl Rtt {
    fn write(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let d = &self.delimiter;
        if self.file.is_none() {
            match File::create(&self.path) {
                Ok(file) => {
                    let file = self.file.insert(BufWriter::new(file));
                    let _ = writeln!(file, "Date_ms{d}response_time_ms{d}rtd_no");
                }
                Err(error) => {
                    eprintln!("Unable to create '{}': {error}", self.path.display());
                    return self.waiting.clear();
                }
            }
        }
        let Some(file) = &mut self.file else { return };
        for (at, took, timer) in self.waiting.drain(..) {
            let _ = writeln!(file, "{at:.0}{d}{took:.0}{d}{timer}");
        }
        if let Err(error) = file.flush() {
            eprintln!("'{}' cannot be written: {error}", self.path.display());
        }
    }
}

impl Tracer {
    /// Opens the files that SIPp opens at once. The file of the action `log` is among them only if the scenario is a
    /// `document` of its user.
    ///
    /// # Errors
    /// A file that cannot be opened, as a sentence.
    pub(super) fn new(
        traces: &Traces,
        document: bool,
        base: &str,
        delimiter: &str,
        switches: Arc<Switches>,
        errors: Arc<Errors>,
        codes: Codes,
    ) -> Result<Box<Self>, String> {
        let growth = traces.growth;
        let log = |given: &Option<PathBuf>, name: &str, append: bool| {
            LogFile::new(given.as_deref(), base, name, append, growth)
        };
        let mut messages = log(&traces.message_file, "messages", traces.append.messages);
        let mut short = log(&traces.short_message_file, "shortmessages", traces.append.short_messages);
        if traces.messages {
            messages.open()?;
        }
        if traces.short_messages {
            short.open()?;
        }
        let mut logs = log(&traces.log_file, "logs", traces.append.logs);
        if traces.logs && document {
            logs.open()?;
        }
        let debug = match traces.call_debug {
            true => {
                let mut file = log(&traces.call_debug_file, "calldebug", traces.append.call_debug);
                file.open()?;
                Some(CallDebug::new(file))
            }
            false => None,
        };
        switches.messages.store(traces.messages, Ordering::Relaxed);
        switches.short_messages.store(traces.short_messages, Ordering::Relaxed);
        switches.logs.store(traces.logs, Ordering::Relaxed);
        let rtt = Rtt {
            path: PathBuf::from(format!("{base}_rtt.csv")),
            file: None,
            delimiter: delimiter.to_owned(),
            waiting: Vec::new(),
            often: traces.rtt_frequency,
            start: Stamp::now().micros(),
        };
        Ok(Box::new(Self {
            switches,
            messages,
            short,
            logs,
            errors,
            codes,
            debug,
            rtt: traces.rtt.then_some(rtt),
            record: Vec::new(),
            touched: false,
        }))
    }

    fn long_message(&mut self, passage: Passage, transport: Transport, bytes: &[u8]) {
        let record = &mut self.record;
        record.clear();
        let via = transport.via();
        let now = || Stamp::now().short();
        let n = bytes.len();
        let _ = match passage {
            Passage::Sent => writeln!(record, "{RULE} {}\n{via} message sent ({n} bytes):\n", now()),
            Passage::Received => writeln!(record, "{RULE} {}\n{via} message received [{n}] bytes :\n", now()),
            Passage::Unexpected => writeln!(record, "{RULE}\nUnexpected {via} message received:\n"),
            Passage::LostSending(step) => writeln!(record, "{via} message (index {step}) lost (send).\n"),
            Passage::LostReceiving(step) => writeln!(record, "{via} message (index {step}) lost (recv).\n"),
            // The byte that ends the command counts too.
            Passage::CommandSent => {
                writeln!(record, "{RULE} {}\nTCP control message sent ({} bytes):\n", now(), n + 1)
            }
            Passage::CommandReceived => {
                writeln!(record, "{RULE} {}\nTCP control message received [{}] bytes :\n", now(), n + 1)
            }
            Passage::Discarded => writeln!(record, "Discarded message for new calls while quitting"),
        };
        if !matches!(passage, Passage::Discarded) {
            record.extend_from_slice(bytes);
            record.extend_from_slice(if passage == Passage::CommandSent { b"\x1b\n" } else { b"\n" });
        }
        self.messages.write(record);
    }

    fn short_message(&mut self, sent: bool, call_id: &[u8], bytes: &[u8]) {
        let letter = if sent { 'S' } else { 'R' };
        let end = memchr::memchr(b'\r', bytes).unwrap_or(bytes.len());
        let cseq = memchr::memmem::find(bytes, b"\nCSeq:").map_or(&b""[..], |at| {
            let rest = &bytes[at + 6..];
            rest[..memchr::memchr(b'\r', rest).unwrap_or(rest.len())].trim_ascii()
        });
        self.record.clear();
        let _ = writeln!(
            self.record,
            "{}\t{letter}\t{}\tCSeq:{}\t{}",
            Stamp::now().long(),
            String::from_utf8_lossy(call_id),
            String::from_utf8_lossy(cseq),
            String::from_utf8_lossy(&bytes[..end])
        );
        self.short.write(&self.record);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Some(rtt) = &mut self.rtt {
            rtt.write();
        }
        self.touched = true;
        self.flush();
    }
}

const RULE: &str = "-----------------------------------------------";

impl Watch for Tracer {
    fn message(&mut self, passage: Passage, transport: Transport, call_id: &[u8], bytes: &[u8]) {
        if self.switches.messages.load(Ordering::Relaxed) {
            self.touched = true;
            self.long_message(passage, transport, bytes);
        }
        if matches!(passage, Passage::Sent | Passage::Received) && self.switches.short_messages.load(Ordering::Relaxed)
        {
            self.touched = true;
            self.short_message(passage == Passage::Sent, call_id, bytes);
        }
        if let Some(debug) = &mut self.debug {
            debug.message(passage, transport, call_id, bytes);
        }
    }

    fn warning(&mut self, text: Arguments<'_>) {
        self.touched = true;
        self.errors.say(text);
    }

    fn log(&mut self, text: &[u8]) {
        if self.switches.logs.load(Ordering::Relaxed) {
            self.touched = true;
            self.record.clear();
            self.record.extend_from_slice(text);
            self.record.push(b'\n');
            self.logs.write(&self.record);
        }
    }

    fn timer(&mut self, timer: usize, micros: u64) {
        let Some(rtt) = &mut self.rtt else { return };
        let at = Stamp::now().micros().saturating_sub(rtt.start) as f64 / 1_000.0;
        rtt.waiting.push((at, (micros / 1_000) as f64, timer + 1));
        if rtt.waiting.len() >= rtt.often {
            rtt.write();
        }
    }

    fn error_code(&mut self, code: u16) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() < MOST_CODES {
            codes.push(code);
        }
    }

    fn call_ended(&mut self, call_id: &[u8], failure: Option<Failure>) {
        if let Some(debug) = &mut self.debug {
            self.touched = true;
            debug.ended(call_id, failure.is_some());
        }
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        [&mut self.messages, &mut self.short, &mut self.logs].into_iter().for_each(LogFile::flush);
        if let Some(debug) = &mut self.debug {
            debug.flush();
        }
        self.errors.flush();
    }
}

/// Limit of codes in a period.
const MOST_CODES: usize = 1 << 20;

/// Watch of the shards without traces, which reports their errors too.
pub(super) struct Listener(pub(super) Arc<Errors>);

impl Watch for Listener {
    fn warning(&mut self, text: Arguments<'_>) {
        self.0.say(text);
    }

    fn flush(&mut self) {}
}
