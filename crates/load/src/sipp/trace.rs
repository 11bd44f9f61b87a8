//! The files that SIPp writes while calls run.

use super::options::Traces;
use crate::engine::watch::{Passage, Watch};
use std::fmt::Arguments;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use strowger_core::Transport;

/// `date<TAB>time<TAB>seconds` of now, as SIPp writes a moment; and the same in the form of its message log.
pub(super) struct Stamp {
    micros: u64,
}

impl Stamp {
    pub(super) fn now() -> Self {
        Self { micros: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64) }
    }

    pub(super) const fn micros(&self) -> u64 {
        self.micros
    }

    pub(super) fn long(&self) -> String {
        format!(
            "{}\t{}.{:06}",
            crate::engine::moment::local(self.micros),
            self.micros / 1_000_000,
            self.micros % 1_000_000
        )
    }

    pub(super) fn short(&self) -> String {
        crate::engine::moment::local(self.micros).replace('\t', " ")
    }
}

/// Opens the file `given`, or the one named after scenario and process.
pub(super) fn create(given: Option<&Path>, base: &str, tail: &str) -> Result<File, String> {
    let path = given.map_or_else(|| PathBuf::from(format!("{base}_{tail}")), Path::to_path_buf);
    File::create(&path).map_err(|error| format!("Unable to create '{}': {error}", path.display()))
}

/// A file that comes into being with the first thing written to it.
struct Late {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    failed: bool,
}

impl Late {
    fn new(given: Option<&PathBuf>, base: &str, tail: &str) -> Self {
        let path = given.cloned().unwrap_or_else(|| PathBuf::from(format!("{base}_{tail}")));
        Self { path, file: None, failed: false }
    }

    /// Where to write; whether this is the first time.
    fn open(&mut self) -> Option<(&mut BufWriter<File>, bool)> {
        let first = self.file.is_none();
        if first && !self.failed {
            match File::create(&self.path) {
                Ok(file) => self.file = Some(BufWriter::with_capacity(1 << 16, file)),
                Err(error) => {
                    self.failed = true;
                    eprintln!("Unable to create '{}': {error}", self.path.display());
                }
            }
        }
        self.file.as_mut().map(|file| (file, first))
    }

    fn flush(&mut self) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.flush()
            && !std::mem::replace(&mut self.failed, true)
        {
            eprintln!("'{}' cannot be written: {error}", self.path.display());
        }
    }
}

/// Writes what is asked for.
pub(super) struct Tracer {
    messages: Option<Late>,
    short: Option<Late>,
    errors: Option<Late>,
    logs: Option<Late>,
    codes: Option<Late>,
    rtt: Option<Late>,
    rtt_buffer: Vec<(f64, f64, usize)>,
    rtt_frequency: usize,
    start: u64,
    touched: bool,
}

impl Tracer {
    /// Nothing if nothing is asked for.
    pub(super) fn new(traces: &Traces, base: &str, rtt_frequency: usize) -> Option<Box<Self>> {
        let late = |on: bool, given: &Option<PathBuf>, tail: &str| on.then(|| Late::new(given.as_ref(), base, tail));
        let tracer = Self {
            messages: late(traces.messages, &traces.message_file, "messages.log"),
            short: late(traces.short_messages, &traces.short_message_file, "shortmessages.log"),
            errors: late(traces.errors, &traces.error_file, "errors.log"),
            logs: late(traces.logs, &traces.log_file, "logs.log"),
            codes: late(traces.error_codes, &None, "error_codes.csv"),
            rtt: late(traces.rtt, &None, "rtt.csv"),
            rtt_buffer: Vec::new(),
            rtt_frequency,
            start: Stamp::now().micros(),
            touched: false,
        };
        let any = traces.messages
            || traces.short_messages
            || traces.errors
            || traces.logs
            || traces.error_codes
            || traces.rtt;
        any.then(|| Box::new(tracer))
    }

