//! Records that pass through bytes to this process or to another.

pub(crate) mod file;

use std::num::NonZeroU32;
use strowger_core::record::{self, Names, Recorded};
use strowger_core::{ListenerId, PeerName};

/// Number of listeners of each process.
pub(crate) const LISTENERS: u16 = 5;

/// Process that counts its listeners and its peers' names from this number on.
pub(crate) struct Process(pub(crate) u16);

impl Names for Process {
    fn listener(&self, number: ListenerId) -> String {
        format!("listener {}", number.0 - self.0)
    }

    fn peer(&self, number: PeerName) -> String {
        format!("{}.example.org", number.0.get() - u32::from(self.0))
    }

    fn listener_called(&self, name: &str) -> Option<ListenerId> {
        let number: u16 = name.strip_prefix("listener ")?.parse().ok()?;
        (number < LISTENERS).then_some(ListenerId(number + self.0))
    }

    fn peer_called(&self, name: &str) -> PeerName {
        let number = name.strip_suffix(".example.org").and_then(|number| number.parse::<u32>().ok());
        // Any other name is one that no peer proves.
        number.and_then(|n| NonZeroU32::new(n.checked_add(self.0.into())?)).map_or(PeerName(NonZeroU32::MAX), PeerName)
    }
}

/// Returns the record as the next shard reads it from bytes.
pub(crate) fn through_bytes<R: Recorded>(record: R) -> R {
    record::read(&record::write(record, &Process(0)), &Process(0)).expect("it was written just now")
}
