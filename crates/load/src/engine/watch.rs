//! What looks on while calls run: traces, logs, screens. Not asked on the way of a message unless one does.

use std::fmt::Arguments;
use std::net::SocketAddr;
use strowger_core::Transport;
use strowger_measure::Failure;

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Sent,
    Received,
    /// Received, and not what the scenario expects.
    Unexpected,
    /// Rendered or received, then lost on purpose: at this step.
    LostSending(u32),
    LostReceiving(u32),
    /// Received while no call is begun any more.
    Discarded,
    /// A word to another controller, and one from it (third party call control), without the byte that ends it.
    CommandSent,
    CommandReceived,
}

/// Hears of everything; every method does nothing unless it is written.
pub trait Watch: Send {
    /// A message. `wall`: ms since 1970.
    fn message(&mut self, _passage: Passage, _transport: Transport, _call_id: &[u8], _bytes: &[u8]) {}

    /// A message that was sent to this address or received from it.
    fn exchange(&mut self, passage: Passage, transport: Transport, _peer: SocketAddr, call_id: &[u8], bytes: &[u8]) {
        self.message(passage, transport, call_id, bytes);
    }

    /// Something for `-trace_err`.
    fn warning(&mut self, _text: Arguments<'_>) {}

    /// The action `log`.
    fn log(&mut self, _text: &[u8]) {}

    /// A timer of the scenario was read: its number and microseconds.
    fn timer(&mut self, _timer: usize, _micros: u64) {}

    /// A response that no step expects (`-trace_error_codes`).
    fn error_code(&mut self, _code: u16) {}

    /// A call is over, and counted: as failed, or not. One of the warm-up counts as no failure.
    fn call_ended(&mut self, _call_id: &[u8], _failure: Option<Failure>) {}

    /// The round ends: what was written may go out.
    fn flush(&mut self) {}
}
