//! What a stage must know before it can decide, and is not known to the shard: names and subscribers.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_cache::error::CacheError;
use strowger_core::record::{Number, Recorded};
use strowger_core::{PeerName, Transport};
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// A name to resolve: host in lower case, port, transport, sips.
pub type HostKey = (Box<[u8]>, Option<u16>, Option<Transport>, bool);

/// Where a name leads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Resolved {
    /// Each with the transport to use, in the order in which they are to be tried (RFC 3263 section 4); none: it leads nowhere.
    pub targets: Vec<(Transport, SocketAddr)>,
    /// What those of secure transports must prove: the name that was asked for, not one that it led to (RFC 5922 section 7.2).
    pub name: Option<PeerName>,
}

/// A part of a message that a question quotes.
pub(crate) type Text = SmallVec<[u8; 32]>;

/// What is to be looked up for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Where a name leads (RFC 3263).
    Name(HostKey),
    /// The credential of this user, in this realm.
    Credential { username: Text, realm: Text },
    /// The credential of this user, in this realm, as the cache of those who are registered has it.
    Registered { username: Text, realm: Text },
    /// Whether a domain of ours has this user under this name of it, the `place`th ([`Engine::exists`](crate::engine::Engine::exists)).
    User { username: Text, domain: Text, place: u8 },
}

/// Which kind of question a request waits for.
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

/// The answers to the questions of one request so far. In bytes those of subscribers are not among them: by one of them a password is
/// judged. Read back, the stage that wants one asks again.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answers {
    #[serde(skip)]
    pub(crate) credential: Option<Result<subscriber::Answer, StoreError>>,
    /// The value of the cache, if it has one.
    #[serde(skip)]
    pub(crate) registered: Option<Result<Option<Box<[u8]>>, CacheError>>,
    /// Of the last name of the domain that was asked.
    #[serde(skip)]
    pub(crate) user: Option<(u8, Result<subscriber::Answer, StoreError>)>,
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
