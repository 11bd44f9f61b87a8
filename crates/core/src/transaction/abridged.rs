//! Abridged request of a client transaction: the part kept of a request that is too large.

use strowger_message::{Message, Name};

/// Appends the request without its body, with only the header fields that its ACK and CANCEL (RFC 3261 sections 17.1.1.3 and 9.1) and a response of
/// this server (section 8.2.6) need.
pub(super) fn write(request: &Message<'_>, out: &mut Vec<u8>) {
    let (bytes, index) = (request.bytes(), request.index());
    out.extend_from_slice(&bytes[..index.headers_start()]);
    for line in index.lines() {
        if is_needed(line.name) {
            out.extend_from_slice(&bytes[line.start as usize..line.end as usize]);
        }
    }
    out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
}

const fn is_needed(name: Name) -> bool {
    matches!(
        name,
        Name::Via
            | Name::Route
            | Name::From
            | Name::To
            | Name::CallId
            | Name::CSeq
            | Name::Timestamp
            | Name::Authorization
            | Name::ProxyAuthorization
    )
}
