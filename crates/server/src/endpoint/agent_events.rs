//! Events of the user agent, and orders of the table of calls to it.

use super::session::{CallerSource, Description};
use super::{Beginning, EndpointCall};
use crate::engine::{Engine, status_code};
use crate::media_sessions::{Hangup, ORDERED};
use std::net::IpAddr;
use strowger_calls::OwnRequest;
use strowger_calls::cdr_fields::reason;
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::routing::contact_repair::is_first_hop;
use strowger_core::user_agent::{CallKey, Ending, Event, RequestKey, Span, auto_answer};
use strowger_core::{Now, Outbox};
use strowger_message::{Index, Limits, Message, Method};

/// End of a sound: normal clearing, which needs no Reason.
pub(crate) const PLAYED: Hangup = Hangup { reason: b"", cause: 16 };

/// End of a recording whose file cannot be written: temporary failure.
pub(crate) const UNRECORDED: Hangup =
    Hangup { reason: b"Reason: Q.850;cause=41;text=\"recording failed\"\r\n", cause: 41 };

/// End after an ACK without an answer to the own offer: normal, unspecified.
const NO_ANSWER: Hangup = Hangup { reason: b"Reason: Q.850;cause=31;text=\"no common codec\"\r\n", cause: 31 };

/// Events of the user agent.
impl Engine {
    /// Handles the events of the user agent since the last call. Returns whether there were any.
    pub(crate) fn take_agent_events(&mut self, now: Now, out: &mut Outbox) -> bool {
        let mut is_any = false;
        while let Some(event) = self.stack.agent.event() {
            is_any = true;
            self.on_agent_event(now, &event, out);
        }
        is_any
    }

    fn on_agent_event(&mut self, now: Now, event: &Event, out: &mut Outbox) {
        if self.take_bridged_event(now, event, out) {
            return;
        }
        self.handle_agent_event(now, event, out);
        if let Some(key) = event.call().and_then(|call| self.anchored.endpoints.calls.get(&call)?.key) {
            self.calls.has_changed(key);
        }
    }

    fn handle_agent_event(&mut self, now: Now, event: &Event, out: &mut Outbox) {
        match *event {
            Event::Invited { call, .. } => self.invited(now, call, out),
            Event::Offered { call, offer, update } => self.offered(now, call, (offer, update), out),
            Event::Confirmed { call, body } => self.confirmed(now, call, body, out),
            Event::Ended { call, by } => self.ended(now, call, by, out),
            Event::Reply { request, status, .. } => self.question_answered(request, status),
            Event::Request { request, method, .. } => self.stack.with_agent(now, out, |agent, round| {
                let own = &agent.settings().capabilities;
                if !own.allows(method.text()) {
                    let allow = [&b"Allow: "[..], &own.allow[..], b"\r\n"].concat();
                    agent.respond(round, request, 405, &allow, b"");
                } else if !auto_answer(agent, round, event) {
                    agent.respond(round, request, 501, b"", b"");
                }
            }),
            Event::Ending { call, .. } => self.close_media(call),
            // A refresh of the session, which the user agent has answered or made.
            Event::Refreshed { .. } | Event::Changed { .. } | Event::Unchanged { .. } | Event::Withdrawn { .. } => (),
            // Requests go to the source of the INVITE.
            Event::Unresolved { .. } => (),
            // An endpoint rings nowhere and makes no call; the bridge takes the events of the calls that it makes.
            Event::Acknowledged { .. }
            | Event::Progress { .. }
            | Event::Answered { .. }
            | Event::Failed { .. }
            | Event::Redirected { .. }
            | Event::Registered { .. }
            | Event::RegistrationFailed { .. }
            | Event::Unregistered { .. } => (),
        }
    }

