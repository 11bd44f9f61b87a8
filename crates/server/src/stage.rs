//! Stages of a request and their verdicts.
//!
//! A stage is a function of the request, the policy and the answers so far, a method of [`Decider`](crate::decider::Decider). It sends,
//! stores and starts nothing: it returns a [`Verdict`], and [`Engine::advance`](crate::engine::Engine::advance) carries that out. A request
//! that needs an answer is suspended at its stage, and the answer resumes it there. Earlier stages do not run again.

use crate::decision::Decision;
use crate::destination::Destination;
use crate::proof::Proof;
use crate::question::Question;
use crate::registrant::Registrant;
use crate::reply::Reply;
use serde::{Deserialize, Serialize};

/// Stage of a request in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Destination of the request: this server itself, or another (`request_validation.rs`).
    Address,
    /// Right of the sender to have the request forwarded (`authorization.rs`).
    Authorize,
    /// Decision of the rules (`rule_evaluation.rs`).
    Decide,
    /// Next hops (`destination_stage.rs`).
    Route,
    /// Right of the sender to change these bindings (`registration.rs`).
    Register,
    /// Right of an ACK for a 2xx to be forwarded, and the next hop of the ACK (`acknowledgement.rs`).
    Acknowledge,
}

/// Result of a stage.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Next stage.
    Next(Stage),
    /// Permission to forward the request, with the proof that its sender has given.
    Admit(Proof),
    /// Decision of the rules.
    Decide(Box<Decision>),
    /// Permission to change the bindings, with the proof of the sender, and the registrant if its credentials are to be
    /// stored.
    Register(Proof, Option<Box<Registrant>>),
    /// Response of this server.
    Reply(Reply),
    /// Question whose answer the stage needs.
    Ask(Question),
    /// Restart without the first Routes: look-ups showed that they name this server.
    TakeOffRoutes,
    /// Destination of the request.
    Forward(Destination),
    /// Answer by an endpoint of this server.
    Answer,
    /// Call with the caller that is joined with a call to the destination.
    Bridge,
    /// End without a response: an ACK needs no response, and a banned source gets none.
    Drop,
}

/// Outcome of an authentication that has not proved the sender.
#[derive(Debug)]
pub(crate) enum Unproven {
    Reply(Reply),
    Ask(Question),
    /// Silent drop: the source is banned.
    Drop,
}

impl From<Unproven> for Verdict {
    fn from(unproven: Unproven) -> Self {
        match unproven {
            Unproven::Reply(reply) => Self::Reply(reply),
            Unproven::Ask(question) => Self::Ask(question),
            Unproven::Drop => Self::Drop,
        }
    }
}

impl From<Reply> for Unproven {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Reply> for Verdict {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}
