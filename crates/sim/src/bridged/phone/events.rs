//! Events of the user agent of a phone.

use super::tasks::{Answer, Task};
use super::transfers::{FAILURE, SUCCESS};
use super::{FALLBACK, Phone, Role};
use strowger_core::user_agent::{CallKey, Event, LegKey, Span, auto_answer};
use strowger_core::{Now, Outbox};
use strowger_message::{Method, scan};

impl Phone {
    pub(super) fn on_event(&mut self, now: Now, event: Event, out: &mut Outbox) {
        match event {
            Event::Invited { call, from, offer, .. } => self.invited(now, call, (from, offer)),
            Event::Progress { call, body, offer, .. } => self.progressed(now, call, (body, offer), out),
            Event::Answered { call, body, offer } => {
                let (Some(at), body) = (self.call_of(call), self.text(body)) else { return };
                if offer {
                    let answer = self.calls[at].sound.answer(&body);
                    self.agent(now, out, |agent, round| agent.acknowledge(round, call, &answer));
                } else if !body.is_empty() {
                    self.calls[at].sound.learn(&body);
                }
                self.is_up(now, at);
            }
            Event::Acknowledged { call, body } => self.learn(call, body),
            Event::Confirmed { call, body } => {
                self.learn(call, body);
                if let Some(at) = self.call_of(call) {
                    self.is_up(now, at);
                }
            }
            Event::Offered { call, offer, update } => self.offered(now, call, (offer, update), out),
            Event::Changed { call, body } => {
                self.learn(call, body);
                self.conclude(call, true);
            }
            Event::Unchanged { call, status, wait } => {
                self.conclude(call, false);
                self.acts.glares += u64::from(status == 491);
                if let Some(at) = self.call_of(call).filter(|_| status == 491) {
                    self.plan(now.mono + wait.max(1), Task::Act(at));
                }
            }
            Event::Failed { call, .. } | Event::Redirected { call, .. } | Event::Ended { call, .. } => {
                if let Some(at) = self.call_of(call) {
                    self.calls[at].ended.get_or_insert(now.mono);
                    // A newcomer with an answer has reported its success.
                    if self.calls[at].answered.is_none() {
                        self.report(now, at, FAILURE);
                    }
                }
            }
            Event::Request { .. } => self.asked(now, &event, out),
            Event::Withdrawn { .. }
            | Event::Ending { .. }
            | Event::Refreshed { .. }
            | Event::Unresolved { .. }
            | Event::Reply { .. }
            | Event::Registered { .. }
            | Event::RegistrationFailed { .. }
            | Event::Unregistered { .. } => (),
        }
    }

    fn learn(&mut self, call: CallKey, body: Span) {
        let body = self.text(body);
        if let Some(at) = self.call_of(call).filter(|_| !body.is_empty()) {
            self.calls[at].sound.learn(&body);
        }
    }

    fn conclude(&mut self, call: CallKey, is_granted: bool) {
        if let Some(at) = self.call_of(call) {
            self.calls[at].sound.conclude(is_granted);
            self.acts.granted += u64::from(is_granted);
            self.acts.refused += u64::from(!is_granted);
        }
    }

    /// Takes a call, and plans its answer.
    fn invited(&mut self, now: Now, key: CallKey, (from, offer): (Span, Span)) {
        let message = self.endpoint.agent.message();
        let call_id = scan::call_id(message).map(|at| message[at].to_vec()).unwrap_or_default();
        let is_reliable = message.windows(6).any(|part| part == b"100rel");
        let (number, offer) = (number_in(&self.text(from)), self.text(offer));
        let at = self.begin(now, key, (number, Role::Callee), call_id);
        (self.calls[at].offer, self.calls[at].is_caller_reliable) = (offer, is_reliable);
        for chance in [600, 300] {
            let rings = now.mono + self.random.between(0, 2_000);
            if self.random.chance(chance) {
                self.plan(rings, Task::Ring(at));
            }
        }
        let answers = now.mono + self.random.between(0, self.manners.answers_within);
        let status = *self.random.pick(&[302, 404, 486, 486, 500, 503, 603]);
        let (refuses, rings_on) = (self.random.chance(self.manners.refuses), self.random.chance(200));
        match (refuses, rings_on) {
            // For longer than any caller waits.
            (true, true) => self.plan(now.mono + 2 * FALLBACK, Task::HangUp(at)),
            (true, false) => self.plan(answers, Task::Answer(at, Answer::Refuse(status))),
            (false, _) => self.plan(answers, Task::Answer(at, Answer::Accept)),
        }
    }

    fn progressed(&mut self, now: Now, call: CallKey, (body, offer): (Span, bool), out: &mut Outbox) {
        let (Some(at), body) = (self.call_of(call), self.text(body)) else { return };
        if body.is_empty() {
            return;
        }
        if offer {
            let leg = LegKey { call, leg: Some(self.endpoint.agent.leg()) };
            let answer = self.calls[at].sound.answer(&body);
            // If the call is cancelled meanwhile, no PRACK is due.
            let _ = self.agent(now, out, |agent, round| agent.prack(round, leg, &answer));
        } else {
            self.calls[at].sound.learn(&body);
        }
        self.starts_to_talk(now, at);
    }

    /// Answers or refuses a change of the session.
    fn offered(&mut self, now: Now, call: CallKey, (offer, is_update): (Span, bool), out: &mut Outbox) {
        let (Some(at), offer) = (self.call_of(call), self.text(offer)) else { return };
        if self.random.chance(60) {
            return self.agent(now, out, |agent, round| match is_update {
                true => agent.reject_update(round, call, 488),
                false => agent.reject(round, call, 488),
            });
        }
        let sound = &mut self.calls[at].sound;
        let description = if offer.is_empty() { sound.offer() } else { sound.answer(&offer) };
        self.agent(now, out, |agent, round| match is_update {
            true => agent.answer_update(round, call, &description),
            false => agent.answer(round, call, &description),
        });
    }

    /// Answers a request within a call, or outside of one.
    fn asked(&mut self, now: Now, event: &Event, out: &mut Outbox) {
        if self.agent(now, out, |agent, round| auto_answer(agent, round, event)) {
            return;
        }
        let Event::Request { request, call, method, body } = *event else { return };
        let at = call.and_then(|call| self.call_of(call));
        let reference = at.filter(|_| method == Method::Refer).and_then(|at| self.reference(at));
        let status = match (method, at, reference) {
            (Method::Refer, Some(_), Some(reference)) => self.referred(now, reference),
            (Method::Refer, Some(at), None) if self.random.chance(600) => {
                self.calls[at].is_transferred = true;
                let told = now.mono + self.random.between(0, 3_000);
                self.plan(told, Task::Notify(at, FAILURE));
                202
            }
            (Method::Refer, ..) => 603,
            (Method::Notify, Some(at), _) => {
                if self.text(body).starts_with(SUCCESS.as_bytes()) {
                    self.has_transferred(now, at);
                }
                200
            }
            _ => 501,
        };
        self.agent(now, out, |agent, round| agent.respond(round, request, status, b"", b""));
    }
}

/// Returns the number of a call in the display name of its caller.
pub(super) fn number_in(from: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(from);
    let digits = text.split_once("call").map_or("", |(_, rest)| rest);
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}
