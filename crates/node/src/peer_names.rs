//! Names of peers, as the sockets know them.

use std::sync::Arc;
use strowger_core::PeerName;
use strowger_server::peer_names;

/// Names of the sockets of this process.
pub(crate) struct PeerNames(pub(crate) Arc<strowger_net::PeerNames>);

impl peer_names::PeerNames for PeerNames {
    fn text(&self, number: PeerName) -> Option<Arc<str>> {
        self.0.text(number)
    }

    fn number(&self, text: &str) -> PeerName {
        self.0.intern(text)
    }
}
