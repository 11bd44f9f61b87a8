//! Request that an engine is processing, and its progress.

use crate::decision::Decision;
use crate::policy::ActivePolicy;
use crate::proof::Proof;
use crate::question::Answers;
use crate::rule_trace::TraceRequest;
use crate::stage::Stage;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strowger_config::IdentitySource;
use strowger_core::routing::Request;
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox};

/// Request that an engine handles.
pub(crate) struct Handling<'t, 'm> {
    pub(crate) now: Now,
    pub(crate) request: &'t Request<'m>,
    /// Server transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    pub(crate) progress: &'t mut Progress,
    pub(crate) out: &'t mut Outbox,
}

/// Progress of a request. It is kept while the request waits, and moves with it to another shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Current stage.
    pub(crate) stage: Stage,
    /// Moment when the first stage began. The age of a route token or seal is measured at this moment, however long the
    /// request waits. The moment moves to another shard as an age ([`crate::engine::EngineRecord::Suspended`]).
    #[serde(skip)]
    pub(crate) began: Now,
    pub(crate) answers: Answers,
    pub(crate) proof: Proof,
    /// Decision of the rules.
    pub(crate) decision: Option<Box<Decision>>,
    /// List of `rule.identity`, set when the request is forwarded.
    #[serde(skip)]
    pub(crate) rule_identity: Option<IdentitySource>,
    /// Notice context of a request that the server sends itself; 0 for none, for requests of peers, and for a far INVITE whose call is not in
    /// the table yet.
    pub(crate) context: u64,
    /// Set once a 100 was sent.
    pub(crate) trying: bool,
    /// Policy of a suspended request. It is not part of the bytes: a request read from bytes continues under the policy
    /// of its new engine.
    #[serde(skip)]
    pub(crate) policy: Option<Arc<ActivePolicy>>,
    /// Trace for an operator: the request is only explained, and nothing is carried out.
    #[serde(skip)]
    pub(crate) trace_request: Option<Box<TraceRequest>>,
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
            trace_request: None,
        }
    }

    /// Takes the progress out, and leaves the progress of a new request in its place.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.began))
    }
}

impl Handling<'_, '_> {
    /// Tells whether responses go to the sender of the request alone: it is known to be at the source address, or is this server itself.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_far_leg() || self.is_source_proven()
    }

    /// Tells whether the sender is known to be at the source address of the request; for a far leg, that of its near INVITE.
    pub(crate) fn is_source_proven(&self) -> bool {
        self.request.arrival.transport.is_reliable() || self.progress.proof.is_any()
    }
}
