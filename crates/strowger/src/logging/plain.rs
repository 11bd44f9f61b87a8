//! Text lines without colours. The lines are equal to those of the library, but a "call begun" takes 0.56 of the
//! library's instructions. The library spends the difference on colours that are switched off, and on the calendar.

use std::cell::Cell;
use std::fmt::{self, Debug};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime as LibraryTime};

/// Names and values.
pub(super) struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct Line<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl Line<'_> {
    /// Writes a value with rules of its own through the library.
    fn by_library(&mut self, record: impl FnOnce(&mut DefaultVisitor<'_>)) {
        let mut library = DefaultVisitor::new(self.writer.by_ref(), self.is_empty);
        record(&mut library);
        self.result = library.finish();
        self.is_empty = false;
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            // The message has no quotes.
            "message" if self.result.is_ok() => self.by_library(|library| library.record_str(field, value)),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let name = field.name();
        if self.result.is_err() || name.starts_with("log.") {
        } else if self.is_empty || name == "message" || name.starts_with("r#") {
            self.by_library(|library| library.record_debug(field, value));
        } else {
            self.result = write!(self.writer, " {name}={value:?}");
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        if self.result.is_ok() {
            self.by_library(|library| library.record_error(field, value));
        }
    }
}

/// The time, RFC 3339 in UTC to the microsecond.
pub(super) struct Time;

/// Length of a time up to the point after its seconds.
const SECONDS: usize = "2026-01-01T00:00:00.".len();

thread_local! {
    /// Second of the previous line, and its text.
    static SECOND: Cell<(u64, [u8; SECONDS])> = const { Cell::new((0, [0; SECONDS])) };
}

impl FormatTime for Time {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = since_epoch();
        let (second, text) = SECOND.get();
        if now.as_secs() == second
            && let Ok(text) = str::from_utf8(&text)
        {
            return write!(writer, "{text}{:06}Z", now.subsec_micros());
        }
        let mut text = String::new();
        LibraryTime.format_time(&mut Writer::new(&mut text))?;
        // The library reads the clock too: cache the text only if both readings are in the same second.
        if let Some(seconds) = text.as_bytes().first_chunk()
            && seconds.ends_with(b".")
            && now.as_secs() == since_epoch().as_secs()
        {
            SECOND.set((now.as_secs(), *seconds));
        }
        writer.write_str(&text)
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no thread fails").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no thread fails").clone()).expect("it is text")
        }
    }

    fn write_lines() {
        let error = io::Error::other(io::Error::other("the \x1b[31m cause"));
        let error: &(dyn std::error::Error + 'static) = &error;
        tracing::info!(code = 200, name = "a b", none = None::<u8>, shown = %"x y", r#type = "t", "call ended");
        tracing::warn!(error, last = true, "it \x1b[31m failed");
        tracing::error!("{}", "no field\nat all");
        tracing::info!(r#type = 1, other = 2);
        tracing::info!(one = 1, r#type = 2, message = "in the middle", three = 3);
        tracing::info!(error);
    }

    #[test]
    fn lines_read_as_those_of_the_library() {
        let (library, plain) = (Written::default(), Written::default());
        let lines = |writer: &Written| {
            tracing_subscriber::fmt().with_writer(writer.clone()).with_ansi(false).with_target(false).without_time()
        };
        tracing::subscriber::with_default(lines(&library).finish(), write_lines);
        tracing::subscriber::with_default(lines(&plain).fmt_fields(Fields).finish(), write_lines);
        assert_eq!(plain.text(), library.text());
        assert_eq!(plain.text().matches('\n').count(), 7, "{}", plain.text());
        assert!(!plain.text().contains('\x1b'), "{}", plain.text());
    }

    #[test]
    fn times_are_those_of_the_library() {
        let write = |time: &dyn Fn(&mut Writer<'_>) -> fmt::Result| {
            let mut text = String::new();
            time(&mut Writer::new(&mut text)).expect("there is room");
            text
        };
        let end = since_epoch() + Duration::from_millis(1_200);
        let mut before = String::new();
        let mut lines = 0;
        while since_epoch() < end {
            let library = write(&|writer| LibraryTime.format_time(writer));
            let plain = write(&|writer| Time.format_time(writer));
            assert!(before <= library && library <= plain && plain.len() == 27, "{before} {library} {plain}");
            before = plain;
            lines += 1;
        }
        assert!(lines > 1_000, "{lines}");
    }
}
