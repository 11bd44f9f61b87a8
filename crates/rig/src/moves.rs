//! Names of listeners and peers in records of one process.

use std::num::NonZeroU32;
use strowger_core::record::Names;
use strowger_core::{ListenerId, PeerName};

/// Process that reads its own records: names are numbers.
pub(crate) struct OwnNames;

impl Names for OwnNames {
    fn listener(&self, number: ListenerId) -> String {
        number.0.to_string()
    }

    fn peer(&self, number: PeerName) -> String {
        number.0.to_string()
    }

    fn listener_called(&self, name: &str) -> Option<ListenerId> {
        name.parse().ok().map(ListenerId)
    }

    fn peer_called(&self, name: &str) -> PeerName {
        name.parse().map_or(PeerName(NonZeroU32::MAX), PeerName)
    }
}
