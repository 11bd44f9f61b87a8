//! Reading of messages: responses go to their transactions, requests to their first stage.

use super::{Effect, Engine};
use crate::decider::Decider;
use crate::handling::{Handling, Progress};
use crate::reply::Reply;
use crate::stage::Stage;
use std::net::SocketAddr;
use strowger_core::routing::Request;
use strowger_core::transaction::{Incoming, ServerId};
use strowger_core::{Arrival, Flow, Now, Outbox, call, via};
use strowger_message::header::Via;
use strowger_message::{Error, Form, Index, Message, Method, Name, Reason};

impl Engine {
    /// Parses a message and hands it on: responses to their transactions, requests to their first stage
    /// ([`Engine::advance`]).
    pub(crate) fn read(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.decider().is_shut_out(now, arrival, bytes) {
            return;
        }
        let mut index = std::mem::take(&mut self.buffers.index);
        match index.parse(bytes, &self.policy.limits) {
            Ok(()) if index.form() == Form::Canonical => self.sort(now, arrival, bytes, &mut index, out),
            Ok(()) => self.rewrite(now, arrival, bytes, &mut index, out),
            Err(error) => self.decider().refuse_unread(now, arrival, bytes, &index, error, out),
        }
        self.buffers.index = index;
    }

    /// Rewrites a loosely written message in canonical form, or refuses an ambiguous one. Otherwise the next hop might
    /// read another message than this server does.
    #[cold]
    fn rewrite(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        if index.form() == Form::Ambiguous {
            return self.decider().refuse_unread(now, arrival, bytes, index, Error::new(Reason::LineEnd, 0), out);
        }
        let mut canonical = std::mem::take(&mut self.buffers.canonical);
        canonical.clear();
        strowger_message::canonical::write(&Message::new(bytes, index), &mut canonical);
        match index.parse(&canonical, &self.policy.limits) {
            Ok(()) => self.sort(now, arrival, &canonical, index, out),
            Err(error) => self.decider().refuse_unread(now, arrival, &canonical, index, error, out),
        }
        self.buffers.canonical = canonical;
    }

    fn sort(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        let message = Message::new(bytes, index);
        if let Some(method) = message.method() {
            self.messages().requests.one(method);
            self.complete(now, arrival, bytes, index, out);
        } else if index.form() == Form::Canonical {
            self.messages().received.one(message.status().unwrap_or_default());
            self.response(now, arrival, &message, out);
        } else {
            self.counters().unreadable.one();
        }
    }

    /// Completes the top Via with `received` and `rport`, so that all later parts find the source in the request.
    fn complete(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        let message = Message::new(bytes, index);
        let mut completed = std::mem::take(&mut self.buffers.completed);
        completed.clear();
        let force = self.policy.config.nat.force_rport;
        let edit = &mut self.buffers.edit;
        let top = message.via();
        let changed = top.is_ok_and(|top| via::complete(&message, &top, &arrival.remote, force, edit, &mut completed));
        if changed {
            index.moved_by_value(Name::Via, completed.len() as isize - message.bytes().len() as isize);
            #[cfg(debug_assertions)]
            self.decider().is_as_read(index, &completed);
            self.enter(now, arrival, &Message::new(&completed, index), out);
        } else {
            self.enter_with_top(now, arrival, &message, top, out);
        }
        self.buffers.completed = completed;
    }

    /// Hands a request with a completed Via to its transaction, or holds it behind suspended requests of its call.
    pub(crate) fn enter(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        self.enter_with_top(now, arrival, message, message.via(), out);
    }

