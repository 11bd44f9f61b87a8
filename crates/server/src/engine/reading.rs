//! Reading of messages: responses go to the roles of their transactions, requests to their first stage.

use super::{Effect, Engine};
use crate::handling::{Handling, Progress};
use crate::reply::{Reply, Why};
use crate::stage::Stage;
use crate::waiting::line_of;
use std::net::SocketAddr;
use strowger_core::routing::Request;
use strowger_core::stack::{Incoming, Received, Role};
use strowger_core::transaction::ServerId;
use strowger_core::user_agent::LOOPED_HOST;
use strowger_core::{Arrival, Flow, Now, Outbox};
use strowger_message::{Host, Index, Limits, Message, Method, Name};

impl Engine {
    /// Reads a message and hands it on: responses to the roles of their transactions, requests to their first stage
    /// ([`Engine::advance`]).
    pub(crate) fn read(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.decider().is_shut_out(now, arrival, bytes) {
            return;
        }
        let mut reader = self.stack.core.lend_reader();
        match reader.read(arrival, bytes, &self.stack.core.reading) {
            Received::Request(mut request) => {
                self.messages().requests.one(request.method);
                let (dialogs, named) = (&self.shared.bridged_dialogs, (request.call_hash, request.call_id));
                // The index shows whether there is a Replaces, so that the bytes are not searched once more.
                request.call_hash = match request.message.has(Name::Replaces) {
                    true => dialogs.hash_of_message(now.mono, named, bytes),
                    false => dialogs.placed_hash(request.call_hash, request.call_id),
                };
                if !has_looped_via(&request) {
                    self.enter(now, &request, out);
                }
            }
            Received::Response(response) => {
                self.messages().received.one(response.status().unwrap_or_default());
                self.response(now, arrival, &response, out);
            }
            Received::Unread(unread) => self.decider().refuse_unread(now, arrival, &unread, out),
        }
        self.stack.core.return_reader(reader);
    }

    /// Hands a request to its transaction, or holds it behind suspended requests of its call.
    pub(crate) fn enter(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) {
        if !self.waiting.is_empty() {
            let line = line_of(request, self.shared.call_secret());
            if self.waiting.holds(line) {
                // Only new requests wait. An ACK must end the retransmissions of its failure at once, and a
                // retransmission gets the last response of its transaction.
                if !self.stack.core.transactions.absorb(now, &request.message, out) {
                    self.hold(now, line, request, out);
                }
                return;
            }
        }
        if !request.arrival.is_loopback() && self.decider().is_scanner(now, request) {
            return;
        }
        if let (true, Some(flow)) = (request.mandatory.via.alias, request.arrival.flow) {
            self.alias(request, flow);
        }
        self.begin(now, request, &mut Progress::new(now), out);
    }

    /// Gives a request its transaction and its first stage. A resumed request continues at its stage.
    pub(super) fn begin(&mut self, now: Now, request: &Request<'_>, progress: &mut Progress, out: &mut Outbox) {
        if request.arrival.is_loopback() {
            self.begin_looped(now, request, progress, out);
            return;
        }
        let mut handling = Handling { now, request, server: None, progress, out };
        // Registrations are answered without a transaction: retransmissions get equal answers.
        if request.method == Method::Register && self.decider().is_for_registrar(now, request) {
            if self.is_filtered(&mut handling) {
                return;
            }
            if self.shard.process_status.draining {
                return self.reply(&mut handling, Reply::shutting_down());
            }
            if !self.has_room_to_wait(request.arrival, request.message.bytes().len(), false) {
                return self.reply(&mut handling, Reply::overloaded());
            }
            handling.progress.stage = Stage::Register;
            return self.advance(&mut handling);
        }
        match self.stack.core.place(now, request, handling.out) {
            Incoming::Request(id) => self.begin_new(&mut handling, id),
            Incoming::Absorbed | Incoming::Response { .. } | Incoming::Unmatched => (),
            Incoming::Ack if self.is_of_agent(request) => {
                self.confirm(request);
                self.stack.with_agent(now, handling.out, |agent, round| agent.take_ack(round, request));
            }
            // Its dialog is over.
            Incoming::Ack if self.stack.agent.has_written(request.to_tag) => (),
            Incoming::Ack => {
                handling.progress.stage = Stage::Acknowledge;
                self.advance(&mut handling);
            }
            Incoming::Cancel { cancel, invite } => {
                let user = invite.map(|invite| self.stack.core.transactions.user(invite).role());
                if let Some(Role::UserAgent(_)) = user {
                    return self.stack.with_agent(now, handling.out, |agent, round| {
                        agent.take_cancel(round, request, cancel, invite);
                    });
                }
                handling.server = Some(cancel);
                self.cancel(&mut handling, invite);
            }
            Incoming::Full => match self.admit_beyond_bound(&handling) {
                Some(id) => self.begin_new(&mut handling, id),
                None => self.reply(&mut handling, Reply::overloaded()),
            },
        }
    }

