//! Names that peers must prove by their certificates (RFC 5922), and their numbers in targets ([`PeerName`]).

use std::num::NonZeroU32;
use std::sync::Arc;
use strowger_core::PeerName;

/// Numbers of names in this process.
pub trait PeerNames: Send + Sync {
    /// Returns the name of a number; `None` if it was forgotten. Shards call this function, so it must not block.
    fn text(&self, number: PeerName) -> Option<Arc<str>>;

    /// Returns the number of a name, and assigns one if the name has none.
    fn number(&self, text: &str) -> PeerName;
}

/// Names of a server that connects to no peer by TLS. For tests, examples and benches.
#[derive(Clone, Copy, Debug)]
pub struct NoNames;

impl PeerNames for NoNames {
    fn text(&self, _: PeerName) -> Option<Arc<str>> {
        None
    }

    fn number(&self, _: &str) -> PeerName {
        UNPROVABLE
    }
}

/// Number of a name that no peer can prove.
const UNPROVABLE: PeerName = PeerName(NonZeroU32::MAX);
