//! Look-ups that a stage needs before it can decide (questions): names and subscribers.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_cache::error::CacheError;
use strowger_core::record::{Number, Recorded};
use strowger_core::{PeerName, Transport};
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// Name to look up: host in lower case, port, transport, sips.
pub type HostKey = (Box<[u8]>, Option<u16>, Option<Transport>, bool);

/// Result of a name look-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Resolved {
    /// Addresses with their transports, in the order in which they are tried (RFC 3263 section 4); empty if the name
    /// has no address.
    pub targets: Vec<(Transport, SocketAddr)>,
    /// Name that the certificates of peers must prove on secure transports: the name that was looked up, not a name
    /// found by the look-up (RFC 5922 section 7.2).
    pub name: Option<PeerName>,
}

/// Part of a message that a question contains.
pub(crate) type Text = SmallVec<[u8; 32]>;

/// Look-up for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Targets of a name (RFC 3263).
    Name(HostKey),
    /// Credential of this user, in this realm.
    Credential { username: Text, realm: Text },
    /// Credential of this user, in this realm, in the cache of registered users.
    Registered { username: Text, realm: Text },
    /// Existence of this user under the `place`th name of a local domain
    /// ([`Decider::exists`](crate::decider::Decider::exists)).
    User { username: Text, domain: Text, place: u8 },
}

/// Kind of question that a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    #[default]
    Name,
    Credential,
    Registered,
    User(u8),
}

impl Question {
    pub(crate) const fn kind(&self) -> QuestionKind {
        match self {
            Self::Name(_) => QuestionKind::Name,
            Self::Credential { .. } => QuestionKind::Credential,
            Self::Registered { .. } => QuestionKind::Registered,
            Self::User { place, .. } => QuestionKind::User(*place),
        }
    }
}

/// Answers to the questions of one request so far. Answers about subscribers are not serialized, because they verify
/// passwords: after a move to another shard the stage asks again.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answers {
    #[serde(skip)]
    pub(crate) credential: Option<Result<subscriber::SubscriberAnswer, StoreError>>,
    /// Answer of the cache of registered users; the inner `None` means that the cache has no entry.
    #[serde(skip)]
    pub(crate) registered: Option<Result<Option<Box<[u8]>>, CacheError>>,
    /// Answer about the user under the last queried name of the domain, with the number of that name.
    #[serde(skip)]
    pub(crate) user: Option<(u8, Result<subscriber::SubscriberAnswer, StoreError>)>,
    pub(crate) names: Vec<(HostKey, Resolved)>,
}

impl Recorded for Answers {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.names.iter_mut().filter_map(|(_, to)| to.name.as_mut()).for_each(|name| show(Number::Peer(name)));
    }
}

impl Answers {
    pub(crate) fn name(&self, key: &HostKey) -> Option<&Resolved> {
        self.names.iter().find(|(k, _)| k == key).map(|(_, resolved)| resolved)
    }
}
