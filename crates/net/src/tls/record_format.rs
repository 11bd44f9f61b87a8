//! Format of TLS records, and of the messages in them behind the handshake (RFC 8446 sections 4 and 5.1).

use super::record_fault::Fault;

/// Length of the header of a record in bytes: type, version, length.
pub(super) const HEADER: usize = 5;

/// Most bytes of data in a record (RFC 8446 section 5.1).
pub(super) const LONGEST_DATA: usize = 16_384;

/// Types of records (RFC 8446 section 5.1).
pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// Longest record in bytes, with its header: the room that a buffer needs behind its data.
pub(crate) const LONGEST_RECORD: usize = HEADER + LONGEST_PAYLOAD;

/// Longest payload of a record: 2^14 bytes, and less than 2 KB of padding and protection (RFC 5246 section 6.2.3).
const LONGEST_PAYLOAD: usize = LONGEST_DATA + 2_047;

/// Handshake messages behind the handshake (RFC 8446 section 4).
pub(super) const HELLO_REQUEST: u8 = 0;
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const NEW_SESSION_TICKET: u8 = 4;
pub(super) const KEY_UPDATE: u8 = 24;

/// Levels of alerts (RFC 8446 section 6).
pub(super) const WARNING: u8 = 1;
pub(super) const FATAL: u8 = 2;

/// Returns the length of the first record with its header, if its header is complete. A wrong header is an error as soon as that shows.
pub(super) fn record_length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    // The last known type is heartbeat.
    if !(CHANGE_CIPHER_SPEC..=24).contains(&kind) {
        return Err(Fault::ContentType);
    }
    if bytes.len() >= 3 && bytes[1] != 3 {
        return Err(Fault::ProtocolVersion);
    }
    let Some(&[.., high, low]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    match usize::from(u16::from_be_bytes([high, low])) {
        0 if kind != APPLICATION_DATA => Err(Fault::EmptyPayload),
        length if length > LONGEST_PAYLOAD => Err(Fault::RecordTooLarge),
        length => Ok(Some(HEADER + length)),
    }
}

/// Tells whether a session ticket is well formed (RFC 8446 section 4.6.1).
pub(super) fn is_ticket(body: &[u8]) -> bool {
    let read = || {
        let (_lifetime_and_age, rest) = body.split_at_checked(8)?;
        let (length, rest) = rest.split_first()?;
        let (_nonce, rest) = rest.split_at_checked(usize::from(*length))?;
        let (ticket, rest) = vector(rest)?;
        let (mut extensions, rest) = vector(rest)?;
        while !extensions.is_empty() {
            let (_type, value) = extensions.split_at_checked(2)?;
            extensions = vector(value)?.1;
        }
        (!ticket.is_empty() && rest.is_empty()).then_some(())
    };
    read().is_some()
}

/// Splits off bytes with a length of two bytes.
fn vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}
