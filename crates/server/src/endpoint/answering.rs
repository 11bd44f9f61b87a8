//! Beginning of a call of an endpoint: verdict, ports, negotiation, entry into the table of calls.

use super::Beginning;
use super::ports::Block;
use super::session::{Description, EndpointSession};
use crate::decider::Decider;
use crate::engine::{Effect, Engine, status_code};
use crate::handling::Handling;
use crate::reply::{Counted, Reply};
use crate::stage::Verdict;
use strowger_calls::{Context, Legs, LimitedTargets};
use strowger_core::b2bua::negotiation::LegState;
use strowger_core::call;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::routing::{Request, Routing};
use strowger_message::sdp::Sdp;
use strowger_message::{Message, Name};

impl Decider<'_> {
    /// Returns the verdict about a request for an endpoint of this server; `None` if the rules name none.
    pub(crate) fn endpoint_verdict(&self, handling: &Handling<'_, '_>) -> Option<Verdict> {
        let decision = handling.progress.decision.as_deref()?;
        decision.role.is_endpoint().then_some(Verdict::Answer)
    }
}

impl Engine {
    /// Answers a request for an endpoint of this server. Requests other than an INVITE are left to the user agent.
    pub(crate) fn answer_here(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        if !handling.begins_call() {
            self.doubt_unproven(handling, 0);
            return self.give_to_agent(handling);
        }
        let (now, request) = (handling.now, handling.request);
        let length = request.message.bytes().len();
        if !handling.is_proven() && !self.stack.core.transactions.has_room_for_unproven(length) {
            return self.reply(handling, Reply::overloaded());
        }
        if self.decider().has_barred_route(request) {
            let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
            return self.reply(handling, reply.because("its Record-Route is an address that its sender may not name"));
        }
        let (session, description) = match self.open_session(request) {
            Ok(opened) => opened,
            Err(reply) => return self.reply(handling, reply),
        };
        let context = match self.begin_call(handling, Legs::Anchored, &mut LimitedTargets::default()) {
            Context::Notices(context) => context,
            refused => {
                self.endpoints.ports.put_back(session.ports);
                return self.refuse_entry(handling, routing, refused);
            }
        };
        self.doubt_unproven(handling, 0);
        // Events of earlier messages are not about this INVITE.
        self.take_agent_events(now, handling.out);
        let key = self.calls.key_of(context);
        self.endpoints.beginning = Some(Beginning { context, key, session, description });
        let from = handling.out.start();
        self.give_to_agent(handling);
        self.take_agent_events(now, handling.out);
        // The user agent has refused the INVITE.
        if let Some(Beginning { session, .. }) = self.endpoints.beginning.take() {
            self.endpoints.ports.put_back(session.ports);
            let bytes = from..handling.out.bytes.len();
            let status = handling.out.bytes.get(from..).and_then(status_code).unwrap_or(500);
            let event = NoticeEvent::Exhausted { status, bytes };
            self.take_notice(now, &Notice { context, event }, handling.out);
        }
    }

    /// Takes ports for a call, and writes the own description.
    ///
    /// # Errors
    /// No port is free, or no stream of the offer suits an endpoint.
    fn open_session(&mut self, request: &Request<'_>) -> Result<(EndpointSession, Description), Reply> {
        let offer = offer_of(&request.message);
        let is_ipv4 =
            offer.and_then(offers_ipv4).unwrap_or_else(|| request.arrival.remote.ip().to_canonical().is_ipv4());
        self.balance_ports();
        let own = &self.policy.config.media.addresses;
        let fits = |place: u16| own.get(usize::from(place)).is_some_and(|own| own.public.is_ipv4() == is_ipv4);
        if !own.iter().any(|own| own.public.is_ipv4() == is_ipv4) {
            return Err(Reply::refused(488).because("no address of [media] has the IP version of the caller"));
        }
        let Some(ports) = self.endpoints.ports.take(fits) else {
            return Err(Reply::overloaded().because("no port for media is free"));
        };
        let address = own[usize::from(ports.address)].public;
        let leg = LegState::new(self.stack.entropy.u64() >> 1, address);
        let key = self.endpoints.next_session(self.shard.number, call::bucket(request.call_hash));
        let mut session = EndpointSession::new(key, ports, leg, request.call_id.to_vec());
        let described = session.describe(offer);
        self.balance_ports();
        match described {
            Ok(description) => Ok((session, description)),
            Err(refusal) => {
                self.endpoints.ports.put_back(ports);
                Err(Reply::refused(refusal.status()).because("no stream of the offer suits an endpoint"))
            }
        }
    }

    /// Asks for more media ports if few are free, or gives some of many back.
    pub(crate) fn balance_ports(&mut self) {
        let media = &self.policy.config.media;
        if !media.is_on() {
            return;
        }
        let is_ipv4 = |place: u16| media.addresses.get(usize::from(place)).is_some_and(|own| own.public.is_ipv4());
        let has_family = |wanted: bool| media.addresses.iter().any(|own| own.public.is_ipv4() == wanted);
        let is_ipv6 = |place: u16| !is_ipv4(place);
        let families: [&dyn Fn(u16) -> bool; 2] = [&is_ipv4, &is_ipv6];
        let families = match (has_family(true), has_family(false)) {
            (true, true) => &families[..],
            (true, false) => &families[..1],
            (false, _) => &families[1..],
        };
        let block = Block::of(media.calls(), self.shard.process_status.shards);
        self.endpoints.ports.prefer(self.shard.media_threads.preferred);
        if let Some(order) = self.endpoints.ports.balance(self.shard.number, block, families) {
            self.effects.push(Effect::Media { thread: None, order });
        }
    }
}

/// Returns the offer of an INVITE. The user agent refuses bodies of other types.
fn offer_of<'m>(message: &Message<'m>) -> Option<&'m [u8]> {
    let kind = message.header(Name::ContentType).unwrap_or(b"application/sdp");
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let body = message.body();
    (!body.is_empty() && kind.eq_ignore_ascii_case(b"application/sdp")).then_some(body)
}

/// Tells whether the first stream of an offer is by IPv4; `None` if it has no readable stream.
fn offers_ipv4(offer: &[u8]) -> Option<bool> {
    let connection = Sdp::parse(offer).ok()?.connection_of(0)?;
    Some(connection.address_type == b"IP4")
}
