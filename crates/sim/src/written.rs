//! Round trip of a moving record through bytes.

use std::num::NonZeroU32;
use strowger_core::record::{self, Names, Recorded};
use strowger_core::{ListenerId, PeerName};

/// Listeners and peers are named by their numbers, since they stay in this process.
struct Numbers;

impl Names for Numbers {
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
        PeerName(name.parse().unwrap_or(NonZeroU32::MAX))
    }
}

/// Returns the record as another process reads it.
pub(crate) fn through_bytes<R: Recorded>(record: R) -> R {
    record::read(&record::write(record, &Numbers), &Numbers).expect("it was written just now")
}
