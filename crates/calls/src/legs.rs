//! Legs of a call: the part that this server takes in the dialogs of the call.

use serde::{Deserialize, Serialize};

/// Part of this server in the dialogs of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Legs {
    /// A proxy forwards the INVITE. The later requests bypass this server.
    Passing,
    /// A proxy forwards the INVITE and stays in the route sets: one dialog between the parties, whose requests pass here.
    Proxied,
    /// Each party has a dialog with this server, and a role of this server writes the requests of both.
    Anchored,
}

impl Legs {
    /// Tells whether the later requests of the call pass this server.
    pub(crate) const fn are_here(self) -> bool {
        !matches!(self, Self::Passing)
    }
}
