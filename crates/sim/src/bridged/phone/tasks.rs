//! Timed tasks of a phone.

use super::transfers::SUCCESS;
use super::{FALLBACK, Phone, Role, Transfer, server};
use crate::bridged::DOMAIN;
use crate::bridged::sound::{PACE, Wish};
use strowger_core::user_agent::{CallKey, Invite};
use strowger_core::{Now, Outbox};
use strowger_message::Method;

/// Task to perform later; the number is the place of the call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Makes the planned call of this number.
    Call(usize),
    /// Sends a provisional response.
    Ring(usize),
    /// Answers or refuses.
    Answer(usize, Answer),
    /// Makes a request within the call.
    Act(usize),
    /// Sends the outcome of a transfer, a status line.
    Notify(usize, &'static str),
    /// Refers the peer of a call to that of another one.
    Transfer(Transfer),
    /// Follows the reference of this number.
    Follow(usize),
    /// Sends a packet of sound.
    Talk(usize),
    HangUp(usize),
}

/// Answer to a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Accept,
    Refuse(u16),
}

impl Phone {
    pub(super) fn task(&mut self, now: Now, task: Task, out: &mut Outbox) {
        match task {
            Task::Call(plan) => self.call(now, plan, out),
            Task::Ring(at) => self.ring(now, at, out),
            Task::Answer(at, answer) => self.answer(now, at, answer, out),
            Task::Act(at) => self.act(now, at, out),
            Task::Transfer(transfer) => self.transfer(now, transfer, out),
            Task::Follow(reference) => self.follow(now, reference, out),
            Task::Notify(at, outcome) => {
                let lines = b"Event: refer\r\nSubscription-State: terminated;reason=noresource\r\n\
                              Content-Type: message/sipfrag\r\n";
                self.ask(now, at, b"NOTIFY", (lines, outcome.as_bytes()), out);
            }
            // `wake` does this.
            Task::Talk(_) => (),
            Task::HangUp(at) => {
                let key = self.calls[at].key;
                self.agent(now, out, |agent, round| agent.hang_up(round, key));
            }
        }
    }

    /// Returns a Call-ID that no other call has.
    pub(super) fn new_call_id(&mut self) -> Vec<u8> {
        format!("{:016x}-{:08x}", self.random.u64(), self.random.u64() as u32).into_bytes()
    }

    /// Makes a planned call.
    fn call(&mut self, now: Now, plan: usize, out: &mut Outbox) {
        let plan = self.plans[plan].clone();
        let call_id = self.new_call_id();
        let from = format!("\"call{}\" <sip:{}@{DOMAIN}>", plan.number, self.user);
        // The key of a call is known once its INVITE is written.
        let at = self.begin(now, CallKey::from_u64(0), (plan.number, Role::Caller), call_id.clone());
        let offer = if plan.lacks_offer { Vec::new() } else { self.calls[at].sound.offer() };
        let invite = Invite { call_id: &call_id, ..Invite::new(from.as_bytes(), plan.to.as_bytes(), server(), &offer) };
        let key = self.agent(now, out, |agent, round| agent.invite(round, &invite)).expect("both addresses are right");
        self.calls[at].key = key;
        self.plan(now.mono + plan.patience, Task::HangUp(at));
    }

    /// Rings, perhaps with early media.
    fn ring(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let is_early = self.random.chance(400);
        let status = *self.random.pick(&[180, 180, 183, 181]);
        let call = &self.calls[at];
        if call.answered.is_some() || call.ended.is_some() {
            return;
        }
        let (key, is_reliable) = (call.key, self.manners.is_reliable && call.is_caller_reliable);
        // The first offer must not be in an unreliable response (RFC 3262 section 5).
        let has_description = is_early && !call.is_described && (is_reliable || !call.offer.is_empty());
        let description = if has_description { self.description(at) } else { Vec::new() };
        self.agent(now, out, |agent, round| agent.ring(round, key, status, &description));
        if has_description {
            self.acts.early += 1;
            self.calls[at].is_described = is_reliable;
            self.starts_to_talk(now, at);
        }
    }

    /// Returns the answer to the offer of the INVITE, or an offer if it had none.
    fn description(&mut self, at: usize) -> Vec<u8> {
        let call = &mut self.calls[at];
        if call.offer.is_empty() {
            return call.sound.offer();
        }
        call.sound.answer(&call.offer)
    }

