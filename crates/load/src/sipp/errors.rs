//! Errors during a run. They are written to the file of `-trace_err`, and the last one is shown on the screen and at
//! the end.

use super::log_file::LogFile;
use super::trace::Stamp;
use std::fmt::{Arguments, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Error log, shared by all that write to it.
pub(super) struct Errors(Mutex<Book>);

struct Book {
    file: LogFile,
    /// True if errors are written to the file.
    kept: bool,
    /// Last error, with its timestamp.
    last: String,
    /// Length of the timestamp in `last`.
    moment: usize,
    number: u64,
}

impl Errors {
    pub(super) fn new(file: LogFile, kept: bool) -> Self {
        Self(Mutex::new(Book { file, kept, last: String::new(), moment: 0, number: 0 }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an error.
    pub(super) fn say(&self, text: Arguments<'_>) {
        let mut book = self.book();
        let book = &mut *book;
        book.number += 1;
        book.last.clear();
        let _ = write!(book.last, "{}: ", Stamp::now().long());
        book.moment = book.last.len();
        // The text may hold a message of a peer, and is shown on the screen.
        let _ = writeln!(book.last, "{}", crate::printable(&text.to_string()));
        if book.kept {
            if book.file.is_new() {
                book.file.write(b"The following events occurred:\n");
            }
            book.file.write(book.last.as_bytes());
        }
    }

    /// Returns the text of the last error, without its timestamp.
    pub(super) fn last(&self) -> Option<String> {
        let book = self.book();
        (book.number > 0).then(|| book.last[book.moment..].trim_end().to_owned())
    }

    /// Switches writing to the file on or off.
    pub(super) fn keep(&self, kept: bool) {
        self.book().kept = kept;
    }

    pub(super) fn flush(&self) {
        self.book().file.flush();
    }

    /// Returns the text for the end of a run: the last error, and the place of the earlier errors.
    pub(super) fn farewell(&self) -> Option<String> {
        let mut book = self.book();
        book.file.flush();
        let mut text = (book.number > 0).then(|| book.last.clone())?;
        if book.number > 1 {
            let _ = match book.kept {
                true => writeln!(text, "There were more errors, see '{}' file", book.file.path().display()),
                false => writeln!(text, "There were more errors, enable -trace_err to log them."),
            };
        }
        Some(text)
    }
}
