//! Log lines of the engines, captured in the thread of their test.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest, Subscriber};
use tracing::{Dispatch, Event, Level, Metadata};

thread_local! {
    static LINES: RefCell<String> = const { RefCell::new(String::new()) };
    static CATCHER: Dispatch = Dispatch::new(Catcher);
}

/// Captures the log of this thread until the guard is dropped.
pub(crate) fn catch() -> DefaultGuard {
    CATCHER.with(tracing::dispatcher::set_default)
}

/// Returns the lines since the last call.
pub(crate) fn taken() -> String {
    LINES.take()
}

/// Subscriber of the level `info`, the default of a server.
struct Catcher;

impl Subscriber for Catcher {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{:>5} ", event.metadata().level()));
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| {
            lines.push_str(&line.0);
            lines.push('\n');
        });
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Line in the form of the program's log: the event, then its fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
