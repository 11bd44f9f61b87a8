//! State that the shards of a process share and that is independent of their service.

use crate::balancers::Balancers;
use crate::directory::Directory;
use crate::peer_names::PeerNames;
use crate::source_addresses::SourceAddresses;
use crate::sources::Sources;
use crate::tls::Identities;
use crate::{Listener, NetSettings, bounds};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Part of a process that is independent of the service.
pub(crate) struct Network {
    pub(crate) settings: NetSettings,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Identities of new handshakes.
    pub(crate) identities: ArcSwap<Identities>,
    /// Balancers of new connections.
    pub(crate) balancers: ArcSwap<Balancers>,
    pub(crate) bounds: bounds::Current,
    pub(crate) directory: Directory,
    pub(crate) sources: Sources,
    pub(crate) source_addresses: Arc<SourceAddresses>,
    pub(crate) names: Arc<PeerNames>,
}