    fn enter_with_top<'a>(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'a>,
        top: Result<Via<'a>, Error>,
        out: &mut Outbox,
    ) {
        let call_hash = message.header(Name::CallId).map_or(0, |id| call::hash(self.shared.call_secret, id));
        let request = match Request::with_top(*message, top, arrival, call_hash) {
            Ok(request) => request,
            Err(error) => return self.decider().refuse(now, arrival, message, error, out),
        };
        if !self.waiting.is_empty() {
            let line = self.decider().line_of(&request);
            if self.waiting.holds(line) {
                // Only new requests wait: an ACK ends the retransmissions of its failure at once, and a retransmission
                // gets the last response of its transaction.
                if !self.stack.transactions.absorb(now, message, out) {
                    self.hold(now, line, &request, out);
                }
                return;
            }
        }
        if request.mandatory.from.lacks_quotes() || request.mandatory.to.lacks_quotes() {
            return self.quote(now, &request, out);
        }
        self.dispatch(now, &request, out);
    }

    /// Adds missing quotes around display names. A proxy does not use them, but forwards them only in correct form.
    #[cold]
    fn quote(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) {
        let (mut bytes, mut index) = (Vec::new(), Index::new());
        request.quote_names(&mut bytes);
        match index.parse(&bytes, &self.policy.limits) {
            Ok(()) => {
                if let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash) {
                    self.dispatch(now, &request, out);
                }
            }
            Err(error) => self.decider().refuse(now, request.arrival, &request.message, error, out),
        }
    }

    fn dispatch(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) {
        if self.decider().is_scanner(now, request) {
            return;
        }
        if let (true, Some(flow)) = (request.mandatory.via.alias, request.arrival.flow) {
            self.alias(request, flow);
        }
        self.begin(now, request, &mut Progress::new(now), out);
    }

    /// Gives a request its transaction and its first stage. A resumed request continues at its stage.
    pub(super) fn begin(&mut self, now: Now, request: &Request<'_>, progress: &mut Progress, out: &mut Outbox) {
        let mut handling = Handling { now, request, server: None, progress, out };
        // Registrations are answered without a transaction: equal requests get equal answers.
        if request.method == Method::Register && self.decider().is_for_registrar(now, request) {
            if self.is_filtered(&mut handling) {
                return;
            }
            if self.shard.circumstances.draining {
                return self.reply(&mut handling, Reply::shutting_down());
            }
            if !self.has_room_to_wait(request.arrival, request.message.bytes().len(), false) {
                return self.reply(&mut handling, Reply::overloaded());
            }
            handling.progress.stage = Stage::Register;
            return self.advance(&mut handling);
        }
        match self.stack.transactions.request(now, &request.message, request.arrival, request.call_hash, handling.out) {
            Incoming::New(id) => self.begin_new(&mut handling, id),
            Incoming::Absorbed => (),
            Incoming::Ack => {
                handling.progress.stage = Stage::Acknowledge;
                self.advance(&mut handling);
            }
            Incoming::Cancel { cancel, invite } => {
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
        let reply = self.decider().reply_target(&request.mandatory.via, request.arrival);
        if reply != request.arrival.reply() {
            self.stack.transactions.set_reply(id, reply);
        }
        handling.server = Some(id);
        if self.is_filtered(handling) {
            return;
        }
        if self.shard.circumstances.draining && request.to_tag.is_empty() && !self.decider().is_emergency_of(handling) {
            return self.reply(handling, Reply::shutting_down());
        }
        self.advance(handling);
    }

    /// Admits a request from a reserve if it proves its dialog or is an emergency call. The proof costs a keyed hash,
    /// and is checked only when a bound refuses.
    #[cold]
    fn admit_beyond_bound(&mut self, handling: &Handling<'_, '_>) -> Option<ServerId> {
        let (now, request) = (handling.now, handling.request);
        let (message, arrival, call_hash) = (&request.message, request.arrival, request.call_hash);
        let admitted = if self.decider().proves_dialog(now, request) {
            self.stack.transactions.admit_within_dialog(now, message, arrival, call_hash)?
        } else if request.method != Method::Cancel && self.decider().is_emergency_of(handling) {
            let is_known = self.decider().is_known_source(now, request);
            self.stack.transactions.admit_emergency(now, message, arrival, call_hash, is_known)?
        } else {
            return None;
        };
        self.counters().reserved.one();
        Some(admitted)
    }

    /// Registers the connection for later requests to its sender (RFC 5923). The sender is believed only about a port
    /// of its own address, so no peer gets messages for another machine. By TLS its Via may have a name: the
    /// certificate is checked when a request is to use the connection.
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

impl Decider<'_> {
    /// Asserts that the moved index equals that of a second parse.
    #[cfg(debug_assertions)]
    fn is_as_read(&self, index: &Index, bytes: &[u8]) {
        let mut again = Index::new();
        let limits = strowger_message::Limits { message: usize::MAX, ..self.policy.limits };
        // The second parse may refuse the header field: it may now exceed the length up to which values are counted.
        if again.parse(bytes, &limits).is_ok() {
            assert_eq!(*index, again);
        }
    }

    /// Tells whether a request may use the reserve: it ends, renews or serves a dialog that this server admitted, as
    /// its route token, its seal or the table of calls shows.
    pub(crate) fn proves_dialog(&self, now: Now, request: &Request<'_>) -> bool {
        let is_reserved =
            matches!(request.method, Method::Bye | Method::Prack | Method::Update | Method::Notify | Method::Invite);
        is_reserved
            && !request.to_tag.is_empty()
            && (self.is_within_dialog(now, request, &self.policy.router.route(now, request))
                || self.calls.is_of_tracked_dialog(request))
    }
}
