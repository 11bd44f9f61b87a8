//! Observers of running calls: traces, logs, screens. A message passes none unless one is set.

use std::fmt::Arguments;
use std::net::SocketAddr;
use strowger_core::Transport;
use strowger_measure::Failure;

/// Events of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Sent,
    Received,
    /// Received, but not expected by the scenario.
    Unexpected,
    /// Rendered or received, then lost on purpose at this step.
    LostSending(u32),
    LostReceiving(u32),
    /// Received while no calls begin any more.
    Discarded,
    /// Command to or from another controller (third party call control), without its final byte.
    CommandSent,
    CommandReceived,
}

/// Observer of all events; every method does nothing by default.
pub trait Watch: Send {
    /// Observes a message.
    fn message(&mut self, _passage: Passage, _transport: Transport, _call_id: &[u8], _bytes: &[u8]) {}

    /// Observes a message and the address it was sent to or received from.
    fn exchange(&mut self, passage: Passage, transport: Transport, _peer: SocketAddr, call_id: &[u8], bytes: &[u8]) {
        self.message(passage, transport, call_id, bytes);
    }

    /// Receives a line for `-trace_err`.
    fn warning(&mut self, _text: Arguments<'_>) {}

    /// Receives the text of a `log` action.
    fn log(&mut self, _text: &[u8]) {}

    /// Observes a timer of the scenario: its number and microseconds.
    fn timer(&mut self, _timer: usize, _micros: u64) {}

    /// Observes a response that no step expects (`-trace_error_codes`).
    fn error_code(&mut self, _code: u16) {}

    /// Observes the end of a counted call. A call of the warm-up counts as no failure.
    fn call_ended(&mut self, _call_id: &[u8], _failure: Option<Failure>) {}

    /// Flushes output at the end of a round.
    fn flush(&mut self) {}
}
