//! A request while the engine handles it, and how far it came.

use crate::decision::Decision;
use crate::judgement::Inquiry;
use crate::policy::InForce;
use crate::question::{Answers, Text};
use crate::stage::Stage;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strowger_config::IdentitySource;
use strowger_core::routing::Request;
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox};

/// A request in the hands of an engine.
pub(crate) struct Handling<'t, 'm> {
    pub(crate) now: Now,
    pub(crate) request: &'t Request<'m>,
    /// Its transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    pub(crate) progress: &'t mut Progress,
    pub(crate) out: &'t mut Outbox,
}

/// How far a request came. It stays with the request while that waits, and moves with it to another shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The stage that looks at it.
    pub(crate) stage: Stage,
    /// When its first stage began. Whether a route token or seal is too old is judged by this moment, however long the request waits.
    /// It moves as an age ([`crate::engine::EngineRecord::Suspended`]).
    #[serde(skip)]
    pub(crate) began: Now,
    pub(crate) answers: Answers,
    pub(crate) proof: Proof,
    /// What rules say of it.
    pub(crate) decision: Option<Box<Decision>>,
    /// List of `rule.identity`, set when the request is forwarded.
    #[serde(skip)]
    pub(crate) rule_identity: Option<IdentitySource>,
    /// Notice context of a request that the server sends itself; 0 for none, and for requests of peers.
    pub(crate) context: u64,
    /// A 100 was sent.
    pub(crate) trying: bool,
    /// While it waits: what it goes by. Bytes do not have it: read back, the request goes on by the policy where it comes to.
    #[serde(skip)]
    pub(crate) policy: Option<Arc<InForce>>,
    /// Nothing of it is done: a person inquires what would be.
    #[serde(skip)]
    pub(crate) inquiry: Option<Box<Inquiry>>,
}

impl Progress {
    pub(crate) fn new(now: Now) -> Self {
        Self {
            stage: Stage::Address,
            began: now,
            answers: Answers::default(),
            proof: Proof::default(),
            decision: None,
            rule_identity: None,
            context: 0,
            trying: false,
            policy: None,
            inquiry: None,
        }
    }

    /// Takes it out; what is left behind is a beginning.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.began))
    }
}

/// A user as the database has it: credentials may spell one in many ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) name: Text,
    pub(crate) domain: Text,
}

/// What a request has shown of its sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// Its credentials were right: those of this user.
    pub(crate) user: Option<User>,
    /// The credentials were right, but had been used before: nothing may change.
    pub(crate) replayed: bool,
    /// Its route token or seal: it goes to the other party of a call that was let through.
    pub(crate) in_dialog: bool,
}

impl Proof {
    /// A password was shown, or a route token or seal.
    pub(crate) const fn is_any(&self) -> bool {
        self.user.is_some() || self.in_dialog
    }
}

impl Handling<'_, '_> {
    /// Its sender is there, or was.
    pub(crate) fn is_proven(&self) -> bool {
        self.request.arrival.transport.is_reliable() || self.progress.proof.is_any()
    }
}
