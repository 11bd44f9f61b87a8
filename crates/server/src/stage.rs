//! The stages of a request, and what each of them says of it.
//!
//! A stage is a function of the request, the policy and the answers so far. It sends nothing, keeps nothing and starts nothing: it
//! returns a [`Verdict`], and [`Engine::advance`] carries that out. A request that needs an answer waits with its stage, which looks at
//! it again when the answer is there. What the stages before it decided stands.

use crate::contacts::Contacts;
use crate::credentials::Registrant;
use crate::decision::Decision;
use crate::engine::{Effect, Engine};
use crate::forwarding::Destination;
use crate::handling::{Handling, Proof};
use crate::question::{Question, QuestionKind};
use crate::reply::Reply;
use serde::{Deserialize, Serialize};
use strowger_core::log_limiter::Kind;
use strowger_core::routing::Request;
use strowger_core::shown::shown;
use strowger_core::slots::Id;
use strowger_message::Method;
use strowger_store::error::StoreError;
use strowger_store::subscriber;
use strowger_store::ticket::Ticket;

/// Where a request is on its way through the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Whom is it for: this server itself, or another? (`address.rs`)
    Address,
    /// May its sender have it forwarded? (`authorization.rs`)
    Authorize,
    /// What do the rules say of it? (`consultation.rs`)
    Decide,
    /// Where does it go? (`routing.rs`)
    Route,
    /// May its sender change these bindings? (`registration.rs`)
    Register,
    /// An ACK for a 2xx: may it go on, and where? (`acknowledgement.rs`)
    Acknowledge,
}

/// What a stage says of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// This stage looks at it next.
    Next(Stage),
    /// It may be forwarded: its sender has shown so much.
    Admit(Proof),
    /// It goes on by what rules say.
    Decide(Box<Decision>),
    /// Its bindings are for the registrar: its sender has shown so much, and whose credentials are to be kept where any are.
    Register(Proof, Option<Box<Registrant>>),
    /// It is answered.
    Reply(Reply),
    /// It waits for an answer.
    Ask(Question),
    /// Its first Routes name this server by names that were looked up: it starts again without them.
    TakeOffRoutes,
    /// It goes on.
    Forward(Destination),
    /// It ends here without an answer: an ACK needs none, a source that is banned gets none.
    Drop,
}

/// What is to be done before a sender has proved its identity.
#[derive(Debug)]
pub(crate) enum Unproven {
    Reply(Reply),
    Ask(Question),
    /// Its source is banned.
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

impl Engine {
    /// Takes a request through its stages until it is answered, forwarded or dropped, or waits.
    pub(crate) fn advance(&mut self, handling: &mut Handling<'_, '_>) {
        let mut contacts = std::mem::take(&mut self.contacts);
        self.run_stages(handling, &mut contacts);
        self.contacts = contacts;
    }

    fn run_stages(&mut self, handling: &mut Handling<'_, '_>, contacts: &mut Contacts) {
        let request = handling.request;
        if handling.progress.stage == Stage::Register {
            return self.run_registration(handling);
        }
        let routing = self.policy.router.route(handling.progress.began, request);
        loop {
            let verdict = match handling.progress.stage {
                Stage::Address => self.address(handling, &routing),
                Stage::Authorize => self.authorize(handling, &routing),
                Stage::Decide => self.decide(handling, &routing),
                Stage::Route => self.route(handling, &routing, contacts),
                Stage::Acknowledge => self.acknowledge(handling, &routing, contacts),
                Stage::Register => return self.run_registration(handling),
            };
            match verdict {
                Verdict::Next(stage) => handling.progress.stage = stage,
                Verdict::Admit(proof) => {
                    if proof.is_any() {
                        self.confirm(request);
                    }
                    // A request of a call that was let through goes on as that call does.
                    let is_asked = !proof.in_dialog && self.has_rules();
                    handling.progress.proof = proof;
                    handling.progress.stage = if is_asked { Stage::Decide } else { Stage::Route };
                    if handling.progress.proof.in_dialog
                        && self.resumes_call(request, &routing)
                        && let Err(reply) = self.resume_call(handling, &routing)
                    {
                        return self.reply(handling, reply);
                    }
                }
                Verdict::Decide(decision) if decision.edits_uri() => {
                    return self.go_on_by(handling, &routing, decision);
                }
                Verdict::Decide(decision) => {
                    handling.progress.decision = Some(decision);
                    handling.progress.stage = Stage::Route;
                }
                Verdict::Forward(destination) => return self.forward(handling, &routing, contacts, destination),
                Verdict::TakeOffRoutes => return self.take_off_routes(handling, &routing),
                other => return self.conclude(handling, other),
            }
        }
    }