    /// Answers an INVITE with 200, or joins it with a far call.
    fn invited(&mut self, now: Now, call: CallKey, out: &mut Outbox) {
        if self.bridge_invited(now, call, out) {
            return;
        }
        let Some(beginning) = self.anchored.endpoints.beginning.take() else {
            // No INVITE begins a call here without ports.
            return self.stack.with_agent(now, out, |agent, round| agent.reject(round, call, 500));
        };
        let Beginning { context, key, mut session, description: Description { text, streams } } = beginning;
        if let Some(streams) = streams {
            let order = session.set(&self.policy, streams, self.caller_source());
            self.effects.extend(order);
        }
        let from = out.start();
        self.stack.with_agent(now, out, |agent, round| agent.answer(round, call, &text));
        let (bytes, media) = (from..out.bytes.len(), session.needs_caller().then_some(session.media.key));
        let entry = EndpointCall { context, key, bye: None, question: None, is_ending: false, is_kept: false, session };
        self.anchored.endpoints.insert(call, entry);
        media.into_iter().for_each(|media| self.anchored.check_media_soon(now, media));
        let event = NoticeEvent::Answered { status: 200, first: true, bytes, after: None };
        self.take_notice(now, &Notice { context, event }, out);
    }

    /// Answers a re-INVITE or an UPDATE: hold, resumption, another address or codec.
    fn offered(&mut self, now: Now, call: CallKey, (offer, is_update): (Span, bool), out: &mut Outbox) {
        let (offer, source) = (self.stack.agent.text(offer).to_vec(), self.caller_source());
        let offer = (!offer.is_empty()).then_some(&offer[..]);
        let described = match self.anchored.endpoints.calls.get_mut(&call).filter(|entry| !entry.is_ending) {
            Some(entry) => match entry.session.describe(offer) {
                Ok(Description { text, streams }) => {
                    let order = streams.and_then(|streams| entry.session.set(&self.policy, streams, source));
                    self.effects.extend(order);
                    Ok(text)
                }
                Err(refusal) => Err(refusal.status()),
            },
            None => Err(481),
        };
        match described {
            Ok(text) => {
                self.stack.with_agent(now, out, |agent, round| match is_update {
                    true => agent.answer_update(round, call, &text),
                    false => agent.answer(round, call, &text),
                });
            }
            Err(status) => self.stack.with_agent(now, out, |agent, round| match is_update {
                true => agent.reject_update(round, call, status),
                false => agent.reject(round, call, status),
            }),
        }
    }

    /// Handles the ACK of a 200, which has the answer if the 200 had the offer.
    fn confirmed(&mut self, now: Now, call: CallKey, body: Span, out: &mut Outbox) {
        let (answer, source) = (self.stack.agent.text(body).to_vec(), self.caller_source());
        let is_up = |entry: &&mut EndpointCall| !entry.is_ending;
        let Some(entry) = self.anchored.endpoints.calls.get_mut(&call).filter(is_up) else { return };
        let was_unproven = entry.session.prove();
        if !entry.session.has_offered() {
            if was_unproven {
                self.effects.extend(entry.session.order(&self.policy));
            }
            return;
        }
        match entry.session.answered(&answer) {
            Some(streams) => self.effects.extend(entry.session.set(&self.policy, streams, source)),
            None => self.end_endpoint(now, call, &NO_ANSWER, out),
        }
    }

    /// Handles the end of a dialog.
    fn ended(&mut self, now: Now, call: CallKey, by: Ending, out: &mut Outbox) {
        let message = self.stack.agent.message();
        let (status, cause) = (status_code(message), cause_of_bye(message));
        let Some(EndpointCall { context, bye, is_ending, mut session, .. }) = self.anchored.endpoints.remove(call)
        else {
            return;
        };
        self.close_session(session.media.close());
        match bye {
            // Without a response the BYE has timed out.
            Some(bye) if by == Ending::Local => self.report_own(bye, status.unwrap_or(408)),
            // The caller has ended the dialog as well.
            Some(bye) => self.report_own(bye, 200),
            None if is_ending => (),
            None => {
                let by = if by == Ending::Remote { Party::Caller } else { Party::Callee };
                let event = NoticeEvent::HungUp { by, cause };
                self.take_notice(now, &Notice { context, event }, out);
            }
        }
    }

    /// Ends the media of a call at its BYE, not at the response (RFC 3261 section 15.1.1).
    fn close_media(&mut self, call: CallKey) {
        if let Some(entry) = self.anchored.endpoints.calls.get_mut(&call) {
            let close = entry.session.media.close();
            self.close_session(close);
        }
    }