    fn write_rtt(&mut self) {
        let Some((file, first)) = self.rtt.as_mut().and_then(Late::open) else { return };
        if first {
            let _ = writeln!(file, "Date_ms;response_time_ms;rtd_no");
        }
        for (at, took, timer) in self.rtt_buffer.drain(..) {
            let _ = writeln!(file, "{at:.3};{took:.0};{timer}");
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.write_rtt();
        self.touched = true;
        self.flush();
    }
}

const RULE: &str = "-----------------------------------------------";

impl Watch for Tracer {
    fn message(&mut self, passage: Passage, transport: Transport, call_id: &[u8], bytes: &[u8]) {
        self.touched = true;
        if let Some((file, _)) = self.messages.as_mut().and_then(Late::open) {
            let via = transport.via();
            let _ = match passage {
                Passage::Sent => {
                    writeln!(file, "{RULE} {}\n{via} message sent ({} bytes):\n", Stamp::now().short(), bytes.len())
                }
                Passage::Received => {
                    writeln!(
                        file,
                        "{RULE} {}\n{via} message received [{}] bytes :\n",
                        Stamp::now().short(),
                        bytes.len()
                    )
                }
                Passage::Unexpected => writeln!(file, "{RULE}\nUnexpected {via} message received:\n"),
                Passage::LostSending(step) => writeln!(file, "{via} message (index {step}) lost (send).\n"),
                Passage::LostReceiving(step) => writeln!(file, "{via} message (index {step}) lost (recv).\n"),
                // The byte that ends it counts.
                Passage::CommandSent => {
                    let bytes = bytes.len() + 1;
                    writeln!(file, "{RULE} {}\nTCP control message sent ({bytes} bytes):\n", Stamp::now().short())
                }
                Passage::CommandReceived => {
                    let bytes = bytes.len() + 1;
                    writeln!(file, "{RULE} {}\nTCP control message received [{bytes}] bytes :\n", Stamp::now().short())
                }
                Passage::Discarded => writeln!(file, "Discarded message for new calls while quitting"),
            };
            if !matches!(passage, Passage::Discarded) {
                let _ = file.write_all(bytes);
                let _ = file.write_all(if passage == Passage::CommandSent { b"\x1b\n" } else { b"\n" });
            }
        }
        if matches!(passage, Passage::Sent | Passage::Received)
            && let Some((file, _)) = self.short.as_mut().and_then(Late::open)
        {
            let letter = if passage == Passage::Sent { 'S' } else { 'R' };
            let end = memchr::memchr(b'\r', bytes).unwrap_or(bytes.len());
            let cseq = memchr::memmem::find(bytes, b"\nCSeq:").map_or(&b""[..], |at| {
                let rest = &bytes[at + 6..];
                rest[..memchr::memchr(b'\r', rest).unwrap_or(rest.len())].trim_ascii()
            });
            let _ = writeln!(
                file,
                "{}\t{letter}\t{}\tCSeq:{}\t{}",
                Stamp::now().long(),
                String::from_utf8_lossy(call_id),
                String::from_utf8_lossy(cseq),
                String::from_utf8_lossy(&bytes[..end])
            );
        }
    }

    fn warning(&mut self, text: Arguments<'_>) {
        self.touched = true;
        if let Some((file, first)) = self.errors.as_mut().and_then(Late::open) {
            if first {
                let _ = writeln!(file, "The following events occurred:");
            }
            let _ = writeln!(file, "{}: {text}", Stamp::now().long());
        }
    }

    fn log(&mut self, text: &[u8]) {
        self.touched = true;
        if let Some((file, _)) = self.logs.as_mut().and_then(Late::open) {
            let _ = file.write_all(text);
            let _ = file.write_all(b"\n");
        }
    }

    fn timer(&mut self, timer: usize, micros: u64) {
        if self.rtt.is_none() {
            return;
        }
        let at = Stamp::now().micros().saturating_sub(self.start) as f64 / 1_000.0;
        self.rtt_buffer.push((at, (micros / 1_000) as f64, timer + 1));
        if self.rtt_buffer.len() >= self.rtt_frequency {
            self.touched = true;
            self.write_rtt();
        }
    }

    fn error_code(&mut self, code: u16) {
        self.touched = true;
        if let Some((file, _)) = self.codes.as_mut().and_then(Late::open) {
            let _ = write!(file, "{};{code};", Stamp::now().long());
            let _ = writeln!(file);
        }
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let all =
            [&mut self.messages, &mut self.short, &mut self.errors, &mut self.logs, &mut self.codes, &mut self.rtt];
        all.into_iter().flatten().for_each(Late::flush);
    }
}
