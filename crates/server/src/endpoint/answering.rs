//! Beginning of a call of an endpoint: ports, negotiation, entry into the table of calls.

use super::session::{Description, EndpointSession};
use super::{Beginning, EndpointSound};
use crate::engine::{Engine, status_code};
use crate::handling::Handling;
use crate::media_sessions::{MediaSession, SessionPorts, is_of_family, offer_of};
use crate::refused_offer::Offered;
use crate::reply::{Counted, Reply};
use strowger_calls::{Context, Legs, LimitedTargets};
use strowger_core::b2bua::negotiation::LegState;
use strowger_core::call;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_message::Name;

impl Engine {
    /// Answers a request for an endpoint of this server. Requests other than an INVITE are left to the user agent.
    pub(crate) fn answer_here(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        if !handling.begins_call() {
            self.doubt_unproven(handling, 0);
            return self.give_to_agent(handling);
        }
        let (now, request) = (handling.now, handling.request);
        if let Some(reply) = self.refusal_of_party(handling) {
            return self.reply(handling, reply);
        }
        if request.message.has(Name::Replaces) {
            return self.reply(handling, Reply::refused(481).because("no call of the endpoint can be replaced"));
        }
        let mut sound =
            handling.progress.decision.as_deref().map(|decision| decision.sound.clone()).unwrap_or_default();
        sound.begin(now, || self.stack.entropy.u64());
        let (mut session, description) = match self.open_session(request, sound) {
            Ok(opened) => opened,
            Err(reply) => return self.reply(handling, reply),
        };
        let context = match self.begin_call(handling, Legs::Anchored, &mut LimitedTargets::default()) {
            Context::Notices(context) => context,
            refused => {
                self.close_session(session.media.close());
                return self.refuse_entry(handling, routing, refused);
            }
        };
        self.doubt_unproven(handling, 0);
        // Events of earlier messages are not about this INVITE.
        self.take_agent_events(now, handling.out);
        let key = self.calls.key_of(context);
        session.media.call = key;
        if !handling.is_proven() {
            session.doubt();
        }
        let recording = session.recording();
        self.anchored.endpoints.beginning = Some(Beginning { context, key, session, description });
        let from = handling.out.start();
        self.give_to_agent(handling);
        self.take_agent_events(now, handling.out);
        // The user agent has refused the INVITE.
        if let Some(Beginning { mut session, .. }) = self.anchored.endpoints.beginning.take() {
            self.close_session(session.media.close());
            let bytes = from..handling.out.bytes.len();
            let status = handling.out.bytes.get(from..).and_then(status_code).unwrap_or(500);
            let event = NoticeEvent::Exhausted { status, bytes };
            self.take_notice(now, &Notice { context, event }, handling.out);
        } else if let Some(file) = recording {
            tracing::info!(call_id = %shown(request.call_id), file = %file.display(), "call recorded");
        }
    }

    /// Returns the refusal of an INVITE whose caller this server cannot have a dialog with; `None` if it can.
    pub(crate) fn refusal_of_party(&self, handling: &Handling<'_, '_>) -> Option<Reply> {
        let request = handling.request;
        let length = request.message.bytes().len();
        if !handling.is_proven() && !self.stack.core.transactions.has_room_for_unproven(length) {
            return Some(Reply::overloaded());
        }
        let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
        let reply = reply.because("its Record-Route is an address that its sender may not name");
        self.decider().has_barred_route(request).then_some(reply)
    }

    /// Takes ports for a call, and writes the own description.
    ///
    /// # Errors
    /// No port is free, or no stream of the offer suits an endpoint.
    fn open_session(
        &mut self,
        request: &Request<'_>,
        sound: EndpointSound,
    ) -> Result<(EndpointSession, Description), Reply> {
        let is_ipv4 = self.media_family(request)?;
        self.balance_ports();
        let media = &self.policy.config.media;
        let Some(pair) = self.anchored.media.ports.take(|place| is_of_family(media, place, is_ipv4)) else {
            return Err(Reply::overloaded().because("no port for media is free"));
        };
        let address = media.addresses[usize::from(pair.address)].public;
        let leg = LegState::new(self.stack.entropy.u64() >> 1, address);
        let key = self.anchored.media.next_key(self.shard.number, call::bucket(request.call_hash));
        let ports = SessionPorts { near: vec![pair], far: Vec::new() };
        let mut session = EndpointSession::new(MediaSession::new(key, ports, request.call_id.to_vec()), leg, sound);
        let described = session.describe(offer_of(&request.message));
        self.balance_ports();
        match described {
            Ok(description) => Ok((session, description)),
            Err(refusal) => {
                self.close_session(session.media.close());
                Err(Reply::refused(refusal.status()).because(Offered::Endpoint.reason(offer_of(&request.message))))
            }
        }
    }
}