    /// Handles the final response to an OPTIONS that the table of calls has ordered.
    fn question_answered(&mut self, request: RequestKey, status: u16) {
        let context = self.take_bridged_question(request).or_else(|| {
            let is_asked = |entry: &&mut EndpointCall| entry.question.is_some_and(|(asked, _)| asked == request);
            let entry = self.anchored.endpoints.calls.values_mut().find(is_asked)?;
            entry.question.take().map(|(_, context)| context)
        });
        if let Some(context) = context {
            self.report_own(context, status);
        }
    }

    /// Returns the source of the message of the last event.
    fn caller_source(&self) -> Option<CallerSource> {
        let address = self.stack.agent.arrival()?.remote.ip().to_canonical();
        Some(CallerSource { address, is_translated: self.nat_source().is_some() })
    }

    /// Returns the source of the message of the last event if its sender is behind NAT: the sender itself wrote the only
    /// Via of a request, or the Contact of a response to a far INVITE, and with another address.
    pub(crate) fn nat_source(&self) -> Option<IpAddr> {
        let agent = &self.stack.agent;
        let source = agent.arrival()?.remote.ip().to_canonical();
        let mut index = Index::new();
        index.parse(agent.message(), &Limits::UNLIMITED).ok()?;
        let message = Message::new(agent.message(), &index);
        if !message.is_request() {
            return self.anchored.far_legs.nat_source();
        }
        let sent_by = message.via().ok()?.host.ip()?.to_canonical();
        (is_first_hop(&message) && sent_by != source).then_some(source)
    }
}

/// Returns the Q.850 cause of a BYE.
pub(crate) fn cause_of_bye(bytes: &[u8]) -> Option<u16> {
    let mut index = Index::new();
    index.parse(bytes, &Limits::UNLIMITED).ok()?;
    reason(&Message::new(bytes, &index))
}

/// Orders to the user agent.
impl Engine {
    /// Carries out an order of the table of calls about the call with this key. `context`: context of the notice about the result.
    pub(crate) fn order_leg(
        &mut self,
        now: Now,
        (key, context): (u64, u64),
        (party, kind): (Party, OwnRequest),
        out: &mut Outbox,
    ) {
        if self.order_bridge(now, (key, context), (party, kind), out) {
            return;
        }
        let call = self.anchored.endpoints.keys.get(&key).copied();
        let Some((call, entry)) = call.and_then(|call| Some((call, self.anchored.endpoints.calls.get_mut(&call)?)))
        else {
            // No dialog is left.
            return self.report_own(context, 481);
        };
        match (party, kind) {
            (Party::Callee, _) => self.report_own(context, 200),
            (Party::Caller, OwnRequest::Bye) => {
                entry.bye = Some(context);
                if !std::mem::replace(&mut entry.is_ending, true) {
                    self.stack.with_agent(now, out, |agent, round| agent.hang_up_with(round, call, ORDERED));
                    self.close_media(call);
                }
            }
            (Party::Caller, OwnRequest::Question) => {
                let asked = self
                    .stack
                    .with_agent(now, out, |agent, round| agent.request_within(round, call, Method::Options, b"", b""));
                match asked {
                    Ok(request) => entry.question = Some((request, context)),
                    Err(_) => self.report_own(context, 481),
                }
            }
        }
    }

    /// Ends a call: the caller gets a BYE with the reason.
    pub(crate) fn end_endpoint(&mut self, now: Now, call: CallKey, hangup: &Hangup, out: &mut Outbox) {
        let Some(entry) = self.anchored.endpoints.calls.get_mut(&call) else { return };
        let context = entry.context;
        if std::mem::replace(&mut entry.is_ending, true) {
            return;
        }
        self.stack.with_agent(now, out, |agent, round| agent.hang_up_with(round, call, hangup.reason));
        self.close_media(call);
        let event = NoticeEvent::HungUp { by: Party::Callee, cause: Some(hangup.cause) };
        self.take_notice(now, &Notice { context, event }, out);
    }
}