    fn begin_new(&mut self, handling: &mut Handling<'_, '_>, id: ServerId) {
        let request = handling.request;
        let reply = self.policy.reply_target(&request.mandatory.via, request.arrival);
        if reply != request.arrival.reply() {
            self.stack.core.transactions.set_reply(id, reply);
        }
        handling.server = Some(id);
        if self.is_filtered(handling) {
            return;
        }
        if self.is_of_agent(request) {
            self.confirm(request);
            return self.give_to_agent(handling);
        }
        // Its dialog is over. The user part of its Request-URI may be that of a user, who has no part in it.
        if self.stack.agent.has_written(request.to_tag) {
            return self.reply(handling, Reply::new(481));
        }
        if self.shard.process_status.draining && request.to_tag.is_empty() && !self.decider().is_emergency_of(handling)
        {
            return self.reply(handling, Reply::shutting_down());
        }
        self.advance(handling);
    }

    /// Tells whether a request is of a dialog of the user agent. The tag of the agent proves the sender, since only the
    /// peer of the dialog knows it.
    pub(super) fn is_of_agent(&self, request: &Request<'_>) -> bool {
        let agent = &self.stack.agent;
        agent.calls() > 0 && !request.to_tag.is_empty() && agent.owns(request.call_id, request.to_tag, request.from_tag)
    }

    /// Gives a request with its server transaction to the user agent, with a Contact that reaches its sender.
    pub(crate) fn give_to_agent(&mut self, handling: &mut Handling<'_, '_>) {
        let (now, request) = (handling.now, handling.request);
        let Some(server) = handling.server else { return };
        let Some(bytes) = self.decider().with_reachable_contact(request) else {
            return self.stack.with_agent(now, handling.out, |agent, round| agent.take_request(round, request, server));
        };
        let mut index = Index::new();
        let parsed = index.parse(&bytes, &Limits::UNLIMITED);
        let message = Message::new(&bytes, &index);
        match parsed.ok().and_then(|()| Request::of(message, request.arrival, request.call_hash).ok()) {
            Some(request) => {
                self.stack.with_agent(now, handling.out, |agent, round| agent.take_request(round, &request, server));
            }
            None => self.reply(handling, Reply::refused(400)),
        }
    }

    /// Answers or drops a request for which the condition of a filter holds. Returns whether there is such a filter.
    fn is_filtered(&mut self, handling: &mut Handling<'_, '_>) -> bool {
        let Some((place, answer)) = self.decider().filter(handling) else { return false };
        match answer {
            Some(status) => self.reply(handling, Reply { why: Why::Filter(place), ..Reply::refused(status) }),
            None => {
                self.counters().refused.one();
                if let Some(server) = handling.server {
                    self.stack.core.transactions.abandon(handling.now, server);
                }
            }
        }
        true
    }

    /// Admits a request from a reserve if it proves its dialog or is an emergency call. The proof costs a keyed hash,
    /// and is checked only when a bound refuses.
    #[cold]
    fn admit_beyond_bound(&mut self, handling: &Handling<'_, '_>) -> Option<ServerId> {
        let (now, request) = (handling.now, handling.request);
        let (message, arrival, call_hash) = (&request.message, request.arrival, request.call_hash);
        let admitted = if self.is_of_agent(request) || self.decider().proves_dialog(now, request) {
            self.stack.core.transactions.admit_within_dialog(now, message, arrival, call_hash)?
        } else if request.method != Method::Cancel && self.decider().is_emergency_of(handling) {
            let is_known = self.decider().is_known_source(now, request);
            self.stack.core.transactions.admit_emergency(now, message, arrival, call_hash, is_known)?
        } else {
            return None;
        };
        self.counters().reserved.one();
        Some(admitted)
    }

    /// Registers the connection for later requests to its sender (RFC 5923). Of the sender's claims only a port of its
    /// own address is believed, so no peer gets messages for another machine. Over TLS the Via of the sender may have a
    /// name: the certificate is checked when a request is to use the connection.
    fn alias(&mut self, request: &Request<'_>, flow: Flow) {
        let (top, arrival) = (&request.mandatory.via, request.arrival);
        let own = match top.host.ip() {
            Some(ip) => ip.to_canonical() == arrival.remote.ip().to_canonical(),
            None => arrival.transport.is_secure(),
        };
        let port = top.port.unwrap_or_else(|| arrival.transport.default_port());
        if own && port != 0 {
            let (transport, address) = (arrival.transport, SocketAddr::new(arrival.remote.ip(), port));
            self.effects.push(Effect::Alias { flow, transport, address });
        }
    }
}

/// Tells whether a request from the network has the Via of the user agent for requests to this server: it would be taken for a copy of such a
/// request, or for its CANCEL.
fn has_looped_via(request: &Request<'_>) -> bool {
    matches!(request.mandatory.via.host, Host::Name(name) if name.eq_ignore_ascii_case(LOOPED_HOST))
}
