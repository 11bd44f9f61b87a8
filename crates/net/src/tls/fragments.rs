//! Handshake messages in pieces (RFC 8446 section 5.1).

use super::record_fault::Fault;
use std::mem;

/// Length of the header of a handshake message in bytes: type, length.
const HEADER: usize = 4;

/// Longest body of a handshake message in bytes. TLS allows 16 MB, but nothing behind a handshake needs more than a ticket, of at most 64 KB.
const LONGEST_BODY: usize = 65_535;

/// Incomplete handshake message of a connection, at most 64 KB. Empty ones have no memory.
#[derive(Default)]
pub(crate) struct Fragments(Vec<u8>);

/// Handshake message.
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    pub(super) body: &'a [u8],
    /// True if no byte follows in its record.
    pub(super) is_last: bool,
}

impl Fragments {
    /// True if no message is incomplete.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the incomplete message.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Takes the payload of a record, and gives each complete message to `each`.
    ///
    /// # Errors
    /// A message is too long, or `each` fails.
    pub(super) fn push<E: From<Fault>>(
        &mut self,
        payload: &[u8],
        each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.0.is_empty() {
            let read = split(payload, each)?;
            self.0.extend_from_slice(&payload[read..]);
            return Ok(());
        }
        let mut all = mem::take(&mut self.0);
        all.extend_from_slice(payload);
        let read = split(&all, each)?;
        if read < all.len() {
            all.drain(..read);
            self.0 = all;
        }
        Ok(())
    }
}

/// Gives each complete message to `each`. Returns the length of all of them.
fn split<E: From<Fault>>(bytes: &[u8], mut each: impl FnMut(Message<'_>) -> Result<(), E>) -> Result<usize, E> {
    // A message that is too long ends the connection before those in front of it in its record.
    let mut read = 0;
    while let Some(length) = length(&bytes[read..]) {
        if length > HEADER + LONGEST_BODY {
            return Err(Fault::HandshakeTooLarge.into());
        }
        if length > bytes.len() - read {
            break;
        }
        read += length;
    }
    let mut at = 0;
    while at < read {
        let end = at + length(&bytes[at..]).expect("the loop above has read this header");
        each(Message { kind: bytes[at], body: &bytes[at + HEADER..end], is_last: end == bytes.len() })?;
        at = end;
    }
    Ok(read)
}

/// Returns the length of the first message with its header, if its header is complete.
fn length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER>()?;
    Some(HEADER + u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_in_any_pieces() {
        let (long, mut bytes) = ([7; 300], Vec::new());
        let sent: [(u8, &[u8]); 4] = [(4, b"ticket"), (0, b""), (4, &long), (24, &[0])];
        for (kind, body) in sent {
            bytes.extend_from_slice(&[kind, 0, (body.len() >> 8) as u8, body.len() as u8]);
            bytes.extend_from_slice(body);
        }
        for size in 1..=bytes.len() {
            let (mut parts, mut seen, mut left) = (Fragments::default(), Vec::new(), bytes.len());
            for piece in bytes.chunks(size) {
                left -= piece.len();
                let pushed = parts.push(piece, |message: Message<'_>| -> Result<(), Fault> {
                    seen.push((message.kind, message.body.to_vec(), message.is_last));
                    Ok(())
                });
                assert!(pushed.is_ok());
                assert!(left > 0 || (parts.is_empty() && parts.0.capacity() == 0), "{size}");
            }
            let expected: Vec<_> = sent.iter().map(|(kind, body)| (*kind, body.to_vec())).collect();
            assert_eq!(
                seen.iter().map(|(kind, body, _)| (*kind, body.clone())).collect::<Vec<_>>(),
                expected,
                "{size}"
            );
            assert!(seen[3].2, "{size}");
            assert_eq!(seen[0].2, 10 % size == 0, "{size}");
        }
    }

    #[test]
    fn a_message_of_more_than_64_kb_is_refused_by_its_header() {
        let push = |bytes: &[u8]| {
            let (mut parts, mut seen) = (Fragments::default(), 0);
            let pushed = parts.push(bytes, |_| -> Result<(), Fault> {
                seen += 1;
                Ok(())
            });
            (pushed, seen)
        };
        assert_eq!(push(&[4, 0, 255, 255]), (Ok(()), 0));
        assert_eq!(push(&[4, 1, 0, 0]), (Err(Fault::HandshakeTooLarge), 0));
        assert_eq!(push(&[4, 0, 0, 0, 4, 1, 0, 0]), (Err(Fault::HandshakeTooLarge), 0));
    }
}
