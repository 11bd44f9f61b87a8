//! Line ends before messages.

/// Removes line ends before a message in its datagram or frame: they are no part of the message (RFC 3261 section 7.5)
/// and must not be forwarded.
pub(crate) fn without_line_ends(message: &[u8]) -> &[u8] {
    let first = message.iter().position(|b| !matches!(b, b'\r' | b'\n'));
    first.map_or(message, |first| &message[first..])
}
