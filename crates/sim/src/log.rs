//! Captures log lines of calls in the thread of their world.

use std::cell::RefCell;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest, Subscriber};
use tracing::{Dispatch, Event, Level, Metadata};

/// A line about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) event: String,
    pub(crate) call_id: String,
    pub(crate) code: u64,
}

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    static CATCHER: Dispatch = Dispatch::new(Catcher);
}

/// Captures the log of this thread while the guard lives.
pub(crate) fn catch() -> DefaultGuard {
    drop(taken());
    CATCHER.with(tracing::dispatcher::set_default)
}

/// Returns the lines since the last call.
pub(crate) fn taken() -> Vec<Line> {
    LINES.take()
}

/// Subscriber only for the log of calls.
struct Catcher;

impl Catcher {
    fn is_wanted(metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().ends_with("::call_log")
    }
}

impl Subscriber for Catcher {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::is_wanted(metadata)
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
        let mut line = Line::default();
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "code" {
            self.code = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.event = format!("{value:?}"),
            "call_id" => self.call_id = format!("{value:?}"),
            _ => (),
        }
    }
}
