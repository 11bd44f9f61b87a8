//! Passage of a request through its stages: the engine carries out the verdicts and asks the questions of the stages.

use crate::contacts::Contacts;
use crate::decision::Decision;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::question::{Question, QuestionKind};
use crate::reply::Reply;
use crate::stage::{Stage, Verdict};
use strowger_core::log_limiter::LogSubject;
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::slots::Id;
use strowger_message::{Index, Message, Method, SipUri};
use strowger_store::subscriber;
use strowger_store::ticket::Ticket;

impl Engine {
    /// Takes a request through its stages until it is answered, forwarded, dropped or suspended.
    pub(crate) fn advance(&mut self, handling: &mut Handling<'_, '_>) {
        let mut contacts = std::mem::take(&mut self.buffers.contacts);
        self.run_stages(handling, &mut contacts);
        self.buffers.contacts = contacts;
    }

    fn run_stages(&mut self, handling: &mut Handling<'_, '_>, contacts: &mut Contacts) {
        let request = handling.request;
        if handling.progress.stage == Stage::Register {
            return self.run_registration(handling);
        }
        let routing = self.policy.router.route(handling.progress.began, request);
        loop {
            let decider = self.decider();
            let verdict = match handling.progress.stage {
                Stage::Address => decider.address(handling, &routing),
                Stage::Authorize => decider.authorize(handling, &routing),
                Stage::Decide => decider.decide(handling, &routing),
                Stage::Route => decider.route(handling, &routing, contacts),
                Stage::Acknowledge => decider.acknowledge(handling, &routing, contacts),
                Stage::Register => return self.run_registration(handling),
            };
            match verdict {
                Verdict::Next(stage) => handling.progress.stage = stage,
                Verdict::Admit(proof) => {
                    if proof.is_any() {
                        self.confirm(request);
                    }
                    // A request within an admitted call follows that call: rules are not evaluated.
                    let is_asked = !proof.in_dialog && self.decider().has_rules();
                    handling.progress.proof = proof;
                    handling.progress.stage = if is_asked { Stage::Decide } else { Stage::Route };
                    if handling.progress.proof.in_dialog
                        && self.decider().resumes_call(request, &routing)
                        && let Err(reply) = self.decider().resume_call(handling, &routing)
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
                Verdict::Answer => return self.answer_here(handling, &routing),
                Verdict::Bridge => match decider.far_family(handling, &routing, contacts) {
                    Ok(family) => return self.bridge_here(handling, &routing, family),
                    Err(question) => return self.ask(handling, question),
                },
                Verdict::TakeOffRoutes => return self.take_off_routes(handling, &routing),
                other => return self.conclude(handling, other),
            }
        }
    }

    /// Starts a request again without the Routes that name this server by names that were looked up. The function is
    /// not inlined: most requests do not need its stack frame.
    #[inline(never)]
    fn take_off_routes(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        let request = handling.request;
        let mut bytes = Vec::with_capacity(request.message.bytes().len());
        let names_us = |uri: &SipUri<'_>| {
            self.policy
                .key_of(request, routing, uri)
                .is_some_and(|key| self.policy.leads_here_by(&handling.progress.answers, &key))
        };
        self.policy.router.take_off_routes(&request.message, names_us, &mut bytes);
        let mut index = Index::new();
        if index.parse(&bytes, &self.policy.limits).is_err() {
            return;
        }
        let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash) else { return };
        let now = handling.now;
        handling.progress.stage = match request.method {
            Method::Ack => Stage::Acknowledge,
            Method::Register if self.decider().is_for_registrar(now, &request) => Stage::Register,
            _ => Stage::Address,
        };
        let Handling { server, progress, out, .. } = handling;
        self.advance(&mut Handling { now, request: &request, server: *server, progress, out });
    }

    /// Continues a request by this decision, from the routing stage on, with the new user part of its Request-URI.
    #[inline(never)]
    pub(crate) fn go_on_by(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        mut decision: Box<Decision>,
    ) {
        if !decision.edits_uri() {
            (handling.progress.decision, handling.progress.stage) = (Some(decision), Stage::Route);
            return self.advance(handling);
        }
        let (request, mut index) = (handling.request, Index::new());
        let bytes = decision.change_user(request, routing);
        let again = index.parse(&bytes, &self.policy.limits);
        handling.progress.decision = Some(decision);
        handling.progress.stage = Stage::Route;
        let Handling { now, server, progress, out, .. } = handling;
        let message = Message::new(&bytes, &index);
        match again.ok().and_then(|()| Request::of(message, request.arrival, request.call_hash).ok()) {
            Some(request) => {
                self.advance(&mut Handling { now: *now, request: &request, server: *server, progress, out })
            }
            // The message has become too large.
            None => self.reply(handling, Reply::refused(513)),
        }
    }

    /// Runs the only stage of a registration. A REGISTER that began as a transaction, before this server was known to
    /// be its registrar, loses the transaction: a retransmission of the REGISTER is processed again and gets an equal
    /// response.
    fn run_registration(&mut self, handling: &mut Handling<'_, '_>) {
        if let Some(server) = handling.server.take() {
            self.stack.core.transactions.abandon(handling.now, server);
        }
        match self.decider().authorize_registration(handling) {
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
                    self.stack.core.transactions.abandon(handling.now, server);
                }
            }
        }
    }

    /// Reports that the source address of a request is genuine, since its sender has proved its identity.
    pub(crate) fn confirm(&mut self, request: &Request<'_>) {
        if !request.arrival.transport.is_reliable() {
            self.effects.push(Effect::SourceVerified(request.arrival.remote));
        }
    }

    /// Asks a question and suspends the request; replies 503 if there is no room.
    fn ask(&mut self, handling: &mut Handling<'_, '_>, question: Question) {
        let request = handling.request;
        let asks = question.kind();
        match question {
            Question::Name(name) => {
                // A 100 to an unproven sender would reveal which names are cached.
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
        let (Some(subscribers), Some(sink)) = (&shared.subscribers, self.sinks.found) else { return };
        if !self.has_room_to_wait(request.arrival, request.message.bytes().len(), handling.progress.proof.in_dialog) {
            return self.reply(handling, Reply::overloaded());
        }
        let value = self.suspend(handling, asks);
        self.sinks.has_asked = true;
        let Err(error) = subscribers.request(Ticket { sink, value }, question, handling.now.mono) else {
            return self.counters().parked.one();
        };
        if self.decider().may_say(handling, LogSubject::Lookup) {
            tracing::warn!(call_id = %shown(request.call_id), %error, "cannot look up a subscriber");
        }
        if let Some(mut waiting) = self.resume(Id::from_u64(value)) {
            *handling.progress = waiting.progress.take();
        }
        self.reply(handling, Reply::overloaded());
    }
}

#[cfg(test)]
pub(crate) mod tests;
