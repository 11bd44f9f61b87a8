//! Messages of this server to itself: the far INVITEs of the user agent, their CANCELs and ACKs, and the responses of the proxy.
//!
//! They are handled one after another, never within one another: all reports and events that one causes come before the next. Each is
//! caused by a message of a peer, a timer or an order. The INVITEs of a call are bounded ([`crate::far_leg`]), and each has a bounded number of
//! responses, so a round ends.

use super::Engine;
use crate::bridge::is_translated;
use crate::handling::{Handling, Progress};
use strowger_core::routing::Request;
use strowger_core::slots::Id;
use strowger_core::stack::Incoming;
use strowger_core::transaction::{ClientId, TransactionUser};
use strowger_core::{Arrival, Now, Outbox};
use strowger_message::{Index, Limits, Message, Method};

impl Engine {
    /// Handles the next message of this server to itself. Returns false if there is none.
    pub(crate) fn take_looped(&mut self, now: Now, out: &mut Outbox) -> bool {
        let (mut bytes, mut index) = std::mem::take(&mut self.buffers.looped);
        let token = out.take_looped(&mut bytes);
        if let Some(token) = token {
            let is_read = index.parse(&bytes, &Limits::UNLIMITED).is_ok();
            let message = Message::new(&bytes, &index);
            if is_read && !message.is_request() {
                let arrival = self.anchored.far_legs.source();
                let incoming = self.stack.core.transactions.looped_response(now, &message, out);
                self.give_response(now, &arrival, &message, incoming, out);
            } else if !(is_read && self.looped_request(now, message, out)) {
                // The user agent gets no other response.
                self.stack.core.failed(now, token, out);
                self.run_events(now, "refused by this server", out);
            }
        }
        self.buffers.looped = (bytes, index);
        token.is_some()
    }

    /// Handles a request of the user agent. Returns false if it gets no response.
    fn looped_request(&mut self, now: Now, message: Message<'_>, out: &mut Outbox) -> bool {
        let Ok(call_id) = message.call_id().map(|call_id| call_id.text) else { return false };
        let (arrival, call_hash) = (self.anchored.far_legs.arrival(call_id), self.shared.call_hash(call_id));
        let Ok(request) = Request::of(message, &arrival, call_hash) else { return false };
        match request.method {
            Method::Invite => self.far_invite(now, &request, out),
            Method::Ack | Method::Cancel => {
                // It may have to wait behind its INVITE.
                self.enter(now, &request, out);
                true
            }
            // Requests within a dialog go to its next hop.
            _ => false,
        }
    }

    /// Takes a far INVITE through the stages from routing on. Returns false if it is of no far leg, or there is no room.
    fn far_invite(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) -> bool {
        let (mut bytes, mut index) = (Vec::new(), Index::new());
        let Some(mut progress) = self.anchored.far_legs.begin(now, request, &mut bytes) else { return false };
        let parsed = index.parse(&bytes, &Limits::UNLIMITED).ok();
        let bounded =
            parsed.and_then(|()| Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash).ok());
        let is_begun = bounded.is_some_and(|request| self.begin_looped(now, &request, &mut progress, out));
        if !is_begun {
            self.anchored.far_legs.fail(request.call_id);
        }
        is_begun
    }

    /// Gives a request of the user agent its server transaction, and carries it out. An INVITE continues at the stage of its progress. Returns
    /// false if there is no room.
    pub(super) fn begin_looped(
        &mut self,
        now: Now,
        request: &Request<'_>,
        progress: &mut Progress,
        out: &mut Outbox,
    ) -> bool {
        let mut handling = Handling { now, request, server: None, progress, out };
        let server = match self.stack.core.place(now, request, handling.out) {
            Incoming::Request(id) => Some(id),
            // Its near INVITE is an admitted request.
            Incoming::Full => {
                let transactions = &mut self.stack.core.transactions;
                transactions.admit_within_dialog(now, &request.message, request.arrival, request.call_hash)
            }
            Incoming::Cancel { cancel, invite } => {
                handling.server = Some(cancel);
                self.cancel(&mut handling, invite);
                return true;
            }
            Incoming::Ack | Incoming::Absorbed | Incoming::Response { .. } | Incoming::Unmatched => return true,
        };
        handling.server = server;
        if server.is_some() {
            self.advance(&mut handling);
        }
        server.is_some()
    }

    /// Tells whether the request of this response context is one of the user agent.
    pub(super) fn is_of_far_leg(&self, context: Id) -> bool {
        let server = self.stack.proxy.server_of(context);
        let target = server.and_then(|server| self.stack.core.transactions.target(server));
        target.is_some_and(|target| target.is_loopback())
    }

    /// Hands a response of a callee to the proxy, which passes it to the user agent. Its Contact becomes one that the requests of the user agent
    /// reach; a dialog that leads to an address which the callee may not name is refused.
    pub(super) fn far_response(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'_>,
        (context, id): (Id, ClientId),
        out: &mut Outbox,
    ) {
        let Some(sender) = self.stack.proxy.sender_of(context, id, message, arrival, &self.stack.core.transactions)
        else {
            return;
        };
        let is_hidden = is_translated(message, arrival.remote.ip().to_canonical());
        self.anchored.far_legs.set_source(sender.source, is_hidden, sender.is_registered);
        let sent = self.stack.core.transactions.client_target(id);
        self.anchored.far_legs.set_peer_name(sent.and_then(|sent| sent.name));
        self.calls.set_responded(Some(arrival.remote));
        let status = message.status().unwrap_or_default();
        if status >= 300 {
            return self.pass_response(now, arrival, message, (context, id), out);
        }
        if self.decider().has_barred_hop(message, arrival, sender.scope) {
            self.counters().answers_dropped.one();
            if status >= 200 {
                let round = &mut self.stack.core.round(now, out);
                self.stack.proxy.refuse_answer(round, context, message, arrival, id);
            }
            return;
        }
        let Some(bytes) = self.decider().with_sender_as_contact(message, &sender) else {
            return self.pass_response(now, arrival, message, (context, id), out);
        };
        let mut index = Index::new();
        if index.parse(&bytes, &Limits::UNLIMITED).is_ok() {
            self.pass_response(now, arrival, &Message::new(&bytes, &index), (context, id), out);
        }
    }

    /// Gives a response to the user agent, with a Contact that reaches its sender.
    pub(crate) fn agent_response(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'_>,
        (id, tu, after_final): (ClientId, TransactionUser, bool),
        out: &mut Outbox,
    ) {
        self.stack.agent.note_peer_name(tu, id, self.anchored.far_legs.peer_name());
        let sent = self.stack.core.transactions.client_target(id).filter(|_| self.stack.agent.is_direct(tu, id));
        let bytes = sent.and_then(|sent| self.decider().with_reachable_answer(message, arrival, sent));
        let mut index = Index::new();
        if let Some(bytes) = &bytes
            && index.parse(bytes, &Limits::UNLIMITED).is_ok()
        {
            // The Contact of the sender does not show any more that it is behind NAT.
            let is_hidden = is_translated(message, arrival.remote.ip().to_canonical());
            self.anchored.far_legs.set_source(*arrival, is_hidden, false);
            let message = Message::new(bytes, &index);
            return self.stack.with_agent(now, out, |agent, round| {
                agent.take_response(round, arrival, &message, id, tu, after_final);
            });
        }
        self.stack.with_agent(now, out, |agent, round| {
            agent.take_response(round, arrival, message, id, tu, after_final);
        });
    }
}

#[cfg(test)]
mod tests;
