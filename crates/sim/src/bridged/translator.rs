//! Translator of addresses before one phone. It gives the phone other ports from time to time, and forgets the ports before.

use super::{CAROL, TRANSLATOR};
use std::net::SocketAddr;

/// Translator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Translator {
    /// Difference of a public port and the port of the phone.
    shift: u16,
    pub(super) has_moved: bool,
}

impl Translator {
    pub(super) const fn new() -> Self {
        Self { shift: 20_000, has_moved: false }
    }

    /// Gives the phone other ports.
    pub(super) fn change_ports(&mut self) {
        self.shift += 700;
        self.has_moved = true;
    }

    /// Returns the source of a datagram as its receiver sees it.
    pub(super) fn outward(self, from: SocketAddr) -> SocketAddr {
        if from.ip() == CAROL.ip() { SocketAddr::new(TRANSLATOR.ip(), from.port() + self.shift) } else { from }
    }

    /// Returns the receiver of a datagram.
    pub(super) fn inward(self, to: SocketAddr) -> SocketAddr {
        if to.ip() == TRANSLATOR.ip() { SocketAddr::new(CAROL.ip(), to.port().wrapping_sub(self.shift)) } else { to }
    }
}
