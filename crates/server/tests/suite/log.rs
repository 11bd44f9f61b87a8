//! Lines of the log, separate for each thread.

use std::cell::{Cell, RefCell};
use std::fmt::{Debug, Write as _};
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

/// Line of the log: names and values, the event as `message`.
#[derive(Debug, Default)]
pub(crate) struct Line(Vec<(&'static str, String)>);

impl Line {
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the line as it is written.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.0.iter().for_each(|(name, value)| write!(text, "{name}={value} ").expect("a text takes all"));
        text
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    /// Set while this thread takes lines of the level debug.
    static DEBUG: Cell<bool> = const { Cell::new(false) };
}

/// Subscriber that takes the lines about calls, and with [`debug`](Self::debug) all lines of a thread. It stays for the
/// whole program: a temporary one would miss lines while other tests log.
#[derive(Clone, Copy)]
pub(crate) struct Lines;

impl Lines {
    pub(crate) fn catch() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Self).expect("no other test sets one"));
        Self
    }

    /// Sets whether lines of the level debug are taken too.
    pub(crate) fn debug(self, takes: bool) {
        DEBUG.set(takes);
    }

    pub(crate) fn take(self) -> Vec<Line> {
        LINES.take()
    }

    pub(crate) fn text(self) -> String {
        self.take().iter().map(Line::text).collect()
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Threads take different lines.
        let is_ours = ["strowger_server", "strowger_calls"].iter().any(|own| metadata.target().starts_with(own));
        if is_ours { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        DEBUG.get() || ["strowger_server::call_log", "strowger_calls::call_log"].contains(&metadata.target())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
