//! Commands of other controllers.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Event of a link.
#[derive(Debug, PartialEq, Eq)]
pub enum LinkEvent {
    Command(PeerCommand),
    /// The connection to another controller has ended. Carries its name, empty in the classic form.
    Ended(Box<str>),
}

/// Command without its last byte. It occupies a place in the receive queue until it is dropped.
#[derive(Debug)]
pub struct PeerCommand {
    bytes: Box<[u8]>,
    _place: Option<CommandPermit>,
}

impl Deref for PeerCommand {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<&[u8]> for PeerCommand {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), _place: None }
    }
}

impl PartialEq for PeerCommand {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PeerCommand {}

/// Limit of commands read from a link but not yet handled. At the limit the reader waits for a place, so that first the
/// connection and then the sender's queue fills. No command is lost, and memory is bounded at both ends.
#[derive(Debug)]
pub(super) struct Waiting {
    most: usize,
    count: Mutex<usize>,
    freed: Condvar,
}

impl Waiting {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), count: Mutex::new(0), freed: Condvar::new() })
    }

    /// Waits for a place and returns the command with it; stops waiting when the link closes.
    pub(super) fn word(self: &Arc<Self>, bytes: Box<[u8]>, closing: &AtomicBool) -> PeerCommand {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= self.most && !closing.load(Relaxed) {
            // Closing the link wakes no waiter.
            let patience = Duration::from_millis(50);
            count = self.freed.wait_timeout(count, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        *count += 1;
        PeerCommand { bytes, _place: Some(CommandPermit(self.clone())) }
    }
}

#[derive(Debug)]
struct CommandPermit(Arc<Waiting>);

impl Drop for CommandPermit {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

/// Returns the value of a line, by its long or short name in lower case.
fn value<'a>(word: &'a [u8], long: &[u8], short: &[u8]) -> Option<&'a [u8]> {
    for line in word.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(colon) = memchr::memchr(b':', line) {
            let name = line[..colon].trim_ascii();
            if name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short) {
                return Some(line[colon + 1..].trim_ascii());
            }
        }
    }
    None
}

/// Returns the Call-ID.
pub fn call_id(word: &[u8]) -> Option<&[u8]> {
    value(word, b"call-id", b"i").filter(|id| !id.is_empty())
}

/// Returns the sender's name, in the extended form.
pub fn sender(word: &[u8]) -> Option<&[u8]> {
    value(word, b"from", b"f")
}

/// Returns whether the other controller has given up the call.
pub fn is_abort(word: &[u8]) -> bool {
    value(word, b"internal-cmd", b"internal-cmd") == Some(b"abort_call")
}

/// Removes the empty lines at the end: they belong to the transport, not to the command.
pub fn trimmed(mut word: &[u8]) -> &[u8] {
    while let Some(rest) = word.strip_suffix(b"\r\n") {
        word = rest;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_name() {
        let word = b"call-id:  1-2@h \r\nFROM: s1\r\nX: From: m\r\n\r\n";
        assert_eq!((call_id(word), sender(word)), (Some(&b"1-2@h"[..]), Some(&b"s1"[..])));
        assert!(!is_abort(word));
        assert!(is_abort(b"call-id: a\ninternal-cmd: abort_call\n\n"));
        assert_eq!(call_id(b"Call-ID:\r\n"), None);
        assert_eq!(trimmed(word), b"call-id:  1-2@h \r\nFROM: s1\r\nX: From: m");
    }
}
