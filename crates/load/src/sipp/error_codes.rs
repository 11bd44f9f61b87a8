//! `-trace_error_codes`: the codes of unexpected responses, a line for each period.

use super::statistics::length;
use super::trace::{self, Stamp};
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Codes received in this period.
pub(super) type Codes = Arc<Mutex<Vec<u16>>>;

/// Writer of the file.
pub(super) struct ErrorCodes {
    file: File,
    delimiter: String,
    start: Stamp,
    codes: Codes,
}

impl ErrorCodes {
    /// Creates the file; its first line, without codes, is written at once.
    ///
    /// # Errors
    /// The file cannot be created, as a sentence.
    pub(super) fn new(base: &str, delimiter: &str, codes: Codes) -> Result<Self, String> {
        let file = trace::create(None, base, "error_codes.csv")?;
        let mut codes = Self { file, delimiter: delimiter.to_owned(), start: Stamp::now(), codes };
        codes.write().map_err(|error| format!("the error codes: {error}"))?;
        Ok(codes)
    }

    /// Writes a line of the codes since the last one.
    pub(super) fn write(&mut self) -> std::io::Result<()> {
        let codes = std::mem::take(&mut *self.codes.lock().unwrap_or_else(PoisonError::into_inner));
        let now = Stamp::now();
        let elapsed = now.micros().saturating_sub(self.start.micros()) as f64 / 1_000.0;
        let d = &self.delimiter;
        let mut line = format!("{}{d}{}{d}", now.long(), length(elapsed));
        codes.iter().for_each(|code| line += &format!("{code},"));
        line.push('\n');
        self.file.write_all(line.as_bytes())
    }
}