    fn answer(&mut self, now: Now, at: usize, answer: Answer, out: &mut Outbox) {
        let call = &self.calls[at];
        if call.ended.is_some() || call.answered.is_some() {
            return;
        }
        let (key, is_described) = (call.key, call.is_described);
        match answer {
            Answer::Accept => {
                // A reliable response had the description.
                let description = if is_described { Vec::new() } else { self.description(at) };
                self.calls[at].answered = Some(now.mono);
                self.agent(now, out, |agent, round| agent.answer(round, key, &description));
                self.starts_to_talk(now, at);
            }
            Answer::Refuse(status) => self.agent(now, out, |agent, round| agent.reject(round, key, status)),
        }
    }

    /// Plans the sound of a call.
    pub(super) fn starts_to_talk(&mut self, now: Now, at: usize) {
        if !std::mem::replace(&mut self.calls[at].talks, true) {
            let begins = now.mono + self.random.between(0, PACE);
            self.plan(begins, Task::Talk(at));
        }
    }

    /// Plans the requests within an answered call, and its end. One of both parties hangs up, the other one waits.
    pub(super) fn is_up(&mut self, now: Now, at: usize) {
        self.calls[at].answered.get_or_insert(now.mono);
        self.starts_to_talk(now, at);
        if std::mem::replace(&mut self.calls[at].is_up, true) {
            return;
        }
        self.report(now, at, SUCCESS);
        let hangs_up = self.calls[at].role.is_caller() == self.calls[at].number.is_multiple_of(2);
        let lasts = self.random.between(500, self.manners.lasts);
        self.plan(now.mono + if hangs_up { lasts } else { FALLBACK }, Task::HangUp(at));
        for _ in 0..self.random.between(0, self.manners.busy) {
            // At full seconds, so that requests of both sides cross.
            let moment = now.mono + self.random.between(200, self.manners.lasts);
            self.plan(moment.next_multiple_of(1_000), Task::Act(at));
        }
    }

    /// Makes a request within a call.
    fn act(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let call = &self.calls[at];
        if call.ended.is_some() || call.answered.is_none() {
            return;
        }
        match self.random.between(0, 15) {
            0..8 => self.change(now, at, out),
            8 => {
                // The peer offers.
                let key = self.calls[at].key;
                let _ = self.agent(now, out, |agent, round| agent.reinvite(round, key, b""));
            }
            9 => {
                self.calls[at].is_transferred = true;
                let line = format!("Refer-To: <sip:dave@{DOMAIN}>\r\n");
                self.ask(now, at, Method::Refer.text(), (line.as_bytes(), b""), out);
            }
            10 | 11 => self.ask(now, at, b"INFO", (b"Content-Type: text/plain\r\n", b"a few words"), out),
            12 => self.ask(now, at, b"MESSAGE", (b"Content-Type: text/plain\r\n", b"a few words"), out),
            13 => self.ask(now, at, b"OPTIONS", (b"", b""), out),
            _ => self.ask(now, at, b"BLURB", (b"", b""), out),
        }
    }

    /// Offers another session: hold, the end of a hold, another port, or the same again.
    fn change(&mut self, now: Now, at: usize, out: &mut Outbox) {
        let (key, holds) = (self.calls[at].key, self.calls[at].sound.holds());
        let wish = match holds {
            true => Wish::Both,
            false => *self.random.pick(&[Wish::SendOnly, Wish::Inactive, Wish::NoAddress, Wish::Both]),
        };
        let has_new_port = wish == Wish::Both && self.random.chance(500);
        let port = has_new_port.then(|| self.new_port());
        let is_update = self.manners.updates && self.random.chance(400);
        let before = self.calls[at].sound.clone();
        let offer = self.calls[at].sound.change(wish, port);
        let asked = self.agent(now, out, |agent, round| match is_update {
            true => agent.update(round, key, &offer),
            false => agent.reinvite(round, key, &offer),
        });
        // Another change is open, and this offer was not sent.
        if asked.is_err() {
            self.calls[at].sound = before;
        }
    }

    /// Sends another request within a call, with these header lines and this body.
    pub(super) fn ask(&mut self, now: Now, at: usize, method: &[u8], (lines, body): (&[u8], &[u8]), out: &mut Outbox) {
        let key = self.calls[at].key;
        let asked = self.agent(now, out, |agent, round| agent.request_within_named(round, key, method, lines, body));
        self.acts.requests += u64::from(asked.is_ok());
    }
}