    /// A registration has one stage. What began as a transaction, since it was not known to be for this server, loses it: an equal
    /// REGISTER gets an equal answer.
    fn run_registration(&mut self, handling: &mut Handling<'_, '_>) {
        if let Some(server) = handling.server.take() {
            self.transactions.abandon(handling.now, server);
        }
        match self.authorize_registration(handling) {
            Verdict::Register(proof, registrant) => {
                handling.progress.proof = proof;
                self.confirm(handling.request);
                self.register(handling, registrant.as_deref());
            }
            other => self.conclude(handling, other),
        }
    }

    fn conclude(&mut self, handling: &mut Handling<'_, '_>, verdict: Verdict) {
        match verdict {
            Verdict::Reply(reply) => self.reply(handling, reply),
            Verdict::Ask(question) => self.ask(handling, question),
            _ => {
                if let Some(server) = handling.server {
                    self.transactions.abandon(handling.now, server);
                }
            }
        }
    }

    /// The sender of a request has proved its identity: its address is not forged.
    pub(crate) fn confirm(&mut self, request: &Request<'_>) {
        if !request.arrival.transport.is_reliable() {
            self.effects.push(Effect::Confirm(request.arrival.remote));
        }
    }

    /// Asks, and lets the request wait; answered 503 where there is no room for that.
    fn ask(&mut self, handling: &mut Handling<'_, '_>, question: Question) {
        let request = handling.request;
        let asks = question.kind();
        match question {
            Question::Name(name) => {
                // Before its sender has shown anything, a 100 would say which names are known.
                if handling.progress.stage == Stage::Route {
                    self.trying(handling);
                }
                if self.may_resolve(handling) {
                    let ticket = self.suspend(handling, asks);
                    self.counters().parked.one();
                    self.effects.push(Effect::Resolve { ticket, source: request.arrival.remote.ip(), name });
                } else if request.method != Method::Ack {
                    self.reply(handling, Reply::overloaded());
                }
            }
            Question::Credential { username, realm } => {
                let question = subscriber::Question::Credential { username: &username, realm: &realm };
                self.ask_subscribers(handling, question, asks);
            }
            Question::Registered { username, realm } => self.ask_credentials(handling, &username, &realm, asks),
            Question::User { username, domain, .. } => {
                let question = subscriber::Question::User { username: &username, domain: &domain };
                self.ask_subscribers(handling, question, asks);
            }
        }
    }

    fn ask_subscribers(
        &mut self,
        handling: &mut Handling<'_, '_>,
        question: subscriber::Question<'_>,
        asks: QuestionKind,
    ) {
        let request = handling.request;
        let shared = self.shared.clone();
        // Without subscribers no stage asks: see `known`.
        let (Some(subscribers), Some(sink)) = (&shared.subscribers, self.found) else { return };
        if !self.has_room_to_wait(request.arrival, request.message.bytes().len(), handling.progress.proof.in_dialog) {
            return self.reply(handling, Reply::overloaded());
        }
        let value = self.suspend(handling, asks);
        self.has_asked = true;
        let Err(error) = subscribers.request(Ticket { sink, value }, question, handling.now.mono) else {
            return self.counters().parked.one();
        };
        if self.may_say(handling, Kind::Lookup) {
            tracing::warn!(call_id = %shown(request.call_id), %error, "cannot look up a subscriber");
        }
        if let Some(mut waiting) = self.resume(Id::from_u64(value)) {
            *handling.progress = waiting.progress.take();
        }
        self.reply(handling, Reply::overloaded());
    }

    /// What the subscribers say, if the shard need not wait for it. Without subscribers there is no user.
    pub(crate) fn known(
        &self,
        question: subscriber::Question<'_>,
        now: u64,
    ) -> Option<Result<subscriber::Answer, StoreError>> {
        match (&self.shared.subscribers, self.found) {
            (Some(subscribers), Some(_)) => subscribers.cached(question, now),
            _ => Some(Ok(subscriber::Answer::Absent)),
        }
    }
}

#[cfg(test)]
mod tests;
