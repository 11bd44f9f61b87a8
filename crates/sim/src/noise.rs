//! Broken messages in addition to the messages of the hosts, from an address of its own: a broken message is truncated,
//! lacks a mandatory header, or is no SIP at all. A server answers or drops broken messages, and keeps no state for
//! them.

use crate::random::Random;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Mandatory headers of a request (RFC 3261 section 8.1.1). A response without the first two matches no transaction.
const NEEDED: [&str; 5] = ["Via:", "CSeq:", "From:", "To:", "Call-ID:"];

/// Source of broken messages.
const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66)), 5060);

/// Returns whether this is the source of broken messages: messages to it or from it have no meaning.
pub(crate) fn is_source(address: SocketAddr) -> bool {
    address.ip() == SOURCE.ip()
}

pub struct Noise {
    random: Random,
    /// Share of messages to which a broken one is added, in thousandths.
    often: u64,
}

impl Noise {
    pub const fn new(random: Random, often: u64) -> Self {
        Self { random, often }
    }

    /// Perhaps returns a broken copy of this message, with its source.
    pub fn broken_copy(&mut self, message: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
        if !self.random.chance(self.often) {
            return None;
        }
        let head = message.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(message.len());
        let broken = match self.random.between(0, 3) {
            // The message is cut before the end of its last header.
            0 => message[..self.random.between(1, head as u64 - 1) as usize].to_vec(),
            1 => (0..self.random.between(1, 400)).map(|_| self.random.u64() as u8).collect(),
            _ => {
                let needed = if message.starts_with(b"SIP/2.0 ") { &NEEDED[..2] } else { &NEEDED[..] };
                let needed = *self.random.pick(needed);
                let lines = message[..head + 2].split_inclusive(|byte| *byte == b'\n');
                let mut kept = lines.filter(|line| !line.starts_with(needed.as_bytes())).collect::<Vec<_>>().concat();
                kept.extend_from_slice(b"\r\n");
                kept
            }
        };
        Some((SOURCE, broken))
    }
}
