//! Rare state of a connection: incomplete input, waiting output, values of its begin and end. Most connections have none.

#![expect(dead_code, reason = "until connections are entries")]

use crate::connection::{Alias, Fallback};
use crate::tick::Tick;
use strowger_core::{PeerName, Target};

/// Rare state of a connection. An idle connection has none, unless it has an alias.
pub(crate) struct Cold {
    /// Incomplete message, or complete ones after a turn that has ended, and the length that was searched for the end of a header.
    pub(crate) partial: Vec<u8>,
    pub(crate) scanned: u32,
    /// Begin of the incomplete message; [`Tick::NEVER`]: there is none.
    pub(crate) partial_since: Tick,
    /// Incomplete TLS record.
    pub(crate) record: Vec<u8>,
    /// Fragments of a WebSocket message.
    pub(crate) pieces: Vec<u8>,
    /// Bytes that the socket did not take.
    pub(crate) waiting: Vec<u8>,
    /// Begin of the handshake or of the end.
    pub(crate) since: Tick,
    /// Responses since the peer has ended its side, each with another target: if it has closed the connection completely, none of them arrives.
    pub(crate) unacknowledged: Vec<(Target, Box<[u8]>)>,
    /// Last check of their arrival.
    pub(crate) checked_at: Tick,
    /// Further address that the connection leads to, by the peer's request (RFC 5923).
    pub(crate) alias: Option<Box<Alias>>,
    /// State until the connection is open.
    pub(crate) opening: Option<Box<Opening>>,
}

const _: () = assert!(size_of::<Cold>() <= 160);

/// Messages that wait until a connection is open, and values that it needs until then.
pub(crate) struct Opening {
    /// Longest wait for the peer to accept the connection.
    pub(crate) deadline: Tick,
    /// Framed but unencrypted messages, their number, and the shards and tokens that learn of a failure.
    pub(crate) pending: Vec<u8>,
    pub(crate) pending_messages: u32,
    pub(crate) tokens: Vec<(usize, u64)>,
    /// Messages with a fallback. They leave when the connection opens, or fail after
    /// [`FALLBACK_DELAY`](crate::connection::FALLBACK_DELAY).
    pub(crate) fallbacks: Vec<Fallback>,
    /// Key of this side's opening handshake of WebSocket.
    pub(crate) key: Option<String>,
    /// Name that the peer of a dedicated connection must prove.
    pub(crate) name: Option<PeerName>,
}

impl Opening {
    /// Creates the state of a connection that must be made until this time.
    pub(crate) fn until(deadline: Tick) -> Self {
        Self {
            deadline,
            pending: Vec::new(),
            pending_messages: 0,
            tokens: Vec::new(),
            fallbacks: Vec::new(),
            key: None,
            name: None,
        }
    }
}

impl Default for Cold {
    fn default() -> Self {
        Self {
            partial: Vec::new(),
            scanned: 0,
            partial_since: Tick::NEVER,
            record: Vec::new(),
            pieces: Vec::new(),
            waiting: Vec::new(),
            since: Tick::default(),
            unacknowledged: Vec::new(),
            checked_at: Tick::default(),
            alias: None,
            opening: None,
        }
    }
}

impl Cold {
    /// Tells whether nothing is held for an open connection.
    pub(crate) fn is_empty(&self) -> bool {
        let is_read = self.partial.is_empty() && self.record.is_empty() && self.pieces.is_empty();
        is_read
            && self.waiting.is_empty()
            && self.unacknowledged.is_empty()
            && self.alias.is_none()
            && self.opening.is_none()
    }
}

/// Cold parts without content, for reuse: so a message in two reads costs no allocation of a cold part.
#[derive(Default)]
pub(crate) struct Spare {
    #[expect(clippy::vec_box, reason = "the boxes are reused")]
    parts: Vec<Box<Cold>>,
}

impl Spare {
    /// Maximum number of spare parts. Few connections have an incomplete message at one time.
    const MOST: usize = 16;

    /// Returns a cold part without content.
    pub(crate) fn take(&mut self) -> Box<Cold> {
        self.parts.pop().unwrap_or_default()
    }

    /// Takes a cold part back. Its content and buffers are freed.
    pub(crate) fn give_back(&mut self, mut part: Box<Cold>) {
        if self.parts.len() < Self::MOST {
            *part = Cold::default();
            self.parts.push(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content of a cold part, one kind in each.
    fn contents() -> [Cold; 7] {
        let alias = Alias { address: "192.0.2.7:5060".parse().unwrap(), certificate: None };
        [
            Cold { partial: vec![1], ..Cold::default() },
            Cold { record: vec![1], ..Cold::default() },
            Cold { pieces: vec![1], ..Cold::default() },
            Cold { waiting: vec![1], ..Cold::default() },
            Cold { unacknowledged: vec![(Target::LOOPBACK, Box::default())], ..Cold::default() },
            Cold { alias: Some(Box::new(alias)), ..Cold::default() },
            Cold { opening: Some(Box::new(Opening::until(Tick::NEVER))), ..Cold::default() },
        ]
    }

    #[test]
    fn a_part_with_any_content_is_not_empty() {
        assert!(Cold::default().is_empty());
        for (i, cold) in contents().into_iter().enumerate() {
            assert!(!cold.is_empty(), "{i}");
        }
        // Times and lengths mean nothing without the bytes that they are about.
        assert!(
            Cold { scanned: 7, partial_since: Tick::numbered(7), since: Tick::numbered(7), ..Cold::default() }
                .is_empty()
        );
    }

    #[test]
    fn a_reused_part_has_nothing_of_its_last_connection() {
        let mut spare = Spare::default();
        for cold in contents() {
            let cold = Box::new(Cold { scanned: 9, partial_since: Tick::default(), ..cold });
            let address = &raw const *cold;
            spare.give_back(cold);
            let cold = spare.take();
            assert_eq!(&raw const *cold, address, "the part is used again");
            assert!(cold.is_empty() && cold.scanned == 0 && cold.partial_since == Tick::NEVER);
            let buffers = [&cold.partial, &cold.record, &cold.pieces, &cold.waiting];
            assert!(buffers.iter().all(|buffer| buffer.capacity() == 0) && cold.unacknowledged.capacity() == 0);
        }
    }

    #[test]
    fn a_bounded_number_of_parts_is_kept() {
        let mut spare = Spare::default();
        for _ in 0..100 {
            spare.give_back(Box::default());
        }
        assert_eq!(spare.parts.len(), Spare::MOST);
    }
}
